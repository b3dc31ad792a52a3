"""Each encoding against a naive double loop over positions."""

import math

import pytest
import torch

from latentloop.config import ModelConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.model import attention as module
from latentloop.model.attention import Attention
from latentloop.model.positions import POSITIONS
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import Vocabulary

CONFIG = {"layers": 2, "heads": 2, "width": 16, "relative_width": 12, "window": 5, "max_positions": 32}


def make(name, **more):
    torch.manual_seed(0)
    config = ModelConfig(positions=name, **CONFIG | more)
    positions = POSITIONS[name](config).double()
    attention = Attention(config).double()
    for parameter in [*positions.parameters(), *attention.parameters()]:
        torch.nn.init.normal_(parameter)
    return positions, attention


def naive(name, positions, attention, x, layer):
    """Compute attention one pair of positions at a time, from the formulas of the papers."""
    batch, length, width = x.shape
    heads, dim = attention.heads, width // attention.heads
    q, k, v = attention.project(x).chunk(3, dim=-1)
    out = torch.zeros_like(x)
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

    for b in range(batch):
        for h in range(heads):
            part = slice(h * dim, (h + 1) * dim)
            for i in range(length):
                scores = []
                for j in range(i + 1):
                    qi, kj = turned(q[b, i, part], i), turned(k[b, j, part], j)
                    score = qi @ kj
                    if table is not None:
                        distance = min(i - j, positions.window - 1)
                        score = score + qi @ table[0][distance, part] + kj @ table[1][distance, part]
                    score = score / math.sqrt((3 if name == "deberta" else 1) * dim)
                    if attention.bias is not None:
                        score = score + attention.bias.table[h, min(i - j, attention.config.window - 1)]
                    scores.append(
                        score * (math.log(i + 2) / math.log(32) if attention.config.sharpen == "log-n" else 1)
                    )
                weights = torch.stack(scores).softmax(0)
                out[b, i, part] = sum(w * v[b, j, part] for j, w in enumerate(weights))
    return attention.out(out)


@pytest.mark.parametrize(
    "more",
    [{}, {"relative_bias": True}, {"relative_bias": True, "sharpen": "log-n", "window": 2}, {"first_heads": 4}],
)
@pytest.mark.parametrize("block", [3, 4, 128])
@pytest.mark.parametrize("name", POSITIONS)
def test_attention_matches_the_double_loop(name, block, more, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    positions, attention = make(name, **more)
    x = torch.randn(2, 11, 16, dtype=torch.float64)
    expected = naive(name, positions, attention, x, 1)
    fast = attention(x, positions, torch.arange(11), 1)
    seen = {}
    watched = attention(x, positions, torch.arange(11), 1, watch=seen.__setitem__)
    close = {"rtol": 1e-4, "atol": 1e-5}  # rates of rotation and sharpness are kept in single precision
    torch.testing.assert_close(fast, expected, **close)
    torch.testing.assert_close(watched, expected, **close)
    heads = more.get("first_heads", 2)
    assert seen["pattern"].shape == (2, heads, 11, 11)
    torch.testing.assert_close(seen["pattern"].sum(-1), torch.ones(2, heads, 11, dtype=torch.float64))
    assert (seen["pattern"].triu(1) == 0).all()
    assert seen["z"].shape == (2, heads, 11, 16 // heads)


@pytest.mark.parametrize("name", ["rope", "deberta"])
def test_relative_encodings_do_not_feel_a_shift(name):
    positions, attention = make(name)
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    there = attention(x, positions, torch.arange(9) + 100, 0)
    torch.testing.assert_close(attention(x, positions, torch.arange(9), 0), there)


def test_absolute_positions_are_added_and_limited():
    positions, _ = make("abpe")
    x = torch.zeros(1, 3, 16, dtype=torch.float64)
    torch.testing.assert_close(positions.embed(x, torch.tensor([4, 5, 6]))[0], positions.table.weight[4:7])
    with pytest.raises(UserError, match="absolute positions for 32 tokens, the sequence has 33"):
        positions.embed(torch.zeros(1, 33, 16).double(), torch.arange(33))


@pytest.mark.parametrize("name", POSITIONS)
def test_a_block_is_causal_and_blind_to_padding(name):
    torch.manual_seed(1)
    model = Transformer(ModelConfig(positions=name, **CONFIG), Vocabulary(task=TaskConfig())).double().eval()
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    changed = x.clone()
    changed[:, 7:] = torch.randn(2, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(model.block(x)[:, :7], model.block(changed)[:, :7])
    torch.testing.assert_close(model.block(x)[:, :7], model.block(x[:, :7]))
    assert not torch.allclose(model.block(x)[:, 7:], model.block(changed)[:, 7:])


@pytest.mark.parametrize("name", POSITIONS)
def test_gradients_reach_every_parameter(name):
    torch.manual_seed(1)
    model = Transformer(ModelConfig(positions=name, **CONFIG), Vocabulary(task=TaskConfig()))
    symbols = {key: torch.randint(0, 2, (2, 9)) for key in model.embeddings}
    sum(logits.square().sum() for logits in model.read(model.block(model.embed(symbols))).values()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0 or "project.bias" in parameter_name, parameter_name


def test_what_training_reads_aside_reaches_every_parameter_it_should():
    torch.manual_seed(1)
    settings = {"lookup": True, "partial": True, "mlp_depth": 4, "first_mlp": False}
    model = Transformer(ModelConfig(positions="nope", **CONFIG, **settings), Vocabulary(task=TaskConfig()))
    symbols = {key: torch.randint(0, 2, (2, 9)) for key in model.embeddings}
    asides: dict[str, torch.Tensor] = {}
    model.block(model.embed(symbols), asides=asides)
    assert not any(name.startswith("layers.0.mlp") for name, _ in model.named_parameters())
    touched = {}
    for name in ("lookup", "partial"):
        model.zero_grad()
        getattr(model, name)(asides[name]).square().sum().backward(retain_graph=True)
        touched[name] = {part for part, parameter in model.named_parameters() if parameter.grad is not None}
    assert not any(part.startswith("layers.1") for part in touched["lookup"])
    reached = [
        any(part.startswith(f"layers.1.more_mlps.{number}") for part in touched["partial"]) for number in range(3)
    ]
    assert reached == [True, False, False]  # two of four MLPs: the layer's own, and the first of the others


@pytest.mark.parametrize("block", [3, 128])
def test_a_relative_bias_adds_a_number_for_each_distance(block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    config = ModelConfig(positions="nope", relative_bias=True, offset_heads=2, **CONFIG)
    torch.manual_seed(0)
    positions, attention = POSITIONS["nope"](config), Attention(config, 1).double()
    assert attention.bias.table[0].tolist() == [0, 5, 0, 0, 0]
    assert attention.bias.table[1].tolist() == [0, 0, 5, 0, 0]
    assert (Attention(config, 0).bias.table == 0).all()
    torch.nn.init.normal_(attention.bias.table)
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    seen = {}
    fast = attention(x, positions, torch.arange(9), 1)
    torch.testing.assert_close(attention(x, positions, torch.arange(9), 1, watch=seen.__setitem__), fast)
    q, k, _ = attention.project(x).chunk(3, dim=-1)
    for head in range(2):
        part = slice(8 * head, 8 * head + 8)
        for i in range(9):
            scores = [
                q[0, i, part] @ k[0, j, part] / math.sqrt(8) + attention.bias.table[head, min(i - j, 4)]
                for j in range(i + 1)
            ]
            torch.testing.assert_close(seen["pattern"][0, head, i, : i + 1], torch.stack(scores).softmax(0))


@pytest.mark.parametrize("name", POSITIONS)
def test_sharper_attention_scales_all_scores(name):
    patterns = {}
    for sharpen, temperature in (("none", 1.0), ("log-n", 1.0), ("none", 0.5)):
        torch.manual_seed(0)
        config = ModelConfig(positions=name, sharpen=sharpen, temperature=temperature, **CONFIG)
        positions, attention = POSITIONS[name](config).double(), Attention(config).double().eval()
        for parameter in [*positions.parameters(), *attention.parameters()]:
            torch.nn.init.normal_(parameter)
        x, seen = torch.randn(1, 9, 16, dtype=torch.float64), {}
        watched = attention(x, positions, torch.arange(9), 0, watch=seen.__setitem__)
        torch.testing.assert_close(attention(x, positions, torch.arange(9), 0), watched)
        patterns[sharpen, temperature] = seen["pattern"].tril().clamp(min=1e-300).log()
    for row in range(1, 9):  # log-probabilities differ from scores by a constant a row
        plain = patterns["none", 1.0][0, 0, row, : row + 1].diff()
        factor = math.log(row + 2) / math.log(32)
        torch.testing.assert_close(patterns["log-n", 1.0][0, 0, row, : row + 1].diff(), plain * factor)
        torch.testing.assert_close(patterns["none", 0.5][0, 0, row, : row + 1].diff(), plain * 2)


def test_hard_attention_takes_the_best_key_at_inference_only():
    config = ModelConfig(positions="nope", hard=True, **CONFIG)
    torch.manual_seed(0)
    positions, attention, seen = POSITIONS["nope"](config), Attention(config), {}
    x = torch.randn(1, 9, 16)
    attention(x, positions, torch.arange(9), 0, watch=seen.__setitem__)
    assert seen["pattern"].max(-1).values.min() < 1
    attention.eval()(x, positions, torch.arange(9), 0, watch=seen.__setitem__)
    assert set(seen["pattern"].unique().tolist()) == {0.0, 1.0}


def test_only_the_layer_of_look_ups_gets_colder():
    torch.manual_seed(0)
    config = ModelConfig(positions="nope", temperature=0.5, hard=True, **CONFIG)
    later, plain = Attention(config, 1).eval(), Attention(ModelConfig(positions="nope", **CONFIG), 1).eval()
    plain.load_state_dict(later.state_dict())
    x, positions = torch.randn(1, 9, 16), POSITIONS["nope"](config)
    assert torch.equal(later(x, positions, torch.arange(9), 1), plain(x, positions, torch.arange(9), 1))


@pytest.mark.parametrize("more", [{}, {"relative_bias": True, "offset_heads": 1, "sharpen": "log-n", "mlp_depth": 3}])
@pytest.mark.parametrize("name", POSITIONS)
def test_a_focused_last_layer_gives_what_the_full_one_gives_there(name, more):
    torch.manual_seed(1)
    config = ModelConfig(positions=name, pin_static=True, **CONFIG, **more)
    model = Transformer(config, Vocabulary(task=TaskConfig())).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    chosen = torch.tensor([[3, 7, 11], [1, 2, 0]])
    full = model.block(x)
    torch.testing.assert_close(model.block(x, chosen=chosen), torch.stack([full[0, chosen[0]], full[1, chosen[1]]]))
