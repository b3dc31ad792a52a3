import pytest
import torch

from latentloop.model.characters import characters


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
