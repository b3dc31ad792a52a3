"""What all commands share: text in and out, progress, Ctrl-C, and limits of what can be asked for."""

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeVar

from rich.console import Console
from tyro.conf import Positional, arg

from latentloop.errors import Terminated, UserError
from latentloop.files import read_text, to_json
from latentloop.halting import MAX_ITERATIONS
from latentloop.task.text import MAX_CHARACTERS

ProblemText = Positional[Annotated[str | None, arg(metavar="[PROBLEM]")]]
CheckpointName = Positional[Annotated[str | None, arg(metavar="[CHECKPOINT]")]]
Json = Annotated[bool, arg(help="Print one JSON document on standard output, and nothing else there.")]
T = TypeVar("T")

PIPED_WIDTH = 160
"""Columns of a table where standard output is no terminal."""

stderr = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def output() -> Console:
    """Return the console of standard output; tables fit its width."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def problem_text(problem: str | None) -> str:
    """Find the text of a problem: typed, in a file or a pipe with a name, or on standard input."""
    if problem is None or problem == "-":
        return _standard_input()
    if is_file(problem):
        return read_text(Path(problem), MAX_CHARACTERS)
    if "=" in problem or "->" in problem or not problem.strip():
        return problem
    raise UserError(f"{problem[:60]!r} is neither an equation such as '20 = x7' nor a file")


def is_file(name: str) -> bool:
    """Return whether a word names something to read: a file, or a pipe such as ``/dev/stdin`` or ``<(command)``."""
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # too long for a name, or not readable
        return False


def _standard_input() -> str:
    if sys.stdin is None:
        raise UserError("standard input is closed: give the problem as an argument, or a file")
    if sys.stdin.isatty():
        stderr.print("type equations, then Ctrl-D")
    try:  # bytes, because the locale decides what a text stream does with those that are not UTF-8
        return sys.stdin.buffer.read(4 * MAX_CHARACTERS + 4).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("cannot read standard input: it is not UTF-8 text") from error


def refuse_overwriting(written: Iterable[Path | None], read: Iterable[Path | None]) -> None:
    """Refuse to write a file that is read, under this or another name; None and ``-`` are the standard streams."""
    sources = [(path, found) for path in read if (found := _regular(path, 0)) is not None]
    for target in written:
        found = _regular(target, 1)
        for source, other in sources:
            if found is not None and os.path.samestat(found, other):
                raise UserError(
                    f"cannot write {target or 'standard output'}: it is the same file as {source or 'standard input'}, "
                    "which is read; choose another output"
                )


def _regular(path: Path | None, stream: int) -> os.stat_result | None:
    """Look up a file, or what a standard stream is redirected to; None if it is no regular file."""
    try:
        found = os.fstat(stream) if path is None or str(path) == "-" else path.stat()
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def check_iterations(option: str, number: int | None) -> None:
    """Refuse a number of iterations that is none, or too large to keep the states of."""
    if number is not None and not 1 <= number <= MAX_ITERATIONS:
        raise UserError(f"{option} must be 1 to {MAX_ITERATIONS} iterations, got {number}")


def print_json(document: Any) -> None:
    """Print one document on standard output."""
    print(to_json(document))  # noqa: T201


@contextmanager
def progress(label: str, total: int | None, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error, if that is a terminal; yield the function to call with each advance."""
    if not (shown and stderr.is_terminal):
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=stderr, transient=True) as bars:
        bar = bars.add_task(label, total=total)
        yield lambda done: bars.advance(bar, done)


def finished(results: Iterable[T], earlier: Iterable[T] = ()) -> tuple[list[T], int]:
    """Collect results one by one; return those that were finished when Ctrl-C or SIGTERM came, and the exit code.

    The code is 0 if neither came. Where nothing is finished, nor was earlier, the interruption goes on.
    """
    found = list(earlier)
    try:
        found.extend(results)  # keeps what came before an exception
    except KeyboardInterrupt as error:
        if not found:
            raise
        return found, 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
    return found, 0


@contextmanager
def first_interrupt() -> Iterator[Callable[[], int]]:
    """Let the first Ctrl-C or SIGTERM only be noted; yield the function that tells the exit code for it, 0 before.

    The second one interrupts.
    """
    code = 0
    previous: dict[signal.Signals, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal code
        code = 128 + number
        restore()

    def restore() -> None:
        for kind, handler in previous.items():
            signal.signal(kind, signal.SIG_DFL if handler is None else handler)

    if threading.current_thread() is threading.main_thread():
        for kind in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(kind) is not signal.SIG_IGN:
                previous[kind] = signal.signal(kind, note)
    try:
        yield lambda: code
    finally:
        restore()
