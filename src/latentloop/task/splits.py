"""Which problems train, choose and test a model: frozen constants, and streams of numbers that cannot meet.

A NumPy ``SeedSequence`` is told apart by its spawn key. Every split has a key of its own that no seed of a user's can
change, so that no training stream is ever the stream of a validation or a test set.
"""

import zlib

import numpy as np

from latentloop.config import FamilyName, GraphConfig, OrderName, TaskConfig
from latentloop.errors import UserError
from latentloop.schema import check_seed
from latentloop.task.graph import Problems, concatenate, sample

SAMPLED, TRAIN, VALIDATION, TEST = 0, 1, 2, 3  # SAMPLED: what a user samples or writes to a file

TEST_SIZES = tuple(range(8, 129, 8))
TEST_INSTANCES = 1024
PUBLISHED_SEED = 23_032
"""Entropy of the validation and test sets."""
PUBLISHED_CHUNK = 64
"""Published sets are drawn in pieces of this many, so that a longer set begins with the shorter one."""


def generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator named by a seed and a key; different keys give independent streams."""
    check_seed(seed)  # a larger one would run over into the key
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def sampled_generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of problems that a user samples, or writes to a file piece by piece."""
    return generator(seed, SAMPLED, *key)


def train_generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of one piece of a training stream; ``key`` is, say, the step and the rank."""
    return generator(seed, TRAIN, *key)


def validation_problems(task: TaskConfig, graph: GraphConfig, count: int = TEST_INSTANCES) -> Problems:
    """Return the problems on which every choice is made: of the distribution trained on, but never trained on."""
    return _published(task, graph, count, VALIDATION)


def published_problems(
    task: TaskConfig,
    nodes: int,
    count: int = TEST_INSTANCES,
    *,
    family: FamilyName = "random",
    skip: int = 0,
    order: OrderName = "drawn",
) -> Problems:
    """Return the published test problems of one size, of any depth: ``count`` of an endless list, after ``skip`` of it.

    Another ``order`` of equations gives the same graphs, names and values.
    """
    return _published(task, GraphConfig(nodes=nodes, family=family, order=order), count, TEST, skip)


def check_range(count: int, skip: int) -> None:
    """Refuse a part of a published set that is none."""
    if count < 1:
        raise UserError(f"the number of problems must be at least 1, got {count}")
    if skip < 0:
        raise UserError(f"the number of problems to skip must not be negative, got {skip}")


def _published(task: TaskConfig, graph: GraphConfig, count: int, split: int, skip: int = 0) -> Problems:
    check_range(count, skip)
    key = split, graph.nodes, zlib.crc32(graph.family.encode())
    first, start = divmod(skip, PUBLISHED_CHUNK)
    pieces = range(first, -(-(skip + count) // PUBLISHED_CHUNK))
    drawn = [sample(task, graph, PUBLISHED_CHUNK, generator(PUBLISHED_SEED, *key, piece)) for piece in pieces]
    return concatenate(drawn)[start : start + count]
