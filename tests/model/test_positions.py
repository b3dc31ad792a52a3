"""Each encoding against a naive double loop over positions."""

import math

import pytest
import torch

from latentloop.config import ModelConfig, TaskConfig
from latentloop.config.positions import PositionsConfig
from latentloop.errors import UserError
from latentloop.methods import Discrete
from latentloop.model import attention as module
from latentloop.model import relative
from latentloop.model.attention import Attention
from latentloop.model.capture import Seen
from latentloop.model.positions import POSITIONS
from latentloop.model.tap import Tap, Taps
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import Vocabulary

CONFIG = {"layers": 2, "heads": 2, "width": 16}
SMALL = {"relative_width": 12, "window": 5, "max_positions": 32}
VOCABULARY = Vocabulary(task=TaskConfig())


def settings(name, **more):
    """Return the settings of a small encoding; ``more`` may hold settings of others, too."""
    kind = PositionsConfig.kind(name)
    return kind(**{key: value for key, value in (SMALL | more).items() if key in kind.__dataclass_fields__})


def configure(name, **more):
    own = {key: value for key, value in more.items() if key in ModelConfig.__dataclass_fields__}
    return ModelConfig(positions=settings(name, **more), **CONFIG | own)


def listen(attention):
    """Capture everything that an attention tells."""
    seen = Seen(["scores", "pattern", "z"], None, None)
    attention.tap.taps.listeners.append(seen)
    return seen


def pattern_of(seen, layer, queries, length):
    """Return the captured pattern by key, also where it was computed by distance [batch, head, query, key]."""
    pattern = seen[0, layer, "pattern"]
    if pattern.shape[-1] == length:
        return pattern
    dense = pattern.new_zeros(*pattern.shape[:3], length)
    for distance in range(pattern.shape[-1]):
        for row, asked in enumerate(queries.tolist()):
            for query, place in enumerate(asked):
                if place >= distance:
                    dense[row, :, query, place - distance] = pattern[row, :, query, distance]
    return dense


def make(name, layer=1, **more):
    torch.manual_seed(0)
    config = configure(name, **more)
    positions = POSITIONS[name](config).double()
    attention = Attention(config, layer, Tap(Taps(), layer)).double().eval()
    for parameter in [*positions.parameters(), *attention.parameters()]:
        torch.nn.init.normal_(parameter)
    return positions, attention


def naive(name, positions, attention, x, layer):
    """Compute attention one pair of positions at a time, from the formulas of the papers."""
    batch, length, width = x.shape
    heads, dim = attention.heads, width // attention.heads
    q, k, v = attention.project(x).chunk(3, dim=-1)
    out = torch.zeros_like(x)
    patterns = torch.zeros(batch, heads, length, length, dtype=x.dtype)
    table = None
    if name == "deberta":
        normed = torch.nn.functional.layer_norm(
            positions.table.weight, (12,), positions.norm.weight, positions.norm.bias
        )
        table = positions.keys[layer](normed), positions.queries[layer](normed)

    def turned(vector, place):
        if name != "rope":
            return vector
        half = dim // 2
        result = vector.clone()
        for i in range(half):
            angle = place * 10_000.0 ** (-i / half)
            a, b = vector[i], vector[i + half]
            result[i] = a * math.cos(angle) - b * math.sin(angle)
            result[i + half] = a * math.sin(angle) + b * math.cos(angle)
        return result

    self_sink = name == "local" and layer == 0
    for b in range(batch):
        for h in range(heads):
            part = slice(h * dim, (h + 1) * dim)
            for i in range(length):
                scores = []
                first = max(0, i + 1 - positions.tables[layer - 1].shape[1]) if name == "local" and layer else 0
                for j in range(first, i + 1):
                    qi, kj = turned(q[b, i, part], i), turned(k[b, j, part], j)
                    score = qi @ kj
                    if table is not None:
                        distance = min(i - j, positions.window - 1)
                        score = score + qi @ table[0][distance, part] + kj @ table[1][distance, part]
                    score = score / math.sqrt((3 if name == "deberta" else 1) * dim)
                    if name == "local" and layer:
                        score = score + positions.tables[layer - 1][h, i - j]
                    scores.append(torch.zeros_like(score) if self_sink and j == i else score)
                weights = torch.stack(scores).softmax(0)
                patterns[b, h, i, first : i + 1] = weights
                seen = [j for j in range(first, i + 1) if not (self_sink and j == i)]
                out[b, i, part] = sum((weights[j - first] * v[b, j, part] for j in seen), torch.zeros(dim))
    return attention.out(out), patterns


CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # rates of rotation are kept in single precision


@pytest.mark.parametrize(
    ("layer", "more"),
    [
        (1, {}),
        (1, {"window": 2}),
        (1, {"window": 1}),
        (0, {"window": 20}),
        (0, {"first_heads": 4}),
    ],
)
@pytest.mark.parametrize("name", POSITIONS)
def test_attention_matches_the_double_loop(name, layer, more, monkeypatch):
    """For queries that follow each other, in blocks of several sizes, and for chosen ones."""
    positions, attention = make(name, layer, **more)
    x = torch.randn(2, 11, 16, dtype=torch.float64)
    expected, patterns = naive(name, positions, attention, x, layer)
    heads = more.get("first_heads", 2)
    chosen = torch.tensor([[3, 7, 10, 0], [1, 2, 0, 0]])
    for block in (3, 4, 128):
        monkeypatch.setattr(module, "BLOCK", block)
        monkeypatch.setattr(module, "BAND", block)
        fast = attention(x, positions, torch.arange(11))
        torch.testing.assert_close(fast, expected, **CLOSE)
        at_chosen = attention(x, positions, torch.arange(11), chosen=chosen)
        torch.testing.assert_close(at_chosen[0], expected[0, chosen[0]], **CLOSE)
        torch.testing.assert_close(at_chosen[1], expected[1, chosen[1]], **CLOSE)
        seen = listen(attention)
        assert torch.equal(attention(x, positions, torch.arange(11)), fast)
        pattern = pattern_of(seen, layer, torch.arange(11).expand(2, -1), 11)
        torch.testing.assert_close(pattern, patterns, **CLOSE)
        assert (pattern.triu(1) == 0).all()
        assert pattern.shape == (2, heads, 11, 11)
        assert seen[0, layer, "z"].shape == (2, heads, 11, 16 // heads)
        attention.tap.taps.listeners.clear()
        seen = listen(attention)
        assert torch.equal(attention(x, positions, torch.arange(11), chosen=chosen), at_chosen)
        some = pattern_of(seen, layer, chosen, 11)
        for row in range(2):
            torch.testing.assert_close(some[row], patterns[row][:, chosen[row]], **CLOSE)
        attention.tap.taps.listeners.clear()


@pytest.mark.parametrize(("length", "before"), [(2, 0), (7, 0), (16, 0), (41, 0), (3, 2), (20, 30)])
@pytest.mark.parametrize("window", [1, 2, 8, 20])
def test_a_window_in_blocks_is_that_of_single_queries(length, before, window):
    """Blocks give the same values and gradients as one window a query, also after keys that were there before."""
    _, attention = make("local", 1)
    tensors = [
        torch.randn(2, attention.heads, size, 4, dtype=torch.float64) for size in (length, *2 * (before + length,))
    ]
    tensors.append(torch.randn(attention.heads, window, dtype=torch.float64))
    chosen = torch.arange(before, before + length).expand(2, -1)
    found = []
    for queries in (None, chosen):
        inputs = [tensor.clone().requires_grad_() for tensor in tensors]
        result = attention._windowed(*inputs, queries, None)
        found.append([result, *torch.autograd.grad(result.square().sum(), inputs)])
    for blocks, single in zip(*found, strict=True):
        torch.testing.assert_close(blocks, single)


@pytest.mark.parametrize("at_once", [1, 200, 2**18])
@pytest.mark.parametrize(("length", "window"), [(1, 5), (4, 5), (11, 5), (11, 20)])
def test_the_kernel_of_deberta_is_the_plain_way(length, window, at_once, monkeypatch):
    """Values and all gradients, for parts of one row, of some and of the whole batch; nobody who looks changes a bit."""
    monkeypatch.setattr(relative, "SCORES_AT_ONCE", at_once)
    positions, attention = make("deberta", 1, window=window)
    weights = [*attention.parameters(), *positions.parameters()]
    x = torch.randn(5, length, 16, dtype=torch.float64, requires_grad=True)
    found = []
    for training in (False, True):
        attention.train(training)
        result = attention(x, positions, torch.arange(length))
        gradients = torch.autograd.grad(result.square().sum(), [x, *weights], allow_unused=True, materialize_grads=True)
        found.append([result, *gradients])
    assert "_Attend" in names_of_operations(found[1][0])
    assert "_Attend" not in names_of_operations(found[0][0])
    for plain, kernel in zip(*found, strict=True):
        torch.testing.assert_close(kernel, plain)
    listen(attention)
    assert torch.equal(attention(x, positions, torch.arange(length)), found[1][0])


def names_of_operations(result):
    """Return the names of all operations that a tensor comes from, in one string."""
    found, waiting = set(), [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [before for before, _ in node.next_functions]
    return " ".join(node.name() for node in found)


@pytest.mark.parametrize("name", ["rope", "deberta", "local"])
def test_relative_encodings_do_not_feel_a_shift(name):
    positions, attention = make(name)
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    there = attention(x, positions, torch.arange(9) + 100)
    torch.testing.assert_close(attention(x, positions, torch.arange(9)), there)


def test_absolute_positions_are_added_and_limited():
    positions, _ = make("abpe")
    x = torch.randn(1, 3, 16, dtype=torch.float64)
    summed = x + positions.table.weight[4:7]
    normed = (summed - summed.mean(-1, keepdim=True)) / (summed.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    expected = normed * positions.norm.weight + positions.norm.bias
    torch.testing.assert_close(positions.enter(x, torch.tensor([4, 5, 6])), expected)
    with pytest.raises(UserError, match="absolute positions for 32 tokens, the sequence has 33"):
        positions.enter(torch.zeros(1, 33, 16).double(), torch.arange(33))


def build(name, method=None, **more):
    torch.manual_seed(1)
    return Transformer(configure(name, **more), VOCABULARY, method or Discrete())


@pytest.mark.parametrize("name", POSITIONS)
def test_a_block_is_causal_and_blind_to_padding(name):
    model = build(name).double().eval()
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    changed = x.clone()
    changed[:, 7:] = torch.randn(2, 5, 16, dtype=torch.float64)
    (whole, _), (other, _), (short, _) = model.block(x), model.block(changed), model.block(x[:, :7])
    torch.testing.assert_close(whole[:, :7], other[:, :7])
    torch.testing.assert_close(whole[:, :7], short)
    assert not torch.allclose(whole[:, 7:], other[:, 7:])


@pytest.mark.parametrize("name", POSITIONS)
def test_gradients_reach_every_parameter(name):
    model = build(name)
    symbols = {key: torch.randint(0, 2, (2, 9)) for key in model.embeddings}
    x, _ = model.block(model.embed(symbols))
    sum(logits.square().sum() for logits in model.read(x).values()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0 or "project.bias" in parameter_name, parameter_name


def test_auxiliary_readouts_reach_every_parameter_they_should():
    method = Discrete(lookup_weight=1.0, partial_weight=1.0)
    model = build("nope", method, mlp_depth=4, first_mlp=False)
    symbols = {key: torch.randint(0, 2, (2, 9)) for key in model.embeddings}
    _, inner = model.block(model.embed(symbols))
    assert not any(name.startswith("layers.0.mlp") for name, _ in model.named_parameters())
    touched = {}
    for name in ("lookup", "partial"):
        model.zero_grad()
        model.auxiliary[name](inner[name]).square().sum().backward(retain_graph=True)
        touched[name] = {part for part, parameter in model.named_parameters() if parameter.grad is not None}
    assert not any(part.startswith("layers.1") for part in touched["lookup"])
    reached = [any(part.startswith(f"layers.1.mlps.{number}.") for part in touched["partial"]) for number in range(4)]
    assert reached == [True, True, False, False]


def test_biases_of_a_window_start_at_zero():
    tables = POSITIONS["local"](configure("local", first_heads=4, window=7)).tables
    assert [table.tolist() for table in tables] == [[[0.0] * 7] * 2]


@pytest.mark.parametrize("name", POSITIONS)
def test_noise_disturbs_the_first_layer_in_training_alone(name):
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    for layer, training in ((0, False), (1, True), (0, True)):
        positions, attention = make(name, layer, lookup_noise=3.0, dropout=0.0)
        undisturbed = make(name, layer, dropout=0.0)[1](x, positions, torch.arange(9))
        outputs = [attention.train(training)(x, positions, torch.arange(9)) for _ in range(2)]
        disturbed = layer == 0 and training
        assert torch.equal(*outputs) != disturbed
        assert torch.allclose(outputs[0], undisturbed) != disturbed
        # A token's past alone still decides what it gets.
        changed = torch.cat([x[:, :6], torch.randn(1, 3, 16, dtype=torch.float64)], 1)
        torch.manual_seed(1)
        one = attention(x, positions, torch.arange(9))
        torch.manual_seed(1)
        other = attention(changed, positions, torch.arange(9))
        assert torch.equal(one[:, :6], other[:, :6])
        assert not torch.equal(one, other)


def test_noise_grows_with_the_training():
    model = Transformer(configure("local", lookup_noise=4.0), VOCABULARY, Discrete())
    noise = model.layers[0].attention.noise
    assert noise == 4.0
    assert model.layers[1].attention.noise is None
    for done, wanted in ((0.0, 0.0), (0.5, 2.0), (1.0, 4.0)):
        model.disturb(done)
        assert noise == wanted
    Transformer(configure("local"), VOCABULARY, Discrete()).disturb(0.5)  # nothing to disturb


@pytest.mark.parametrize("more", [{}, {"mlp_depth": 3, "first_heads": 1}])
@pytest.mark.parametrize("name", POSITIONS)
def test_a_last_layer_of_chosen_positions_gives_what_the_full_one_gives_there(name, more):
    model = build(name, Discrete(pin_static=True), **more).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    chosen = torch.tensor([[3, 7, 11], [1, 2, 0]])
    (full, whole), (some, inner) = model.block(x), model.block(x, chosen=chosen)
    torch.testing.assert_close(some, torch.stack([full[0, chosen[0]], full[1, chosen[1]]]))
    torch.testing.assert_close(inner["lookup"], whole["lookup"])
    partial = whole["partial"]
    torch.testing.assert_close(inner["partial"], torch.stack([partial[0, chosen[0]], partial[1, chosen[1]]]))


@pytest.mark.parametrize("name", POSITIONS)
def test_the_authors_dropout_acts_in_training_alone(name):
    model = build(name, dropout=0.5, dropout_at="authors")
    x = torch.randn(2, 9, 16)
    torch.manual_seed(0)
    first, second = model.block(x)[0], model.block(x)[0]
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(model.block(x)[0], model.block(x)[0])
    torch.manual_seed(0)
    attention = model.layers[0].attention.train()
    places = torch.arange(9)
    seen = listen(attention)
    attention(x, model.positions, places)
    if not model.positions.fusable:  # the pattern that mixes values has zeros, and what is left adds up to more
        pattern = seen[0, 0, "pattern"].tril()
        assert 0.3 < (pattern[torch.ones_like(pattern).tril() > 0] == 0).float().mean() < 0.7
