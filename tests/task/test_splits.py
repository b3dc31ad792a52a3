import hashlib

import numpy as np
import pytest

from latentloop.config import RunConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import (
    PUBLISHED_SEED,
    TEST_SIZES,
    published_problems,
    train_generator,
    validation_problems,
)

ADD = TaskConfig()
GRAPH = RunConfig().graph
"""What a run trains on if nothing else is said."""


def test_published_sizes():
    assert TEST_SIZES == (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128)


def test_no_split_meets_another_even_with_the_published_seed():
    train = [sample(ADD, GRAPH, 1024, train_generator(PUBLISHED_SEED, step)) for step in range(20)]
    seen = {print for batch in train for print in batch.fingerprints()}
    assert len(seen) == 20 * 1024
    held_out = {p for n in (8, 32) for p in published_problems(ADD, n).fingerprints()}
    chosen_on = set(validation_problems(ADD, GRAPH).fingerprints())
    assert len(held_out) == 2048
    assert not seen & held_out
    assert not seen & chosen_on
    assert not chosen_on & held_out


def test_a_longer_set_begins_with_the_shorter():
    assert published_problems(ADD, 16, 100).fingerprints() == published_problems(ADD, 16, 300).fingerprints()[:100]


def test_skipping_goes_on_where_the_first_ones_end():
    whole = published_problems(ADD, 16, 300).fingerprints()
    for skip in (0, 5, 64, 100):
        assert published_problems(ADD, 16, 150, skip=skip).fingerprints() == whole[skip : skip + 150]


def test_every_published_set_and_the_training_stream_are_frozen():
    def digest(batches):
        prints = [fingerprint for batch in batches for fingerprint in batch.fingerprints()]
        return hashlib.blake2b(b"".join(prints), digest_size=8).hexdigest()

    assert digest(published_problems(ADD, n) for n in TEST_SIZES) == "aa2c314f4e2676fd"
    assert digest([validation_problems(ADD, GRAPH)]) == "ed044389e32e83a3"
    assert digest(sample(ADD, GRAPH, 32, train_generator(0, step)) for step in range(20)) == "e0386fb2a7d33af6"


def test_published_bytes_are_frozen():
    assert published_problems(ADD, 128, 1).fingerprints()[0].hex() == "4b5c541448337994583b0ea4d3a4456d"
    assert validation_problems(ADD, GRAPH, 1).fingerprints()[0].hex() == "e29282c60190e3bd7c13f340184e6dca"


def test_validation_stays_within_training_depth_and_tests_go_beyond():
    assert solve(validation_problems(ADD, GRAPH)).depths.max() <= GRAPH.depth_limit
    assert solve(published_problems(ADD, 128, 64)).depths.max() > 2 * GRAPH.depth_limit - 3


def test_families_have_published_sets_too():
    chains = published_problems(ADD, 128, 3, family="chain")
    assert (solve(chains).depths.max(1) == 128).all()
    assert np.array_equal(chains.names, published_problems(ADD, 128, 3, family="chain").names)


def test_seeds_and_counts_out_of_range_are_refused():
    for seed in (-1, 2**64):  # a larger one would reach into the key that tells splits apart
        with pytest.raises(UserError, match=f"got {seed}"):
            train_generator(seed)
    with pytest.raises(UserError, match="at least 1, got -5"):
        published_problems(ADD, 8, -5)
    with pytest.raises(UserError, match="must not be negative, got -1"):
        published_problems(ADD, 8, 5, skip=-1)


def test_published_problems_in_another_order_are_the_same_problems():
    drawn, sorted_again = (published_problems(ADD, 64, 8, order=order) for order in ("drawn", "topological"))
    assert drawn.fingerprints() != sorted_again.fingerprints()
    values = solve(drawn).values, solve(sorted_again).values
    for row in range(8):
        assert drawn.by_variable(row, values[0][row]) == sorted_again.by_variable(row, values[1][row])
