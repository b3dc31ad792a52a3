"""Checkpoints: folders of safetensors and JSON that describe themselves, and are whole or not there.

A checkpoint holds ``model.safetensors`` (the weights to use), ``config.json``, ``metrics.json`` and, to resume from,
``training.safetensors``; ``manifest.json`` has the SHA-256 of each. In a run folder, small files ``last`` and ``best`` name
two of them.
"""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.files import read_json, writing

WEIGHTS, TRAINING, CONFIG, METRICS, MANIFEST = (
    "model.safetensors", "training.safetensors", "config.json", "metrics.json", "manifest.json",
)  # fmt: skip
STEP_NAME = r"step-\d{1,18}"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a folder holds: everything in memory, checked."""

    run: RunConfig
    weights: dict[str, Tensor]
    metrics: dict[str, Any]
    """Step, seconds of training, validation figures, and where all of it comes from."""
    training: dict[str, Tensor] | None = None
    """Optimiser state, and the raw weights where the weights to use are a running mean."""

    def write(self, folder: Path) -> None:
        """Write a folder that appears under its name only when it is complete."""
        part = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            self.write_files(part)
            if folder.exists():
                shutil.rmtree(folder)
            part.rename(folder)
        finally:  # on a full disk, what was written so far must not stay in the way
            shutil.rmtree(part, ignore_errors=True)

    def write_files(self, folder: Path) -> None:
        """Write the files into a folder; the manifest comes last, so that an incomplete one is not taken for a checkpoint."""
        files = {
            WEIGHTS: save(self.weights),
            CONFIG: _json(self.run.to_dict()),
            METRICS: _json(self.metrics),
        } | ({TRAINING: save(self.training)} if self.training is not None else {})
        files[MANIFEST] = _json({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
        (folder / MANIFEST).unlink(missing_ok=True)
        for name, content in files.items():
            with writing(folder / name, "wb") as file:
                file.write(content)


def read_checkpoint(folder: Path, *, training: bool = False) -> Checkpoint:
    """Read a checkpoint, or the best one of a run folder; refuse what does not match its hashes."""
    folder = find_checkpoint(folder)
    manifest = read_json(folder / MANIFEST)
    names = [name for name in {WEIGHTS: 0, CONFIG: 0, METRICS: 0} | manifest if training or name != TRAINING]
    for name in names:
        path = folder / name
        if not path.is_file():
            raise UserError(f"the checkpoint {folder} lacks {name}: copy it again, or train again")
        if hashlib.sha256(path.read_bytes()).hexdigest() != manifest.get(name):
            raise UserError(f"the checkpoint {folder} was altered or cut off: {name} does not match its hash")
    if training and TRAINING not in manifest:
        raise UserError(f"the checkpoint {folder} has no optimiser state: it can be used, but not resumed")
    return Checkpoint(
        run=RunConfig.from_dict(read_json(folder / CONFIG)),
        weights=_tensors(folder / WEIGHTS),
        metrics=read_json(folder / METRICS),
        training=_tensors(folder / TRAINING) if training else None,
    )


def find_checkpoint(folder: Path) -> Path:
    """Return the folder that holds weights: the folder itself, or the best or last checkpoint of a run."""
    for candidate in (folder, folder / "best", folder / "last"):
        if is_checkpoint(found := pointed(candidate)):
            return found
    steps = sorted(path.name for path in folder.glob("step-*") if is_checkpoint(path)) if folder.is_dir() else []
    hint = f"; it holds {', '.join(steps[-3:])}: name one of them" if steps else ""
    raise UserError(
        f"no checkpoint at {folder}: expected a folder with {MANIFEST}, or a run folder with 'best' or 'last'{hint}"
    )


def pointed(path: Path) -> Path:
    """Return the step folder that ``last`` or ``best`` of a run names, as a small file or as a link; else the path itself."""
    if path.is_symlink():
        return path.parent / path.readlink()
    if path.is_file():
        with path.open("rb") as file:
            name = file.read(64).decode("ascii", errors="replace").strip()
        if re.fullmatch(STEP_NAME, name):  # never a path that leads out of the run folder
            return path.with_name(name)
    return path


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder looks like a checkpoint; only reading it tells whether it is whole."""
    return (folder / MANIFEST).is_file()


def read_metrics(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint says about itself, without its tensors."""
    return read_json(find_checkpoint(folder) / METRICS)


def weights_hash(folder: Path) -> str:
    """Give the SHA-256 of a checkpoint's weights, by which published numbers name it."""
    return read_json(find_checkpoint(folder) / MANIFEST)[WEIGHTS]


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
