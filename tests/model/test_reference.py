"""The NumPy engine against the torch model: two implementations that share no code, and the same states."""

import ast
import itertools
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from latentloop.config import GraphConfig, RunConfig
from latentloop.config.positions import AbsoluteConfig, PositionsConfig
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import default_cap, roll_out
from latentloop.files import read_json
from latentloop.methods import METHODS
from latentloop.model import reference as module
from latentloop.model.build import build_model, weights_of
from latentloop.model.capture import capture
from latentloop.model.positions import POSITIONS
from latentloop.model.recurrence import Fixed, iterate
from latentloop.model.reference import ENCODINGS, Reference
from latentloop.presets import preset
from latentloop.schema import changed
from latentloop.task.graph import sample
from latentloop.task.splits import sampled_generator
from latentloop.tokens.factored import encode
from latentloop.tokens.state import encode_state

ROOT = Path(__file__).parent.parent.parent
NAMES = sorted(path.parent.name for path in (ROOT / "checkpoints").glob("*/manifest.json"))
LATENT = [name for name, row in METHODS.items() if row.latent]


def pair(method, encoding, **settings):
    """Return a torch model in double precision, with weights that decide many things, and the same in NumPy."""
    run = changed(preset(f"tiny-{method}"), positions=PositionsConfig.kind(encoding)(), layers=3, **settings)
    model = build_model(run).double().eval()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():  # small biases, else all decisions would be much the same
        torch.nn.init.normal_(parameter, std=8.0 if "embeddings" in name else 1.0 if "weight" in name else 0.1)
    return model, Reference(run, weights_of(model))


def draw(run, nodes=12, count=1, seed=3):
    return sample(run.task, GraphConfig(nodes=nodes), count, sampled_generator(seed))


@torch.no_grad()
def run_torch(model, problems, iterations):
    return list(iterate(model, *encode_state(problems, model.vocabulary), Fixed(iterations)))


@pytest.mark.parametrize("method", [*LATENT, "pinned"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_method_and_encoding_is_what_torch_computes(method, encoding):
    pinned = {"pin_static": True} if method == "pinned" else {}
    model, reference = pair("discrete" if pinned else method, encoding, **pinned)
    problems = draw(reference.run)
    steps = itertools.islice(reference.iterate(encode(problems, model.vocabulary)), 4)
    different = set()
    for (state, output), step in zip(run_torch(model, problems, 4), steps, strict=True):
        assert step.logits.keys() == output.logits.keys()
        for name, scores in output.logits.items():
            np.testing.assert_allclose(step.logits[name], scores[0].numpy(), atol=1e-9)
        np.testing.assert_allclose(step.hidden, output.hidden[0].numpy(), atol=1e-9)
        for name, numbers in state.factors().items():
            assert numbers[0].tolist() == step.state[name].tolist()
        different |= set(step.state["value"].tolist())
    assert len(different) > 3  # weights that decided one thing everywhere would show nothing


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_attention_is_what_torch_attends_to(encoding):
    model, reference = pair("discrete", encoding)
    problems = draw(reference.run)
    (step,) = itertools.islice(reference.iterate(encode(problems, model.vocabulary), patterns=True), 1)
    with capture(model, ["pattern"]) as seen:
        run_torch(model, problems, 1)
    for layer, pattern in enumerate(step.patterns):
        found = seen[0, layer, "pattern"][0].numpy()
        if found.shape != pattern.shape:  # torch keeps a window by distance
            length, window = found.shape[1:]
            places = np.arange(length)[:, None] - np.arange(window)
            found = np.where(places >= 0, found, 0.0)
            by_key = np.zeros_like(pattern)
            for distance in range(window):
                queries = np.flatnonzero(places[:, distance] >= 0)
                by_key[:, queries, places[queries, distance]] = found[:, queries, distance]
            found = by_key
        np.testing.assert_allclose(pattern, found, atol=1e-9)
        np.testing.assert_allclose(pattern.sum(-1), 1.0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_blocks_of_queries_change_nothing(encoding, monkeypatch):
    model, reference = pair("stable", encoding)
    tokens = encode(draw(reference.run), model.vocabulary)
    whole = list(itertools.islice(reference.iterate(tokens, patterns=True), 2))
    monkeypatch.setattr(module, "BLOCK", 7)
    for step, expected in zip(reference.iterate(tokens, patterns=True), whole, strict=False):
        np.testing.assert_allclose(step.logits["value"], expected.logits["value"], atol=1e-12)
        for pattern, other in zip(step.patterns, expected.patterns, strict=True):
            np.testing.assert_allclose(pattern, other, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_models_go_through_the_same_states(name):
    """The benchmark of the two engines, on fewer problems: half from nothing, half from random values."""
    trained = LatentLoop.from_pretrained(name)
    reference = Reference(trained.run, trained.checkpoint.weights)
    for nodes, count in (6, 64), (12, 30), (24, 6), (128, 1):
        problems = draw(trained.run, nodes, count, seed=nodes)
        limits = np.full(count, default_cap(nodes))
        start = np.random.default_rng(0).integers(-1, problems.modulus, problems.names.shape, dtype=np.int8)
        start[: count // 2] = -1
        ours = roll_out(reference, problems, limits, start=start)
        for one, other in zip(ours, roll_out(trained.model, problems, limits, start=start), strict=True):
            assert np.array_equal(one.states, other.states)
            assert (one.fixpoint, one.cycle) == (other.fixpoint, other.cycle)


def test_two_files_are_enough():
    from safetensors.numpy import load_file

    folder = ROOT / "checkpoints" / "laptop-add"
    run = RunConfig.from_dict(read_json(folder / "config.json"))
    model = Reference(run, load_file(folder / "model.safetensors"))
    problems = draw(run)
    *_, step = itertools.islice(model.iterate(encode(problems, model.vocabulary)), 12)
    expected = LatentLoop.from_pretrained(folder).solve_problems(problems)[0]
    assert expected.correct
    assert step.logits["value"].argmax(-1).tolist() == list(expected.values.values())


def test_problems_of_a_batch_are_those_alone():
    model, reference = pair("discrete", "deberta")
    problems = sample(reference.run.task, GraphConfig(nodes=12, min_nodes=6, leaves=3), 3, sampled_generator(0))
    tokens = encode(problems, model.vocabulary)
    for row in range(3):
        alone = next(reference.iterate(encode(problems[row : row + 1], model.vocabulary)))
        assert next(reference.iterate(tokens, row)).state["value"].tolist() == alone.state["value"].tolist()


def test_memory_does_not_grow_with_the_square_of_the_length():
    trained = LatentLoop.from_pretrained("laptop-all-4096")
    tokens = encode(draw(trained.run, 1024), trained.vocabulary)
    tracemalloc.start()
    next(Reference(trained.run, trained.checkpoint.weights).iterate(tokens))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64e6 < 4 * int(tokens.lengths[0]) ** 2  # bytes of one head's scores


def test_weights_that_overflow_give_an_answer_and_no_warning():
    trained = LatentLoop.from_pretrained("laptop-add")
    huge = {name: 1e36 * weight for name, weight in trained.checkpoint.weights.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = next(Reference(trained.run, huge).iterate(encode(draw(trained.run), trained.vocabulary)))
    assert not np.isfinite(step.logits["value"]).all()
    assert step.state["value"].max() <= trained.vocabulary.empty


def test_what_it_cannot_run_is_refused():
    run = preset("tiny-cot")
    with pytest.raises(UserError, match="this model needs torch"):
        Reference(run, weights_of(build_model(run)))
    run = replace(preset("tiny-discrete"), model=replace(preset("tiny-discrete").model, positions=AbsoluteConfig()))
    model = Reference(run, weights_of(build_model(run)))
    problems = draw(run, 128, seed=0)
    longer = replace(encode(problems, model.vocabulary))
    model.weights["positions.table.weight"] = model.weights["positions.table.weight"][:70]
    with pytest.raises(UserError, match="absolute positions for 70 tokens, the sequence has"):
        next(model.iterate(longer))


def test_it_is_short_complete_and_independent():
    source = Path(module.__file__).read_text()
    assert len(source.splitlines()) <= 200
    assert set(ENCODINGS) == set(POSITIONS)
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name.startswith(("torch", "latentloop.model", "latentloop.train"))}
