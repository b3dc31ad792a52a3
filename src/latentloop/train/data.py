"""Which problems a step trains on: fresh ones, or those of a fixed set in a new order every epoch."""

from functools import lru_cache

import torch

from latentloop.config import Distribution, RunConfig
from latentloop.task.graph import Problems, concatenate, sample
from latentloop.task.splits import train_generator
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.targets import TrainingBatch, make_batch

FIXED_SET, FRESH = 2**63, 2**63 + 1  # in place of a step, in the keys of random numbers that belong to no one step
CHUNK = 1000  # problems of a fixed set that are sampled at once
STEPS_AT_ONCE = 16  # steps whose fresh problems are sampled at once, which costs little more than one step's


def sample_batch(run: RunConfig, step: int, vocabulary: Vocabulary, rank: int) -> TrainingBatch:
    """Return the whole batch of a step, the same on every rank, and seed this rank's dropout."""
    rng = train_generator(run.train.seed, step)
    problems = _fresh(run, step) if run.train.problems is None else _from_fixed_set(run, step)
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    torch.manual_seed(int(rng.integers(2**62)) + rank)
    return make_batch(problems, run, vocabulary, generator)


def _fresh(run: RunConfig, step: int) -> Problems:
    """Return problems that no other step sees, simpler ones while the curriculum says so."""
    group, within = divmod(step, STEPS_AT_ONCE)
    found = run.distribution_at(step)
    return _sampled(run.train.seed, found, group)[within * found.batch : (within + 1) * found.batch]


@lru_cache(maxsize=2)
def _sampled(seed: int, found: Distribution, group: int) -> Problems:
    """Sample the problems of several steps."""
    rng = train_generator(seed, FRESH, group)
    return sample(found.task, found.graph, STEPS_AT_ONCE * found.batch, rng)


def _from_fixed_set(run: RunConfig, step: int) -> Problems:
    """Take the next problems of the epoch's permutation; what does not fill a batch is left out of the epoch."""
    problems = fixed_set(run)
    steps_per_epoch = len(problems) // run.train.batch
    epoch, within = divmod(step, steps_per_epoch)
    order = train_generator(run.train.seed, FIXED_SET, 1, epoch).permutation(len(problems))
    return problems[order[within * run.train.batch : (within + 1) * run.train.batch]]


@lru_cache(maxsize=1)
def fixed_set(run: RunConfig) -> Problems:
    """Return the fixed training set of a run."""
    assert run.train.problems is not None
    chunks = -(-run.train.problems // CHUNK)
    generators = (train_generator(run.train.seed, FIXED_SET, 0, chunk) for chunk in range(chunks))
    return concatenate([sample(run.task, run.graph, CHUNK, rng) for rng in generators])[: run.train.problems]
