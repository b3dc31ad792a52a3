"""Faults on purpose: what is lost when a process, a disk or a copy fails in the middle of the work.

python benchmarks/faults.py            (writes benchmarks/results/faults.json; `make faults` is the same)
python benchmarks/faults.py copies     (only the scenarios named, again; the others keep their counts)

Each command is the real one, in a process of its own that is forked from this one, so that torch is imported once. A fault
is *lost* if anything that was finished is gone, a traceback comes out, or what is done again differs by a bit from a run
that was never disturbed.
"""

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from latentloop.cli import main
from latentloop.commands import models, problems, training, trust  # noqa: F401  (imported once, before any fork)
from latentloop.evaluate import certify, generalization, pretrained, stress  # noqa: F401
from latentloop.files import read_json, write_json
from latentloop.provenance import provenance
from latentloop.report import console  # noqa: F401
from latentloop.train import devices, loop  # noqa: F401
from latentloop.train.log import read_log

RESULTS = Path(__file__).parent / "results" / "faults.json"
STEPS = ("--steps", "12", "--validate-every", "4", "--checkpoint-every", "2", "--log-every", "2")
METHODS = ("corrected", "stable", "cot", "continuous")
"""Methods that are trained: with random corruption, sampled states, written tokens, hidden vectors."""
EVALUATION = ("--sizes", "4", "6", "8", "--instances", "48")
PATIENCE = 120
"""Seconds until a process counts as hanging."""
FILES = ("model.safetensors", "training.safetensors", "config.json")


class LostError(Exception):
    """Something finished is gone, wrong, or ended in a traceback."""


@dataclass(frozen=True)
class Done:
    """How a process ended."""

    code: int
    out: str
    err: str
    seconds: float

    def check(self, *codes: int) -> "Done":
        """Raise a LostError unless it ended with one of these codes, and without a traceback."""
        if self.code not in codes or "Traceback" in self.err:
            raise LostError(f"exit code {self.code}, expected {codes}: {self.err[-600:]}")
        return self

    def refused(self) -> "Done":
        """Raise a LostError unless it ended with exit code 2 and one line that says why."""
        self.check(2)
        if not self.err.splitlines()[-1].startswith("error: ") or len(self.err.splitlines()[-1]) > 600:
            raise LostError(f"not refused in one line: {self.err[-600:]}")
        return self


@dataclass
class Process:
    """A command in a forked process."""

    words: tuple[str, ...]
    folder: Path
    kill_before: int | None = None
    """Kill it before this file operation, counted from 0, in the folder."""
    pid: int = field(init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = Path(tempfile.mkdtemp(prefix="log-", dir=ROOT))
        for name in ("out", "err"):
            (self.log / name).touch()
        self.started = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            self._run()

    def _run(self) -> None:
        code = 1
        try:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(self.log / name, os.O_WRONLY), number)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
            os.chdir(self.folder)
            sys.argv = ["latentloop", *self.words]
            if self.kill_before is not None:
                kill_at_operation(self.kill_before)
            main()
            code = 0
            (self.log / "modules").write_text("\n".join(sys.modules))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self) -> Done:
        """Wait for its end; a LostError if that does not come."""
        while time.monotonic() - self.started < PATIENCE:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                out, err = ((self.log / name).read_text(errors="replace") for name in ("out", "err"))
                return Done(os.waitstatus_to_exitcode(status), out, err, time.monotonic() - self.started)
            time.sleep(0.002)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise LostError(f"hangs: {' '.join(self.words)}")


ROOT = Path()
RNG = random.Random(0)


def warm_up() -> None:
    """Import here, once, all that training imports on its way."""
    process = Process(start("stable"), fresh("warm"))
    process.wait().check(0)
    for name in (process.log / "modules").read_text().splitlines():
        with suppress(Exception):
            importlib.import_module(name)


def kill_at_operation(number: int) -> None:
    """Make this process kill itself before its ``number``-th change of a file or folder."""
    counted = 0
    events = "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "shutil.rmtree"

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal counted
        writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writing and str(arguments[0]) != os.devnull) or event in events:
            if counted == number:
                os.kill(os.getpid(), signal.SIGKILL)
            counted += 1

    sys.addaudithook(hook)


def command(*words: Any, folder: Path) -> Done:
    """Run a command to its end."""
    return Process(tuple(map(str, words)), folder).wait()


def start(method: str, name: str = "run") -> tuple[str, ...]:
    """Return the words that begin a run."""
    return ("train", "--preset", f"tiny-{method}", *STEPS, "--output", name)


def whole(method: str) -> Path:
    """Return a run that was never disturbed."""
    folder = ROOT / "whole" / method
    if not folder.exists():
        command(*start(method, method), folder=folder.parent).check(0)
    return folder


def fresh(name: str) -> Path:
    """Return a new empty folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=ROOT))
    folder.rmdir()
    return folder


def finish(folder: Path, method: str) -> None:
    """Resume a run until it is done, then compare it with one that was never disturbed."""
    command(
        *(("train", "--resume", "run") if (folder / "run/config.json").is_file() else start(method)), folder=folder
    ).check(0)
    same_run(folder / "run", whole(method))


def same_run(run: Path, other: Path) -> None:
    """Raise a LostError unless weights, optimizer state and measurements are equal bit for bit."""
    for pointer in ("last", "best"):
        steps = [folder / (folder / pointer).read_text().strip() for folder in (run, other)]
        for name in FILES:
            if (steps[0] / name).read_bytes() != (steps[1] / name).read_bytes():
                raise LostError(f"{name} of {pointer} differs")
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in read_log(folder)] for folder in (run, other)]
    # a measurement spans the steps since the one before: where a run stopped between two, the next one is of fewer steps
    if [(row["kind"], row["step"]) for row in rows[0] if row["step"] % 2 == 0] != [
        (r["kind"], r["step"]) for r in rows[1]
    ]:
        raise LostError("measurements are missing or doubled")
    if [row for row in rows[0] if row["kind"] == "validation"] != [
        row for row in rows[1] if row["kind"] == "validation"
    ]:
        raise LostError("validation differs")
    if list(run.rglob(".*.part")):
        raise LostError("temporary files are left")


def same_result(path: Path, other: Path) -> None:
    """Raise a LostError unless two results are equal but for where and when they were made."""
    documents = [json.loads(file.read_text()) for file in (path, other)]
    for document in documents:
        document.pop("provenance")
        document["model"].pop("checkpoint")
    if documents[0] != documents[1]:
        raise LostError(f"{path.name} differs")
    tables = [file.with_suffix(".csv") for file in (path, other)]
    if tables[1].exists() and tables[0].read_text() != tables[1].read_text():
        raise LostError(f"{tables[0].name} differs")


def copied(method: str, name: str = "copy") -> Path:
    """Return a folder with a run stopped in the middle."""
    middle = ROOT / "middle" / method
    if not middle.exists():
        process = Process(start(method, method), middle.parent)
        wait_for(lambda: steps_of(middle) >= 6)
        process.signal(signal.SIGTERM)
        process.wait().check(143)
        if not 6 <= steps_of(middle) < 12:
            raise LostError(f"stopped at step {steps_of(middle)}")
    folder = fresh(name)
    shutil.copytree(middle, folder / "run")
    return folder


def steps_of(run: Path) -> int:
    """Return the step of the last checkpoint, 0 before the first one."""
    try:
        return int((run / "last").read_text().removeprefix("step-"))
    except (OSError, ValueError):
        return 0


def wait_for(reached: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise LostError("waited in vain")
        time.sleep(0.002)


# Scenarios: each yields once for every fault, after it has checked that nothing is lost.


def kill_training() -> Iterator[str]:
    """SIGKILL at a random moment of training, again and again, until the run is done."""
    total = 0
    seconds = {method: command(*start(method), folder=fresh("timed")).check(0).seconds for method in METHODS}
    while total < 40:
        method = METHODS[total % len(METHODS)]
        folder = fresh("kill")
        killed = 0
        while True:
            before = steps_of(folder / "run")
            resume = (folder / "run/config.json").is_file()
            process = Process(("train", "--resume", "run") if resume else start(method), folder)
            if killed < 4:
                time.sleep(RNG.uniform(0, 0.7 * seconds[method]))
            else:
                process.wait().check(0)
                break
            process.signal(signal.SIGKILL)
            if process.wait().code != -signal.SIGKILL:
                break
            killed += 1
            total += 1
            if steps_of(folder / "run") < before:
                raise LostError(f"step {before} became step {steps_of(folder / 'run')}")
            yield "killed"
        same_run(folder / "run", whole(method))


def kill_at_files() -> Iterator[str]:
    """SIGKILL before every third change of a file or folder that training makes, one after the other."""
    whole("stable")
    for number in range(RNG.randrange(3), 10_000, 3):
        folder = fresh("operation")
        done = Process(start("stable"), folder, kill_before=number).wait()
        if done.code != -signal.SIGKILL:
            done.check(0)
            return
        finish(folder, "stable")
        yield "killed"


def kill_while_settling() -> Iterator[str]:
    """SIGKILL before every second change of a file when a copy with folders in place of pointers is resumed."""
    for number in range(0, 24, 2):
        folder = copied("stable")
        with_folders(folder / "run")
        done = Process(("train", "--resume", "run"), folder, kill_before=number).wait()
        if done.code != -signal.SIGKILL:
            done.check(0)
        finish(folder, "stable")
        yield "killed"


def kill_evaluation() -> Iterator[str]:
    """SIGKILL at random moments, and at file operations, of an evaluation; the same command again gives the same."""
    model = whole("stable")
    words = ("evaluate", str(model), *EVALUATION, "--output")
    expected = ROOT / "evaluation.json"
    seconds = command(*words, expected, folder=ROOT).check(0).seconds
    for number in range(45):
        folder = fresh("evaluation")
        chosen = None if number < 30 else number - 30
        process = Process((*words, "result.json"), folder, kill_before=chosen)
        if chosen is None:
            time.sleep(RNG.uniform(0, seconds))
            process.signal(signal.SIGKILL)
        if process.wait().code != -signal.SIGKILL:
            continue
        kept = 0
        if (folder / "result.json").exists():
            kept = len(json.loads((folder / "result.json").read_text())["rows"])
        command(*words, "result.json", folder=folder).check(0)
        same_result(folder / "result.json", expected)
        yield f"killed, {kept} of 3 sizes kept"


def terminate() -> Iterator[str]:
    """SIGTERM and Ctrl-C at random moments of training: saved, exit code 143 or 130, and resumed."""
    for number in range(16):
        method = METHODS[number % len(METHODS)]
        kind, code = ((signal.SIGTERM, 143), (signal.SIGINT, 130))[number // 4 % 2]
        folder = fresh("stop")
        process = Process(start(method), folder)
        wait_for(lambda run=folder / "run": (run / "metrics.jsonl").exists())
        time.sleep(RNG.uniform(0.05, 0.3))
        process.signal(kind)
        done = process.wait().check(code, 0)
        if done.code and steps_of(folder / "run") == 0:
            raise LostError("nothing was saved")
        finish(folder, method)
        if done.code:
            yield f"exit code {code}, saved"


def terminate_others() -> Iterator[str]:
    """SIGTERM and Ctrl-C in evaluate, certify and dataset: what is finished is kept."""
    model = str(whole("stable"))
    small = str(fresh("small") / "run")  # few values, so that there are few entries to certify
    command(*start("stable", small), "--modulus", "5", folder=Path(small).parent).check(0)
    jobs = {
        "evaluate": ("evaluate", model, "--sizes", "4", "6", "8", "--instances", "256", "--output"),
        "certify": ("certify", small, "--sizes", "8", "10", "..", "24", "--output"),
    }
    for words in jobs.values():
        expected = fresh("expected") / "result.json"
        command(*words, expected, folder=expected.parent).check(0, 1)
        for kind, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)) * 2:
            folder = fresh("interrupted")
            path = folder / "result.json"
            process = Process((*words, "result.json"), folder)
            wait_for(path.exists)
            process.signal(kind)
            done = process.wait().check(code, 0, 1)
            if done.code == code:
                kept = json.loads(path.read_text())
                if not kept["interrupted"] or "interrupted" not in done.err:
                    raise LostError("not marked as interrupted")
            command(*words, "result.json", folder=folder).check(0, 1)
            same_result(path, expected)
            if done.code == code:
                yield f"exit code {code}, kept"
    for kind, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)) * 2:
        for suffix in ("jsonl", "npz"):
            folder = fresh("dataset")
            process = Process(("dataset", "--count", "40000", "--nodes", "16", "--output", f"data.{suffix}"), folder)
            time.sleep(RNG.uniform(0.3, 1.0))
            process.signal(kind)
            done = process.wait().check(code, 0)
            if any(folder.glob(".*")):
                raise LostError("temporary files are left")
            if done.code == code and (folder / f"data.{suffix}").exists():
                settings = json.loads((folder / f"data.{suffix}.config.json").read_text())
                if suffix == "jsonl" and len((folder / "data.jsonl").read_bytes().splitlines()) != settings["count"]:
                    raise LostError("the settings name another number of problems")
            yield f"exit code {done.code}"


@contextmanager
def mounted(size: str) -> Iterator[Path]:
    """Mount a small disk in memory."""
    place = fresh("disk")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def full_disk() -> Iterator[str]:
    """A disk that is full at random moments of training or from the start: one line, and resumed where there is room."""
    for number in range(14):
        method = METHODS[number % len(METHODS)]
        whole(method)
        with mounted("size=8m" if number % 7 else "size=8m,nr_inodes=24") as disk:
            room = RNG.choice((0, 8, 64, 256, 600, 1200, 2000)) * 1024
            if number % 2:  # from the start
                fill(disk, room)
                done = command(*start(method), folder=disk / "work").check(0, 2)
            else:
                process = Process(start(method), disk / "work")
                wait_for(lambda run=disk / "work/run": steps_of(run) >= 2 or not (run / "metrics.jsonl").exists())
                fill(disk, room // 4)
                done = process.wait().check(0, 2)
            if done.code:
                done.refused()
            (disk / "ballast").unlink(missing_ok=True)
            if number % 7 == 0:
                folder = fresh("moved")
                shutil.copytree(disk / "work", folder)
            else:
                folder = disk / "work"
            finish(folder, method)
            yield "refused in one line, resumed" if done.code else "went on"
    for room in (0, 4, 8):
        with mounted("size=1m") as disk:
            fill(disk, room * 1024)
            model = whole("stable")
            done = command("evaluate", model, *EVALUATION, "--output", disk / "result.json", folder=ROOT).check(0, 2)
            if done.code and (list(disk.glob(".*")) or not valid_or_absent(disk / "result.json")):
                raise LostError("half a result is left")
            yield "refused in one line" if done.refused() else ""
    with mounted("size=1m") as disk:
        command("dataset", "--count", "100000", "--output", disk / "data.jsonl", folder=ROOT).refused()
        fill(disk, 64 * 1024)
        command("dataset", "--count", "200", "--output", disk / "data.npz", folder=ROOT).refused()
        if {path.name for path in disk.iterdir()} - {"ballast"}:
            raise LostError("half a data set is left")
        yield "refused in one line"


def valid_or_absent(path: Path) -> bool:
    """Return whether a result is whole, or not there."""
    return not path.exists() or isinstance(json.loads(path.read_text()), dict)


def fill(disk: Path, room: int) -> None:
    """Fill a disk but for so many bytes."""
    disk.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(disk).free
    with suppress(OSError), (disk / "ballast").open("wb") as file:
        file.write(b"\0" * max(free - room, 0))


def read_only() -> Iterator[str]:
    """A disk that is read-only: writing is refused in one line, reading works."""
    with mounted("size=16m") as disk:
        shutil.copytree(copied("stable") / "run", disk / "run")
        before = snapshot(disk)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        result = disk / "result.json"
        for words in (
            ("train", "--resume", "run"), ("train", "--preset", "tiny-stable", "--output", "new"),
            ("evaluate", "run", *EVALUATION, "--output", result), ("certify", "run", "--sizes", "8", "--output", result),
            ("stress", "run", "--nodes", "8", "--instances", "2", "--output", result),
            ("dataset", "--output", "data.jsonl"), ("draw", "--output", "graph.png"),
        ):  # fmt: skip
            command(*words, folder=disk).refused()
            yield "refused in one line"
        command("evaluate", disk / "run", *EVALUATION, "--output", ROOT / "elsewhere.json", folder=ROOT).check(0)
        if snapshot(disk) != before:
            raise LostError("a file changed")
        yield "read"


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the content of all files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage() -> Iterator[str]:
    """Flip a bit, cut off, empty or delete every file of a run folder: refused with nothing changed, or harmless."""
    template = copied("stable")
    names = sorted(snapshot(template / "run"))
    for name in names:
        for kind in ("flip", "flip", "flip", "cut", "empty", "delete"):
            folder = copied("stable")
            path = folder / "run" / name
            content = path.read_bytes()
            if kind == "flip":
                place = RNG.randrange(len(content))
                path.write_bytes(
                    content[:place] + bytes([content[place] ^ 1 << RNG.randrange(8)]) + content[place + 1 :]
                )
            elif kind == "delete":
                path.unlink()
            else:
                path.write_bytes(content[: RNG.randrange(len(content)) if kind == "cut" else 0])
            weights = {key: value for key, value in snapshot(folder / "run").items() if key.startswith("step-")}
            done = command("train", "--resume", "run", folder=folder).check(0, 2)
            if done.code:
                done.refused()
                after = snapshot(folder / "run")
                if any(after.get(key) != value for key, value in weights.items()):
                    raise LostError(f"{kind} {name}: a checkpoint changed although the run was refused")
                path.write_bytes(content)  # the copy is mended, and the run goes on
                finish(folder, "stable")
                yield f"{kind}: refused in one line"
            elif name == "config.json" and kind != "delete":
                raise LostError(f"{kind} {name}: other settings were taken")
            elif name.startswith(
                "metrics"
            ):  # measurements that are gone are said to be; the weights do not depend on them
                same_weights(folder / "run", whole("stable"))
                yield f"{kind}: harmless"
            else:
                same_run(folder / "run", whole("stable"))
                yield f"{kind}: harmless"


def same_weights(run: Path, other: Path) -> None:
    """Raise a LostError unless the last weights are equal."""
    steps = [folder / (folder / "last").read_text().strip() for folder in (run, other)]
    if any((steps[0] / name).read_bytes() != (steps[1] / name).read_bytes() for name in FILES):
        raise LostError("weights differ")


def damaged_results() -> Iterator[str]:
    """Flip a bit of an interrupted evaluation: the sizes are evaluated again, or those kept are the right ones."""
    model = whole("stable")
    words = ("evaluate", str(model), "--sizes", "4", "6", "8", "--instances", "48", "--output")
    expected = fresh("expected") / "result.json"
    command(*words, expected, folder=expected.parent).check(0)
    template = fresh("partial")
    process = Process((*words[:-1], "--output", "result.json"), template)
    wait_for((template / "result.json").exists)
    process.signal(signal.SIGKILL)
    process.wait()
    content = (template / "result.json").read_bytes()
    for _ in range(10):
        folder = fresh("damaged")
        folder.mkdir()
        place = RNG.randrange(len(content))
        changed = content[:place] + bytes([content[place] ^ 1 << RNG.randrange(8)]) + content[place + 1 :]
        (folder / "result.json").write_bytes(changed)
        command(*words, "result.json", folder=folder).check(0)
        same_result(folder / "result.json", expected)
        yield "evaluated again, or harmless"


def two_processes() -> Iterator[str]:
    """A second process on one run folder is refused in one line that names the first, which goes on."""
    for number in range(6):
        method = METHODS[number % len(METHODS)]
        whole(method)
        folder = fresh("two")
        first = Process(start(method), folder)
        wait_for((folder / "run/config.json").exists)
        time.sleep(RNG.uniform(0, 0.1))
        second = command("train", "--resume", "run", folder=folder)
        done = first.wait().check(0)
        if second.code == 2 and f"process {first.pid} on" not in second.refused().err:
            raise LostError(f"the holder is not named: {second.err}")
        if second.code not in (0, 2) or done.code:
            raise LostError(f"exit codes {done.code} and {second.code}")
        same_run(folder / "run", whole(method))
        if second.code == 2:
            yield "second refused, first undisturbed"


def with_folders(run: Path) -> None:
    """Put folders in place of pointers, as cp -rL does to links."""
    for name in ("last", "best"):
        step = (run / name).read_text().strip()
        (run / name).unlink()
        shutil.copytree(run / step, run / name)


def with_links(run: Path) -> None:
    """Put links in place of pointers, as earlier versions had."""
    for name in ("last", "best"):
        step = (run / name).read_text().strip()
        (run / name).unlink()
        (run / name).symlink_to(step)


def copies() -> Iterator[str]:
    """Run folders as copies leave them: all are resumed, and end as if they had never been copied."""

    def only_pointers(run: Path) -> None:
        with_folders(run)
        for step in run.glob("step-*"):
            shutil.rmtree(step)

    def without_pointers(run: Path) -> None:
        for name in ("last", "best"):
            (run / name).unlink()

    def dangling(run: Path) -> None:
        for name in ("last", "best"):
            (run / name).unlink()
            (run / name).symlink_to("step-99999999")

    def without_hidden(run: Path) -> None:
        for path in run.rglob(".*"):
            path.unlink()

    def zipped(run: Path) -> None:
        archive = shutil.make_archive(str(run.parent / "archive"), "zip", run)
        shutil.rmtree(run)
        shutil.unpack_archive(archive, run)

    def linked_then_dereferenced(run: Path) -> None:
        with_links(run)
        subprocess.run(["cp", "-rL", run, run.with_name("other")], check=True)
        shutil.rmtree(run)
        run.with_name("other").rename(run)

    def leftovers(run: Path) -> None:
        (run / ".step-00000099.part").mkdir()
        (run / ".step-00000099.part" / "model.safetensors").write_bytes(b"half")
        (run / ".last.abc.part").write_text("step-")

    def without_events(run: Path) -> None:
        shutil.rmtree(run / "events")

    def named_elsewhere(run: Path) -> None:
        (run / "last").write_text("../../../etc\n")

    changes = (
        with_folders, with_links, only_pointers, without_pointers, dangling, without_hidden, zipped,
        linked_then_dereferenced, leftovers, without_events, named_elsewhere,
    )  # fmt: skip
    for change in changes:
        for method in ("stable", "corrected"):
            folder = copied(method)
            change(folder / "run")
            finish(folder, method)
            yield change.__name__.replace("_", " ")


SCENARIOS = (
    kill_training, kill_at_files, kill_while_settling, kill_evaluation, terminate, terminate_others, full_disk, read_only,
    damage, damaged_results, two_processes, copies,
)  # fmt: skip


def can_mount() -> bool:
    """Return whether disks can be mounted: by root, and not in every container."""
    try:
        with mounted("size=1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def run_scenario(scenario: Callable[[], Iterator[str]], made: dict[str, Any]) -> dict[str, Any]:
    """Inject the faults of one scenario and count how they ended; the first that loses something ends it."""
    outcomes: dict[str, int] = {}
    lost: list[str] = []
    clock = time.monotonic()
    try:
        for outcome in scenario():
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    except (LostError, OSError, ValueError, KeyError) as error:
        lost.append(f"{type(error).__name__}: {error}")
    total = sum(outcomes.values()) + len(lost)
    row = {"injected": total, "lost": lost, "outcomes": outcomes, "seconds": round(time.monotonic() - clock, 1)}
    row["provenance"] = made
    print(
        f"{scenario.__name__:20} {total:4} faults, {len(lost)} lost, {row['seconds']:6.1f} s  {outcomes} {lost}",
        flush=True,
    )
    return row


def inject(names: list[str]) -> int:
    """Run scenarios; return the number that lost something."""
    global ROOT
    torch.set_num_threads(1)
    made = provenance()  # of the code that is loaded now, not of what it becomes meanwhile
    found: dict[str, Any] = read_json(RESULTS)["scenarios"] if names and RESULTS.exists() else {}
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        ROOT = Path(root)
        warm_up()
        mountable = can_mount()
        for scenario in SCENARIOS:
            if names and scenario.__name__ not in names:
                continue
            if scenario in (full_disk, read_only) and not mountable:
                found[scenario.__name__] = {"what": scenario.__doc__, "skipped": "mounting a disk needs root"}
                print(f"{scenario.__name__:20} skipped: mounting a disk needs root")
                continue
            found[scenario.__name__] = {"what": scenario.__doc__} | run_scenario(scenario, made)
    found = {scenario.__name__: found[scenario.__name__] for scenario in SCENARIOS if scenario.__name__ in found}
    rows = [row for row in found.values() if "injected" in row]
    injected = sum(row["injected"] for row in rows)
    lost = sum(len(row["lost"]) for row in rows)
    print(f"{injected} faults, {lost} lost")
    write_json(RESULTS, {"injected": injected, "lost": lost, "scenarios": found})
    return lost


if __name__ == "__main__":
    sys.exit(min(inject(sys.argv[1:]), 1))
