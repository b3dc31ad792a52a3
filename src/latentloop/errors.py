"""Mistakes that are the user's to mend: one line that says what was expected, what came, and how to fix it."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

EXTRAS = {
    "torch": "train",
    "lightning_fabric": "train",
    "tensorboardX": "train",
    "matplotlib": "plot",
    "huggingface_hub": "hub",
    "optuna": "sweep",
    "psycopg": "sweep",
    "sqlalchemy": "sweep",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
}
"""Packages that a plain install leaves out, and the extra that brings each."""


class UserError(Exception):
    """A setting or an input that cannot work; the command line prints its one line and exits with code 2.

    It is no ValueError, which a parser of arguments would catch and print in its own way.
    """


class MachineError(UserError):
    """Something that this machine lacks, such as a device or memory: the same may work on another one."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which clusters send: commands keep what is finished, as after Ctrl-C, and exit with 143."""


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Where a package of an extra is not installed, name what needs it, and the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise UserError(
            f"{what} needs {package}, which is not installed: pip install 'latentloop[{EXTRAS[package]}]'"
        ) from error


def shown(value: object, most: int = 60) -> str:
    """Return what came, for an error: as Python writes it, and no more than a line can hold."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def nearest(name: str, choices: Iterable[str]) -> str:
    """End an error about an unknown ``name``: the choices, and the one most likely meant."""
    choices = sorted(choices)
    match = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"; did you mean {match[0]!r}?" if match else ""
    return f"choose from {', '.join(choices)}{hint}"
