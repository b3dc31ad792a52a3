"""Small training runs to be disturbed, and comparisons with runs that never were."""

import json
import random
import shutil
import signal
import tempfile
from pathlib import Path

from fault.process import LostError, Process, command, wait_for
from latentloop.train.log import read_log

STEPS = ("--steps", "12", "--validate-every", "4", "--checkpoint-every", "2", "--log-every", "2")
METHODS = ("corrected", "stable", "cot", "continuous")
"""Methods that are trained: with random corruption, sampled states, written tokens, hidden vectors."""
EVALUATION = ("--sizes", "4", "6", "8", "--instances", "48")
FILES = ("model.safetensors", "training.safetensors", "config.json")
RNG = random.Random(0)


def root() -> Path:
    """Return the folder that everything happens in."""
    return Path(tempfile.gettempdir())


def start(method: str, name: str = "run") -> tuple[str, ...]:
    """Return the words that begin a run."""
    return ("train", "--preset", f"tiny-{method}", *STEPS, "--output", name)


def whole(method: str) -> Path:
    """Return a run that was never disturbed."""
    folder = root() / "whole" / method
    if not folder.exists():
        command(*start(method, method), folder=folder.parent).check(0)
    return folder


def fresh(name: str) -> Path:
    """Return a new empty folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
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
    middle = root() / "middle" / method
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


def same_weights(run: Path, other: Path) -> None:
    """Raise a LostError unless the last weights are equal."""
    steps = [folder / (folder / "last").read_text().strip() for folder in (run, other)]
    if any((steps[0] / name).read_bytes() != (steps[1] / name).read_bytes() for name in FILES):
        raise LostError("weights differ")


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return the content of all files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
