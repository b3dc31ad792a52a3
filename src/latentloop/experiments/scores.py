"""Scores of a configuration, its seeds together: what figures draw, and what decides a claim."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from latentloop.evaluate.metrics import wilson
from latentloop.experiments.jobs import Job, Scale
from latentloop.experiments.store import Result, stored_results
from latentloop.experiments.table import POINTS, THREE

CONFIGURATIONS = ("ladder", "encodings", "depth", "curricula")
"""Experiments whose points are the configurations of a method, of which the one with the lowest validation loss counts."""
OTHER_VALIDATION = {"skew", "true_states"}
"""Settings that change what is validated on, though not what is tested on."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Results of one point, a seed each."""

    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        """The point's name."""
        return self.results[0]["point"]

    @property
    def labels(self) -> dict[str, Any]:
        """What the point is grouped by."""
        return self.results[0]["labels"]

    @property
    def method(self) -> str:
        """The point's method."""
        return self.labels["method"]

    @property
    def seeds(self) -> list[int]:
        """The seeds that are there."""
        return [result["seed"] for result in self.results]

    @property
    def sizes(self) -> list[int]:
        """All sizes tested."""
        return [row["nodes"] for row in self.results[0]["rows"]]

    @property
    def inside(self) -> list[int]:
        """Sizes in distribution."""
        return [nodes for nodes in self.sizes if nodes <= self.labels["trained_to"]]

    @property
    def outside(self) -> list[int]:
        """Sizes out of distribution."""
        return [nodes for nodes in self.sizes if nodes > self.labels["trained_to"]]

    @property
    def validation_loss(self) -> float:
        """The loss of seed 0, which decides between points; infinite where it is not measured."""
        losses = [result["validation"].get("loss") for result in self.results if result["seed"] == 0]
        return next((float(loss) for loss in losses if loss is not None), inf)

    def rows(self, nodes: int) -> list[dict[str, Any]]:
        """Return the rows of a size, one for each seed."""
        return [row for result in self.results for row in result["rows"] if row["nodes"] == nodes]

    def solved(self, nodes: int, kind: str = "solved") -> float:
        """Return the share solved (or another share of the rows), the median of the seeds."""
        return float(median(row[kind] for row in self.rows(nodes)))

    def average(self, sizes: Sequence[int], kind: str = "solved") -> float:
        """Return the mean over sizes of the share solved."""
        return fmean(self.solved(nodes, kind) for nodes in sizes)

    def interval(self, sizes: Iterable[int], kind: str = "solved") -> tuple[float, float]:
        """Return the 95 % Wilson interval over the problems of these sizes and of all seeds together."""
        rows = [row for nodes in sizes for row in self.rows(nodes)]
        return wilson(sum(round(row[kind] * row["problems"]) for row in rows), sum(row["problems"] for row in rows))

    def averages(self, sizes: Sequence[int], kind: str = "solved") -> list[float]:
        """Return the mean over sizes for each seed."""
        return [fmean(row[kind] for row in result["rows"] if row["nodes"] in sizes) for result in self.results]


def grouped(results: Mapping[str, Result]) -> dict[str, Scores]:
    """Return results by point, in the table's order, seeds in theirs."""
    found: dict[str, list[Result]] = {}
    for result in sorted(results.values(), key=lambda result: result["seed"]):
        found.setdefault(result["point"], []).append(result)
    return {name: Scores(results=tuple(found[name])) for name in POINTS if name in found}


def comparable(one: Scores, other: Scores) -> bool:
    """Return whether the validation losses of two points are of the same targets on the same problems."""
    return comparable_labels(one.labels, other.labels)


def comparable_labels(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return the same of two points whose labels are known, measured or not."""
    names = ("method", "scale", "budget", "trajectory", "variable_size", "auxiliary")
    alike = all(one[name] == other[name] for name in names)
    return alike and not any(OTHER_VALIDATION & set(about["overrides"]) for about in (one, other))


def least_loss(candidates: Iterable[Scores]) -> Scores:
    """Return the point with the lowest validation loss; of equal ones the first."""
    return min(candidates, key=lambda scores: scores.validation_loss)


def jobs_of(scale: Scale) -> list[Job]:
    """Return all runs of a scale, whatever experiments they are in; any point may have three seeds."""
    points = [point for point in POINTS.values() if point.scale == scale]
    return [Job(point=point, seed=seed) for point in points for seed in sorted({*point.seeds, *THREE})]


def load(folder: Path, scale: Scale = "laptop") -> dict[str, Result]:
    """Read all results of a scale that are in a folder."""
    return stored_results(jobs_of(scale), folder)
