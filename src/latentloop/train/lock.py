"""One process per run folder: a lock that the operating system takes back when its holder ends, however it ends."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latentloop.errors import UserError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder, which is made if need be; raise an error that names the holder if another process has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot write {folder / LOCK}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = " ".join(file.read(200).split()) or "another process"
            raise UserError(f"the run folder {folder} is in use by {holder}: stop it first, or wait") from error
        except OSError:  # some network file systems have no locks: train without one
            pass
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        except OSError as error:
            raise UserError(f"cannot write {folder / LOCK}: {error.strerror}") from error
        yield
