"""Causal attention: one explicit path that shows its pattern, and torch's fused kernel where nobody looks."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.model.positions import Positions

Watch = Callable[[str, Tensor], None]
"""Told the name and value of every inner quantity, in TransformerLens' vocabulary."""


@dataclass
class Cache:
    """Keys and values of one layer at one iteration, for decoding token by token."""

    keys: Float[Tensor, "batch head room dim"]
    values: Float[Tensor, "batch head room dim"]
    length: int = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add what is new and give everything so far."""
        start, self.length = self.length, self.length + keys.shape[-2]
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch."""
        self.keys, self.values = self.keys[rows], self.values[rows]


BLOCK = 128
"""Queries whose scores are held at once: they need only the keys up to the last of them."""


class Attention(nn.Module):
    """Multi-head causal self-attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.project = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(
        self,
        x: Float[Tensor, "batch pos width"],
        positions: Positions,
        places: Int[Tensor, "..."],
        layer: int,
        *,
        visible: Bool[Tensor, "batch 1 pos key"] | None = None,
        cache: Cache | None = None,
        watch: Watch | None = None,
    ) -> Float[Tensor, "batch pos width"]:
        """Attend to earlier positions; ``visible`` replaces the causal mask where rows begin at different places."""
        queries, keys, values = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys = positions.turn(queries, places), positions.turn(keys, places)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        scale = (positions.terms * queries.shape[-1]) ** -0.5
        queries = queries * scale
        if positions.terms == 1 and watch is None:
            z = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=visible, is_causal=visible is None and x.shape[1] > 1, scale=1.0
            )
            return self.out(z.transpose(1, 2).flatten(-2))
        before, length, parts = keys.shape[-2] - x.shape[1], x.shape[1], []
        for start in range(0, length, length if watch is not None else BLOCK):
            end = length if watch is not None else min(start + BLOCK, length)
            seen = before + end
            mask = _causal(end - start, seen, x.device) if visible is None else visible[:, :, start:end, :seen]
            part, part_keys = queries[:, :, start:end], keys[:, :, :seen]
            bias = positions.relative(part, part_keys, layer, scale)
            scores = part @ part_keys.mT if bias is None else _add_product(bias, part, part_keys)
            pattern = scores.masked_fill_(~mask, -torch.inf).softmax(-1)
            parts.append(pattern @ values[:, :, :seen])
            if watch is not None:
                watch("pattern", pattern)
                watch("z", parts[0])
        z = torch.cat(parts, dim=2)
        return self.out(z.transpose(1, 2).flatten(-2))


def _add_product(bias: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Add all scores to a bias in one pass."""
    return torch.baddbmm(bias.flatten(0, 1), queries.flatten(0, 1), keys.flatten(0, 1).mT).unflatten(0, bias.shape[:2])


def _causal(rows: int, columns: int, device: torch.device) -> Bool[Tensor, "rows columns"]:
    return torch.ones(rows, columns, dtype=torch.bool, device=device).tril(columns - rows)
