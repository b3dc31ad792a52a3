"""Stored results of experiments: one JSON document a run, read with suspicion and written whole."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any

import latentloop
from latentloop.errors import UserError, shown
from latentloop.experiments.jobs import Job
from latentloop.files import read_json, write_json
from latentloop.methods import METHODS, ChainOfThought

FORMAT = "latentloop experiment 1"
CHECKOUT = Path(latentloop.__file__).parents[2]
SHIPPED = CHECKOUT / "experiments" if (CHECKOUT / "experiments" / "results").is_dir() else Path("experiments")
"""Results and weights, ``results/NAME.json`` and ``weights/NAME/``: those of a source checkout, else of the working folder."""
Result = dict[str, Any]
KINDS: dict[str, type | tuple[type, ...]] = {
    "point": str, "seed": int, "key": str, "labels": dict, "training": dict, "validation": dict, "rows": list, "curves": dict,
    "average": (int, float), "allowed": (dict, NoneType), "entropy": (dict, NoneType), "approximate_fixpoint": bool,
    "model": dict, "provenance": dict,
}  # fmt: skip
"""What every result holds; ``measure`` says what is in each part."""
ALLOWED = (1, 2, 4, 16)
"""Multiples of the iterations needed that a model is allowed."""
ALLOWED_PROBLEMS = 64
"""Problems of each size that it is asked for that."""
MEND = "move it away to measure again, or name another --folder (--storage, if it is in one)"
"""How a result that cannot be used is mended."""
ROW_SHARES = ("solved", "solved_low", "solved_high", "nodes_right", "false_halts", "cycles", "caps")
ADAPTIVE_SHARES = ("solved_fixpoint", "solved_depth", "solved_paper", "solved_2x", "solved_4x")
"""Of methods whose number of iterations follows the problem: solved by every halting rule, and in more iterations."""


@dataclass(frozen=True)
class Kind:
    """What a value must be: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_table(value: Any) -> bool:
    """Return whether a value is columns of one length, with the steps among them."""
    columns = list(value.values()) if isinstance(value, dict) else []
    if not columns or not all(isinstance(column, list) for column in columns) or len(set(map(len, columns))) > 1:
        return False
    numbers = all(item is None or _is_number(item) for column in columns for item in column)
    return numbers and "step" in value and None not in value["step"]


NUMBER = Kind("a number", _is_number)
AMOUNT = Kind("a finite number that is not negative", lambda value: _is_number(value) and 0 <= value < inf)
SHARE = Kind("a share from 0 to 1", _is_share)
SHARES = Kind(
    "a list of shares from 0 to 1", lambda value: isinstance(value, list) and bool(value) and all(map(_is_share, value))
)
TABLE = Kind("columns of numbers, all of one length, and one of them the steps", _is_table)


def labels(job: Job) -> dict[str, Any]:
    """Return what figures group runs by."""
    run = job.run
    method = run.method
    return {
        "method": method.name,
        "encoding": run.model.positions.name,
        "model": run.name,
        "layers": run.model.layers,
        "iterations": method.iterations,
        "width": run.model.width,
        "auxiliary": sorted(method.auxiliary),
        "trajectory": method.trajectory if isinstance(method, ChainOfThought) else None,
        "variable_size": run.graph.min_nodes is not None,
        "corruption": getattr(method, "corruption", None),
        "curriculum": list(run.train.curriculum),
        "trained_to": run.graph.nodes,
        "budget": job.point.budget,
        "scale": job.point.scale,
        "overrides": sorted(job.point.overrides),
    }


def result_path(folder: Path, name: str) -> Path:
    """Return where the result of a job of that name is."""
    return folder / "results" / f"{name}.json"


def checked(document: Result, job: Job, source: Path | str) -> Result:
    """Return a job's result, with labels as they are today; raise a UserError if it is not as ``measure`` writes it."""
    _check_form(document, source)
    if (document["point"], document["seed"]) != (job.point.name, job.seed):
        found = f"{document['point']}-seed{document['seed']}"
        raise UserError(f"cannot read {source}: it is the result of {shown(found)}, not of {job.name}")
    if document["key"] != job.key:
        raise UserError(f"{source} is of another configuration than {job.name} has today: {MEND}")
    sizes = [row["nodes"] for row in document["rows"]]
    if sizes != list(job.evaluation.sizes):
        raise UserError(
            f"cannot read {source}: its sizes should be {shown(job.evaluation.sizes)}, got {shown(sizes)}; {MEND}"
        )
    for part, value, kind in _parts(document, job):
        if not kind.holds(value):
            raise UserError(f"cannot read {source}: {part} must be {kind.words}, got {shown(value)}; {MEND}")
    return document | {"labels": labels(job)}  # those that are stored may be of an earlier version


def stored(job: Job, folder: Path) -> Result | None:
    """Return a job's result if there is one; raise a UserError if it is of another configuration, or none."""
    path = result_path(folder, job.name)
    return checked(read_json(path), job, path) if path.exists() else None


def stored_results(jobs: Iterable[Job], folder: Path) -> dict[str, Result]:
    """Return the results that are there, by job."""
    return {job.name: found for job in jobs if (found := stored(job, folder)) is not None}


def write_result(folder: Path, document: Result) -> None:
    """Write a result, whole or not at all."""
    write_json(result_path(folder, f"{document['point']}-seed{document['seed']}"), document)


def _check_form(document: Any, source: Path | str) -> None:
    """Refuse what is no result at all."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(
            f"cannot read {source}: it is no result of an experiment (its format should be {FORMAT!r}); {MEND}"
        )
    for name, kind in KINDS.items():
        if name not in document or not isinstance(document[name], kind):
            raise UserError(f"cannot read {source}: its {name!r} is missing, or of another kind; {MEND}")
    if not document["rows"] or not all(
        isinstance(row, dict) and {"nodes", "solved", "solved_low", "solved_high", "problems"} <= row.keys()
        for row in document["rows"]
    ):
        raise UserError(f"cannot read {source}: its rows are no scores by size; {MEND}")


def _parts(document: Result, job: Job) -> Iterator[tuple[str, Any, Kind]]:
    """Yield what figures and claims read of a result: its name, its value, and what it must be."""
    method = METHODS[job.run.method.name]
    shares = ROW_SHARES + (ADAPTIVE_SHARES if method.adaptive else ()) + (() if method.latent else ("structure_right",))
    for row in document["rows"]:
        at = f"at N = {row['nodes']}"
        yield from ((f"{name} {at}", row.get(name), SHARE) for name in shares)
        yield from ((f"{name} {at}", row.get(name), AMOUNT) for name in ("problems", "iterations", "operations"))
        if "unsolved_structure_right" in row:  # newer than the first results
            yield f"unsolved_structure_right {at}", row["unsolved_structure_right"], SHARE
        curve = _within(document, "curves", str(row["nodes"]), "solved_by_iteration")
        if method.latent or curve != []:  # a chain of thought has no iterations
            yield f"the curve {at}", curve, SHARES
    if method.latent:
        for nodes, times in product(job.evaluation.allowed, ALLOWED):
            part = f"allowed {times}x at N = {nodes}"
            yield part, _within(document, "allowed", str(nodes), f"{times}x"), SHARE
        for nodes in job.evaluation.entropy:
            yield f"entropy at N = {nodes}", _within(document, "entropy", str(nodes), "mean"), AMOUNT
    for name in ("average", "average_in", "average_out"):
        if name == "average" or document.get(name) is not None:  # no size may be in, or out of distribution
            yield name, document[name], SHARE
    for name in ("steps", "problems", "tokens", "operations"):
        yield f"training {name}", document["training"].get(name), AMOUNT
    for where, name, kind in (("training", "seconds", AMOUNT), ("validation", "loss", NUMBER)):
        if document[where].get(name) is not None:  # unknown, or not finite
            yield f"{where} {name}", document[where][name], kind
    yield "training curve", document["training"].get("curve"), TABLE


def _within(document: Any, *names: str) -> Any:
    """Return what is under some names, one inside the other; None where there is nothing."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document
