"""Where a token stands: four encodings, siblings behind one contract.

An encoding may act at three places: on the embeddings, on queries and keys, and on the scores between them. Tests hold
each against a double loop over positions.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.errors import UserError


class Positions(nn.Module, ABC):
    """The contract. ``places`` are the positions of tokens in their own sequence, padding not counted."""

    terms: int = 1
    """Number of products summed in a score, which it is scaled by."""

    @abstractmethod
    def embed(self, x: Float[Tensor, "batch pos width"], places: Int[Tensor, "..."]) -> Tensor:
        """Act on the embeddings."""

    @abstractmethod
    def turn(self, x: Float[Tensor, "batch head pos dim"], places: Int[Tensor, "..."]) -> Tensor:
        """Act on queries or keys."""

    @abstractmethod
    def relative(
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        layer: int,
        scale: float,
        chosen: Int[Tensor, "batch query"] | None = None,
    ) -> Tensor | None:
        """Give what is added to the scores, or None.

        Queries stand where the ``chosen`` keys stand, or follow each other up to the last key. They come scaled; whatever
        has no query in it must scale itself. Entries with a key after its query are meaningless: the causal mask hides them.
        """


class AbsolutePositions(Positions):
    """AbPE: a learned vector for each position, added to the embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.max_positions, config.width)

    def embed(self, x: Float[Tensor, "batch pos width"], places: Int[Tensor, "..."]) -> Tensor:  # noqa: D102
        room = self.table.num_embeddings
        if int(places.max()) >= room:
            raise UserError(
                f"the model has absolute positions for {room} tokens, the sequence has {int(places.max()) + 1}"
            )
        return x + self.table(places)

    def turn(self, x: Tensor, places: Tensor) -> Tensor:  # noqa: D102
        return x

    def relative(  # noqa: D102
        self, queries: Tensor, keys: Tensor, layer: int, scale: float, chosen: Tensor | None = None
    ) -> None:
        return None


class RotaryPositions(Positions):
    """RoPE: queries and keys turn with their position, so that scores see differences."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.base = config.rope_base

    def embed(self, x: Tensor, places: Tensor) -> Tensor:  # noqa: D102
        return x

    def turn(self, x: Float[Tensor, "batch head pos dim"], places: Int[Tensor, "..."]) -> Tensor:  # noqa: D102
        half = x.shape[-1] // 2
        numbers = torch.arange(half, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        rates = self.base ** (-numbers / half)
        angles = (places[..., None] * rates).unsqueeze(-3)
        left, right = x.chunk(2, dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)

    def relative(  # noqa: D102
        self, queries: Tensor, keys: Tensor, layer: int, scale: float, chosen: Tensor | None = None
    ) -> None:
        return None


class NoPositions(Positions):
    """NoPE: only the causal mask tells earlier from later."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def embed(self, x: Tensor, places: Tensor) -> Tensor:  # noqa: D102
        return x

    def turn(self, x: Tensor, places: Tensor) -> Tensor:  # noqa: D102
        return x

    def relative(  # noqa: D102
        self, queries: Tensor, keys: Tensor, layer: int, scale: float, chosen: Tensor | None = None
    ) -> None:
        return None


class DisentangledPositions(Positions):
    """DeBERTa: scores add query-to-distance and key-to-distance products, for distances up to a window.

    Products with every distance are computed as a matrix one column wider than needed. Read with rows shorter by one,
    each row shifts against the one before, and what lay on diagonals comes to lie in columns: no index, no copy. Keys
    that all queries see from beyond the window need no such matrix: there a score adds a number of the query's and a
    number of the key's.
    """

    terms = 3

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.window = config.window
        self.table = nn.Embedding(config.window, config.relative_width)
        self.norm = nn.LayerNorm(config.relative_width)
        self.keys = nn.ModuleList(nn.Linear(config.relative_width, config.width) for _ in range(config.layers))
        self.queries = nn.ModuleList(nn.Linear(config.relative_width, config.width) for _ in range(config.layers))

    def embed(self, x: Tensor, places: Tensor) -> Tensor:  # noqa: D102
        return x

    def turn(self, x: Tensor, places: Tensor) -> Tensor:  # noqa: D102
        return x

    def relative(  # noqa: D102
        self,
        queries: Float[Tensor, "batch head query dim"],
        keys: Float[Tensor, "batch head key dim"],
        layer: int,
        scale: float,
        chosen: Int[Tensor, "batch query"] | None = None,
    ) -> Tensor:
        (heads, rows), columns = queries.shape[1:3], keys.shape[-2]
        table = self.norm(self.table.weight)
        with_key = self.keys[layer](table).unflatten(-1, (heads, -1)).transpose(0, 1)
        with_query = (self.queries[layer](table) * scale).unflatten(-1, (heads, -1)).transpose(0, 1)
        if chosen is not None:
            apart = chosen[..., None] - torch.arange(columns, device=chosen.device)
            apart = apart.clamp(0, self.window - 1)[:, None].expand(-1, heads, -1, -1)
            return (queries @ with_key.mT).gather(-1, apart) + (with_query @ keys.mT).gather(-2, apart)
        near = min(columns, rows + self.window - 1)
        distances = torch.arange(near, -1, -1, device=queries.device).clamp(max=self.window - 1)
        # Entry [i, c] of this product is query i with distance near - c; row i of the result starts at rows - i.
        product = (queries @ with_key[:, distances].mT).flatten(-2)
        from_query = product[..., rows:].unflatten(-1, (rows, near))
        # Entry [j, d] of this product is key j with distance d; row j of the result starts at -j.
        product = (keys[..., columns - near :, :] @ with_query[:, distances.flip(0)].mT).flatten(-2)
        from_key = product[..., : near * near].unflatten(-1, (near, near))[..., near - rows :].mT
        if near == columns:
            return from_query + from_key
        far = queries @ with_key[:, -1:].mT + (keys[..., : columns - near, :] @ with_query[:, -1:].mT).mT
        return torch.cat([far, from_query + from_key], dim=-1)


POSITIONS: dict[str, type[Positions]] = {
    "abpe": AbsolutePositions,
    "rope": RotaryPositions,
    "nope": NoPositions,
    "deberta": DisentangledPositions,
}
