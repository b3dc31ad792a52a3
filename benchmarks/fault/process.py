"""A command in a process of its own, forked from this one, and how it ended."""

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentloop.cli import main

PATIENCE = 120
"""Seconds until a process counts as hanging."""


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
        self.log = Path(tempfile.mkdtemp(prefix="log-"))
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


def wait_for(reached: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise LostError("waited in vain")
        time.sleep(0.002)
