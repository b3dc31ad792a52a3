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
def writing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing; it appears under its name only when all of it has reached the disk."""
    temporary = None
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        encoding = None if "b" in mode else "utf-8"
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


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document, indented for people."""
    with writing(path) as file:
        json.dump(document, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_text(path: Path) -> str:
    """Read a text file, or say in one line why that cannot be done."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is not UTF-8 text") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
