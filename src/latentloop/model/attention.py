"""Causal attention: one explicit path that shows its pattern, and torch's fused kernel where nobody looks."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.model.positions import Positions

torch.set_flush_denormal(
    True
)  # sharp attention leaves weights of 1e-40: kept as such, products take several times as long

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

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.looks_up = layer == 0
        self.heads = (self.looks_up and config.first_heads) or config.heads
        self.project = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.config = config
        self.bias = RelativeBias(config, self.heads, layer) if config.relative_bias else None

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
        sharpness = self._sharpness(places)
        queries = queries * scale
        if sharpness is not None and positions.terms == 1:
            queries = queries * sharpness
        if positions.terms == 1 and self.bias is None and watch is None and not self._hard:
            causal = visible is None and x.shape[1] > 1
            z = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible, is_causal=causal, scale=1.0)
            return self._out(z)
        before, length, parts = keys.shape[-2] - x.shape[1], x.shape[1], []
        block = BLOCK if watch is None else length
        for start in range(0, length, block):
            end = min(start + block, length)
            seen = before + end
            part, part_keys = queries[:, :, start:end], keys[:, :, :seen]
            sharp = None if sharpness is None else sharpness[..., start:end, :]
            relative = positions.relative(part, part_keys, layer, scale)
            scores = part @ part_keys.mT if relative is None else _add_product(relative, part, part_keys)
            if relative is not None and sharp is not None:
                scores *= sharp
            if self.bias is not None:
                near = self.bias.reach(end - start, seen)
                bias = self.bias(end - start, near)
                scores[..., seen - near :] += bias if sharp is None else bias * sharp
            elif visible is None:
                scores.masked_fill_(~_causal(end - start, seen, x.device), -torch.inf)
            if visible is not None:
                scores.masked_fill_(~visible[:, :, start:end, :seen], -torch.inf)
            parts.append(self._attend(scores, values[:, :, :seen], watch))
        return self._out(torch.cat(parts, dim=2))

    def at(
        self,
        x: Float[Tensor, "batch pos width"],
        chosen: Int[Tensor, "batch query"],
        positions: Positions,
        places: Int[Tensor, "pos"],
        layer: int,
        *,
        watch: Watch | None = None,
    ) -> Float[Tensor, "batch query width"]:
        """Attend from some positions only, to all before them."""
        width = x.shape[-1]
        weight, shift = self.project.weight, self.project.bias
        queries = (
            F.linear(take(x, chosen), weight[:width], shift[:width]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        )
        keys, values = (
            F.linear(x, weight[width:], shift[width:]).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        queries, keys = positions.turn(queries, places[chosen]), positions.turn(keys, places)
        scale = (positions.terms * queries.shape[-1]) ** -0.5
        queries = queries * scale
        relative = positions.relative(queries, keys, layer, scale, chosen)
        scores = queries @ keys.mT if relative is None else _add_product(relative, queries, keys)
        if self.bias is not None:
            scores += self.bias.at(chosen, x.shape[1])
        else:
            scores.masked_fill_(places > places[chosen][:, None, :, None], -torch.inf)
        sharpness = self._sharpness(places[chosen])
        if sharpness is not None:
            scores *= sharpness
        return self._out(self._attend(scores, values, watch))

    def _attend(self, scores: Tensor, values: Tensor, watch: Watch | None) -> Tensor:
        """Turn scores into a pattern over visible keys, and take the values it points at."""
        pattern = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype) if self._hard else scores.softmax(-1)
        z = pattern @ values
        if watch is not None:
            watch("pattern", pattern)
            watch("z", z)
        return z

    def _out(self, z: Float[Tensor, "batch head query dim"]) -> Float[Tensor, "batch query width"]:
        return self.out(z.transpose(1, 2).flatten(-2))

    @property
    def _hard(self) -> bool:
        return self.config.hard and self.looks_up and not self.training

    def _sharpness(self, places: Int[Tensor, "..."]) -> Tensor | None:
        """Give the factor of each query's scores [.., query, 1]: it grows with the keys in sight, and as it gets colder."""
        factor = 1 / self.config.temperature if self.looks_up and not self.training else 1.0
        if self.config.sharpen == "none" and factor == 1.0:
            return None
        sharp = torch.full(places.shape, factor, device=places.device)
        if self.config.sharpen == "log-n":
            sharp = sharp * torch.log(places + 2.0) / math.log(32)
        return sharp[..., None] if sharp.ndim == 1 else sharp[:, None, :, None]


def take(x: Float[Tensor, "batch pos width"], chosen: Int[Tensor, "batch query"]) -> Float[Tensor, "batch query width"]:
    """Take some positions of each row."""
    return x.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))


class RelativeBias(nn.Module):
    """A learned number for each head and distance; some heads may begin with a preferred distance of their own."""

    START = 5.0

    def __init__(self, config: ModelConfig, heads: int, layer: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, config.window))
        if layer > 0:
            for head in range(config.offset_heads):
                self.table.data[head, head + 1] = self.START

    def forward(self, rows: int, columns: int) -> Float[Tensor, "head rows columns"]:
        """Give what is added to the scores of the last ``rows`` of ``columns`` positions; keys after their query are out."""
        return self._by_distance(columns - 1, rows - 1).unfold(1, columns, 1).flip(1)

    def reach(self, rows: int, columns: int) -> int:
        """Count the last columns that ``forward`` adds something else than 0 to."""
        return min(columns, rows + self.table.shape[1] - 2)

    def at(self, chosen: Int[Tensor, "batch query"], columns: int) -> Float[Tensor, "batch head query columns"]:
        """Give what is added to the scores of some positions of each row."""
        numbers = self._by_distance(columns - 1, columns - 1).unfold(1, columns, 1)
        return numbers[:, columns - 1 - chosen].transpose(0, 1)

    def _by_distance(self, largest: int, after: int) -> Float[Tensor, "head distance"]:
        """Give numbers for distances from the largest down to -after: -inf for those below 0.

        What the window's last distance has is taken off all of them, which attention does not feel, so that far keys get 0.
        """
        numbers = F.pad(self.table - self.table[:, -1:], (1, 0), value=-torch.inf)
        distances = torch.arange(largest, -after - 1, -1, device=self.table.device)
        return numbers[:, distances.clamp(-1, self.table.shape[1] - 1) + 1]


def _add_product(bias: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Add all scores to a bias in one pass."""
    return torch.baddbmm(bias.flatten(0, 1), queries.flatten(0, 1), keys.flatten(0, 1).mT).unflatten(0, bias.shape[:2])


def _causal(rows: int, columns: int, device: torch.device) -> Bool[Tensor, "rows columns"]:
    return torch.ones(rows, columns, dtype=torch.bool, device=device).tril(columns - rows)
