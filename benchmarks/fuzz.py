"""Coverage-guided fuzzing of everything that reads what others wrote; only a UserError of one line may come out.

python benchmarks/fuzz.py text 900          (seconds; needs `pip install atheris`; writes benchmarks/results/fuzz.json)
python benchmarks/fuzz.py checkpoint 900
python benchmarks/fuzz.py readers 900
python benchmarks/fuzz.py readers FILE      (tries one input that was kept, such as a crash)

An input that is no UserError's is kept in fuzz/TARGET/crash-*; each one found so far is a test in tests/test_regressions.py.
"""

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "fuzz.json"
WORK = Path("fuzz")
LONGEST = {"text": 8192, "checkpoint": 65_536, "readers": 16_384}
"""Bytes of an input."""
MEMORY = 3072
"""Megabytes that one input may make the process take."""
PATIENCE = 20
"""Seconds that one input may take."""
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 8, 2**31, 2**63, 2**64 - 1, 10**9, 10**19, 0.0, 0.5, 1e-320, 1e308, -1.5, "", "x",
    "+", "\ud800", "\x00", "/etc/passwd", "../..", [], {}, [[]], [0], ["+"], {"name": "rope"}, {"name": "local"}, "muon",
    {"name": "cot"}, {"name": "stable", "states": 3}, {"name": []}, "authors", "topological", 97, 4096, 32_767,
)  # fmt: skip
"""Values put in place of others in JSON."""


def check_message(message: str, most: int) -> None:
    """Raise an AssertionError for what a user should not have to read."""
    assert len(message) < most, f"a message of {len(message)} characters"
    assert "\n" not in message, "a message of several lines"


def text_target(folder: Path) -> tuple[Callable[[bytes], None], list[bytes]]:
    """Problems as text: what is read is written and read again, and solved."""
    from latentloop.config import GraphConfig, TaskConfig
    from latentloop.errors import UserError
    from latentloop.task.graph import sample
    from latentloop.task.oracle import solve
    from latentloop.task.splits import sampled_generator
    from latentloop.task.text import parse, to_text

    tasks = TaskConfig.named("all"), TaskConfig.named("add", modulus=2, names=3)

    def once(data: bytes) -> None:
        text = data.decode("utf-8", errors="surrogateescape")
        for task in tasks:
            try:
                problems = parse(text, task)
            except UserError as error:
                check_message(str(error), 300)
                continue
            values = solve(problems).values
            assert ((values >= 0) & (values < task.modulus)).all(), "a value out of range"
            again = parse(to_text(problems), task)
            assert to_text(again) == to_text(problems), "not the same problem when written and read again"

    drawn = [sample(tasks[0], GraphConfig(nodes=n, leaves=2), 1, sampled_generator(n)) for n in (3, 8, 20)]
    seeds = [to_text(problems).encode() for problems in drawn]
    more = ("1 = x0 ; x0 + x0 -> x1 # note\nx1 × x0 * x1 = x2", "x1 = x0 ; x0 = x1", "x0 = 5", "-1 = x0", "(x1) = x2")
    return once, seeds + [line.encode() for line in more]


def checkpoint_target(folder: Path) -> tuple[Callable[[bytes], None], list[bytes]]:
    """Checkpoints of strangers: one file replaced, hashes right; what is accepted is built, asked and resumed."""
    import torch
    from rich.console import Console

    from latentloop.config import RunConfig
    from latentloop.errors import UserError
    from latentloop.evaluate.pretrained import LatentLoop
    from latentloop.model.build import build_model
    from latentloop.train.checkpoint import CONFIG, MANIFEST, METRICS, TRAINING, WEIGHTS, read_checkpoint
    from latentloop.train.devices import make_fabric
    from latentloop.train.folder import settle
    from latentloop.train.limits import check_memory
    from latentloop.train.loop import train
    from latentloop.train.optimizer import MovingAverage, make_optimizer
    from latentloop.train.state import TrainingState

    torch.set_num_threads(1)
    run = RunConfig.from_dict(
        {
            "method": {"name": "discrete"},
            "task": {"modulus": 3, "names": 4},
            "graph": {"nodes": 4, "leaves": 2},
            "model": {"layers": 1, "heads": 1, "width": 4, "mlp_ratio": 1, "positions": {"name": "nope"}},
            "train": {"steps": 2, "batch": 1, "validation_problems": 1, "ema": 0.5},
        }
    )
    quiet = Console(stderr=True, quiet=True)
    train(run, folder / "run", make_fabric(run), resume=False, console=quiet)
    step = next((folder / "run").glob("step-*"))
    names = (CONFIG, METRICS, MANIFEST, WEIGHTS, TRAINING, "last")
    contents = {name: (step / name).read_bytes() for name in names[:-1]} | {"last": (folder / "run/last").read_bytes()}
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in (WEIGHTS, TRAINING, CONFIG, METRICS)}

    def once(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else CONFIG
        path = folder / "run/last" if name == "last" else step / name
        path.write_bytes(data[1:])
        if name in digests:
            signed = digests | {name: hashlib.sha256(data[1:]).hexdigest()}
            (step / MANIFEST).write_text(json.dumps(signed))
        try:
            checkpoint = read_checkpoint(step, training=True)
            check_memory(checkpoint.run)
            trained = LatentLoop(checkpoint)
            for _ in range(2):  # NumPy answers first, and torch once it is built
                trained.solve("1 = x0 ; x0 + x0 = x1", cap=2)
                assert trained.model
            if zlib.crc32(data) % 4:  # to resume costs as much as all before
                return
            settle(folder / "run", lambda line: None)
            model = build_model(checkpoint.run)
            average = MovingAverage(model, checkpoint.run.train.ema) if checkpoint.run.train.ema else None
            optimizer = make_optimizer(model, checkpoint.run.train)
            TrainingState(run=checkpoint.run, model=model, optimizer=optimizer, average=average).restore(folder / "run")
        except UserError as error:
            check_message(str(error), 1000)
        finally:
            if not step.is_dir():
                shutil.rmtree(folder / "run")
                step.mkdir(parents=True)
            for each, content in contents.items():
                place = folder / "run/last" if each == "last" else step / each
                place.write_bytes(content)

    return once, [bytes([number]) + contents[name] for number, name in enumerate(names)]


def readers_target(folder: Path) -> tuple[Callable[[bytes], None], list[bytes]]:
    """Results, metrics and JSON lines: what is answered is valid JSON again."""
    from types import SimpleNamespace

    from latentloop.commands.models import unfinished
    from latentloop.config import RunConfig, TaskConfig
    from latentloop.errors import UserError
    from latentloop.evaluate.solve import answer_lines, oracle_solver
    from latentloop.files import parse_json, read_json, to_json
    from latentloop.train.lock import LOCK, locked
    from latentloop.train.log import RunLog, read_log

    task = TaskConfig.named("all")
    trained: Any = SimpleNamespace(sha256="0" * 64, run=RunConfig())
    settings = {"sizes": [8, 16]}
    path = folder / "file"
    log = folder / "metrics.jsonl"

    def lines(data: bytes) -> None:
        for answer in answer_lines(data.splitlines(keepends=True), task, oracle_solver):
            text = json.dumps(answer, allow_nan=False)
            assert "values" in answer or len(answer["error"]) < 400, "a message of more than 400 characters"
            assert json.loads(text) == answer

    def metrics(data: bytes) -> None:
        log.write_bytes(data)
        rows = read_log(folder)
        RunLog(folder, 5, lambda line: None).close()
        assert [row["step"] for row in read_log(folder)] == [row["step"] for row in rows if row["step"] <= 5]
        shutil.rmtree(folder / "events", ignore_errors=True)

    def result(data: bytes) -> None:
        path.write_bytes(data)
        document = read_json(path)
        parse_json(to_json(document).encode())
        unfinished(path, trained, settings)

    def config(data: bytes) -> None:
        path.write_bytes(data)
        run = RunConfig.from_dict(read_json(path))
        assert RunConfig.from_dict(json.loads(json.dumps(run.to_dict()))) == run

    def lock(data: bytes) -> None:
        (folder / LOCK).write_bytes(data)
        with locked(folder), locked(folder):
            raise AssertionError("two holders")

    readers = lines, metrics, result, config, lock

    def once(data: bytes) -> None:
        try:
            readers[data[0] % len(readers) if data else 0](data[1:])
        except UserError as error:
            check_message(str(error), 1000)

    document = {
        "rows": [{"nodes": 8, "solved": 1.0}], "curves": {"8": {}}, "interrupted": True, "settings": settings,
        "model": {"sha256": "0" * 64, "config": RunConfig().to_dict()},
    }  # fmt: skip
    seeds = [
        b'{"id": 1, "text": "1 = x0 ; x0 + x0 = x1"}\n{"id": "b", "text": "x0 = x0"}\n[1]\n',
        b'{"kind": "train", "step": 2, "loss": 0.5}\n{"kind": "validation", "step": 4, "loss": null}\n{"kind": "tr',
        json.dumps(document).encode(),
        json.dumps(RunConfig().to_dict()).encode(),
        b"process 12 on host\n",
    ]
    return once, [bytes([number]) + seed for number, seed in enumerate(seeds)]


TARGETS = {"text": text_target, "checkpoint": checkpoint_target, "readers": readers_target}


def mutate_json(
    data: bytes, longest: int, seed: int, seeds: list[bytes], mutate: Callable[[bytes, int], bytes]
) -> bytes:
    """Change values of a JSON document half of the time, and bytes otherwise; the first byte chooses the file.

    Now and then begin anew with a file that is whole: to coverage it looks like any other one that was accepted.
    """
    rng = random.Random(seed)
    if rng.random() < 0.25:
        data = rng.choice(seeds)
    if rng.random() < 0.5:
        return mutate(data, longest)
    try:
        head, body = data[:1], data[1:]
        end = 8 + int.from_bytes(body[:8], "little")
        if body[8:9] == b"{" and end <= len(body):  # safetensors: a length, a header, and the rest
            header = _changed(json.loads(body[8:end]), rng)
            return (head + len(header).to_bytes(8, "little") + header + body[end:])[:longest]
        try:
            changed = _changed(json.loads(body), rng)
        except ValueError:  # JSON lines
            changed = b"\n".join(_changed(json.loads(line), rng) for line in body.splitlines())
        return (head + changed)[:longest]
    except (ValueError, RecursionError, IndexError):
        return mutate(data, longest)


def _changed(document: Any, rng: random.Random) -> bytes:
    """Replace, copy or remove one value somewhere in a document."""
    places: list[tuple[Any, Any]] = []
    waiting = [document] if isinstance(document, dict | list) else []
    while waiting:
        value = waiting.pop()
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        for key, inner in items:
            places.append((value, key))
            if isinstance(inner, dict | list):
                waiting.append(inner)
    if places:
        holder, key = rng.choice(places)
        action = rng.randrange(6)
        if action == 0:
            del holder[key]
        elif action == 1:
            other, name = rng.choice(places)
            if name in other if isinstance(other, dict) else name < len(other):
                holder[key] = json.loads(json.dumps(other[name]))
        elif action == 2 and isinstance(holder, dict):
            holder[rng.choice(("", "x", "step", "interrupted", "text", "name", "x" * 2000))] = rng.choice(HOSTILE)
        elif action == 3 and isinstance(holder[key], int | float):
            holder[key] = holder[key] * rng.choice((-1, 2, 10, 1000)) + rng.choice((0, 1, -1))
        else:
            holder[key] = rng.choice(HOSTILE)
    return json.dumps(document).encode()


def fuzz(target: str, corpus: Path, seconds: int) -> None:
    """Fuzz one target in this process; libFuzzer ends it."""
    import atheris  # pyrefly: ignore

    with atheris.instrument_imports(include=["latentloop"]):
        import latentloop.commands.models
        import latentloop.evaluate.pretrained
        import latentloop.train.loop  # noqa: F401
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    once, seeds = TARGETS[target](folder)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}", f"-max_len={LONGEST[target]}", f"-rss_limit_mb={MEMORY}", f"-timeout={PATIENCE}",
        f"-artifact_prefix={corpus.parent}/", "-print_final_stats=1",
    ]  # fmt: skip
    mutator: dict[str, Any] = {}
    if target != "text":
        mutator["custom_mutator"] = lambda data, size, seed: mutate_json(data, size, seed, seeds, atheris.Mutate)
    atheris.Setup([sys.argv[0], *options, str(corpus)], once, **mutator)
    atheris.Fuzz()


def replay(target: str, file: Path) -> None:
    """Try one input; an exception other than UserError comes out."""
    with tempfile.TemporaryDirectory() as folder:
        TARGETS[target](Path(folder))[0](file.read_bytes())
    print("one line, or none: as it should be")


def main(target: str, what: str) -> None:
    """Fuzz in a process of its own, and add its counts to the results."""
    from latentloop.files import read_json, write_json
    from latentloop.provenance import provenance

    made = provenance()  # of the code that is loaded now, not of what it becomes meanwhile
    corpus = WORK / target / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    clock = time.monotonic()
    program = [sys.executable, __file__, "--here", target, what]
    done = subprocess.run(program, stderr=subprocess.PIPE, text=True, errors="replace", env=os.environ)
    seconds = round(time.monotonic() - clock)
    (WORK / target / "log.txt").write_text(done.stderr)
    executed = re.search(r"number_of_executed_units:\s+(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    crashed = done.returncode != 0
    if crashed:
        print("\n".join(done.stderr.splitlines()[-40:]))
    session = {
        "target": target,
        "seconds": seconds,
        "inputs": int(executed[1]) if executed else None,
        "edges": int(covered[-1]) if covered else None,
        "crashes": int(crashed),
        "provenance": made,
    }
    sessions = read_json(RESULTS)["sessions"] if RESULTS.exists() else []
    write_json(RESULTS, {"sessions": [*sessions, session]})
    print(
        f"{target}: {session['inputs']} inputs in {seconds} s, {session['edges']} edges, {session['crashes']} crashes"
    )
    sys.exit(int(crashed))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        fuzz(sys.argv[2], WORK / sys.argv[2] / "corpus", int(sys.argv[3]))
    elif len(sys.argv) != 3 or sys.argv[1] not in TARGETS:
        print(__doc__)
        sys.exit(2)
    elif sys.argv[2].isdecimal():
        main(sys.argv[1], sys.argv[2])
    else:
        replay(sys.argv[1], Path(sys.argv[2]))
