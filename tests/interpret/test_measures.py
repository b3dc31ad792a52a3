"""The definitions, against independent NumPy on small random tensors."""

import cmath
from itertools import product

import numpy as np
import pytest
import torch

from handmade import TASK, handmade
from latentloop.interpret.ablation import mean_outputs
from latentloop.interpret.attribution import attribute
from latentloop.interpret.circuits import norm_amplification, normed, ov_matrix
from latentloop.interpret.embeddings import circulant_score, cosines, fit, orthogonality_score
from latentloop.interpret.fourier import (
    DIAGONAL,
    GROUPS,
    frequency_groups,
    operands_of,
    primitive_root,
    summarize,
    transform,
)
from latentloop.interpret.frequencies import (
    _parts,
    energies,
    part_of,
    projected,
    projector,
    random_basis,
    spectrum_of,
    waves,
)
from latentloop.interpret.groups import OTHERS, Rule, find_groups, relative_variance, shares
from latentloop.interpret.heads import moments
from latentloop.interpret.residual import relative_change
from latentloop.interpret.sharpness import entropy
from latentloop.interpret.sinks import whole_pattern
from latentloop.interpret.subject import Settings, Subject, find_size
from latentloop.model.capture import capture
from latentloop.model.recurrence import update
from latentloop.task.oracle import trace
from latentloop.task.splits import published_problems
from latentloop.tokens.state import Layout, encode_state, with_values

RNG = np.random.default_rng(0)


def test_relative_variance_is_the_trace_of_the_covariance_over_the_mean_squared_norm():
    outputs = RNG.normal(size=(9, 3, 5)) + 2
    variance, norm = (x.numpy() for x in moments(torch.from_numpy(outputs)))
    for head in range(3):
        vectors = outputs[:, head]
        covariance = sum(np.outer(v - vectors.mean(0), v - vectors.mean(0)) for v in vectors) / 9
        size = np.mean([v @ v for v in vectors])
        assert variance[head] == pytest.approx(np.trace(covariance))
        assert norm[head] == pytest.approx(size)
        assert relative_variance(variance, norm)[head] == pytest.approx(np.trace(covariance) / size)
    assert relative_variance(np.zeros(2), np.zeros(2)).tolist() == [0, 0]


def test_groups_follow_the_rule():
    ratio = np.array([[0.9, 0.3, 0.05, 0.9, 0.0], [0.1, 0.2, 0.01, 0.0, 0.5]])
    norm = np.array([1.0, 1.0, 1.0, 0.001, 1.0])
    # Clear; not twice the other; below the threshold; says next to nothing; clear.
    assert find_groups(ratio, ratio * norm, norm, ("A", "B")) == {"A": [0], "B": [4], OTHERS: [1, 2, 3]}
    assert find_groups(ratio, ratio * norm, norm, ("A", "B"), Rule(dominance=1.2))["A"] == [0, 1]


def test_a_loud_head_does_not_hide_the_others():
    ratio = np.array([[0.9, 0.0, 0.0], [0.0, 0.9, 0.0]])
    for loud in (1.0, 100.0):
        norm = np.array([1.0, 1.0, loud])
        assert find_groups(ratio, ratio * norm, norm, ("A", "B")) == {"A": [0], "B": [1], OTHERS: [2]}
    assert shares(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0, 0]]


@torch.no_grad()
def test_the_ov_matrix_is_what_a_head_adds_for_one_attended_token():
    model = handmade("names", random=True).model
    attention, width = model.layers[1].attention, model.config.width
    size = width // attention.heads
    weights = attention.project.weight.numpy(), attention.out.weight.numpy()
    x = RNG.normal(size=width).astype(np.float32)
    expected = np.zeros(width)
    for head in (1, 3):
        values = weights[0][2 * width + head * size : 2 * width + (head + 1) * size]  # [dim, width]
        expected += weights[1][:, head * size : (head + 1) * size] @ (values @ x)
    matrix = ov_matrix(model, 1, [1, 3])
    np.testing.assert_allclose(matrix.numpy() @ x, expected, rtol=1e-3, atol=1e-3)
    rows = torch.stack([torch.from_numpy(x), torch.zeros(width)])
    found = norm_amplification(matrix, rows).numpy()
    np.testing.assert_allclose(found, [np.linalg.norm(expected) / np.linalg.norm(x), 0], rtol=1e-4)
    norm = model.layers[1].attention_norm
    centered = (x - x.mean()) / np.sqrt(x.var() + norm.eps)
    np.testing.assert_allclose(normed(rows[:1], norm)[0].numpy(), centered * norm.weight.numpy(), rtol=1e-4, atol=1e-5)


def test_the_transform_against_the_sum_that_defines_it():
    p, units = 3, 2
    grid = RNG.normal(size=(p, p, p, units))
    norms = transform(torch.from_numpy(grid)).numpy()
    for j, k, m in product(range(p), repeat=3):
        total = np.zeros(units, complex)
        for x, y, z in product(range(p), repeat=3):
            total += grid[x, y, z] * cmath.exp(-2j * cmath.pi * (x * j + y * k + z * m) / p)
        assert norms[j, k, m] == pytest.approx(np.linalg.norm(total / p**1.5))
    np.testing.assert_allclose((norms**2).sum(), (grid**2).sum())  # Parseval
    for j, k, m in product(range(p), repeat=3):  # the conjugate of j is -j mod p, not p - 1 - j
        assert norms[j, k, m] == pytest.approx(norms[-j % p, -k % p, -m % p])
    energy = summarize("here", torch.from_numpy(norms), frequency_groups(p)).energy
    assert energy.sum() == pytest.approx(1)


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, -1)])
def test_seven_groups_of_frequencies(signs):
    p = 5
    groups = frequency_groups(p, signs)
    for triple in product(range(p), repeat=3):
        turned = sorted(sign * number % p for sign, number in zip(signs, triple, strict=True))
        zeros, kinds = turned.count(0), len({number for number in turned if number})
        named = {3: "(0,0,0)", 2: "(0,0,a)"}.get(zeros) or {
            (1, 1): "(0,a,a)", (1, 2): "(0,a,b)", (0, 1): "(a,a,a)", (0, 2): "(a,a,b)", (0, 3): "(a,b,c)",
        }[zeros, kinds]  # fmt: skip
        assert GROUPS[groups[triple]] == named
    assert np.bincount(groups.ravel()).tolist() == [1, 12, 36, 12, 24, 36, 4]


@pytest.mark.parametrize("operation", ["+", "-", "*"])
def test_a_result_lies_on_the_diagonal_of_its_own_group(operation):
    p = 7
    values, signs = operands_of(operation, p)
    grid = np.zeros((len(values),) * 3 + (p,))
    for places in product(range(len(values)), repeat=3):
        x, y, z = (values[place] for place in places)
        grid[places][{"+": x + y + z, "-": x - y - z, "*": x * y * z}[operation] % p] = 1
    site = summarize("result", transform(torch.from_numpy(grid)), frequency_groups(len(values), signs))
    assert site.diagonal == pytest.approx(1)
    assert site.energy[0] + site.energy[DIAGONAL] == pytest.approx(1)
    assert site.counts.sum() == len(values) ** 3


def test_primitive_roots():
    for p, root in ((5, 2), (7, 3), (23, 5)):
        assert primitive_root(p) == root
        assert {pow(root, k, p) for k in range(p - 1)} == set(range(1, p))


def test_parts_of_a_function_add_up_to_it():
    p = 5
    grid = torch.from_numpy(RNG.normal(size=(p, p, p, 2)))
    groups = frequency_groups(p)
    parts = [part_of(spectrum_of(grid), groups == group) for group in range(7)]
    np.testing.assert_allclose(sum(parts).numpy(), grid.numpy(), atol=1e-5)
    np.testing.assert_allclose(parts[0].numpy(), np.broadcast_to(grid.mean((0, 1, 2)), grid.shape), atol=1e-5)
    total = np.add.outer(np.add.outer(np.arange(p), np.arange(p)), np.arange(p)) % p
    diagonal = (parts[0] + parts[DIAGONAL]).numpy()  # the mean over all triples of one sum
    for number in range(p):
        np.testing.assert_allclose(diagonal[total == number].std(0), 0, atol=1e-5)


@pytest.mark.parametrize(
    "count", [6, 7]
)  # products have an even number of values, of which one frequency is its own conjugate
def test_frequencies_of_values_are_those_of_the_cube(count):
    grid = RNG.normal(size=(count, count, count, 2))
    assert transform(torch.from_numpy(grid)).shape == (count, count, count)
    spectrum = np.fft.fftn(grid, axes=(0, 1, 2), norm="ortho")
    norms = np.linalg.norm(spectrum, axis=-1)
    np.testing.assert_allclose(transform(torch.from_numpy(grid)).numpy(), norms)
    folded = np.minimum(np.arange(count), -np.arange(count) % count)
    axes = np.stack(np.meshgrid(folded, folded, folded, indexing="ij"), axis=-1)
    tensor, bases = torch.from_numpy(grid), waves(count)
    assert len(bases) == count // 2
    found = [energies(tensor, basis).sum() for basis in bases]
    # A frequency of one value counts once, one of two or three values as often as they have it.
    np.testing.assert_allclose(found, [((axes == a).sum(-1) * norms**2).sum() for a in range(1, count // 2 + 1)])
    for chosen in ([1], [2, 3], []):
        kept = np.isin(axes, [0, *chosen]).all(-1)
        part = np.fft.ifftn(spectrum * kept[..., None], axes=(0, 1, 2), norm="ortho").real
        basis = torch.cat([*(bases[a - 1] for a in chosen), torch.empty(count, 0).double()], dim=1)
        np.testing.assert_allclose(projected(tensor, projector(basis)).numpy(), part, atol=1e-12)
    basis = random_basis(count, np.random.default_rng(3))
    np.testing.assert_allclose(basis.T @ basis, np.eye(count - 1), atol=1e-12)
    np.testing.assert_allclose(basis.sum(0), 0, atol=1e-12)  # orthogonal to what no value changes
    np.testing.assert_allclose(projected(tensor, projector(basis)).numpy(), grid, atol=1e-12)
    along = [np.einsum(f"vd, {word} -> d{word.replace('v', '')}", basis, grid) for word in ("vyzu", "xvzu", "xyvu")]
    np.testing.assert_allclose(energies(tensor, basis), sum((one**2).sum((1, 2, 3)) for one in along))


def test_circulant_and_orthogonal():
    p = 11
    angle = 2 * np.pi * np.arange(p) / p
    circle = np.stack([np.cos(2 * angle), np.sin(2 * angle)], axis=1)
    assert circulant_score(cosines(circle)) == pytest.approx(1)
    assert circulant_score(np.eye(p)) == 0  # no value is nearer to another: there is no circle
    assert circulant_score(np.eye(p) + 1e-4 * np.random.default_rng(0).normal(size=(p, p))) == 0
    scores = [circulant_score(cosines(np.random.default_rng(seed).normal(size=(p, 4)))) for seed in range(20)]
    assert np.mean(scores) < 0.25
    blocks = np.zeros((3 * p, 6))
    for operand in range(3):
        blocks[operand * p : (operand + 1) * p, 2 * operand : 2 * operand + 2] = circle
    assert orthogonality_score(cosines(blocks)) == pytest.approx(1)
    assert orthogonality_score(np.ones((6, 6))) == 0
    same = cosines(np.concatenate([np.eye(9)] * 3))  # the same vectors for all operands: most cosines are 0, and yet
    assert orthogonality_score(same) == 0


def test_an_additive_function_is_found_again():
    p, width, samples = 4, 3, 300
    vectors, constant = RNG.normal(size=(2, p + 1, width)), RNG.normal(size=width)
    symbols = RNG.integers(0, p + 1, (samples, 2))
    outputs = constant + vectors[0][symbols[:, 0]] + vectors[1][symbols[:, 1]]
    found = fit(np.stack([outputs, outputs]), np.eye(p + 1)[symbols].reshape(samples, -1), p)
    centers = vectors[:, :p].mean(1, keepdims=True)
    np.testing.assert_allclose(found.vectors, vectors - centers, atol=1e-8)
    np.testing.assert_allclose(found.mean, np.stack([constant + centers.sum(0)[0]] * 2), atol=1e-8)
    assert found.explained == pytest.approx(1)


def test_errors_have_one_source_by_precedence():
    good, bad, none = 0.91, 0.89, np.nan  # on both sides of the paper's 0.9
    attention = np.array([[good, bad, good], [none, good, good], [none, none, good], [none, none, none]])
    cosine = np.array([[good, bad, good], [none, good, bad], [none, none, good], [none, none, none]])
    leaf = np.array([False, False, False, True])
    assert attribute(attention, cosine, leaf).tolist() == [0, 1, 2, 3]


def test_small_measures():
    assert entropy(torch.tensor([0.5, 0.5, 0.0])).item() == pytest.approx(np.log(2))
    assert relative_change(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 1.0])).item() == pytest.approx(0.2)
    by_distance = torch.tensor([[[[0.7, 0.3], [0.2, 0.8]]]])  # queries at 2 and 3 of 4 tokens
    assert torch.equal(whole_pattern(by_distance, 4), torch.tensor([[[[0.0, 0.3, 0.7, 0.0], [0.0, 0.0, 0.8, 0.2]]]]))


def test_the_part_taken_out_is_that_of_the_value_held():
    values = torch.tensor([[1, 0, 2, 9, 1]])  # places in a grid of three values; the fourth node's is not in it
    parent = torch.tensor([[[0, 0, 0], [0, 0, 2], [1, 0, 2], [0, 1, 2], [1, 3, 2]]])
    there = torch.ones(1, 5, dtype=torch.bool)
    layout = Layout(
        mask=there,
        exists=there,
        rhs=torch.arange(5)[None],
        operand=torch.zeros_like(parent),
        parent=parent,
        fan_in=torch.tensor([[0, 2, 3, 3, 3]]),
    )
    part = torch.rand(2, 3, 3, 3, 4)
    held = torch.tensor([[True, True, False, True, True]])
    found = _parts(torch.where(values == 9, -1, values), held, layout, part)[0]
    assert torch.equal(found[2], part[0, 0, 1, 2])  # empty
    assert torch.equal(found[3], part[1, 1, 0, 2])  # holds a number
    assert not found[[0, 1, 4]].any()  # a leaf, two operands, an operand that is missing


@pytest.mark.parametrize("pinned", [True, False])
@torch.no_grad()
def test_means_are_of_tokens_of_the_same_kind(pinned):
    """As a loop over tokens gives them; a model that is pinned computes its last layer at right-hand sides alone."""
    trained = handmade("values", random=True, pinned=pinned)
    problems = published_problems(TASK, 12, 3)
    subject = Subject(trained=trained, size=find_size(trained, Settings(rollouts=1)), settings=Settings())
    found = mean_outputs(subject, problems)
    state, layout = encode_state(problems, trained.vocabulary)
    half = trace(problems)
    state = with_values(state, layout, half[len(half) // 2], trained.vocabulary)
    with capture(trained.model, ["head_out", "mlp_out"]) as seen:
        update(trained.model, state, layout)
    right_hand = [set(layout.rhs[row][layout.exists[row]].tolist()) for row in range(3)]

    def kind(row, position):
        return "rhs" if position in right_hand[row] else int(state.syntax[row, position])

    tokens = [(row, position) for row in range(3) for position in np.flatnonzero(layout.mask[row])]
    for layer, name in ((0, "head_out"), (1, "head_out"), (1, "mlp_out")):
        given = seen[0, layer, name]
        given = given.transpose(1, 2) if name == "head_out" else given
        means = found[layer, name].transpose(1, 2) if name == "head_out" else found[layer, name]
        if pinned and layer == 1:
            wanted = given[layout.exists].mean(0)
            torch.testing.assert_close(means[layout.exists], wanted.expand_as(means[layout.exists]))
            continue
        for row, position in tokens[::5]:
            same = [given[token] for token in tokens if kind(*token) == kind(row, position)]
            torch.testing.assert_close(means[row, position], torch.stack(same).mean(0))
