"""Activations read and replaced: every name, for every encoding and way of carrying a state, and nothing else touched."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from clockwork import clockwork
from latentloop.config import GraphConfig, ModelConfig, TaskConfig
from latentloop.config.positions import LocalConfig, PositionsConfig
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import roll_out
from latentloop.interpret import capture, patch
from latentloop.methods import ChainOfThought, Continuous, Discrete
from latentloop.model import attention as module
from latentloop.model.attention import Attention
from latentloop.model.generate import forward_trajectories, generate
from latentloop.model.positions import POSITIONS
from latentloop.model.recurrence import Fixed, iterate
from latentloop.model.tap import NAMES
from latentloop.model.transformer import Transformer
from latentloop.task.graph import sample
from latentloop.task.splits import sampled_generator
from latentloop.tokens.state import encode_state
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

METHODS = {
    "discrete": Discrete(),
    "pinned": Discrete(pin_static=True),
    "continuous": Continuous(),
    "cot": ChainOfThought(iterations=2),
}
VOCABULARY = Vocabulary(task=TaskConfig(modulus=5, names=12))
PROBLEMS = sample(VOCABULARY.task, GraphConfig(nodes=6, leaves=3), 3, sampled_generator(1))
STATE, LAYOUT = encode_state(PROBLEMS, VOCABULARY)
TOKENS = torch.randint(0, VOCABULARY.equals, (3, 14), generator=torch.Generator().manual_seed(0))
WIDTH, HEADS, HIDDEN, ITERATIONS = 16, (4, 2), 48, 2
every_kind = pytest.mark.parametrize("kind", METHODS)
every_encoding = pytest.mark.parametrize("encoding", POSITIONS)


def make(kind, encoding):
    torch.manual_seed(0)
    positions = PositionsConfig.kind(encoding)()
    sizes = {"heads": HEADS[1], "first_heads": HEADS[0], "width": WIDTH, "mlp_depth": 2, "mlp_ratio": 3}
    config = ModelConfig(positions=positions, layers=2, **sizes)
    model = Transformer(config, VOCABULARY, METHODS[kind]).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@torch.no_grad()
def run(model):
    """Apply the block twice; return the logits of all factors and both iterations."""
    if not model.method.row.latent:
        return [forward_trajectories(model, TOKENS)]
    outputs = [output for _, output in iterate(model, STATE, LAYOUT, Fixed(ITERATIONS))]
    return [scores for output in outputs for scores in output.logits.values()]


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def expected_shapes(kind, encoding):
    batch, length = TOKENS.shape if kind == "cot" else STATE.value.shape
    shapes = {}
    for iteration in range(ITERATIONS):
        for layer, heads in enumerate(HEADS):
            queries = LAYOUT.rhs.shape[1] if layer == 1 and kind == "pinned" else length
            dim = WIDTH // heads
            keys = LocalConfig().window if layer == 1 and encoding == "local" else length
            of_layer = {
                "resid_pre": (batch, length, WIDTH),
                "q": (batch, heads, queries, dim),
                "k": (batch, heads, length, dim),
                "v": (batch, heads, length, dim),
                "scores": (batch, heads, queries, keys),
                "pattern": (batch, heads, queries, keys),
                "z": (batch, heads, queries, dim),
                "head_out": (batch, heads, queries, WIDTH),
                "resid_mid": (batch, queries, WIDTH),
                "resid_post": (batch, queries, WIDTH),
            }
            for suffix in ("", ".1") if layer == 1 else ("",):  # the last layer has two MLPs
                of_layer |= {f"{name}{suffix}": (batch, queries, HIDDEN) for name in ("mlp_pre", "mlp_post")}
                of_layer |= {f"mlp_out{suffix}": (batch, queries, WIDTH)}
            shapes |= {(iteration, layer, name): shape for name, shape in of_layer.items()}
        read = {"pinned": ["value"], "cot": ["token"]}.get(kind, FACTORS)
        for factor in read if kind != "cot" or iteration == ITERATIONS - 1 else []:
            size = len(VOCABULARY) if factor == "token" else VOCABULARY.size(factor)
            queries = LAYOUT.rhs.shape[1] if kind == "pinned" else length
            shapes[iteration, None, f"logits.{factor}"] = (batch, queries, size)
    return shapes


@every_encoding
@every_kind
def test_every_name_is_captured_and_no_bit_changes(kind, encoding, monkeypatch):
    model = make(kind, encoding)
    plain = run(model)
    for block in (128, 4):  # all queries at once, and sequences of many blocks
        monkeypatch.setattr(module, "BLOCK", block)
        before = run(model)
        with capture(model, NAMES) as seen:
            assert equal(run(model), before)
        assert {key: tuple(seen[key].shape) for key in seen} == expected_shapes(kind, encoding)
        assert not model.taps.listeners
        for name in NAMES if kind == "pinned" and block == 4 else ():  # one at a time, too
            with capture(model, [name]) as one:
                assert equal(run(model), before)
            assert len(one) > 0
            for key in one:
                assert key[2].partition(".")[0] == name
                assert torch.equal(one[key], seen[key])
        for left, right in zip(plain, before, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
    assert equal(run(model), before)


@every_encoding
@every_kind
def test_activations_fit_together(kind, encoding):
    model = make(kind, encoding)
    with capture(model, NAMES) as seen:
        run(model)

    def close(left, right):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)

    for iteration in range(ITERATIONS):
        for number, layer in enumerate(model.layers):
            found = {key[2]: seen[key] for key in seen if key[:2] == (iteration, number)}
            close(found["scores"].softmax(-1), found["pattern"])
            if number == 0 or encoding != "local":  # whose later layers have patterns by distance
                pattern = found["pattern"]
                if encoding == "local":  # whose tokens have an empty value in place of their own
                    pattern = pattern - torch.diag_embed(pattern.diagonal(dim1=-2, dim2=-1))
                close(pattern @ found["v"], found["z"])
            before = found["resid_pre"]
            if number == 1 and kind == "pinned":
                before = torch.stack([rows[chosen] for rows, chosen in zip(before, LAYOUT.rhs, strict=True)])
            close(found["head_out"].sum(1) + layer.attention.out.bias, found["resid_mid"] - before)
            x = found["resid_mid"]
            for which, mlp in enumerate(layer.mlps):
                pre, post, out = (
                    found[f"{name}.{which}" if which else name] for name in ("mlp_pre", "mlp_post", "mlp_out")
                )
                assert torch.equal(pre.relu(), post)
                close(post @ mlp.out.weight.mT + mlp.out.bias, out)
                x = x + out
            close(x, found["resid_post"])
            if number == 0:
                assert torch.equal(found["resid_post"], seen[iteration, 1, "resid_pre"])
        if (iteration, None, "logits.value") in seen:
            readout = model.readouts["value"]
            close(readout(model.norm(seen[iteration, 1, "resid_post"])), seen[iteration, None, "logits.value"])


@every_encoding
@every_kind
def test_a_patch_with_the_same_activation_changes_nothing(kind, encoding, monkeypatch):
    """Each name in turn, at all layers and iterations."""
    model = make(kind, encoding)
    for block, names in ((128, NAMES), (4, ("scores", "pattern"))):
        monkeypatch.setattr(module, "BLOCK", block)
        with capture(model, NAMES) as seen:
            plain = run(model)
        for name in names:
            with ExitStack() as stack:
                for iteration, layer, full in [key for key in seen if key[2].partition(".")[0] == name]:
                    value = seen[iteration, layer, full]
                    stack.enter_context(patch(model, full, value, layer=layer, iterations=[iteration]))
                patched = run(model)
            # Heads summed one by one round differently; so do scores that a fused kernel would have computed.
            fused = name in ("scores", "pattern") and POSITIONS[encoding].fusable
            if fused or name == "head_out":
                for left, right in zip(plain, patched, strict=True):
                    torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)
            else:
                assert equal(plain, patched), name
    assert equal(run(model), plain)


@pytest.mark.parametrize("name", ["z", "q", "head_out", "pattern"])
@every_encoding
def test_a_patch_changes_one_head_position_and_iteration_and_what_follows(name, encoding, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4)
    model = make("continuous", encoding)
    names = [name, "resid_mid", "resid_post", "logits"]
    place = 9
    with capture(model, names) as before:
        run(model)
    with (
        patch(model, name, 0.125, layer=0, iterations=[1], heads=[2], positions=[place]),
        capture(model, names) as after,
    ):
        run(model)
    found = after[1, 0, name][:, 2, place]
    seen = place + 1 if name == "pattern" else found.shape[-1]  # a patch lets no query see later keys
    assert (found[..., :seen] == 0.125).all()
    assert (found[..., seen:] == 0).all()
    touched = torch.zeros_like(after[1, 0, name], dtype=torch.bool)
    touched[:, 2, place] = True
    assert torch.equal(after[1, 0, name][~touched], before[1, 0, name][~touched])
    for key in before:
        if key[0] == 0:  # the iteration before
            assert torch.equal(before[key], after[key]), key
    for key in ((1, 0, "resid_mid"), (1, 0, "resid_post")):  # the layer itself: that position alone
        others = torch.arange(before[key].shape[1]) != place
        torch.testing.assert_close(before[key][:, others], after[key][:, others])
        assert not torch.allclose(before[key][:, place], after[key][:, place])
    logits = (1, None, "logits.value")  # later layers: that position and later ones
    torch.testing.assert_close(before[logits][:, :place], after[logits][:, :place])
    assert not torch.allclose(before[logits][:, place:], after[logits][:, place:])


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("logits", {}, "there was no logits; there was logits.value"),
        (
            "resid_post",
            {"layer": 5},
            "no resid_post of layer 5; there was resid_post of layer 0, resid_post of layer 1",
        ),
        ("resid_post", {"layer": -1}, "no resid_post of layer -1"),
        ("mlp_out.7", {"layer": 0}, "no mlp_out.7 of layer 0; there was mlp_out of layer 0"),
        ("z", {"layer": 0, "heads": [99]}, "z of layer 0 was computed, but not at .*heads .99."),
        ("z", {"layer": 0, "positions": [999]}, "positions .999."),
        ("z", {"layer": 0, "iterations": [9]}, "iterations .9."),
    ],
)
def test_a_patch_of_nothing_says_so(name, place, message):
    model = make("pinned", "deberta")
    with pytest.raises(UserError, match=f"nothing was patched: .*{message}"), patch(model, name, 0.0, **place):
        run(model)
    assert not model.taps.listeners


def test_a_patch_at_right_hand_sides_is_given_by_node():
    model = make("pinned", "deberta")
    with patch(model, "resid_post", 0.0, layer=1, positions=[2]), capture(model, ["resid_post", "logits"]) as seen:
        patched = run(model)
    plain = run(model)
    assert (seen[0, 1, "resid_post"][:, 2] == 0).all()
    others = torch.arange(plain[0].shape[1]) != 2
    assert torch.equal(plain[0][:, others], patched[0][:, others])
    assert not torch.allclose(plain[0][:, 2], patched[0][:, 2])


@pytest.mark.parametrize("block", [4, 128])
@pytest.mark.parametrize("name", ["pattern", "scores", "z", "resid_mid"])
def test_a_patch_may_be_anything_that_broadcasts(name, block, monkeypatch):
    """Such as the mean over problems, or one row of keys for all queries."""
    monkeypatch.setattr(module, "BLOCK", block)
    model = make("discrete", "deberta")
    with capture(model, [name]) as seen:
        run(model)
    mean = seen[0, 0, name].mean(0)  # without a batch
    results = []
    for value in (mean, mean[None], mean.expand_as(seen[0, 0, name])):
        with patch(model, name, value, layer=0):
            results.append(run(model))
    assert equal(results[0], results[1])
    assert equal(results[0], results[2])
    row = seen[0, 0, name][..., -1:, :]
    with patch(model, name, row, layer=0, iterations=[0]), capture(model, [name], layers=[0]) as after:
        run(model)
    visible = torch.ones_like(after[0, 0, name], dtype=torch.bool)
    visible = visible.tril() if name in ("pattern", "scores") else visible
    assert torch.equal(after[0, 0, name][visible], row.expand_as(visible)[visible])


@every_encoding
@every_kind
def test_a_patch_lets_no_query_see_later_keys(kind, encoding, monkeypatch):
    """Uniform attention, given as one number for all scores, is causal, and the same in blocks of any size."""
    model, results = make(kind, encoding), []
    for block in (4, 128):
        monkeypatch.setattr(module, "BLOCK", block)
        monkeypatch.setattr(module, "BAND", block)
        with patch(model, "scores", 0.0, layer=1), capture(model, ["pattern"], layers=[1]) as seen:
            results.append(run(model))
        pattern = seen[0, 1, "pattern"]
        queries = LAYOUT.rhs if kind == "pinned" else torch.arange(pattern.shape[2]).expand(3, -1)
        keys = torch.arange(pattern.shape[3])
        expected = (keys <= queries[..., None]) / (queries[..., None] + 1)  # [batch, query, key]
        if encoding == "local":  # the last axis is the distance
            expected = expected * ((queries[..., None] + 1) / (queries[..., None] + 1).clamp(max=len(keys)))
        torch.testing.assert_close(pattern, expected[:, None].expand_as(pattern))
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)


def test_nothing_is_left_behind_after_an_exception():
    model = make("discrete", "nope")
    plain = run(model)
    with pytest.raises(ZeroDivisionError), capture(model, NAMES), patch(model, "z", 0.0, layer=1):
        _ = 1 / (len(model.taps.listeners) - 2)  # both listen, so this divides by zero
    assert not model.taps.listeners
    with pytest.raises(RuntimeError), patch(model, "z", torch.zeros(7, 7, 7, 7), layer=0):  # within the block
        run(model)
    assert not model.taps.listeners
    with capture(model, ["z"]) as outer:
        with pytest.raises(KeyError), capture(model, ["q"]):
            raise KeyError
        assert len(model.taps.listeners) == 1
        run(model)
    assert (0, 0, "z") in outer
    assert not any(name == "q" for _, _, name in outer)
    assert equal(run(model), plain)


def test_nothing_is_computed_for_nobody(monkeypatch):
    model = make("discrete", "rope")

    def refuse(*_, **__):
        raise AssertionError("computed for nobody")

    monkeypatch.setattr(Attention, "_explicit", refuse)
    monkeypatch.setattr(torch, "einsum", refuse)
    run(model)
    with capture(model, ["resid_post", "q", "mlp_post", "z"]):
        run(model)
    for name in ("pattern", "scores", "head_out"):
        with pytest.raises(AssertionError, match="computed for nobody"), capture(model, [name]):
            run(model)


def test_fewer_iterations_and_layers_can_be_captured():
    model = make("continuous", "local")
    with capture(model, ["z", "logits.value"], iterations=[1], layers=[0]) as seen:
        run(model)
    assert set(seen) == {(1, 0, "z"), (1, None, "logits.value")}
    with pytest.raises(UserError, match=r"was not captured; there are: iterations \[1\], layers \[0\]"):
        seen[0, 0, "z"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: capture(model, ["mlp_pots"]), "unknown activation 'mlp_pots'.*did you mean 'mlp_post'"),
        (lambda model: patch(model, "resid", 0.0, layer=0), "unknown activation"),
        (lambda model: patch(model, "resid_post", 0.0, layer=0, heads=[1]), "resid_post has no heads"),
        (lambda model: patch(model, "z", 0.0), "a patch of z needs a layer"),
        (lambda model: patch(model, "logits.value", 0.0, layer=1), "needs no layer"),
    ],
)
def test_requests_that_mean_nothing_are_refused(call, message):
    model = make("discrete", "nope")
    with pytest.raises(UserError, match=message), call(model):
        pass
    assert not model.taps.listeners


def test_capture_works_around_any_use_of_a_model():
    trained = LatentLoop.from_pretrained("laptop-add")
    problem = "20 = x7 ; 2 = x42 ; x7 + x42 = x23"
    with capture(trained.model, ["pattern", "resid_post"]) as seen:
        answer = trained.solve(problem)
    assert answer == trained.solve(problem)
    assert {iteration for iteration, _, _ in seen} == set(range(answer.iterations))
    assert {layer for _, layer, _ in seen} == set(range(trained.run.model.layers))
    with capture(trained.model, ["logits"]) as seen:
        trained.solve(problem)
        trained.solve("20 = x7")
    with pytest.raises(UserError, match="was captured in 2 batches: take one of"):
        seen[0, None, "logits.value"]
    assert [len(found[0]) for found in seen.all(0, None, "logits.value")] == [3, 1]
    with patch(trained.model, "logits.value", 0.0):
        assert set(trained.solve(problem).values.values()) == {0}


def test_problems_that_leave_are_captured_no_more():
    trained = clockwork(TaskConfig())
    problems = sample(trained.run.task, GraphConfig(nodes=12, min_nodes=4), 9, sampled_generator(5))
    with capture(trained.model, ["pattern"]) as seen:
        rollouts = roll_out(trained.model, problems, np.full(9, 20))
    longest = max(rollout.iterations for rollout in rollouts)
    rows = [len(seen[iteration, 0, "pattern"]) for iteration in range(longest)]
    assert rows == [sum(rollout.iterations > iteration for rollout in rollouts) for iteration in range(longest)]


@every_encoding
def test_decoding_token_by_token_is_captured_step_by_step(encoding):
    model = make("cot", encoding)
    lengths = torch.tensor([14, 9, 11])
    plain = generate(model, TOKENS, lengths, limit=5)
    with capture(model, ["k", "pattern", "logits"]) as seen:
        assert torch.equal(generate(model, TOKENS, lengths, limit=5), plain)
    prompt, *steps = seen.all(1, 1, "pattern")
    keys = [8] * 5 if encoding == "local" else range(14, 19)
    assert prompt.shape == (3, HEADS[1], 14, keys[0])
    assert [step.shape[2:] for step in steps] == [(1, number) for number in keys[1:]]
    assert len(seen.all(1, None, "logits.token")) == 5
