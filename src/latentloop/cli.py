"""The command line's entry: finds the command, and turns mistakes into one line and an exit code."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from latentloop.errors import UserError

DESCRIPTION = (
    "Transformers that reason recursively in latent space: problems, their solutions, and models that solve them."
)


def run(words: Sequence[str]) -> None:
    """Run one command. Only those that need torch load it."""
    from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes
    from tyro.extras import SubcommandApp

    from latentloop.commands import problems

    app = SubcommandApp()
    for command in (problems.sample, problems.solve, problems.draw, problems.dataset):
        app.command(command)
    if not words or words[0] not in ("sample", "solve", "draw", "dataset"):
        from latentloop.commands import models, trust

        train = models.train_from(models.base_run(words))
        for command in (models.presets, train, models.evaluate, trust.certify, trust.stress):
            app.command(command)
    if "--version" in words[:1]:
        from latentloop import __version__

        print(f"latentloop {__version__}")  # noqa: T201
        return
    app.cli(args=list(words), prog="latentloop", description=DESCRIPTION, config=(FlagCreatePairsOff, OmitArgPrefixes))


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
