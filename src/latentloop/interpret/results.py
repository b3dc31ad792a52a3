"""Results on disk: dataclasses as JSON, with large arrays in an .npz file beside it. Never pickled.

A result is stored with the weights (SHA-256), the settings it depends on and the version of the analysis that made it; one
that is there for the same three is not computed again.
"""

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy import ndarray

from latentloop.errors import UserError
from latentloop.files import read_json, write_json, writing

INLINE = 8_000
"""Arrays of up to so many numbers are written in the JSON file."""
DIGITS = 4
"""Significant digits of what is stored."""
MAX_ARRAYS = 2**28
"""Bytes of arrays that are read, at most; a file with more counts as damaged."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A result, or one line on why there is none."""

    name: str
    result: Any
    """The dataclass of the analysis; None where it does not apply."""
    reason: str
    """Why it does not apply; empty where it does."""
    key: dict[str, Any]
    """Weights, settings and version that it belongs to."""
    seconds: float = 0.0


def save(folder: Path, stored: Stored, provenance: dict[str, Any]) -> None:
    """Write a result; it appears whole or not at all."""
    arrays: dict[str, ndarray] = {}
    body = None if stored.result is None else _to_plain(stored.result, "", arrays)
    sidecar = folder / f"{stored.name}.npz"
    if arrays:
        with writing(sidecar, "wb") as file:
            np.savez_compressed(file, **arrays)  # pyrefly: ignore
    document = {
        "analysis": stored.name,
        "reason": stored.reason,
        "result": body,
        "arrays": hashlib.sha256(sidecar.read_bytes()).hexdigest() if arrays else None,
        "seconds": round(stored.seconds, 1),
        "key": stored.key,
        "provenance": provenance,
    }
    write_json(folder / f"{stored.name}.json", document)


def load(folder: Path, name: str, kind: type, key: dict[str, Any] | None = None) -> Stored | None:
    """Read a result; None where there is none, where it is damaged, or, with a ``key``, where it belongs to another one."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    try:
        document = read_json(path)
        belongs: dict[str, Any] = document["key"]
        if (key is not None and belongs != key) or not isinstance(belongs["weights"], str):
            return None
        arrays = {}
        if document["arrays"] is not None:
            sidecar = path.with_suffix(".npz")
            if hashlib.sha256(sidecar.read_bytes()).hexdigest() != document["arrays"]:
                return None
            with np.load(sidecar, allow_pickle=False) as found:
                if sum(member.file_size for member in found.zip.infolist()) > MAX_ARRAYS:
                    return None
                arrays = {part: found[part] for part in found.files}
        body = document["result"]
        result = None if body is None else _from_plain(kind, body, arrays)
        return Stored(
            name=name,
            result=result,
            reason=document["reason"],
            key=belongs,
            seconds=document["seconds"],
        )
    except (UserError, KeyError, TypeError, ValueError, OSError):
        return None


def remove(folder: Path, name: str) -> None:
    """Remove a result, if it is there."""
    for suffix in (".json", ".npz"):
        (folder / f"{name}{suffix}").unlink(missing_ok=True)


def rounded(value: float) -> float:
    """Keep the digits that are stored."""
    return float(f"{value:.{DIGITS}g}")


def _to_plain(value: Any, path: str, arrays: dict[str, ndarray]) -> Any:
    if isinstance(value, ndarray):
        if value.size > INLINE:
            arrays[path] = value.astype(np.float32) if value.dtype.kind == "f" else value
            return {"npz": path}
        numbers = [rounded(x) if isinstance(x, float) else x for x in value.ravel().tolist()]
        return {"shape": list(value.shape), "dtype": str(value.dtype), "data": numbers}
    if is_dataclass(value):
        return {f.name: _to_plain(getattr(value, f.name), f"{path}.{f.name}", arrays) for f in fields(value)}
    if isinstance(value, dict):
        return {str(name): _to_plain(item, f"{path}.{name}", arrays) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item, f"{path}.{place}", arrays) for place, item in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    return rounded(value) if isinstance(value, float) else value


def _from_plain(kind: Any, value: Any, arrays: dict[str, ndarray]) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: _from_plain(hints[name], item, arrays) for name, item in value.items()})
    if isinstance(value, dict):
        if value.keys() == {"npz"}:
            return arrays[value["npz"]]
        if value.keys() == {"shape", "dtype", "data"}:
            return np.array(value["data"], dtype=value["dtype"]).reshape(value["shape"])
        inner = _item(kind)
        return {name: _from_plain(inner, item, arrays) for name, item in value.items()}
    if isinstance(value, list):
        return [_from_plain(_item(kind), item, arrays) for item in value]
    return value


def _item(kind: Any) -> Any:
    """Return the type of a list's or a dict's items, where it is known."""
    inner = getattr(kind, "__args__", ())
    return inner[-1] if inner else None
