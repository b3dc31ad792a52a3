"""Atomic writes, under a temporary name that is then moved; JSON that every reader accepts, and bounded reading of it."""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from latentloop.errors import UserError

MAX_JSON = 2**26  # bytes of a result
MAX_DIGITS = 20  # of an integer: seeds have up to 64 bits


@contextmanager
def writing(path: Path, mode: str = "w", *, follow: bool = True) -> Iterator[IO[Any]]:
    """Open a file for writing; it appears under its name only when all of it has reached the disk.

    A link stays a link, and what it points to is written; unless ``follow`` is off: then the file takes the link's place.
    """
    temporary = None
    encoding = None if "b" in mode else "utf-8"
    try:
        path = path.resolve() if follow else path.absolute()
        replaced = path.is_symlink()  # only where links are not followed
        if path.is_dir() and not replaced:
            raise IsADirectoryError(None, "it is a folder")
        if path.exists() and not path.is_file() and not replaced:  # a pipe or a device cannot be moved into place
            with path.open(mode, encoding=encoding) as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
        temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until names in a folder have reached the disk: else a power cut may undo a rename, and not a later deletion."""
    with suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before hours of work are spent on what it would hold; makes nothing yet."""
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    for wrong, why in (
        (path.is_dir(), "it is a folder"),
        (not folder.is_dir(), f"{folder} is a file"),
        (not os.access(folder, os.W_OK | os.X_OK), f"{folder} is read-only"),
    ):
        if wrong:
            raise UserError(f"cannot write {path}: {why}")


def to_json(document: Any, *, indent: int | None = None) -> str:
    """Return a document as JSON that every reader accepts: numbers that are not finite become null."""
    finite = _finite(document)
    text = json.dumps(finite, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as in the name of a file that is not UTF-8: keep it escaped
        return json.dumps(finite, indent=indent, allow_nan=False)
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document, indented for people: numbers are side by side, and a row of a table is one line."""
    with writing(path) as file:
        file.write(_indented(_finite(document)) + "\n")


def _indented(value: Any, margin: str = "\n", *, row: bool = False) -> str:
    """Return JSON in which numbers alone are one line, and so is a list, or a row in one, with nothing nested in it."""
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    nested = any(isinstance(item, dict | list) for item in items)
    numbers = all(isinstance(item, int | float | None) for item in items)
    if numbers or (not nested and (row or isinstance(value, list))):
        return to_json(value)
    deeper = margin + "  "
    if isinstance(value, dict):
        lines = [f"{to_json(str(key))}: {_indented(item, deeper)}" for key, item in value.items()]
        return f"{{{deeper}{f',{deeper}'.join(lines)}{margin}}}"
    lines = [_indented(item, deeper, row=True) for item in value]
    return f"[{deeper}{f',{deeper}'.join(lines)}{margin}]"


def parse_json(content: bytes) -> Any:
    """Read JSON that may come from a stranger; raise a ValueError of few words for all that is wrong with it."""
    try:
        return json.loads(content, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def read_json(path: Path, limit: int = MAX_JSON) -> dict[str, Any]:
    """Read one JSON document, or say in one line why that cannot be done."""
    return json_object(read_bytes(path, limit), path)


def json_object(content: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds, given its content."""
    try:
        document = parse_json(content)
    except ValueError as error:
        raise UserError(f"cannot read {path}: it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise UserError(f"cannot read {path}: expected a JSON object, got a {type(document).__name__}")
    return document


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file of at most so many bytes, or say in one line why that cannot be done."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > limit:
        raise UserError(f"cannot read {path}: it has more than {limit:,} bytes")
    return content


def read_text(path: Path, limit: int) -> str:
    """Read a text file, of too long a one no more than shows that it is, or say in one line why that cannot be done."""
    try:
        with path.open("rb") as file:
            return file.read(4 * limit + 4).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is not UTF-8 text") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
