"""Stored results of experiments: one JSON document a run, read with suspicion and written whole."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import latentloop
from latentloop.errors import UserError
from latentloop.experiments.jobs import Job
from latentloop.files import read_json, write_json

FORMAT = "latentloop experiment 1"
CHECKOUT = Path(latentloop.__file__).parents[2]
SHIPPED = CHECKOUT / "experiments" if (CHECKOUT / "experiments" / "results").is_dir() else Path("experiments")
"""Results and weights, ``results/NAME.json`` and ``weights/NAME/``: those of a source checkout, else of the working folder."""
Result = dict[str, Any]
KINDS: dict[str, type | tuple[type, ...]] = {
    "point": str, "seed": int, "key": str, "labels": dict, "training": dict, "rows": list, "curves": dict,
    "average": (int, float), "model": dict, "provenance": dict,
}  # fmt: skip
"""What every result holds; ``measure`` says what is in each part."""


def result_path(folder: Path, name: str) -> Path:
    """Return where the result of a job of that name is."""
    return folder / "results" / f"{name}.json"


def read_result(path: Path) -> Result:
    """Read a result; raise a UserError if the file is broken, or something else."""
    document = read_json(path)
    if document.get("format") != FORMAT:
        raise UserError(f"cannot read {path}: it is no result of an experiment (its format should be {FORMAT!r})")
    for name, kind in KINDS.items():
        if not isinstance(document.get(name), kind):
            raise UserError(f"cannot read {path}: its {name!r} is missing, or of another kind")
    if not document["rows"] or not all(
        isinstance(row, dict) and {"nodes", "solved", "solved_low", "solved_high", "problems"} <= row.keys()
        for row in document["rows"]
    ):
        raise UserError(f"cannot read {path}: its rows are no scores by size")
    return document


def stored(job: Job, folder: Path) -> Result | None:
    """Return a job's result if there is one; raise a UserError if it is of another configuration."""
    path = result_path(folder, job.name)
    if not path.exists():
        return None
    document = read_result(path)
    if document["key"] != job.key:
        raise UserError(
            f"{path} is of another configuration than {job.name} has today: move it away to measure again, "
            "or name another --folder"
        )
    return document


def stored_results(jobs: Iterable[Job], folder: Path) -> dict[str, Result]:
    """Return the results that are there, by job."""
    return {job.name: found for job in jobs if (found := stored(job, folder)) is not None}


def write_result(folder: Path, document: Result) -> None:
    """Write a result, whole or not at all."""
    write_json(result_path(folder, f"{document['point']}-seed{document['seed']}"), document)
