"""What a rule goes by: the stored results it asks for, or which of them are missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from latentloop.experiments.jobs import Experiment
from latentloop.experiments.scores import CONFIGURATIONS, Scores, comparable_labels, grouped, least_loss
from latentloop.experiments.store import Result, labels
from latentloop.experiments.table import EXPERIMENTS, POINTS


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a rule finds: whether it is met, whether its opposite is, and the numbers that say so."""

    met: bool
    opposite: bool
    because: str


class MissingError(Exception):
    """Runs that a rule needs are not there yet."""

    def __init__(self, runs: list[str], why: str = "") -> None:
        super().__init__(why)
        self.runs, self.why = tuple(runs), why


@cache
def _labels(name: str) -> dict[str, Any]:
    """Return the labels of a point that need not be measured."""
    return labels(POINTS[name].jobs[0])


class Evidence:
    """Stored results, as a rule asks for them; raises ``MissingError`` for what is not there.

    ``any_seeds`` makes do with the seeds that a point has, for a first look at what is not finished.
    """

    def __init__(self, results: Mapping[str, Result], experiment: Experiment, *, any_seeds: bool = False) -> None:
        self.results = results
        self.any_seeds = any_seeds
        self.listed = {point.name: point for point in experiment.points}
        self.used: set[str] = set()
        """Names of the runs that were handed out."""
        self.waiting: set[str] = set()
        """Runs that are not there, of configurations among which the best one was chosen."""

    def points(self, *names: str) -> list[Scores]:
        """Return points of the claim's own experiment, with all seeds that the table gives them anywhere."""
        wanted = [[job.name for job in POINTS[name].jobs] for name in names]
        missing = [job for jobs in wanted for job in self._missing(jobs)]
        if missing:
            raise MissingError(missing)
        found = [[job for job in jobs if job in self.results] for jobs in wanted]
        self.used.update(job for jobs in found for job in jobs)
        return [Scores(results=tuple(self.results[job] for job in jobs)) for jobs in found]

    def best(self, *methods: str, seeds: int = 1, layers: int | None = None) -> list[Scores]:
        """Return each method's configuration with the lowest validation loss, all experiments taken together.

        Losses are compared where they are of the same targets: not between formats of a chain of thought, or with
        auxiliary losses and without.
        """
        missing = [job for method in methods for job in self._missing([job.name for job in POINTS[method].jobs])]
        if missing:
            raise MissingError(missing)
        found, lacking = [], []
        for method in methods:
            try:
                found.append(self._best(method, seeds, layers))
            except MissingError as error:
                lacking.append(error)
        if lacking:  # of all methods, so that one command brings everything
            raise MissingError([run for one in lacking for run in one.runs], "; ".join(one.why for one in lacking))
        return found

    def at_equal_compute(self, *methods: str) -> list[Scores]:
        """Return all that is stored of some methods with the usual budget, at a laptop's scale."""
        found = [scores for scores in grouped(self.results).values() if scores.method in methods]
        return [s for s in found if s.labels["scale"] == "laptop" and s.labels["budget"] == 1]

    def _missing(self, jobs: list[str]) -> list[str]:
        """Return which of a point's runs are wanted and not there."""
        missing = [job for job in jobs if job not in self.results]
        return [] if self.any_seeds and len(missing) < len(jobs) else missing

    def _best(self, method: str, seeds: int, layers: int | None) -> Scores:
        known = grouped(self.results)
        listed = dict.fromkeys(point.name for name in CONFIGURATIONS for point in EXPERIMENTS[name].points)
        about = {name: known[name].labels if name in known else _labels(name) for name in listed}
        candidates = [
            name
            for name, found in about.items()
            if comparable_labels(found, known[method].labels) and layers in (None, found["layers"])
        ]
        first = {name: f"{name}-seed0" for name in candidates}  # the seed whose losses are compared
        self.waiting.update(job for job in first.values() if job not in self.results)
        measured = [known[name] for name in candidates if first[name] in self.results]
        if not measured:
            raise MissingError([first[method]])
        best = least_loss(measured)
        wanted = {job.seed for job in POINTS[best.name].jobs} | set(range(seeds))
        missing = self._missing([f"{best.name}-seed{seed}" for seed in sorted(wanted)])
        if missing:
            raise MissingError(
                missing,
                f"{best.name} has the lowest validation loss of {method}, and {len(best.results)} of {len(wanted)} seeds "
                f"(`latentloop reproduce {best.name}` trains the others)",
            )
        self.used.update(f"{best.name}-seed{result['seed']}" for result in best.results)
        return best
