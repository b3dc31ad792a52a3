"""Where weights are: shipped with the package, in a folder, or on the hub, which is asked only when nothing local is near."""

import difflib
import re
import sys
from itertools import islice
from pathlib import Path

import latentloop
from latentloop.errors import UserError, needing
from latentloop.train.checkpoint import CONFIG, MANIFEST, find_checkpoint

ROOTS = tuple(folder / "checkpoints" for folder in Path(latentloop.__file__).parents[:3:2])
"""Shipped checkpoints: in an installed package, in a source checkout."""
MAX_NAME = 1024
HUB_SECONDS = 5
"""How long the hub may take to say whether it has a model."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def shipped(name: str) -> Path | None:
    """Return the folder of a checkpoint that comes with the package, if there is one of that name."""
    if not name.replace("-", "").isalnum():
        return None
    return next((root / name for root in ROOTS if (root / name / MANIFEST).is_file()), None)


def resolve(name: str) -> Path:
    """Return the folder that a name stands for: a run or a checkpoint here, else a shipped one, else the path as it is."""
    here = Path(name)
    return here if (here / CONFIG).is_file() else shipped(name) or here


def find_weights(
    name: str,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> Path:
    """Return the folder of a checkpoint, by its shipped name, path, run folder, or id on the hub."""
    if len(name) > MAX_NAME:
        raise UserError(f"the name of a checkpoint has at most {MAX_NAME} characters, got {len(name)}")
    folder = resolve(name)
    if folder.exists():
        return find_checkpoint(folder)
    near = _near(name)
    if near or not _HUB_ID.fullmatch(name) or Path(name).parent.is_dir():  # a path with a slip is no hub id
        hint = f"; did you mean {near!r}?" if near else ""
        raise UserError(
            f"no checkpoint {name!r}: expected a shipped name, a folder, or a hub id such as owner/name{hint}"
        )
    with needing(f"{name!r} is no folder here, and asking the hub for it"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            OfflineModeIsEnabled,
        )

    try:
        if not local_files_only:
            print(f"no folder {name}: asking the hub for it", file=sys.stderr)  # noqa: T201
            local_files_only = not _answers(name, revision, token)  # else a copy of an earlier time will do
        return Path(
            snapshot_download(
                name,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                etag_timeout=HUB_SECONDS,
            )
        )
    except (HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        likely = difflib.get_close_matches(Path(name).name, _shipped_names(), n=1)
        hint = f"; did you mean {likely[0]!r}?" if likely else ""
        raise UserError(f"no checkpoint {name!r}: it is no folder, and the hub does not give it{hint}") from error


def upload(folder: Path, repository: str, *, private: bool | None, token: str | bool | None, message: str) -> str:
    """Upload a checkpoint folder to a repository of the hub, made where there is none; return where it is."""
    with needing("pushing to the hub"):
        from huggingface_hub import HfApi

    hub = HfApi(token=token)
    found = hub.create_repo(repository, private=private, exist_ok=True).repo_id
    return str(hub.upload_folder(repo_id=found, folder_path=folder, commit_message=message))


def _answers(name: str, revision: str | None, token: str | bool | None) -> bool:
    """Ask the hub one short question, since a download would try again and again; return whether it can be reached."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        HfApi().model_info(name, revision=revision, timeout=HUB_SECONDS, token=token)
    except (HfHubHTTPError, HFValidationError):
        raise
    except Exception:  # connection errors are those of whatever client the hub's library uses
        return False
    return True


def _shipped_names() -> list[str]:
    return [path.parent.name for root in ROOTS for path in root.glob(f"*/{MANIFEST}")]


def _near(name: str) -> str | None:
    """Return the shipped name, or the folder, that a name is most likely a slip of."""
    names = _shipped_names()
    parent, last = Path(name).parent, Path(name).name
    where = parent if parent.is_dir() else parent.parent  # a slip in the last part, or in the one before
    if where.is_dir():
        folders = [path for path in islice(where.iterdir(), 1000) if path.is_dir()]
        names += [str(path) for path in folders]
        names += [str(path / last) for path in folders if (path / last).is_dir()]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.8)), None)
