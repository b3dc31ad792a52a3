"""Value embeddings initialized as characters: the waves in which sums, and the logarithms in which products, are simple."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def characters(modulus: int) -> Float[Tensor, "value wave"]:
    """Return all real characters of (Z/p, +) and of the units (Z/p)*, where 0 has none."""
    values = torch.arange(modulus, dtype=torch.float64, device="cpu")
    waves = [f(2 * math.pi * k * values / modulus) for k in range(1, modulus // 2 + 1) for f in (torch.cos, torch.sin)]
    logs = torch.tensor(_logarithms(modulus), dtype=torch.float64, device="cpu")
    order = modulus - 1
    for k in range(1, order // 2 + 1):
        waves += [f(2 * math.pi * k * logs / order) * (values > 0) for f in (torch.cos, torch.sin)]
    kept = [wave for wave in waves if wave.abs().max() > 1e-6]
    return torch.stack(kept, dim=1).float()


def _logarithms(modulus: int) -> list[int]:
    """Return discrete logarithms to the least base that reaches all units; 0 for 0."""
    for base in range(1, modulus):
        powers = [pow(base, k, modulus) for k in range(modulus - 1)]
        if len(set(powers)) == modulus - 1:
            return [0, *(powers.index(value) for value in range(1, modulus))]
    raise AssertionError(f"{modulus} is not prime")


@torch.no_grad()
def start_from_characters(table: nn.Module, modulus: int, scale: float = 0.1) -> None:
    """Write characters into the first columns of an embedding's number rows; other entries stay as they are."""
    assert isinstance(table, nn.Embedding)
    waves = characters(modulus)[:, : table.embedding_dim]
    table.weight[:modulus, : waves.shape[1]] = scale * waves
