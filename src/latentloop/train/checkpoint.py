"""Checkpoints: folders of safetensors and JSON that describe themselves, and are whole or not there.

A checkpoint holds ``model.safetensors`` (the weights to use), ``config.json``, ``metrics.json`` and, to resume from,
``training.safetensors``; ``manifest.json`` has the SHA-256 of each. A run keeps two of them under ``last`` and ``best``,
which are links, so that one step of the file system replaces an old checkpoint by a new one.
"""

import hashlib
import json
import os
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
        self.write_files(part)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)

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
    """Find the folder that holds weights: the folder itself, or the best or last checkpoint of a run."""
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / MANIFEST).is_file():
            return candidate
    raise UserError(
        f"no checkpoint at {folder}: expected a folder with {MANIFEST}, or a run folder with 'best' or 'last'"
    )


def weights_hash(folder: Path) -> str:
    """Give the SHA-256 of a checkpoint's weights, by which published numbers name it."""
    return read_json(find_checkpoint(folder) / MANIFEST)[WEIGHTS]


def keep(run_folder: Path, checkpoint: Checkpoint, *, best: bool) -> None:
    """Write a run's newest checkpoint, link it as ``last``, and as ``best`` if it is; drop those no longer linked."""
    folder = run_folder / f"step-{checkpoint.metrics['step']:08d}"
    linked = {(run_folder / name).readlink().name for name in ("last", "best") if (run_folder / name).is_symlink()}
    if folder.name not in linked:
        checkpoint.write(folder)
    if best:
        _link(run_folder / "best", folder.name)
    _link(run_folder / "last", folder.name)
    linked = {(run_folder / name).readlink().name for name in ("last", "best") if (run_folder / name).is_symlink()}
    for old in run_folder.glob("step-*"):
        if old.name not in linked:
            shutil.rmtree(old)


def _link(link: Path, target: str) -> None:
    """Point a link somewhere else in one step."""
    temporary = link.with_name(f".{link.name}.part")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)  # noqa: PTH105


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
