import pytest
import torch

from latentloop.config import ModelConfig, TaskConfig
from latentloop.methods import ChainOfThought, Discrete
from latentloop.model.characters import characters
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import Vocabulary


@pytest.mark.parametrize("flat", [False, True])
def test_embeddings_of_numbers_begin_as_characters(flat):
    config = ModelConfig(heads=2, width=64, value_init="characters")
    model = Transformer(config, Vocabulary(task=TaskConfig()), ChainOfThought() if flat else Discrete())
    waves, table = characters(23), model.embeddings["token" if flat else "value"].weight
    scale = table[0, 0] / waves[0, 0]
    torch.testing.assert_close(table[:23, : waves.shape[1]], scale * waves)
    assert table[23:].abs().max() < table[:23].abs().max()


@pytest.mark.parametrize("modulus", [2, 3, 7, 23, 97])
def test_characters_turn_sums_and_products_into_rotations(modulus):
    waves = characters(modulus).double()
    additive = modulus // 2
    for k in range(min(additive, 3) if modulus > 2 else 0):
        cos, sin = waves[:, 2 * k], waves[:, 2 * k + 1]
        for a in range(modulus):
            b = torch.arange(modulus)
            torch.testing.assert_close(cos[(a + b) % modulus], cos[a] * cos - sin[a] * sin, atol=1e-6, rtol=0)
    norms = waves.square().sum(1)
    assert torch.allclose(norms[1:], norms[1], atol=1e-5)
    assert torch.linalg.matrix_rank(waves) >= modulus - 1
    if modulus == 23:  # the first multiplicative pair
        cos, sin = waves[:, 22], waves[:, 23]
        for a in range(1, modulus):
            b = torch.arange(1, modulus)
            torch.testing.assert_close(cos[(a * b) % modulus], cos[a] * cos[1:] - sin[a] * sin[1:], atol=1e-6, rtol=0)
        assert (waves[0, 22:] == 0).all()
