import pytest
import torch

from latentloop.config import ModelConfig, TaskConfig
from latentloop.config.positions import PositionsConfig
from latentloop.methods import ChainOfThought
from latentloop.model.generate import forward_trajectories, generate
from latentloop.model.positions import POSITIONS
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import Vocabulary

VOCABULARY = Vocabulary(task=TaskConfig(names=8, modulus=5))


def make(name, iterations):
    torch.manual_seed(0)
    kind = PositionsConfig.kind(name)
    small = {"relative_width": 8, "window": 6, "max_positions": 64}
    positions = kind(**{key: value for key, value in small.items() if key in kind.__dataclass_fields__})
    config = ModelConfig(positions=positions, layers=2, heads=2, width=16)
    model = Transformer(config, VOCABULARY, ChainOfThought(iterations=iterations)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("name", POSITIONS)
def test_cached_decoding_equals_computing_everything_again(name, iterations):
    model = make(name, iterations)
    prompts = torch.randint(0, VOCABULARY.equals, (4, 9))
    lengths = torch.tensor([9, 5, 7, 9])
    cached = generate(model, prompts, lengths, limit=12)
    assert torch.equal(cached, generate(model, prompts, lengths, limit=12, cached=False))
    for row in range(4):  # and equals one row at a time, by plain forward passes
        tokens = prompts[row : row + 1, : lengths[row]]
        for place in range(12):
            choice = forward_trajectories(model, tokens)[:, -1].argmax(-1)
            assert choice == cached[row, place]
            if choice == VOCABULARY.end:
                assert (cached[row, place + 1 :] == VOCABULARY.pad).all()
                break
            tokens = torch.cat([tokens, choice[:, None]], dim=1)
