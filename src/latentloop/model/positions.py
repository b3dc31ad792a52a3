"""Where a token stands: five encodings, siblings behind one contract.

An encoding may act at three places: on what enters the block, on queries and keys, and on the scores between them. Tests
compare each with a double loop over positions.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.config.positions import AbsoluteConfig, DisentangledConfig, LocalConfig, RotaryConfig
from latentloop.errors import UserError
from latentloop.model import relative


class Positions(nn.Module, ABC):
    """The contract. ``places`` are the positions of tokens in their own sequence, padding not counted."""

    terms: int = 1
    """Number of products summed in a score: scores are divided by the square root of terms x head size."""
    self_sink: bool = False
    """Whether tokens of the first layer have an attention sink in place of their own key: score 0, value 0."""
    enters: bool = False
    """Whether it acts on what enters the block."""
    fusable: bool = True
    """Whether scores are plain products of queries and keys, which a fused kernel can compute."""

    @abstractmethod
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def window_of(self, layer: int) -> Float[Tensor, "head distance"] | None:
        """Return a layer's bias for each distance that its queries see, or None where they see everything before them."""
        return None

    def enter(
        self, x: Float[Tensor, "batch pos width"], places: Int[Tensor, "..."]
    ) -> Float[Tensor, "batch pos width"]:
        """Act on what enters the block, at every iteration."""
        return x

    def rotate(self, x: Float[Tensor, "batch head pos dim"], places: Int[Tensor, "..."]) -> Tensor:
        """Act on queries or keys."""
        return x

    def scores(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        layer: int,
        *,
        scale: float,
        chosen: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch head query key"]:
        """Return the attention scores; the caller masks keys that come after their query.

        Queries stand where the ``chosen`` keys stand, or are the last ones up to the last key. They come multiplied by
        ``scale``; terms without a query in them must be multiplied here.
        """
        return queries @ keys.mT

    def attend(
        self,
        queries: Float[Tensor, "batch head pos dim"],
        keys: Float[Tensor, "batch head pos dim"],
        values: Float[Tensor, "batch head pos dim"],
        layer: int,
        *,
        scale: float,
    ) -> Float[Tensor, "batch head pos dim"] | None:
        """Return mixed values by a kernel of the encoding's own, for a step of training; None where it has none."""
        return None


class NoPositions(Positions):
    """NoPE: only the causal mask tells earlier from later."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)


class AbsolutePositions(Positions):
    """AbPE: a learned vector for each position, added to what enters the block, then a LayerNorm."""

    enters = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.positions, AbsoluteConfig)
        self.table = nn.Embedding(config.positions.max_positions, config.width)
        self.norm = nn.LayerNorm(config.width)

    def enter(self, x: Float[Tensor, "batch pos width"], places: Int[Tensor, "..."]) -> Tensor:
        """Add the position's vector."""
        room = self.table.num_embeddings
        last = int(places.max())
        if last >= room:
            raise UserError(f"the model has absolute positions for {room} tokens, the sequence has {last + 1}")
        return self.norm(x + self.table(places))


class RotaryPositions(Positions):
    """RoPE: queries and keys are rotated by their position, so that scores see differences."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.positions, RotaryConfig)
        self.base = config.positions.rope_base

    def rotate(self, x: Float[Tensor, "batch head pos dim"], places: Int[Tensor, "..."]) -> Tensor:
        """Rotate each pair of units (i, i + dim / 2) by position x rate."""
        half = x.shape[-1] // 2
        numbers = torch.arange(half, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        rates = self.base ** (-numbers / half)  # [half]
        angles = (places[..., None] * rates).unsqueeze(-3)  # [.., 1, pos, half]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, dim=-1)  # [batch, head, pos, half] each
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)


class DisentangledPositions(Positions):
    """DeBERTa: scores add query-to-distance and key-to-distance products, for distances up to a window."""

    terms = 3
    fusable = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.positions, DisentangledConfig)
        width = config.positions.relative_width
        self.window = config.positions.window
        self.table = nn.Embedding(self.window, width)
        self.norm = nn.LayerNorm(width)
        self.keys = nn.ModuleList(nn.Linear(width, config.width) for _ in range(config.layers))
        self.queries = nn.ModuleList(nn.Linear(width, config.width) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout) if config.dropout_at == "authors" else nn.Identity()

    def scores(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        layer: int,
        *,
        scale: float,
        chosen: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch head query key"]:
        """Add q_i r^K_{i-j} and k_j r^Q_{i-j} to q_i k_j."""
        with_query, with_key = self._tables(queries.shape[1], layer, scale)
        if chosen is None:
            from_query, from_key = self._consecutive(queries, keys, with_query, with_key)
        else:
            from_query, from_key = self._chosen(queries, keys, with_query, with_key, chosen)
        by_distance = from_query + from_key  # [batch, head, query, key]
        # Add the products of queries and keys in the same pass over memory.
        flat = torch.baddbmm(by_distance.flatten(0, 1), queries.flatten(0, 1), keys.flatten(0, 1).mT)
        return flat.unflatten(0, by_distance.shape[:2])

    def attend(
        self,
        queries: Float[Tensor, "batch head pos dim"],
        keys: Float[Tensor, "batch head pos dim"],
        values: Float[Tensor, "batch head pos dim"],
        layer: int,
        *,
        scale: float,
    ) -> Float[Tensor, "batch head pos dim"] | None:
        """Return mixed values, computed a few rows of the batch at a time; on a CPU, where that is faster."""
        alike = queries.shape == keys.shape and queries.dtype in (torch.float32, torch.float64)
        if queries.device.type != "cpu" or not alike or queries.shape[-2] > relative.LONGEST:
            return None
        return relative.attend(queries, keys, values, *self._tables(queries.shape[1], layer, scale))

    def _tables(
        self, heads: int, layer: int, scale: float
    ) -> tuple[Float[Tensor, "head distance dim"], Float[Tensor, "head distance dim"]]:
        """Return r^K and r^Q of a layer; the latter, which meets no query, is scaled."""
        table = self.dropout(self.norm(self.table.weight))  # [distance, relative_width]
        with_query = self.keys[layer](table).unflatten(-1, (heads, -1)).transpose(0, 1)
        with_key = (self.queries[layer](table) * scale).unflatten(-1, (heads, -1)).transpose(0, 1)
        return with_query, with_key

    def _chosen(
        self, queries: Tensor, keys: Tensor, with_query: Tensor, with_key: Tensor, chosen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return both products for queries anywhere, by looking up the distance of each pair."""
        apart = chosen[..., None] - torch.arange(keys.shape[-2], device=chosen.device)  # [batch, query, key]
        apart = apart.clamp(0, self.window - 1)[:, None].expand(-1, queries.shape[1], -1, -1)
        return (queries @ with_query.mT).gather(-1, apart), (with_key @ keys.mT).gather(-2, apart)

    def _consecutive(
        self, queries: Tensor, keys: Tensor, with_query: Tensor, with_key: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return both products for queries that follow each other up to the last key, without any index.

        Products with every distance are computed as a matrix one column wider than needed. Read with rows shorter by one,
        each row shifts against the one before, and what lay on diagonals comes to lie in columns. Keys that all queries
        see from beyond the window need no such matrix: a score adds one number of the query and one of the key.
        """
        rows, columns = queries.shape[-2], keys.shape[-2]
        near = min(columns, rows + self.window - 1)
        distances = torch.arange(near, -1, -1, device=queries.device).clamp(max=self.window - 1)
        # Entry [i, c] of this product is query i with distance near - c; row i of the result starts at rows - i.
        product = (queries @ with_query[:, distances].mT).flatten(-2)
        from_query = product[..., rows:].unflatten(-1, (rows, near))
        # Entry [j, d] of this product is key j with distance d; row j of the result starts at -j.
        product = (keys[..., columns - near :, :] @ with_key[:, distances.flip(0)].mT).flatten(-2)
        from_key = product[..., : near * near].unflatten(-1, (near, near))[..., near - rows :].mT
        if near == columns:
            return from_query, from_key
        far_query = (queries @ with_query[:, -1:].mT).expand(*from_query.shape[:3], columns - near)
        far_key = (keys[..., : columns - near, :] @ with_key[:, -1:].mT).mT.expand(*from_key.shape[:3], columns - near)
        return torch.cat([far_query, from_query], dim=-1), torch.cat([far_key, from_key], dim=-1)


class LocalPositions(Positions):
    """Global, then local: the first layer has no positions, the others see a few tokens back, each with a learned bias.

    A look-up never needs the token that asks. An attention sink stands in its place, else a definition may find itself.
    """

    self_sink = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert isinstance(config.positions, LocalConfig)
        shapes = [(config.heads_of(layer), config.positions.window) for layer in range(1, config.layers)]
        self.tables = nn.ParameterList(torch.zeros(shape) for shape in shapes)

    def window_of(self, layer: int) -> Float[Tensor, "head distance"] | None:
        """Return the table of a layer after the first."""
        return self.tables[layer - 1] if layer else None


POSITIONS: dict[str, type[Positions]] = {
    "abpe": AbsolutePositions,
    "rope": RotaryPositions,
    "nope": NoPositions,
    "deberta": DisentangledPositions,
    "local": LocalPositions,
}
