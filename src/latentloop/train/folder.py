"""A run folder: checkpoints in ``step-*`` folders, and two small files that name the last and the best of them.

Folders of earlier versions have links in place of these files, a copy may have folders there, or nothing: all are read, and
made anew by the run that resumes. A run deletes a checkpoint only when one of its own has taken its place.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from latentloop.errors import UserError
from latentloop.files import writing
from latentloop.train.checkpoint import (
    MANIFEST,
    STEP_NAME,
    Checkpoint,
    is_checkpoint,
    pointed,
    read_checkpoint,
    read_metrics,
)
from latentloop.train.lock import LOCK

Say = Callable[[str], None]


def keep(folder: Path, checkpoint: Checkpoint, *, best: bool) -> None:
    """Write a run's newest checkpoint, name it in ``last``, and in ``best`` if it is; delete those it takes the place of."""
    name = _step_name(checkpoint.metrics["step"])
    before = _named(folder)
    if name not in before or not is_checkpoint(folder / name):
        checkpoint.write(folder / name)
    for pointer in ("best", "last") if best else ("last",):
        _point(folder / pointer, name)
    for old in before - _named(folder):
        shutil.rmtree(folder / old, ignore_errors=True)


def is_free(folder: Path) -> bool:
    """Return whether a new run may begin in a folder: it holds nothing, or what a process killed at once has left."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return all(name == LOCK or _is_leftover(name) for name in names)


def sweep(folder: Path) -> None:
    """Remove the temporary files of a process that was killed; the folder is locked, so nobody writes them."""
    for path in folder.iterdir():
        if _is_leftover(path.name):
            _remove(path)


def _is_leftover(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


def settle(folder: Path, say: Say) -> None:
    """Make ``last`` and ``best`` name whole checkpoints, wherever such can be found, before a run resumes."""
    sweep(folder)
    for name in ("last", "best"):
        _adopt(folder / name)
    steps = sorted((path for path in folder.glob("step-*") if re.fullmatch(STEP_NAME, path.name)), key=_number)
    if not is_checkpoint(pointed(folder / "last")) and steps:
        newest = next((step for step in reversed(steps) if _whole(step)), None)
        if newest is None:
            raise UserError(f"no checkpoint in {folder} is whole: copy it again, or remove its step-* to start again")
        say(f"{folder / 'last'} names no checkpoint: going on from {newest.name}, the newest that is whole")
        _point(folder / "last", newest.name)
    if is_checkpoint(pointed(folder / "last")) and not is_checkpoint(pointed(folder / "best")):
        _find_best(folder, steps, say)


def _find_best(folder: Path, steps: list[Path], say: Say) -> None:
    """Name the checkpoint that was the best one when the last one was written, if it is still there."""
    least = read_metrics(pointed(folder / "last")).get("best_loss")
    if least is None:
        return
    for step in steps:
        if _whole(step) and (read_metrics(step).get("validation") or {}).get("loss") == least:
            say(f"{folder / 'best'} names no checkpoint: {step.name} has the lowest validation loss")
            _point(folder / "best", step.name)
            return
    say(f"the best checkpoint of {folder} is missing: the next one validated takes its place")


def _adopt(pointer: Path) -> None:
    """Give a checkpoint that a copy put in place of a pointer the name of its step."""
    if pointer.is_symlink() or not pointer.is_dir():
        return
    if not _whole(pointer):
        _move_aside(pointer)
        return
    step = pointer.with_name(_step_name(read_metrics(pointer)["step"]))
    if step.exists() and not _whole(step):
        _move_aside(step)
    if not step.exists():
        pointer.rename(step)
    elif (step / MANIFEST).read_bytes() == (pointer / MANIFEST).read_bytes():
        shutil.rmtree(pointer)
    else:
        _move_aside(pointer)
    _point(pointer, step.name)


def _named(folder: Path) -> set[str]:
    """Return the names of the steps that ``last`` and ``best`` point to."""
    found = (pointed(folder / name) for name in ("last", "best"))
    return {path.name for path in found if path.parent == folder and re.fullmatch(STEP_NAME, path.name)}


def _point(pointer: Path, name: str) -> None:
    with writing(pointer, follow=False) as file:
        file.write(f"{name}\n")


def _whole(folder: Path) -> bool:
    try:
        return "step" in read_checkpoint(folder, training=True).metrics
    except UserError:
        return False


def _step_name(step: int) -> str:
    return f"step-{step:08d}"


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _move_aside(path: Path) -> None:
    """Rename what is in the way; nothing of it is lost."""
    number = 1
    while (aside := path.with_name(f"{path.name}.old{number}")).exists():
        number += 1
    path.rename(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
