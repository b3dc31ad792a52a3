"""What an experiment consists of: points, the runs made of them, and what is measured of each. No torch."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.presets import preset
from latentloop.schema import changed

MINUTES = 20
"""Minutes of one core that a run at a laptop's scale gets, once for every unit of its budget."""
Scale = Literal["laptop", "further", "tuning", "rehearsal", "paper"]
TIMED: tuple[Scale, ...] = ("laptop", "further", "tuning")
"""Scales whose runs have the steps of a timed pilot."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is measured of every trained model."""

    sizes: tuple[int, ...]
    instances: int
    entropy: tuple[int, ...]
    """Sizes at which the entropy of attention is measured."""
    allowed: tuple[int, ...]
    """Sizes at which a model is run longer than it needs."""


EVALUATIONS: dict[Scale, Evaluation] = {
    "laptop": Evaluation(
        sizes=tuple(range(8, 65, 4)), instances=256, entropy=(8, 16, 24, 32, 48, 64), allowed=(16, 32, 64)
    ),
    "further": Evaluation(
        sizes=tuple(range(16, 129, 16)), instances=128, entropy=(16, 32, 64, 128), allowed=(32, 64, 128)
    ),
    "tuning": Evaluation(sizes=(16,), instances=64, entropy=(), allowed=()),
    "rehearsal": Evaluation(sizes=(8, 12), instances=8, entropy=(8, 12), allowed=(8,)),
    "paper": Evaluation(
        sizes=tuple(range(8, 129, 8)), instances=1024, entropy=(8, 16, 32, 64, 96, 128), allowed=(32, 64, 128)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One configuration of an experiment: a preset with some settings replaced, and the seeds it is run with."""

    name: str
    """Names its results; one name is one configuration, whatever experiments it is in."""
    preset: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    budget: float = 1.0
    """Multiples of the time that every run gets."""
    scale: Scale = "laptop"
    like: str = ""
    """The point whose steps take as long, where that is another one."""

    @property
    def run(self) -> RunConfig:
        """The run, without a seed; where it is timed, its steps are those of its budget."""
        run = changed(preset(self.preset), **self.overrides)
        return changed(run, steps=round(self.budget * steps_of(self))) if self.scale in TIMED else run

    @property
    def jobs(self) -> "tuple[Job, ...]":
        """The runs to be made, one for each seed."""
        return tuple(Job(point=self, seed=seed) for seed in self.seeds)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of an experiment, to be trained and measured: a point with a seed."""

    point: Point
    seed: int

    @property
    def name(self) -> str:
        """What its result and its run folder are called."""
        return f"{self.point.name}-seed{self.seed}"

    @property
    def run(self) -> RunConfig:
        """The whole configuration."""
        return changed(self.point.run, seed=self.seed)

    @property
    def evaluation(self) -> Evaluation:
        """What is measured of it."""
        return EVALUATIONS[self.point.scale]

    @property
    def key(self) -> str:
        """A hash of everything that decides its result."""
        content = {"run": self.run.chosen(), "evaluation": vars(self.evaluation)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, and the runs that answer it."""

    question: str
    points: tuple[Point, ...]
    figures: tuple[str, ...] = ()
    """Names of the figures that are drawn of it; see ``latentloop.report.ladder``."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All runs, the first seed of every point before any second one."""
        found = [job for point in self.points for job in point.jobs]
        return tuple(sorted(found, key=lambda job: job.seed))


@cache
def pilot() -> dict[str, int]:
    """Return the steps that the timed pilot gives each point in a unit of its budget."""
    text = (files("latentloop.experiments") / "steps.toml").read_text()
    return tomllib.loads(text)["steps"]


def steps_of(point: Point) -> int:
    """Return the steps of one unit of a point's budget."""
    name = point.like or point.name
    if name not in pilot():
        raise UserError(f"{name} has no steps yet: time it with `python benchmarks/pilot.py {name}`")
    return pilot()[name]
