"""Checkpoints: folders of safetensors and JSON that describe themselves, and are whole or not there.

A checkpoint holds ``model.safetensors`` (the weights to use), ``config.json``, ``metrics.json`` and, to resume from,
``training.safetensors``; ``manifest.json`` has the SHA-256 of each. In a run folder, small files ``last`` and ``best`` name
two of them.
"""

import hashlib
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.files import json_object, read_bytes, read_json, sync_folder, to_json, writing
from latentloop.model.shapes import Shapes, check_shapes, parameter_shapes
from latentloop.train.limits import check_limits

WEIGHTS, TRAINING, CONFIG, METRICS, MANIFEST = (
    "model.safetensors", "training.safetensors", "config.json", "metrics.json", "manifest.json",
)  # fmt: skip
MAX_SETTINGS = 2**20  # bytes of a JSON file
STEP_NAME = r"step-\d{1,18}"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a folder holds: everything in memory, checked."""

    run: RunConfig
    weights: dict[str, ndarray]
    metrics: dict[str, Any]
    """Step, seconds of training, validation figures, and where all of it comes from."""
    training: dict[str, ndarray] | None = None
    """Optimizer state, and the raw weights where the weights to use are a moving average."""

    def write(self, folder: Path) -> None:
        """Write a folder that appears under its name only when it is complete."""
        part = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            self.write_files(part)
            if folder.exists():
                shutil.rmtree(folder)
            part.rename(folder)
            sync_folder(folder.parent)
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
    """Read a checkpoint, or the best one of a run folder; refuse what does not match its hashes or its configuration.

    It may come from a stranger: only files of a checkpoint are opened, sizes are checked before contents, and nothing is
    built before the tensors are known to be those of the configuration.
    """
    folder = find_checkpoint(folder)
    manifest = _read_manifest(folder)
    if training and TRAINING not in manifest:
        raise UserError(f"the checkpoint {folder} has no optimizer state: it can be used, but not resumed")
    for name in (WEIGHTS, CONFIG, METRICS, *([TRAINING] if training else [])):
        if not (folder / name).is_file():
            raise UserError(f"the checkpoint {folder} lacks {name}: copy it again, or train again")
    config, metrics = (_hashed_json(folder / name, manifest.get(name)) for name in (CONFIG, METRICS))
    try:
        run = RunConfig.from_dict(config)
        check_limits(run)
    except UserError as error:
        raise UserError(f"cannot use {folder / CONFIG}: {str(error)[:300]}") from error
    _check_metrics(metrics, folder / METRICS, training=training)
    shapes = parameter_shapes(run)
    weights = _tensors(folder / WEIGHTS, manifest.get(WEIGHTS), shapes)
    state = _tensors(folder / TRAINING, manifest[TRAINING], _training_shapes(run, shapes)) if training else None
    for name, weight in weights.items():
        if not np.isfinite(weight).all():
            raise UserError(f"the weights in {folder} are damaged: {name} holds numbers that are not finite")
    return Checkpoint(run=run, weights=weights, metrics=metrics, training=state)


def _read_manifest(folder: Path) -> dict[str, str]:
    manifest = read_json(folder / MANIFEST, MAX_SETTINGS)
    for name, digest in manifest.items():
        if name not in (WEIGHTS, TRAINING, CONFIG, METRICS):
            raise UserError(f"{folder / MANIFEST} names {name[:60]!r}, which is no file of a checkpoint")
        if not isinstance(digest, str):
            raise UserError(f"{folder / MANIFEST} must give a hash for {name}, got a {type(digest).__name__}")
    return manifest


def _hashed_json(path: Path, digest: str | None) -> dict[str, Any]:
    content = read_bytes(path, MAX_SETTINGS)
    _check_hash(path, hashlib.sha256(content).hexdigest(), digest)
    return json_object(content, path)


def _check_hash(path: Path, found: str, digest: str | None) -> None:
    if found != digest:
        raise UserError(f"the checkpoint {path.parent} was altered or cut off: {path.name} does not match its hash")


def _check_metrics(metrics: dict[str, Any], path: Path, *, training: bool) -> None:
    """Refuse metrics of other types than a run writes."""
    validation = metrics.get("validation", {})
    if not isinstance(validation, dict):
        raise UserError(f"validation in {path} must be a mapping of figures, got a {type(validation).__name__}")
    figures = {"seconds": metrics.get("seconds", 0), "best_loss": metrics.get("best_loss")}
    for name, value in (figures | validation).items():
        if type(value) not in (int, float) and value is not None:
            raise UserError(f"{name[:60]} in {path} must be a number, got a {type(value).__name__}")
    step = metrics.get("step", None if training else 0)
    if type(step) is not int or not 0 <= step < 10**18:
        raise UserError(f"step in {path} must be a number of steps, got {str(step)[:60]}")
    if training and metrics.get("seconds") is None:
        raise UserError(f"{path} lacks the seconds of training: it cannot be resumed")


def _training_shapes(run: RunConfig, shapes: Shapes) -> Shapes:
    """Return the shapes of what a run needs to go on: the optimizer's moments and, beside an average, the raw weights."""
    from latentloop.train.optimizer import moments  # here, since whoever asks a model needs no torch

    expected: Shapes = {}
    for name, shape in shapes.items():
        kept = moments(name, len(shape), run.train)
        expected |= {f"{kind}.{name}": shape for kind in (*kept, *(["raw"] if run.train.ema else []))}
        if "momentum" not in kept:
            expected[f"step.{name}"] = ()
    return expected


def _tensors(path: Path, digest: str | None, shapes: Shapes) -> dict[str, ndarray]:
    """Read 32-bit tensors of these shapes: first the size of the file, then its hash, then its header, then the rest."""
    room = sum(4 * math.prod(shape) + 1024 for shape in shapes.values()) + 4096  # numbers, and a header that names them
    try:
        if path.stat().st_size > room:
            raise UserError(f"{path} does not match the configuration: it has more than {room:,} bytes")
        with path.open("rb") as file:
            _check_hash(path, hashlib.file_digest(file, "sha256").hexdigest(), digest)
        with safe_open(path, framework="numpy") as tensors:
            found = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            check_shapes(f"the tensors in {path}", shapes, {name: part.get_shape() for name, part in found.items()})
            for name, part in found.items():
                if part.get_dtype() != "F32":
                    raise UserError(f"{name} in {path} must be of type F32, got {part.get_dtype()}")
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


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
    return read_json(find_checkpoint(folder) / METRICS, MAX_SETTINGS)


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights, by which published numbers name it."""
    return _read_manifest(find_checkpoint(folder))[WEIGHTS]


def _json(document: Any) -> bytes:
    return (to_json(document, indent=2) + "\n").encode()
