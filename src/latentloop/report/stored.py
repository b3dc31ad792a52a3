"""What a report is of: run folders and results, read from disk and checked, because they may come from a stranger."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from latentloop.config import RunConfig
from latentloop.errors import UserError, shown
from latentloop.files import read_json

Kind = Literal["evaluation", "certificate", "stress"]
RESULTS: tuple[Kind, ...] = ("evaluation", "certificate", "stress")
SHARES = ("solved", "solved_low", "solved_high", "nodes_right", "false_halts", "cycles")
MAX_ROWS = 10_000
"""Rows of a result that a page can show."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run or checkpoint folder: settings, what was measured in training, and what its checkpoint says about itself."""

    name: str
    run: RunConfig
    rows: list[dict[str, Any]]
    """Measurements, as ``latentloop.train.log`` writes them; none for a checkpoint alone."""
    metrics: Mapping[str, Any]
    """Of the best checkpoint, or the last one; empty where there is none yet."""


@dataclass(frozen=True, kw_only=True)
class StoredResult:
    """What ``latentloop evaluate``, ``certify`` or ``stress`` has written."""

    name: str
    kind: Kind
    document: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The model's name, as it was asked for if that is stored."""
        return str(self.document["model"].get("checkpoint", self.name))


Stored = StoredRun | StoredResult


def read_folder(folder: Path) -> list[Stored]:
    """Return what a run folder or a checkpoint folder holds, with the results that lie beside its weights."""
    from latentloop.train.checkpoint import find_checkpoint, read_metrics  # torch: results alone are shown without it
    from latentloop.train.log import read_log

    config = folder / "config.json"
    if not config.is_file():
        raise UserError(f"no run at {folder}: expected a run folder or a checkpoint, with its config.json")
    try:
        run = RunConfig.from_dict(read_json(config))
    except UserError as error:
        raise UserError(f"cannot use {config}: {str(error)[:300]}") from error
    try:
        metrics = read_metrics(find_checkpoint(folder))
    except UserError:
        metrics = {}  # it has not come so far yet
    for key in ("step", "seconds", "best_loss"):
        if not _number(metrics.get(key, 0)) and metrics[key] is not None:
            raise UserError(f"{key} in the metrics of {folder} must be a number, got {shown(metrics[key])}")
    results = [read_result(path) for path in (folder / f"{kind}.json" for kind in RESULTS) if path.is_file()]
    name = folder.resolve().name
    return [StoredRun(name=name, run=run, rows=read_log(folder), metrics=metrics), *results]


def read_result(path: Path) -> StoredResult:
    """Return a stored result, or say in one line why it is none."""
    return check_result(read_json(path), path)


def check_result(document: Mapping[str, Any], path: Path) -> StoredResult:
    """Return a document as the result it is; all that a page shows as a number is one."""
    try:
        kind = _kind(document)
        _mapping(document, "model")
        rows = _list(document, "sizes" if kind == "certificate" else "rows")
        for row in rows:
            _certified(row) if kind == "certificate" else _evaluated(row, kind)
        if kind == "evaluation":
            _curves(document.get("curves", {}))
        if not isinstance(document.get("provenance", {}), Mapping):
            raise ValueError("its provenance is no mapping")
    except ValueError as error:
        raise UserError(
            f"cannot show {path}: expected a result of `latentloop evaluate`, `certify` or `stress`, and {error}"
        ) from error
    name = path.parent.resolve().name if path.stem in RESULTS else path.stem
    return StoredResult(name=name, kind=kind, document=document)


def _kind(document: Mapping[str, Any]) -> Kind:
    if "sizes" in document:
        return "certificate"
    rows = _list(document, "rows")
    return "stress" if isinstance(rows[0], Mapping) and "scenario" in rows[0] else "evaluation"


def _evaluated(row: Any, kind: Kind) -> None:
    names = ("nodes", "problems", "iterations", "iterations_by_depth")
    _numbers(row, names)
    more = [key for key in row if key.startswith("solved_") and row[key] is not None]
    _numbers(row, (*SHARES, *more, *(["solved_4x"] if kind == "stress" else [])), most=1)


def _certified(size: Any) -> None:
    _numbers(size, ("nodes", "entries"))
    _list(size, "wrong", least=0)
    patterns = _mapping(size, "patterns")
    for found in patterns.values():
        _numbers(found, ("entries", "wrong", "smallest_margin", "median_margin"))
    if not patterns:
        raise ValueError("it has a size without patterns")
    _numbers(_mapping(size, "lookup"), ("smallest_margin",))


def _curves(curves: Any) -> None:
    for curve in _values(curves):
        for share in (*_list(curve, "solved_by_iteration", least=0), *_values(_mapping(curve, "right_by_depth"))):
            if not _number(share):
                raise ValueError(f"one of its curves has {shown(share)}")


def _values(mapping: Any) -> list[Any]:
    if not isinstance(mapping, Mapping) or not all(str(key).isdecimal() for key in mapping):
        raise ValueError("its curves are not by size and depth")
    return list(mapping.values())


def _numbers(row: Any, names: tuple[str, ...], most: int | float = math.inf) -> None:
    if not isinstance(row, Mapping):
        raise ValueError(f"a row of it is {shown(row)}")
    for name in names:
        if not _number(row.get(name)) or row[name] > most:
            raise ValueError(f"a row of it has {shown(row.get(name))} as {name}")


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _list(document: Any, name: str, least: int = 1) -> list[Any]:
    value = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(value, list) or not least <= len(value) <= MAX_ROWS:
        raise ValueError(f"it has no list of {name}")
    return value


def _mapping(document: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    value = document.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"it has no {name}")
    return value
