"""The command line's entry: finds the command, and turns mistakes into one line and an exit code."""

import contextlib
import functools
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

from latentloop.errors import UserError, nearest

DESCRIPTION = (
    "Transformers that reason recursively in latent space: problems, their solutions, and models that solve them."
)


def run(words: Sequence[str]) -> None:
    """Run one command. Only those that need torch load it."""
    from latentloop.commands import problems

    known: dict[str, Callable[..., None]] = {
        command.__name__: command for command in (problems.sample, problems.solve, problems.draw, problems.dataset)
    }
    name, rest = (words[0], list(words[1:])) if words else ("", [])
    if name == "--version":
        from latentloop import __version__

        print(f"latentloop {__version__}")  # noqa: T201
        return
    if name not in known:
        from latentloop.commands import models, trust

        train = models.train_from(models.base_run(words))
        known |= {f.__name__: f for f in (models.presets, train, models.evaluate, trust.certify, trust.stress)}
    if name in ("--help", "-h"):
        from tyro.extras import SubcommandApp

        app = SubcommandApp()
        for command in known.values():
            app.command(command)
        app.cli(args=["--help"], prog="latentloop", description=DESCRIPTION)
    elif name not in known:
        raise UserError(f"{f'unknown command {name!r}' if name else 'a command is missing'}: {nearest(name, known)}")
    else:
        _read(known[name], rest, f"latentloop {name}")()


def _read(command: Callable[..., None], words: list[str], program: str) -> Callable[[], None]:
    """Read a command's arguments, without running it yet; a mistake is one line, where tyro would draw a box."""
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
    """Say what a box of several parts says: its first part, and the option that it thinks was meant."""
    text = " ".join(re.sub(r"\x1b\[[\d;]*m", "", box).translate(str.maketrans("│╭╮╰╯", "     ")).split())
    parts = re.split("[─-]{5,}", text)  # a title, what is wrong, hints
    message = parts[min(1, len(parts) - 1)].strip(" .")
    meant = re.search(r"Perhaps you meant:\s+(--[\w-]+)", text)
    hint = f"; did you mean {meant[1]}?" if meant else ""
    return f"{message[:1].lower()}{message[1:]}{hint} (see {program} --help)"


def main() -> None:
    """Run what was typed; mistakes of the user end in one line and exit code 2."""
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
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)
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
    """Leave as after Ctrl-C, so that temporary files go."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
