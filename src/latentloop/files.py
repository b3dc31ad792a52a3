"""Files that are whole or not there: written under a temporary name, then moved; JSON on the way in and out."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from latentloop.errors import UserError


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
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


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


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document, indented for people."""
    with writing(path) as file:
        json.dump(document, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON document, or say in one line why that cannot be done."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"cannot read {path}: it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise UserError(f"cannot read {path}: expected a JSON object, got a {type(document).__name__}")
    return document


def read_text(path: Path, limit: int) -> str:
    """Read a text file, at most a few bytes more than the limit, or say in one line why that cannot be done."""
    try:
        with path.open("rb") as file:
            return file.read(4 * limit + 4).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is not UTF-8 text") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
