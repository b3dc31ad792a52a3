import networkx as nx
import numpy as np
import pytest

from latentloop.config import GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.families import FAMILIES
from latentloop.task.graph import ABSENT, EMPTY, concatenate, sample
from latentloop.task.oracle import solve
from latentloop.task.text import parse, to_text
from strategies import given_problems

ALL = TaskConfig.named("all")


def draw(count=512, task=ALL, seed=0, **graph):
    return sample(task, GraphConfig(**graph), count, np.random.default_rng(seed))


@given_problems()
def test_every_problem_is_well_formed(task, problems):
    for row, size in enumerate(problems.sizes):
        names = problems.names[row, :size]
        assert len(set(names)) == size
        assert names.min() >= 0
        assert names.max() < task.names
        assert (problems.names[row, size:] == ABSENT).all()
        assert (problems.parents[row, size:] == ABSENT).all()
        for node in range(size):
            present = [p for p in problems.parents[row, node] if p != ABSENT]
            assert list(problems.parents[row, node, : len(present)]) == present
            assert len(set(present)) == len(present)
            assert all(0 <= p < node for p in present)
            assert (problems.operations[row, node] != ABSENT).sum() == max(len(present) - 1, 0)
            assert (problems.constants[row, node] == EMPTY) == bool(present)
            assert problems.constants[row, node] < problems.modulus


@given_problems()
def test_generations_and_depths_agree_with_networkx(task, problems):
    depths = solve(problems).depths
    for row, size in enumerate(problems.sizes):
        graph = nx.DiGraph()
        graph.add_nodes_from(range(size))
        graph.add_edges_from((p, n) for n in range(size) for p in problems.parents[row, n] if p != ABSENT)
        expected = {node: depth for depth, layer in enumerate(nx.topological_generations(graph), 1) for node in layer}
        assert [expected[node] for node in range(size)] == list(depths[row, :size])
        assert sorted(depths[row, :size]) == list(depths[row, :size])


def test_the_same_seed_gives_the_same_bytes():
    first, again, other = draw(seed=5), draw(seed=5), draw(seed=6)
    assert first.fingerprints() == again.fingerprints()
    assert not set(first.fingerprints()) & set(other.fingerprints())


def test_bytes_are_frozen():
    digest = draw(8, nodes=32, depth_limit=7).fingerprints()[-1].hex()
    assert digest == "4dc0c725c2bbce09857c9aa36ed7e325"


@pytest.mark.parametrize("family", ["random", "chain", "tree", "wide", "copies"])
def test_the_topological_order_is_that_of_networkx(family):
    settings = {"nodes": 48, "min_nodes": 20, "family": family}
    created, ordered = draw(40, **settings), draw(40, **settings, order="topological")
    for row, size in enumerate(created.sizes):
        graph = nx.DiGraph()
        graph.add_nodes_from(range(size))
        graph.add_edges_from((p, n) for n in range(size) for p in created.parents[row, n] if p != ABSENT)
        expected = created.names[row, list(nx.topological_sort(graph))]
        assert ordered.names[row, :size].tolist() == expected.tolist()
        assert sorted(to_text(ordered, row).split(" ; ")) == sorted(to_text(created, row).split(" ; "))
        assert parse(to_text(ordered, row), ALL).fingerprints() == ordered[row : row + 1].fingerprints()
    assert (solve(ordered).depths == solve(created).depths).all()
    assert (created.names == ordered.names).all() == (family in ("chain", "tree"))  # created in that order


def test_the_depth_limit_is_met_and_never_fails():
    for limit in (2, 3, 7):
        depths = solve(draw(nodes=64, depth_limit=limit, seed=limit)).depths
        assert depths.max() == limit


def test_fan_in_is_uniform_and_leaves_are_six():
    problems = draw(2000, nodes=32, depth_limit=7)
    counts = np.bincount(problems.fan_in.ravel(), minlength=4)
    assert counts[0] == 2000 * 6
    assert np.allclose(counts[1:] / counts[1:].sum(), 1 / 3, atol=0.01)


def test_parents_are_uniform_over_earlier_nodes_in_random_order():
    problems = draw(30_000, nodes=7, leaves=6)
    for operand in range(3):
        chosen = problems.parents[:, 6, operand]
        shares = np.bincount(chosen[chosen != ABSENT], minlength=6) / (chosen != ABSENT).sum()
        assert np.allclose(shares, 1 / 6, atol=0.015)
    pairs = problems.parents[problems.fan_in[:, 6] == 3, 6]
    counts = np.bincount(pairs @ [36, 6, 1], minlength=216)
    assert (counts > 0).sum() == 6 * 5 * 4
    assert counts[counts > 0].std() / counts[counts > 0].mean() < 0.15


def test_operations_names_and_values_are_uniform():
    problems = draw(4000, nodes=16)
    operations = problems.operations[problems.operations != ABSENT]
    assert np.allclose(np.bincount(operations) / len(operations), 1 / 3, atol=0.01)
    assert np.bincount(problems.names.ravel(), minlength=128).std() / 500 < 0.07
    values = problems.constants[problems.constants != EMPTY]
    assert np.allclose(np.bincount(values) / len(values), 1 / 23, atol=0.005)


def test_sizes_are_uniform_when_they_vary():
    sizes = draw(5000, nodes=32, min_nodes=8).sizes
    assert sizes.min() == 8
    assert sizes.max() == 32
    assert np.bincount(sizes)[8:].std() / 200 < 0.12


def test_rows_can_be_taken_apart_and_joined():
    problems = draw(20, nodes=32, min_nodes=8)
    parts = [problems[:7], problems[np.arange(7, 20)]]
    assert concatenate(parts).fingerprints() == problems.fingerprints()
    assert problems[:1].width == problems.sizes[0]


def test_large_graphs_and_large_vocabularies():
    problems = draw(2, task=TaskConfig(names=5000), nodes=4096)
    assert problems.names.max() > 4096
    assert solve(problems).values.min() >= 0


@pytest.mark.parametrize("name", FAMILIES)
def test_families_have_the_shape_they_promise(name):
    problems = draw(64, nodes=64, family=name)
    solution = solve(problems)
    depths, fan_in = solution.depths.max(1), problems.fan_in
    leaves = (fan_in == 0).sum(1)
    match name:
        case "random":
            assert (leaves == 6).all()
        case "chain":
            assert (depths == 64).all()
            assert (leaves == 1).all()
            assert (problems.parents == (np.arange(64) - 1)[:, None])[:, 1:].any(-1).all()
        case "star":
            assert (depths == 2).all()
            assert (problems.parents[:, 1:, 0] == 0).all()
            assert (fan_in[:, 1:] == 1).all()
        case "tree":
            assert (leaves == 32).all()
            assert (depths == 7).all()  # 32 leaves fold in five steps to a root, and the 64th node copies it
            used = [np.bincount(row[row != ABSENT], minlength=64) for row in problems.parents]
            assert (np.array(used)[:, :-1] == 1).all()
        case "wide":
            assert (depths == 2).all()
            assert (leaves == 32).all()
        case "equal":
            given = problems.constants[:, :6]
            assert (given == given[:, :1]).all()
            assert (given > 0).all()
        case "zeros":
            assert (solution.values == 0).all()
        case "copies":
            assert (fan_in[:, 6:] == 1).all()
        case "triples":
            assert (fan_in[:, 6:] == 3).all()
        case "far":
            assert (problems.parents[:, 6:] == 0).any(-1).all()
            assert {0, 1, 2} == set(np.argmax(problems.parents[:, 6:] == 0, axis=-1).ravel())
        case _:
            pytest.fail(f"the family {name} has no test")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": 129}, "129 nodes need as many distinct names, and there are 128"),
        ({"family": "chain", "depth_limit": 7}, "its own depth"),
        ({"family": "tree", "leaves": 1}, "its own number of leaves"),
        ({"count": 0}, "at least 1, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        draw(**settings)
