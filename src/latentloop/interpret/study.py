"""The whole study of one model: every analysis that applies, saved as it is finished, and the verdicts.

An analysis whose result is there for the same weights, settings and version is not run again, so that an interrupted study
goes on where it stopped.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentloop.errors import UserError, nearest
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json, write_json
from latentloop.interpret.claims import Claim, circuit_of, judge
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.results import Stored, load, save
from latentloop.interpret.subject import Settings, Size, Subject, find_size
from latentloop.model.build import weights_of
from latentloop.provenance import provenance

MODEL = "model.json"
SIZE = "size"
VERDICTS = "verdicts"
FULL = Settings(instances=23_000)
"""As many problems as the paper attributes errors on."""
SIZE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Study:
    """All results of one model."""

    size: Size | None
    stored: dict[str, Stored]
    claims: list[Claim]
    circuit: str

    @property
    def results(self) -> dict[str, Any]:
        """Results by name, of the analyses that apply."""
        return {name: one.result for name, one in self.stored.items() if one.result is not None}


def chosen(only: Sequence[str]) -> list[str]:
    """Return the analyses that were asked for and those they need, in the order of the table."""
    for name in only:
        if name not in ANALYSES:
            raise UserError(f"unknown analysis {name!r}: {nearest(name, ANALYSES)}")
    wanted = set(only) or set(ANALYSES)
    for name in reversed(ANALYSES):
        if name in wanted:
            wanted |= set(ANALYSES[name].needs)
    return [name for name in ANALYSES if name in wanted]


def weights_digest(trained: LatentLoop) -> str:
    """Return a hash of a model's weights and configuration, wherever they came from."""
    digest = hashlib.sha256(json.dumps(trained.run.chosen(), sort_keys=True).encode())
    for name, weight in sorted(weights_of(trained.model).items()):
        digest.update(name.encode())
        digest.update(np.asarray(weight, np.float32).tobytes())
    return digest.hexdigest()


def interpret(
    trained: LatentLoop,
    folder: Path,
    settings: Settings | None = None,
    *,
    only: Sequence[str] = (),
    told: Callable[[str, str], None] = lambda name, how: None,
) -> Study:
    """Run every analysis that applies, or those asked for, and keep each result in a folder; return all of them.

    ``told`` hears of each analysis how it went: ``running``, ``done``, ``kept`` from before, or why it does not apply.
    """
    settings = settings or Settings()
    names = chosen(only)
    key = {"weights": weights_digest(trained), "settings": asdict(settings)}
    size = _size(trained, folder, settings, key, told)
    stored: dict[str, Stored] = {}
    for one in _run(trained, folder, settings, size, names, key, told):
        stored[one.name] = one
    study = _judged(size, stored)
    write_json(folder / f"{VERDICTS}.json", _verdicts(study, key))
    return study


def model_file(folder: Path, description: dict[str, Any]) -> None:
    """Say in a folder which model its results are of."""
    write_json(folder / MODEL, description)


def read_study(folder: Path) -> Study:
    """Read what a folder holds, of whatever model it is."""
    stored = {name: one for name, row in ANALYSES.items() if (one := load(folder, name, row.kind)) is not None}
    size = load(folder, SIZE, Size)
    if not stored:
        raise UserError(f"no results of an interpretation in {folder}: run `latentloop interpret` first")
    return _judged(None if size is None else size.result, stored)


def judge_again(folder: Path) -> bool:
    """Give verdicts anew from the results in a folder, for when statements have changed; return whether they differ.

    No model is run. Verdicts that are as they were keep their provenance.
    """
    study, stored = read_study(folder), read_json(folder / f"{VERDICTS}.json")
    document = _verdicts(study, stored["key"])
    same = all(stored.get(part) == document[part] for part in ("circuit", "claims", "seconds"))
    if not same:
        write_json(folder / f"{VERDICTS}.json", document)
    return not same


def _size(trained: LatentLoop, folder: Path, settings: Settings, key: dict[str, Any], told: Callable) -> Size | None:
    """Find the problems to study the model on; None for a chain of thought, of which nothing is asked."""
    if not trained.method.latent:
        return None
    mine = key | {"version": SIZE_VERSION}
    kept = load(folder, SIZE, Size, mine)
    if kept is None:
        told(SIZE, "running")
        start = time.perf_counter()
        found = find_size(trained, settings)
        kept = Stored(name=SIZE, result=found, reason="", key=mine, seconds=time.perf_counter() - start)
        save(folder, kept, provenance())
    told(SIZE, "done")
    return kept.result


def _run(
    trained: LatentLoop,
    folder: Path,
    settings: Settings,
    size: Size | None,
    names: Sequence[str],
    key: dict[str, Any],
    told: Callable[[str, str], None],
) -> Iterator[Stored]:
    results: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name in names:
        row = ANALYSES[name]
        mine = key | {"version": row.version, "needs": {need: ANALYSES[need].version for need in row.needs}}
        one = load(folder, name, row.kind, mine)
        if one is not None:
            told(name, one.reason or "kept")
        else:
            told(name, "running")
            start = time.perf_counter()
            reason = _reason(trained, row, reasons)
            result = None
            if not reason:
                assert size is not None
                result = row.run(Subject(trained=trained, size=size, settings=settings), results)
            one = Stored(name=name, result=result, reason=reason, key=mine, seconds=time.perf_counter() - start)
            save(folder, one, provenance())
            one = load(folder, name, row.kind, mine)  # what is judged is what is stored
            assert one is not None
            told(name, reason or "done")
        if one.result is None:
            reasons[name] = one.reason
        else:
            results[name] = one.result
        yield one


def _reason(trained: LatentLoop, row: Any, reasons: dict[str, str]) -> str:
    """Return why an analysis does not apply, or nothing."""
    for condition in row.conditions:
        if reason := condition(trained):
            return reason
    return next((reasons[need] for need in row.needs if need in reasons), "")


def _judged(size: Size | None, stored: dict[str, Stored]) -> Study:
    results = {name: one.result for name, one in stored.items() if one.result is not None}
    claims = judge(results, {name: one.reason for name, one in stored.items() if one.result is None})
    return Study(size=size, stored=stored, claims=claims, circuit=circuit_of(claims))


def _verdicts(study: Study, key: dict[str, Any]) -> dict[str, Any]:
    return {
        "circuit": study.circuit,
        "claims": [asdict(claim) for claim in study.claims],
        "seconds": {name: round(one.seconds, 1) for name, one in study.stored.items()},
        "key": key,
        "provenance": provenance(),
    }
