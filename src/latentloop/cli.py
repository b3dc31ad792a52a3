"""Entry point of the CLI: finds the command, and turns user errors into one line and an exit code."""

import contextlib
import functools
import io
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import signature
from types import FrameType
from typing import Any, NoReturn

from latentloop.errors import Terminated, UserError, nearest, needing

DESCRIPTION = (
    "Transformers that reason recursively in latent space: problems, their solutions, and models that solve them."
)


def run(words: Sequence[str]) -> None:
    """Run one command. Its arguments are read, and help is shown, without torch."""
    name, rest = (words[0], list(words[1:])) if words else ("", [])
    if name == "--version":
        from latentloop import __version__

        print(f"latentloop {__version__}")  # noqa: T201
        return
    _load_numpy()
    from latentloop.commands import (
        experiments,
        explore,
        figures,
        interpret,
        models,
        problems,
        reports,
        training,
        trust,
    )

    train = training.train_from(training.base_run(words if name == "train" else []))
    commands = (
        *(problems.sample, problems.solve, problems.draw, problems.dataset),
        *(training.presets, train, models.evaluate),
        *(trust.certify, trust.stress),
        *(experiments.reproduce, experiments.sweep, figures.figures),
        *(interpret.interpret, explore.explore, reports.report, reports.export_onnx),
    )
    known: dict[str, Callable[..., None]] = {command.__name__.replace("_", "-"): command for command in commands}
    if name in ("--help", "-h"):
        print(_overview(known))  # noqa: T201
    elif name not in known:
        raise UserError(f"{f'unknown command {name!r}' if name else 'a command is missing'}: {nearest(name, known)}")
    else:
        rest = problems.trace_words(rest) if name == "solve" else rest
        try:
            with needing(f"latentloop {name}"):
                _read(known[name], rest, f"latentloop {name}")()
        except UserError as error:
            raise UserError(_as_typed(str(error), known[name], rest)) from error


def _load_numpy() -> None:
    """Import NumPy with one thread for its products: those of a few problems are small, and threads only wait for others.

    OpenBLAS reads the setting when it is loaded; torch has its own threads, and a user's setting counts.
    """
    name = "OPENBLAS_NUM_THREADS"
    given = name in os.environ
    os.environ.setdefault(name, os.environ.get("OMP_NUM_THREADS", "1"))
    import numpy  # noqa: F401

    if not given:
        del os.environ[name]


def _overview(known: Mapping[str, Callable[..., None]]) -> str:
    """List the commands with the first sentence of their documentation."""
    width = max(min(shutil.get_terminal_size().columns, 100), 40)
    indent = max(map(len, known)) + 4
    lines = ["usage: latentloop COMMAND [OPTIONS]", "", *textwrap.wrap(DESCRIPTION, width), ""]
    for name, command in known.items():
        summary = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
        first = f"  {name}".ljust(indent)
        lines += textwrap.wrap(summary, width, initial_indent=first, subsequent_indent=" " * indent)
    lines += ["", "latentloop COMMAND --help explains the options of a command; --version prints the version."]
    return "\n".join(lines)


def _as_typed(message: str, command: Callable[..., None], words: Sequence[str]) -> str:
    """Name options in a message as they are typed: ``--pin-static``, where settings say ``pin_static``."""
    if "unknown key" in message:  # a key of a file, not an option
        return message
    for name in sorted(_settings(command)):
        option = f"--{name.replace('_', '-')}"
        if "_" in name:
            message = re.sub(rf"(?<![\w'-]){name}(?![\w'])", option, message)
        elif any(word.partition("=")[0] == option for word in words):  # a plain word may be no option
            message = re.sub(rf"^(the )?{name}( in the [a-z ]+)?(?= must\b)", option, message)
    return message


def _settings(command: Callable[..., None]) -> set[str]:
    """Return the names of a command's parameters, and of all settings within them."""
    found = set()
    waiting = [
        (p.name, p.annotation if p.default is p.empty else p.default) for p in signature(command).parameters.values()
    ]
    while waiting:
        name, value = waiting.pop()
        found.add(name)
        if is_dataclass(value):
            waiting += [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    return found


def _read(command: Callable[..., None], words: list[str], program: str) -> Callable[[], None]:
    """Parse a command's arguments, without running it yet; an error is one line, where tyro would print a box."""
    import tyro

    @functools.wraps(command)
    def later(*values: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(command, *values, **named)

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            read = tyro.cli(
                later, args=words, prog=program, config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(box.getvalue(), program)) from stop
    if warnings := box.getvalue():
        sys.stderr.write(warnings)
    return read


def _one_line(box: str, program: str) -> str:
    """Return what a box of several parts says: its first part, and the option that it thinks was meant."""
    text = " ".join(re.sub(r"\x1b\[[\d;]*m", "", box).translate(str.maketrans("│╭╮╰╯", "     ")).split())
    parts = re.split("[─-]{5,}", text)  # a title, what is wrong, hints
    message = parts[min(1, len(parts) - 1)].strip(" .")
    meant = re.search(r"Perhaps you meant:\s+(--[\w-]+)", text)
    hint = f"; did you mean {meant[1]}?" if meant else ""
    return f"{message[:1].lower()}{message[1:]}{hint} (see {program} --help)"


def main() -> None:
    """Run what was typed; user errors end in one line and exit code 2."""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        if sys.stdout is None:
            raise UserError("standard output is closed")
        if "utf" not in (sys.stdout.encoding or "").lower():
            sys.stdout.reconfigure(errors="replace")  # pyrefly: ignore
        run(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        _fail(" ".join(str(error).split()))
    except KeyboardInterrupt as error:
        print("interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT))
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is not None:
            _fail(f"{error.filename}: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else flushing it at exit would fail again
        _fail(f"cannot write standard output: {error.strerror or error}")


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Leave as after Ctrl-C, so that what is finished is kept, and temporary files go."""
    raise Terminated


if __name__ == "__main__":
    main()
