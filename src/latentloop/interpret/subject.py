"""The model under study: which problems it is studied on, and how many of them.

The paper studies its model on problems of 128 nodes, whose names are all taken. A model that does not solve these is studied
at the largest size that it does solve, or, if there is none, at the size that it solves best; one that was never shown a name
twice, and fails when it is, gets a free name.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from latentloop.config import MAX_FAN_IN, TaskConfig
from latentloop.config.positions import AbsoluteConfig
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret.probes import LEAST_NODES, OPERANDS, Scene, make_scene, varied_values
from latentloop.interpret.shared import Bench
from latentloop.model.transformer import Transformer
from latentloop.task.graph import EMPTY
from latentloop.task.splits import generator, published_problems
from latentloop.tokens.vocabulary import Vocabulary

SIZES = (128, 96, 64, 48, 32, 24, 16, 12, 8)
"""Sizes to study a model at, the paper's first."""
LEAST_NAMES = 12
"""Names that a model must know to be probed: the smallest size that has room for a probe's operands."""
SOLVED = 0.99
"""A size counts as solved from this share of its problems on."""
ASKED = 100
"""Problems of each size that is tried, at most."""
SIZE_READS = ("scenes", "rollouts", "seed")
"""Settings that the choice of a size depends on, and with it every analysis."""
LONGEST_NODE = 2 * MAX_FAN_IN + 2
"""Tokens of a node's equation, at most."""
INTERPRET = 14
"""Key of the stream of random numbers of this package."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is sampled."""

    scenes: int = 4
    """Problems that probes are appended to."""
    instances: int = 256
    """Problems whose errors are attributed."""
    rollouts: int = 64
    """Problems that an ablated model is asked to solve."""
    pairs: int = 32
    """Pairs of probes for each patch, a scene."""
    samples: int = 1024
    """Probes that new-value embeddings are fitted to."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Size:
    """The problems that a model is studied on."""

    nodes: int
    solved: float
    """Share of problems of that size that the model solves."""
    tried: dict[str, float]
    """The share at every size that was tried."""
    repeats: bool
    """Whether the probe's right-hand side repeats a name, as in the paper; only where the problem leaves no name free."""
    probes_right: float | None
    """Share of probes that the model answers; None where none was run: no values can be put into the state, or too few names
    are known."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model and the problems to study it on."""

    trained: LatentLoop
    size: Size
    settings: Settings
    skip: int = 0
    """Problems that come before: other parts of the same analysis are about them."""

    @property
    def model(self) -> Transformer:
        """The transformer."""
        return self.trained.model

    @property
    def vocabulary(self) -> Vocabulary:
        """Its symbols."""
        return self.trained.vocabulary

    @property
    def task(self) -> TaskConfig:
        """Its language."""
        return self.trained.run.task

    @property
    def largest(self) -> int:
        """The most nodes, up to the paper's, that there are names and positions for, whether or not these are solved."""
        positions = self.trained.run.model.positions
        longest = positions.max_positions if isinstance(positions, AbsoluteConfig) else math.inf
        fitting = (size for size in SIZES if size <= self.task.names and LONGEST_NODE * size <= longest)
        return next(fitting, self.size.nodes)

    def scenes(self, *, free: int = 1, key: int = 0, times: int = 1) -> Iterator[Scene]:
        """Yield the problems that probes are appended to, with so many ``free`` names where names must not repeat; ``times``
        as many as in the settings."""
        nodes = scene_nodes(self.task, self.size.nodes, repeats=self.size.repeats, free=free)
        for number in range(times * self.settings.scenes):
            yield make_scene(self.task, nodes, generator(self.settings.seed, INTERPRET, key, number))


def scene_nodes(task: TaskConfig, nodes: int, *, repeats: bool, free: int = 1) -> int:
    """Return how many nodes a scene can have that leaves names free."""
    return nodes if repeats else max(LEAST_NODES, min(nodes, task.names - free))


def find_size(trained: LatentLoop, settings: Settings) -> Size:
    """Find the largest size that a model solves, from the one it was trained on, and whether its probes may repeat names.

    With too few names for probes any size will do.
    """
    task, trained_on = trained.run.task, trained.run.graph.nodes
    probed = task.names >= LEAST_NAMES
    possible = [size for size in SIZES if (LEAST_NODES if probed else 0) <= size <= task.names] or [task.names]
    tried: dict[str, float] = {}

    def solves(nodes: int) -> bool:
        try:
            answers = trained.solve_problems(published_problems(task, nodes, min(ASKED, 2 * settings.rollouts)))
        except UserError:  # longer than its absolute positions reach
            return False
        tried[str(nodes)] = float(np.mean([answer.correct for answer in answers]))
        return tried[str(nodes)] >= SOLVED

    start = next((size for size in possible if size <= trained_on), possible[-1])
    if solves(start):
        found = next((size for size in possible if size > start and solves(size)), start)
    else:
        smaller = next((size for size in possible if size < start and solves(size)), None)
        found = smaller or max([start, *map(int, tried)], key=lambda size: (tried.get(str(size), 0.0), size))
    solved = tried.get(str(found), 0.0)
    if not trained.method.latent or trained.method.carries != "state" or not probed:
        return Size(nodes=found, solved=solved, tried=tried, repeats=False, probes_right=None)
    ways = (True, False) if found == task.names else (False,)
    right = {repeats: _probes_right(trained, found, settings, repeats=repeats) for repeats in ways}
    repeats = True in right and right[True] >= min(right[False], SOLVED)
    return Size(nodes=found, solved=solved, tried=tried, repeats=repeats, probes_right=right[repeats])


def _probes_right(trained: LatentLoop, nodes: int, settings: Settings, *, repeats: bool) -> float:
    """Return the share of probes with varied values that are answered right."""
    task = trained.run.task
    right = []
    for number in range(settings.scenes):
        free = scene_nodes(task, nodes, repeats=repeats)
        scene = make_scene(task, free, generator(settings.seed, INTERPRET, 1, number))
        for place in OPERANDS:
            bench = Bench(trained.model, varied_values(scene, place, empty=True))
            for rows in bench.chunks():
                answers = bench.probes.answers[rows]
                right.append(
                    bench.answers(rows).numpy() == np.where(answers == EMPTY, trained.vocabulary.empty, answers)
                )
    return float(np.concatenate(right).mean())
