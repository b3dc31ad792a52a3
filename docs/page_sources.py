"""What README and docs may quote: every stored result by name, and a few figures derived from them. Nothing is measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentloop.config import MAX_FAN_IN
from latentloop.experiments.scores import load
from latentloop.files import read_json
from latentloop.interpret.study import read_study
from latentloop.report.results import PAGE_SCALES
from latentloop.report.study import about_study, study_charts, study_parts

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MODELS = ("laptop-add", "laptop-all", "laptop-all-4096")
SEEDS = (0, 1, 2)
SIZES = (32, 64, 128)
EXPERIMENTS = ROOT / "experiments"
STUDIES = ROOT / "docs" / "studies"
"""A folder for each model that was interpreted. There is no other list of them."""


class Rows(list):
    """Rows of a result, found by their number of nodes: what ``str.format`` writes as ``[rows][128]``."""

    def __getitem__(self, nodes: Any) -> Any:
        return next(row for row in self if row["nodes"] == nodes)


def sources() -> dict[str, Any]:
    """Return every stored result that text may quote, by name, with a few figures derived from them."""
    found: dict[str, Any] = {path.stem: _indexed(read_json(path)) for path in sorted(RESULTS.glob("*.json"))}
    for name in MODELS:
        kinds = ("evaluation", "certificate", "stress", "metrics")
        found[name] = {kind: _indexed(read_json(ROOT / "checkpoints" / name / f"{kind}.json")) for kind in kinds}
    found["studies"] = {folder.name: _study(folder) for folder in study_folders()}
    found["experiments"] = {name: one for scale in PAGE_SCALES for name, one in load(EXPERIMENTS, scale).items()}
    found["derived"] = _derived(found)
    return found


def study_folders() -> list[Path]:
    """Return the folders of all models that were interpreted."""
    return sorted(path.parent for path in STUDIES.glob("*/verdicts.json"))


def _study(folder: Path) -> dict[str, Any]:
    """Return a model's verdicts, with the errors that were put down to parts of it and what each analysis says."""
    study = read_study(folder)
    charts = study_charts(study)
    return read_json(folder / "verdicts.json") | {
        "about": about_study(study, read_json(folder / "model.json")),
        "results": study.results,
        "parts": study_parts(study, charts),
        "circuit_charts": charts.get("circuit", {}),
    }


def _indexed(document: dict[str, Any]) -> dict[str, Any]:
    """Make rows easy to point at, and count what is stored as a share."""
    for key in ("rows", "sizes"):
        if key in document:
            for row in document[key]:
                if "solved" in row:
                    row["count"] = round(row["solved"] * row["problems"])
            document[key] = Rows(document[key])
    return document


def _derived(found: Mapping[str, Any]) -> dict[str, Any]:
    """Compute what the text sums up."""
    runs = {name: seeds_of(found, name) for name in MODELS}
    return {
        "seconds": {name: max(run["training"]["seconds"] for run in runs[name]) for name in MODELS},
        "minutes": {name: max(run["training"]["seconds"] for run in runs[name]) / 60 for name in MODELS},
        "large": {
            f"{row['family']} {row['nodes']}": row | {"counts": _counts(found, row)} for row in found["large"]["rows"]
        },
        "solve": {row["nodes"]: _spread(row["problems"]) for row in found["solving"]["asked"]},
        "explored": _explored(found["explorer"]),
        "plain": _solved(found["experiments"]["discrete-plain-more-seed0"]),
        "opened": _opened(found["studies"]),
    }


def _opened(studies: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the text says of two models, besides their verdicts."""
    plain, corrected = (studies[name]["results"] for name in ("discrete-plain-more-seed0", "corrected-4x-seed0"))
    similarity = plain["embeddings"].measured_similarity
    size = len(similarity) // MAX_FAN_IN
    shared = similarity[:size, size : 2 * size].diagonal()[:-1]  # of VAR0 and VAR1; the last symbol is empty
    return {
        "nodes": plain["ablation"].nodes,
        "name": next(part.solved for part in plain["ablation"].parts if part.part == "name of RHS"),
        "shared": float(shared.mean()),
        "gathered": corrected["flow"].attention["value"][-1, :, -1].tolist(),
    }


def _solved(result: Mapping[str, Any]) -> dict[str, int]:
    """Return the largest size of which every problem is solved, and how many of the largest are, of how many."""
    whole = max(row["nodes"] for row in result["rows"] if row["solved"] == 1)
    last = result["rows"][-1]
    return {
        "whole": whole,
        "last": last["nodes"],
        "solved": round(last["solved"] * last["problems"]),
        "of": last["problems"],
    }


def _explored(found: Mapping[str, Any]) -> dict[str, Any]:
    """Sum up how the page's engine compares, and what an iteration of its largest problems takes, by model."""
    summed = {
        model["name"]: {key: sum(row[key] for row in model["rows"]) for key in ("same", "problems")}
        for model in found["compared"]["models"]
    }
    for model in found["timed"]["models"]:
        summed[model["name"]]["milliseconds"] = model["rows"][-1]["milliseconds"]
    return summed


def _spread(problems: Sequence[dict[str, Any]]) -> dict[str, float]:
    seconds = [row["seconds"] for row in problems]
    return {"low": min(seconds), "high": max(seconds)}


def seeds_of(found: Mapping[str, Any], name: str) -> list[Any]:
    """Return the results of the seeds of a model that were trained and measured."""
    return [found[f"{name}-seed{seed}"] for seed in SEEDS if f"{name}-seed{seed}" in found]


def _counts(found: Mapping[str, Any], asked: Mapping[str, Any]) -> list[int]:
    """Return how many problems of a kind each seed solves, of those that were measured; seed 0 is the first."""
    others = [found[f"large-seed{seed}"]["rows"] for seed in SEEDS if f"large-seed{seed}" in found]
    same = [
        row for rows in others for row in rows if all(row[key] == asked[key] for key in ("family", "nodes", "skip"))
    ]
    return [row["count"] for row in (asked, *same)]
