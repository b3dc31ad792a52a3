"""Disks that are full or read-only: each scenario yields once for every fault, after checking that nothing is lost."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fault.process import LostError, Process, command, wait_for
from fault.runs import EVALUATION, METHODS, RNG, copied, finish, fresh, root, snapshot, start, steps_of, whole


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


def can_mount() -> bool:
    """Return whether disks can be mounted: by root, and not in every container."""
    try:
        with mounted("size=1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


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
            done = command("evaluate", model, *EVALUATION, "--output", disk / "result.json", folder=root()).check(0, 2)
            if done.code and (list(disk.glob(".*")) or not valid_or_absent(disk / "result.json")):
                raise LostError("half a result is left")
            yield "refused in one line" if done.refused() else ""
    with mounted("size=1m") as disk:
        command("dataset", "--count", "100000", "--output", disk / "data.jsonl", folder=root()).refused()
        fill(disk, 64 * 1024)
        command("dataset", "--count", "200", "--output", disk / "data.npz", folder=root()).refused()
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
        command("evaluate", disk / "run", *EVALUATION, "--output", root() / "elsewhere.json", folder=root()).check(0)
        if snapshot(disk) != before:
            raise LostError("a file changed")
        yield "read"
