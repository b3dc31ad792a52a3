"""What all commands share: where text comes from, where it goes, and how progress looks."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import Positional, arg

from latentloop.errors import UserError
from latentloop.files import read_text
from latentloop.task.text import MAX_CHARACTERS

ProblemText = Positional[Annotated[str | None, arg(metavar="[PROBLEM]")]]
CheckpointName = Positional[Annotated[str | None, arg(metavar="[CHECKPOINT]")]]
Json = Annotated[bool, arg(help="Print one JSON document on standard output, and nothing else there.")]

errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def output() -> Console:
    """Give the console of standard output; where no person looks, lines are as long as they need to be."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def problem_text(problem: str | None) -> str:
    """Find the text of a problem: typed, in a file, or on standard input."""
    if problem is None or problem == "-":
        return _standard_input()
    if _is_file(problem):
        return read_text(Path(problem), MAX_CHARACTERS)
    if "=" in problem or "->" in problem or not problem.strip():
        return problem
    raise UserError(f"{problem[:60]!r} is neither an equation such as '20 = x7' nor a file")


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or not readable
        return False


def _standard_input() -> str:
    if sys.stdin is None:
        raise UserError("standard input is closed: give the problem as an argument, or a file")
    if sys.stdin.isatty():
        errors.print("type equations, then Ctrl-D")
    text = sys.stdin.read(MAX_CHARACTERS + 1)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError("cannot read standard input: it is not UTF-8 text") from error
    return text.removeprefix("\ufeff")


def print_json(document: Any) -> None:
    """Print one document on standard output."""
    print(json.dumps(document, ensure_ascii=False))  # noqa: T201


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error; gives the function to call with each advance."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bars:
        bar = bars.add_task(label, total=total)
        yield lambda done: bars.advance(bar, done)
