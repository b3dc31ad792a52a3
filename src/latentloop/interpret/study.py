"""The whole study of one model: every analysis that applies, saved as it is finished, and the verdicts.

An analysis whose result is there for the same weights, version and settings that it reads is not run again, so that an
interrupted study goes on where it stopped. Verdicts are given on all that is stored for these weights.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentloop.errors import UserError, nearest
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json, write_json
from latentloop.interpret.claims import Claim, circuit_of, judge
from latentloop.interpret.registry import ANALYSES, Analysis, settings_read
from latentloop.interpret.results import Stored, load, remove, save
from latentloop.interpret.subject import SIZE_READS, Settings, Size, Subject, find_size
from latentloop.model.build import weights_of
from latentloop.provenance import provenance

MODEL = "model.json"
SIZE = "size"
VERDICTS = "verdicts"
FULL = Settings(instances=23_000)
"""As many problems as the paper attributes errors on."""
SIZE_VERSION = 3
"""To be raised when the choice of a size changes: every analysis depends on it."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """All results of one model."""

    size: Size | None
    stored: dict[str, Stored]
    claims: list[Claim]
    circuit: str
    left_out: list[str]
    """Results in the folder that are not used, and why."""

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
    """Run every analysis that applies, or those asked for, and keep each result in a folder; return all that it holds.

    ``told`` hears of each analysis how it goes: ``running``, with the parts that are done where it has parts; then ``done``,
    ``kept`` from before, or that it does not apply, and why.
    """
    settings = settings or Settings()
    weights = weights_digest(trained)
    size = _size(trained, folder, settings, weights, told)
    _run(trained, folder, settings, size, chosen(only), weights, told)
    study = read_study(folder, weights)
    write_json(folder / f"{VERDICTS}.json", _verdicts(study, {"weights": weights, "settings": asdict(settings)}))
    return study


def model_file(folder: Path, description: dict[str, Any]) -> None:
    """Say in a folder which model its results are of."""
    write_json(folder / MODEL, description)


def read_study(folder: Path, weights: str | None = None) -> Study:
    """Read what a folder holds of one model: that of these ``weights``, or else the one that its verdicts are on."""
    found = {name: one for name, row in ANALYSES.items() if (one := load(folder, name, row.kind)) is not None}
    weights = weights or _weights(folder, found)
    reasons = {
        name: _unused(name, found.get(name), weights) for name in ANALYSES if (folder / f"{name}.json").is_file()
    }
    stored = {name: one for name, one in found.items() if not reasons[name]}
    if not stored:
        raise UserError(f"no results of an interpretation in {folder}: run `latentloop interpret` first")
    size = load(folder, SIZE, Size)
    results = {name: one.result for name, one in stored.items() if one.result is not None}
    claims = judge(results, {name: one.reason for name, one in stored.items() if one.result is None})
    return Study(
        size=size.result if size is not None and size.key["weights"] == weights else None,
        stored=stored,
        claims=claims,
        circuit=circuit_of(claims),
        left_out=[f"{name} ({reason})" for name, reason in reasons.items() if reason],
    )


def _unused(name: str, one: Stored | None, weights: str) -> str:
    """Return why a result that a folder holds is not used, or nothing."""
    if one is None:
        return "damaged"
    if one.key["weights"] != weights:
        return "of other weights"
    same = analysis_key(name, weights, Settings()) | {"settings": one.key.get("settings")} == one.key
    return "" if same else "of another version"


def _weights(folder: Path, found: dict[str, Stored]) -> str:
    """Return the weights that a folder's verdicts are on, or, without verdicts, those of all of its results."""
    if (folder / f"{VERDICTS}.json").is_file():
        return read_json(folder / f"{VERDICTS}.json")["key"]["weights"]
    known = {one.key["weights"] for one in found.values()}
    if len(known) > 1:
        raise UserError(
            f"{folder} has results of {len(known)} models and no verdicts: run `latentloop interpret` again"
        )
    return next(iter(known), "")


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


def _size(trained: LatentLoop, folder: Path, settings: Settings, weights: str, told: Callable) -> Size | None:
    """Find the problems to study the model on; None for a chain of thought, of which nothing is asked."""
    if not trained.method.latent:
        return None
    mine = {"weights": weights, "settings": _chosen_of(settings, SIZE_READS), "version": SIZE_VERSION}
    kept = load(folder, SIZE, Size, mine)
    if kept is None:
        told(SIZE, "running")
        start = time.perf_counter()
        found = find_size(trained, settings)
        kept = Stored(name=SIZE, result=found, reason="", key=mine, seconds=time.perf_counter() - start)
        save(folder, kept, provenance())
    told(SIZE, "done")
    return kept.result


def analysis_key(name: str, weights: str, settings: Settings) -> dict[str, Any]:
    """Return what a result belongs to: the weights, the settings it depends on, and the versions of all that made it."""
    row = ANALYSES[name]
    return {
        "weights": weights,
        "settings": _chosen_of(settings, settings_read(name)),
        "version": row.version,
        "needs": {need: ANALYSES[need].version for need in row.needs},
        "size": SIZE_VERSION,
    }


def _chosen_of(settings: Settings, names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if name in names}


def _run(
    trained: LatentLoop,
    folder: Path,
    settings: Settings,
    size: Size | None,
    names: Sequence[str],
    weights: str,
    told: Callable[[str, str], None],
) -> None:
    """Compute and store what is not there yet."""
    results: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name in names:
        row = ANALYSES[name]
        mine = analysis_key(name, weights, settings)
        one = load(folder, name, row.kind, mine)
        if one is not None:
            told(name, f"does not apply: {one.reason}" if one.reason else "kept")
        else:
            reason = _reason(trained, row, results, reasons)
            if reason:
                one, parts = Stored(name=name, result=None, reason=reason, key=mine), []
            else:
                assert size is not None
                told(name, "running")
                subject = Subject(trained=trained, size=size, settings=settings)
                one, parts = _computed(name, subject, results, folder, weights, told)
            save(folder, one, provenance())
            one = load(folder, name, row.kind, mine)  # what is judged is what is stored
            assert one is not None
            for part in parts:
                remove(folder, part)
            told(name, f"does not apply: {reason}" if reason else "done")
        if one.result is None:
            reasons[name] = one.reason
        else:
            results[name] = one.result


def _computed(
    name: str,
    subject: Subject,
    results: dict[str, Any],
    folder: Path,
    weights: str,
    told: Callable[[str, str], None],
) -> tuple[Stored, list[str]]:
    """Compute one result; of an analysis in parts, those that are there are not computed again. Return the parts' names too."""
    row, found, names = ANALYSES[name], [], []
    parts = row.split(subject)
    for number, part in enumerate(parts):
        label, key = f"{name}-{part.skip}", analysis_key(name, weights, part.settings)
        one = load(folder, label, row.kind, key)
        if one is None:
            start = time.perf_counter()
            one = Stored(
                name=label, result=row.run(part, results), reason="", key=key, seconds=time.perf_counter() - start
            )
            if len(parts) > 1:
                save(folder, one, provenance())
                told(name, f"running, {number + 1} of {len(parts)} parts are done")
        found.append(one)
        names.append(label)
    whole = Stored(
        name=name,
        result=row.merge([one.result for one in found]),
        reason="",
        key=analysis_key(name, weights, subject.settings),
        seconds=sum(one.seconds for one in found),
    )
    return whole, names


def _reason(trained: LatentLoop, row: Analysis, results: dict[str, Any], reasons: dict[str, str]) -> str:
    """Return why an analysis does not apply, or nothing."""
    for condition in row.conditions:
        if reason := condition(trained):
            return reason
    return next((reasons[need] for need in row.needs if need in reasons), "") or row.unfound(results)


def _verdicts(study: Study, key: dict[str, Any]) -> dict[str, Any]:
    return {
        "circuit": study.circuit,
        "claims": [asdict(claim) for claim in study.claims],
        "seconds": {name: round(one.seconds, 1) for name, one in study.stored.items()},
        "left_out": study.left_out,
        "key": key,
        "provenance": provenance(),
    }
