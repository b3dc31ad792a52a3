"""Build the sdist and the wheel, install each into an empty environment, try what they promise, and weigh it.

python benchmarks/package.py            (writes benchmarks/results/package.json; minutes, and needs the package index)
python benchmarks/package.py check      (the same, and writes nothing: what CI runs)
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentloop.files import write_json
from latentloop.provenance import provenance

ROOT = Path(__file__).parent.parent
PATH = ROOT / "benchmarks" / "results" / "package.json"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
    "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),  # else pip may bring gigabytes of a newer torch
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
MISSING = (
    (["train", "--preset", "quick"], "train"),
    (["evaluate"], "train"),
    (["certify"], "train"),
    (["interpret"], "train"),
    (["draw"], "plot"),
    (["figures"], "plot"),
    (["sweep", "ladder"], "sweep"),
    (["export-onnx", "--output", "model.onnx"], "onnx"),
    (["solve", "3 = x1", "--checkpoint", "somebody/model"], "hub"),
)
"""Commands that a plain install cannot run, and the extra that each must name."""
SUM = "3 = x1 ; 4 = x2 ; x1 * x2 - x1 = x3"
TIMES = 5


def run(*words: object, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program that must end with an exit code."""
    done = subprocess.run(list(map(str, words)), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(
            f"{' '.join(map(str, words))} ended with {done.returncode}, expected {code}:\n{done.stdout}{done.stderr}"
        )
    return done


def megabytes(path: Path, *, compiled: bool = True) -> float:
    """Return what a folder takes on the disk, as du counts it, with or without the files that Python compiles."""
    files = [file for file in path.rglob("*") if compiled or "__pycache__" not in file.parts]
    return sum(file.lstat().st_blocks * 512 for file in [path, *files]) / 1e6


def install(what: str, folder: Path) -> dict[str, Any]:
    """Install a file of the distribution into an empty environment; return what that adds, part by part."""
    run(sys.executable, "-m", "venv", folder, folder=ROOT)
    packages = next(folder.glob("lib/python*/site-packages"))
    before = {path.name for path in packages.iterdir()}
    empty = megabytes(folder), megabytes(folder, compiled=False)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", what, folder=folder)
    parts = {path.name: megabytes(path) for path in packages.iterdir() if path.name not in before}
    largest = sorted(parts, key=parts.__getitem__, reverse=True)[:8]
    return {
        "megabytes": megabytes(folder) - empty[0],
        "megabytes_without_compiled_files": megabytes(folder, compiled=False) - empty[1],
        "largest": {name: parts[name] for name in largest},
    }


def try_out(folder: Path) -> None:
    """Answer, sample, write and stress with nothing but a plain install; what needs more says so."""
    program = folder / "bin" / "latentloop"
    installed = json.loads(run(folder / "bin" / "pip", "list", "--format=json", folder=folder).stdout)
    names = {each["name"].lower().replace("_", "-") for each in installed}
    unwanted = names & {"torch", "lightning-fabric", "matplotlib", "huggingface-hub", "tensorboardx", "beartype"}
    if unwanted:
        sys.exit(f"a plain install brings {unwanted}")
    for name in ("laptop-add", "laptop-all", "laptop-all-4096"):
        problem = "3 = x1 ; 4 = x2 ; x1 + x2 = x3"
        answer = json.loads(run(program, "solve", problem, "--checkpoint", name, "--json", folder=folder).stdout)
        if not answer["correct"]:
            sys.exit(f"{name} is wrong about {problem}: {answer}")
    sampled = run(program, "sample", "--nodes", 16, "--task", "add", folder=folder).stdout
    (folder / "problem.txt").write_text(sampled)
    run(program, "solve", "problem.txt", "--trace", folder=folder)
    run(program, "dataset", "--count", 10, "--output", "some.jsonl", folder=folder)
    run(program, "stress", "--quick", folder=folder)
    if "stable-first" not in run(program, "reproduce", folder=folder).stdout:
        sys.exit("reproduce does not list the claims")
    for words, extra in MISSING:
        refused(program, words, extra, folder)


def refused(program: Path, words: Sequence[str], extra: str, folder: Path) -> None:
    """Run a command whose extra is not installed: it must name the extra in one line, and end with 2."""
    done = run(program, *words, folder=folder, code=2)
    if f"pip install 'latentloop[{extra}]'" not in done.stderr or len(done.stderr.splitlines()) != 1:
        sys.exit(f"latentloop {' '.join(words)} does not say in one line what to install: {done.stderr}")


def try_training(wheel: Path, folder: Path) -> dict[str, Any]:
    """Train a few steps and evaluate with the extra for it, in an environment that has nothing else; then draw."""
    found = install(f"{wheel}[train]", folder)
    program = folder / "bin" / "latentloop"
    run(program, "train", "--preset", "tiny-stable", "--steps", 4, "--output", "run", folder=folder)
    run(program, "evaluate", "run", "--sizes", 8, "--instances", 8, "--output", "scores.json", folder=folder)
    scores = json.loads((folder / "scores.json").read_text())
    if [row["nodes"] for row in scores["rows"]] != [8]:
        sys.exit(f"evaluate wrote {scores}")
    refused(program, ["draw"], "plot", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[plot]", folder=folder)
    run(program, "draw", "--output", "graph.png", folder=folder)
    if not (folder / "graph.png").read_bytes().startswith(b"\x89PNG"):
        sys.exit("draw wrote no picture")
    return found


def seconds_to_answer(folder: Path) -> dict[str, float]:
    """Return the least wall-clock and CPU seconds of one answer, the start of Python included."""
    wall, cpu = [], []
    for _ in range(TIMES):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        clock = time.perf_counter()
        run(folder / "bin" / "latentloop", "solve", SUM, folder=folder)
        wall.append(time.perf_counter() - clock)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
    return {"wall": min(wall), "cpu": min(cpu), "load": os.getloadavg()[0]}


def main() -> None:
    """Do all of it."""
    result: dict[str, Any] = {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, folder=folder)
        for kind, pattern in (("wheel", "*.whl"), ("sdist", "*.tar.gz")):
            (file,) = (folder / "dist").glob(pattern)
            environment = folder / kind
            found = {"file_megabytes": file.stat().st_size / 1e6} | install(str(file), environment)
            try_out(environment)
            result[kind] = found | {"seconds_to_answer": seconds_to_answer(environment)}
            print(kind, json.dumps(result[kind], indent=2), flush=True)
        (wheel,) = (folder / "dist").glob("*.whl")
        result["train"] = try_training(wheel, folder / "train")
    result["seconds"] = round(time.perf_counter() - start)
    print(f"sdist and wheel do what they promise, with and without extras ({result['seconds']} seconds)")
    if sys.argv[1:] != ["check"]:
        write_json(PATH, result | {"provenance": provenance()})
        print(f"wrote {PATH.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
