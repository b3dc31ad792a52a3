"""Causal attention, step by step: one path for all encodings, for all positions or some of them.

What mixes the values depends on the layer and on who asks:

    layer                                                what mixes
    windowed                                             _windowed: a band of queries with the keys that they see
    global, in training, where the encoding has one      the encoding's own kernel (DeBERTa's), by _by_encoding
    global, where scores are products of q and k alone   _fused: one kernel of PyTorch's
    global, all else; or scores and patterns are asked   _explicit: scores, softmax and products, block by block

A caller may bring its own ``mix``, as solving does to look things up once for many updates (``latentloop.model.lookups``).
``index`` says that ``x`` has a row for each distinct token, ``chosen`` that some positions alone are asked, ``visible`` that
rows begin at different places, and ``cache`` that keys of earlier tokens are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.model.positions import Positions
from latentloop.model.products import Linear, linear
from latentloop.model.tap import Tap

# Sharp attention leaves weights of 1e-40, with which products take several times as long.
torch.set_flush_denormal(True)

BLOCK = 128
"""Queries whose scores are held at once: they need only the keys up to the last of them."""
BAND = 16
"""Consecutive queries of a window layer that are computed together, with all the keys that one of them sees."""


Mix = Callable[[Tensor, Tensor, Tensor], Tensor]
"""What turns queries, keys and values of one problem [head, pos, dim] into mixed values."""


@dataclass
class Cache:
    """Keys and values of one layer at one iteration, for decoding token by token."""

    keys: Float[Tensor, "batch head room dim"]
    values: Float[Tensor, "batch head room dim"]
    length: int = 0

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add what is new and return everything so far."""
        start, self.length = self.length, self.length + keys.shape[-2]
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch."""
        self.keys, self.values = self.keys[rows], self.values[rows]


class Attention(nn.Module):
    """Multi-head causal self-attention of one layer."""

    def __init__(self, config: ModelConfig, layer: int, tap: Tap) -> None:
        super().__init__()
        self.heads = config.heads_of(layer)
        self.project = Linear(config.width, 3 * config.width)
        self.out = Linear(config.width, config.width)
        self.layer, self.tap = layer, tap
        self.dropout = config.dropout if config.dropout_at == "authors" else 0.0
        # A tensor, so that compiled code need not be compiled again while it grows; None where there is none.
        noisy = layer == 0 and config.lookup_noise > 0
        self.register_buffer("noise", torch.tensor(config.lookup_noise) if noisy else None, persistent=False)

    def forward(
        self,
        x: Float[Tensor, "*rows width"],
        positions: Positions,
        places: Int[Tensor, "..."],
        *,
        index: Int[Tensor, "batch pos"] | None = None,
        chosen: Int[Tensor, "batch query"] | None = None,
        visible: Bool[Tensor, "batch 1 pos key"] | None = None,
        mix: Mix | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch query width"]:
        """Attend to earlier positions, from all positions or from the ``chosen`` ones.

        ``x`` has a row for each position, or, with an ``index`` of which stands where, for each distinct token.
        ``visible`` replaces the causal mask where rows begin at different places, and ``mix`` all that follows projections.
        """
        asked = places if chosen is None else places[chosen]
        # Project to queries [batch, head, query, dim] and to keys and values [batch, head, key, dim].
        queries, keys, values = self._project(x, index, chosen)
        queries = self.tap("q", positions.rotate(queries, asked))
        keys = self.tap("k", positions.rotate(keys, places))
        values = self.tap("v", values)
        window = positions.window_of(self.layer)
        if cache is not None:
            reach = None if window is None else window.shape[-1]
            keys, values, chosen, visible = self._remembered(cache, keys, values, chosen, visible, reach)
        # Scale queries, so that scores need no further pass.
        scale = (positions.terms * queries.shape[-1]) ** -0.5
        queries = queries * scale
        # Mix values [batch, head, query, dim].
        if mix is not None:
            z = mix(queries[0], keys[0], values[0])[None]
        elif window is not None:
            z = self._windowed(queries, keys, values, window, chosen, visible)
        else:
            z = self._global(queries, keys, values, positions, scale, chosen, visible)
        return self._output(self.tap("z", z))

    @staticmethod
    def _remembered(
        cache: Cache, keys: Tensor, values: Tensor, chosen: Tensor | None, visible: Tensor | None, reach: int | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Put keys and values of earlier tokens before the new ones; return queries and mask as counted from there."""
        new = keys.shape[-2]
        keys, values = cache.extend(keys, values)
        if reach is not None:  # of the keys kept, only the last are within a window
            keys, values = keys[:, :, -(new + reach) :], values[:, :, -(new + reach) :]
            visible = None if visible is None else visible[..., -(new + reach) :]
        if chosen is not None:
            visible = None if visible is None else visible.gather(2, _rows(chosen, visible.shape[-1]))
            chosen = chosen + (keys.shape[-2] - new)
        return keys, values, chosen, visible

    def _project(self, x: Tensor, index: Tensor | None, chosen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries where they are asked, keys and values everywhere."""
        if chosen is None:
            projected = self.project(x) if index is None else F.embedding(index, self.project(x))
            queries, keys, values = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            return queries, keys, values
        x = x if index is None else F.embedding(index, x)
        width = x.shape[-1]
        weight, bias = self.project.weight, self.project.bias
        queries = linear(take(x, chosen), weight[:width], bias[:width]).unflatten(-1, (self.heads, -1))
        both = linear(x, weight[width:], bias[width:]).unflatten(-1, (2, self.heads, -1))
        keys, values = both.permute(2, 0, 3, 1, 4)
        return queries.transpose(1, 2), keys, values

    def _global(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        values: Float[Tensor, "batch head key dim"],
        positions: Positions,
        scale: float,
        chosen: Int[Tensor, "batch query"] | None,
        visible: Tensor | None,
    ) -> Float[Tensor, "batch head query dim"]:
        """Return mixed values where each query sees all keys up to its own: by the fused kernel if that can do it."""
        self_sink = positions.self_sink and self.layer == 0
        z = None
        if chosen is None and visible is None:
            z = self._by_encoding(queries, keys, values, positions, scale)
        if z is None and positions.fusable and chosen is None and not (self_sink and visible is not None):
            z = self._fused(queries, keys, values, visible, self_sink=self_sink)
        if z is None or self.tap.wants("scores") or self.tap.wants("pattern"):
            explicit, replaced = self._explicit(
                queries, keys, values, positions, scale, chosen, visible, self_sink=self_sink
            )
            z = explicit if z is None or replaced else z  # to look changes no bit
        return z

    def _by_encoding(
        self, queries: Tensor, keys: Tensor, values: Tensor, positions: Positions, scale: float
    ) -> Float[Tensor, "batch head query dim"] | None:
        """Return mixed values by the encoding's own kernel, if it has one: in training, with neither dropout nor noise."""
        learning = self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if not learning or self.dropout or self.noise is not None:
            return None
        return positions.attend(queries, keys, values, self.layer, scale=scale)

    def _fused(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        values: Float[Tensor, "batch head key dim"],
        visible: Tensor | None,
        *,
        self_sink: bool,
    ) -> Float[Tensor, "batch head query dim"]:
        """Return mixed values, computed by one kernel."""
        causal = visible is None and queries.shape[-2] > 1
        noise = self._noise(queries)
        if noise is not None and causal:
            later = torch.ones_like(noise, dtype=torch.bool).triu(1)
            visible, causal = noise.masked_fill(later, -torch.inf), False
        # All keys move up by one place: a sink comes first, and a token's own key is out of its sight.
        if self_sink:
            keys, values = (F.pad(x[:, :, :-1], (0, 0, 1, 0)) for x in (keys, values))
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, dropout_p=dropout, is_causal=causal, scale=1.0
        )

    def _explicit(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        values: Float[Tensor, "batch head key dim"],
        positions: Positions,
        scale: float,
        chosen: Int[Tensor, "batch query"] | None,
        visible: Tensor | None,
        *,
        self_sink: bool,
    ) -> tuple[Float[Tensor, "batch head query dim"], bool]:
        """Return mixed values, computed a block of queries at a time, and whether a listener replaced something."""
        length, columns = queries.shape[-2], keys.shape[-2]
        seen: dict[str, Tensor] = {}
        noise = self._noise(queries) if chosen is None else None
        mixed: list[Tensor] = []
        replaced = False
        block = BLOCK if chosen is None else length
        for start in range(0, length, block):
            end = min(start + block, length)
            # Queries of this block see keys up to the last of them.
            reach = columns - length + end if chosen is None else columns
            scores = positions.scores(
                queries[:, :, start:end],
                keys[:, :, :reach],
                self.layer,
                scale=scale,
                chosen=chosen,
            )  # [batch, head, block, reach]
            scores = scores if noise is None else scores + noise[start:end, :reach]
            itself = _one_hot(reach, start, end, columns - length, chosen, scores.device) if self_sink else None
            if itself is not None:
                scores.masked_fill_(itself, 0.0)
            self._hide_later(scores, -torch.inf, start, chosen, visible)
            computed = scores
            scores = self.tap.replaced("scores", computed, start)
            if scores is not computed:  # a patch lets no query see later keys
                self._hide_later(scores, -torch.inf, start, chosen, visible)
            weights = scores.softmax(-1)
            pattern = self.tap.replaced("pattern", weights, start)  # [batch, head, block, reach]
            if pattern is not weights:
                self._hide_later(pattern, 0.0, start, chosen, visible)
            replaced = replaced or scores is not computed or pattern is not weights
            if self.dropout and self.training:
                pattern = F.dropout(pattern, self.dropout)
            given = pattern if itself is None else pattern.masked_fill(itself, 0.0)
            mixed.append(given @ values[:, :, :reach])  # [batch, head, block, dim]
            for name, part, fill in (("scores", scores, -torch.inf), ("pattern", pattern, 0.0)):
                if self.tap.wants(name):
                    if name not in seen:
                        seen[name] = part.new_full((*part.shape[:2], length, columns), fill)
                    seen[name][:, :, start:end, :reach] = part
        for name, whole in seen.items():
            self.tap.record(name, whole)
        return torch.cat(mixed, dim=2), replaced

    def _hide_later(
        self,
        x: Float[Tensor, "batch head block reach"],
        fill: float,
        start: int,
        chosen: Int[Tensor, "batch query"] | None,
        visible: Tensor | None,
    ) -> None:
        """Fill entries of keys that a query must not see, in place; ``start`` is the first query of the block."""
        rows, reach = x.shape[-2:]
        if visible is not None:
            x.masked_fill_(~visible[:, :, start : start + rows, :reach], fill)
        elif chosen is not None:
            later = torch.arange(reach, device=x.device) > chosen[..., None]  # [batch, query, key]
            x.masked_fill_(later[:, None], fill)
        else:  # only the block's own keys can come after a query of it
            later = torch.ones(rows, rows, dtype=torch.bool, device=x.device).triu(1)
            x[..., reach - rows :].masked_fill_(later, fill)

    def _windowed(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        values: Float[Tensor, "batch head key dim"],
        bias: Float[Tensor, "head distance"],
        chosen: Int[Tensor, "batch query"] | None,
        visible: Bool[Tensor, "batch 1 pos key"] | None,
    ) -> Float[Tensor, "batch head query dim"]:
        """Return mixed values where each query sees the last few keys only: the cost is linear in the length."""
        if chosen is None and visible is None and queries.shape[-2] > 1:
            return self._banded(queries, keys, values, bias)
        batch, heads, length, dim = queries.shape
        columns, window = keys.shape[-2], bias.shape[-1]
        if chosen is None:
            chosen = torch.arange(columns - length, columns, device=keys.device).expand(batch, -1)
        near = chosen[..., None] - torch.arange(window, device=keys.device)  # [batch, query, distance]
        outside = near < 0
        if visible is not None:
            outside = outside | ~visible[:, 0].gather(-1, near.clamp(min=0))
        # Rows of keys and values by position, for all heads at once [batch, query, distance, head, dim].
        index = near.clamp(min=0) + torch.arange(batch, device=keys.device)[:, None, None] * columns
        both = torch.cat([keys, values], -1).transpose(1, 2).flatten(0, 1).flatten(1)  # [batch * key, head * 2 dim]
        gathered = F.embedding(index, both).unflatten(-1, (heads, 2 * dim))
        near_keys, near_values = gathered.split(dim, dim=-1)
        scores = torch.einsum("bhqd,bqwhd->bhqw", queries, near_keys)
        scores = scores + bias[:, None]  # [batch, head, query, distance]
        scores = scores.masked_fill(outside[:, None], -torch.inf)
        listening = bool(self.tap.taps.listeners)
        if listening:  # a patch lets no query see what is not there
            scores = self.tap.replaced("scores", scores).masked_fill(outside[:, None], -torch.inf)
            self.tap.record("scores", scores)
        pattern = scores.softmax(-1)  # [batch, head, query, distance]
        if listening:
            pattern = self.tap.replaced("pattern", pattern).masked_fill(outside[:, None], 0.0)
            self.tap.record("pattern", pattern)
        if self.dropout and self.training:
            pattern = F.dropout(pattern, self.dropout)
        return torch.einsum("bhqw,bqwhd->bhqd", pattern, near_values)

    def _banded(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        values: Float[Tensor, "batch head key dim"],
        bias: Float[Tensor, "head distance"],
    ) -> Float[Tensor, "batch head query dim"]:
        """Return the same for queries that follow each other: those of a block share their keys, and nothing is gathered."""
        length, back = queries.shape[-2], bias.shape[-1] - 1
        band = max(BAND, back)
        blocks = -(-length // band)
        missing = back - (keys.shape[-2] - length)  # keys that the first query would see before the first key
        queries = F.pad(queries, (0, 0, 0, blocks * band - length)).unflatten(2, (blocks, band))
        near_keys = _runs(keys, blocks, band, back, missing)  # [batch, head, block, key, dim]
        near_values = _runs(values, blocks, band, back, missing)
        # Key c of a block stands ``back`` places before query c.
        places = torch.arange(band + back, device=keys.device)
        apart = places[:band, None] + back - places  # [query, key]
        outside = (apart < 0) | (apart > back)
        apart = apart.clamp(0, back)
        bias = bias[:, None, apart].masked_fill(outside, -torch.inf)  # [head, 1, query, key]
        scores = queries @ near_keys.mT + bias  # [batch, head, block, query, key]
        if missing > 0:
            scores[:, :, 0, :, :missing] = -torch.inf
        # Listeners see and replace [batch, head, query, distance]; what lies outside the window stays as it is.
        inside = (places[:band, None] + back - places[: back + 1]).expand(*scores.shape[:-1], -1)
        scores = self._heard("scores", scores, inside, length, -torch.inf, missing)
        pattern = self._heard("pattern", scores.softmax(-1), inside, length, 0.0, missing)
        if self.dropout and self.training:
            pattern = F.dropout(pattern, self.dropout)
        return (pattern @ near_values).flatten(2, 3)[:, :, :length]

    def _heard(
        self,
        name: str,
        x: Float[Tensor, "batch head block query key"],
        inside: Int[Tensor, "batch head block query distance"],
        length: int,
        fill: float,
        missing: int,
    ) -> Float[Tensor, "batch head block query key"]:
        """Show blocks of scores or patterns to listeners, by distance; what these put in place of them sees no missing key."""
        if not self.tap.taps.listeners:
            return x
        shown = x.gather(-1, inside).flatten(2, 3)[:, :, :length]
        replaced = self.tap.replaced(name, shown)
        if replaced is not shown:
            distances = torch.arange(shown.shape[-1], device=x.device)
            absent = distances > torch.arange(length, device=x.device)[:, None] + distances[-1] - max(missing, 0)
            replaced = replaced.masked_fill(absent, fill)
            rows = F.pad(replaced, (0, 0, 0, inside.shape[2] * inside.shape[3] - length))
            x = x.scatter(-1, inside, rows.unflatten(2, inside.shape[2:4]))
        self.tap.record(name, replaced)
        return x

    def _output(self, z: Float[Tensor, "batch head query dim"]) -> Float[Tensor, "batch query width"]:
        """Project what all heads found, and add it up."""
        if self.tap.wants("head_out"):
            # What each head adds: its part of z with its columns of the output matrix [batch, head, query, width].
            by_head = self.out.weight.unflatten(1, (self.heads, -1))  # [width, head, dim]
            each = torch.einsum("bhqd,whd->bhqw", z, by_head)
            replaced = self.tap("head_out", each)
            if replaced is not each:
                return replaced.sum(1) + self.out.bias
        return self.out(z.transpose(1, 2).flatten(-2))

    def _noise(self, queries: Float[Tensor, "batch head query dim"]) -> Float[Tensor, "query query"] | None:
        """Return what disturbs the scores of consecutive queries in training, the same in all rows of a micro-batch."""
        if self.noise is None or not self.training:
            return None
        return self.noise * torch.randn(
            queries.shape[-2], queries.shape[-2], dtype=queries.dtype, device=queries.device
        )


def _one_hot(
    reach: int, start: int, end: int, before: int, chosen: Int[Tensor, "batch query"] | None, device: torch.device
) -> Bool[Tensor, "..."]:
    """Return which key is each query's own [.., query, key], for queries ``start`` to ``end`` after ``before`` other keys."""
    own = torch.arange(before + start, before + end, device=device) if chosen is None else chosen[:, None]
    return own[..., None] == torch.arange(reach, device=device)


def _runs(
    x: Float[Tensor, "batch head key dim"], blocks: int, band: int, back: int, missing: int
) -> Float[Tensor, "batch head block run dim"]:
    """Return the keys or values that each block of queries sees: ``back`` before its first query, then one for each query."""
    x = F.pad(x[:, :, max(-missing, 0) :], (0, 0, max(missing, 0), 0))
    x = F.pad(x, (0, 0, 0, (blocks + 1) * band - x.shape[2])).unflatten(2, (blocks + 1, band))
    return torch.cat([x[:, :, :-1], x[:, :, 1:, :back]], dim=3)


def _rows(chosen: Int[Tensor, "batch query"], columns: int) -> Int[Tensor, "batch 1 query column"]:
    """Return an index that takes the rows of chosen queries, all columns."""
    return chosen[:, None, :, None].expand(-1, -1, -1, columns)


def take(x: Float[Tensor, "batch pos width"], chosen: Int[Tensor, "batch query"]) -> Float[Tensor, "batch query width"]:
    """Take some positions of each row."""
    return x.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
