"""The recurrent block: pre-LayerNorm causal layers, with factored or flat embeddings and read-outs."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.model.attention import Attention, Cache, Watch, take
from latentloop.model.characters import start_from_characters
from latentloop.model.positions import POSITIONS, Positions
from latentloop.tokens.vocabulary import FACTORS, Vocabulary


class GatedMLP(nn.Module):
    """Hidden units multiplied by gates: products of sums come naturally."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.into = nn.Linear(width, 2 * hidden)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Apply the MLP."""
        units, gates = self.into(x).chunk(2, dim=-1)
        return self.out(F.silu(gates) * units)


def _relu_mlp(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


Asides = dict[str, Tensor]
"""What a read-out that only training uses looks at, by its name: ``lookup`` or ``partial``."""

_MLPS = {"relu": _relu_mlp, "gated": GatedMLP}


class Layer(nn.Module):
    """Attention, then an MLP, each added to what came in."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config, number)
        self.mlp = None
        if number > 0 or config.first_mlp:
            self.mlp_norm = nn.LayerNorm(config.width)
            self.mlp = _MLPS[config.mlp](config.width, config.mlp_ratio * config.width)
        self.dropout = nn.Dropout(config.dropout)
        more = config.mlp_depth - 1 if number == config.layers - 1 else 0
        self.more_mlps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(config.width), _MLPS[config.mlp](config.width, config.mlp_ratio * config.width))
            for _ in range(more)
        )

    def forward(
        self, x: Tensor, positions: Positions, places: Tensor, layer: int, *, asides: Asides | None = None, **attention
    ) -> Tensor:
        """Apply the layer; ``attention`` is passed on (mask, cache, watch)."""
        added = self.attention(self.attention_norm(x), positions, places, layer, **attention)
        return self._think(x, added, attention.get("watch"), asides)

    def at(
        self,
        x: Tensor,
        chosen: Tensor,
        positions: Positions,
        places: Tensor,
        layer: int,
        watch: Watch | None,
        asides: Asides | None = None,
    ) -> Tensor:
        """Apply the layer at some positions only."""
        added = self.attention.at(self.attention_norm(x), chosen, positions, places, layer, watch=watch)
        return self._think(take(x, chosen), added, watch, asides)

    def _think(self, x: Tensor, added: Tensor, watch: Watch | None, asides: Asides | None) -> Tensor:
        """Add what attention found, and what the MLPs make of it."""
        middle = x + self.dropout(added)
        if watch is not None:
            watch("resid_pre", x)
            watch("resid_mid", middle)
        if self.mlp is None:
            return middle
        post = self.mlp(self.mlp_norm(middle))
        if watch is not None:
            watch("mlp_post", post)
        x = middle + self.dropout(post)
        halfway = (1 + len(self.more_mlps)) // 2
        for number, mlp in enumerate(self.more_mlps, 1):
            if asides is not None and number == halfway:
                asides["partial"] = x
            x = x + self.dropout(mlp(x))
        return x


class Transformer(nn.Module):
    """Embeddings, one block of layers, a final LayerNorm, read-outs; iterating it is up to ``recurrence``."""

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary, *, flat: bool = False) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        sizes = {"token": len(vocabulary)} if flat else {factor: vocabulary.size(factor) for factor in FACTORS}
        self.embeddings = nn.ModuleDict({name: nn.Embedding(size, config.width) for name, size in sizes.items()})
        read = {"value": sizes["value"]} if config.pin_static else sizes
        self.readouts = nn.ModuleDict({name: nn.Linear(config.width, size) for name, size in read.items()})
        self.positions = POSITIONS[config.positions](config)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.apply(_initialise)
        for name in config.asides:
            setattr(self, name, nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, sizes["value"])))
        if config.value_init == "characters":
            start_from_characters(self.embeddings["token" if flat else "value"], vocabulary.task.modulus)

    def embed(self, symbols: dict[str, Int[Tensor, "batch pos"]], places: Tensor | None = None) -> Tensor:
        """Sum the embeddings of all factors, and of the position where the encoding has one."""
        x = torch.stack([self.embeddings[name](numbers) for name, numbers in symbols.items()]).sum(0)
        return self.positions.embed(x, _places(x) if places is None else places)

    def block(
        self,
        x: Float[Tensor, "batch pos width"],
        places: Tensor | None = None,
        *,
        visible: Bool[Tensor, "batch 1 pos key"] | None = None,
        caches: list[Cache] | None = None,
        watch: Watch | None = None,
        asides: Asides | None = None,
        chosen: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch query width"]:
        """Apply all layers once, and the final LayerNorm.

        What read-outs for training look at is put into ``asides``; the last layer works only at ``chosen`` positions, if given.
        """
        places = _places(x) if places is None else places
        for number, layer in enumerate(self.layers):
            named = None if watch is None else _prefixed(watch, number)
            cache = None if caches is None else caches[number]
            if chosen is not None and number == len(self.layers) - 1:
                x = layer.at(x, chosen, self.positions, places, number, named, asides)  # pyrefly: ignore
            else:
                x = layer(x, self.positions, places, number, asides=asides, visible=visible, cache=cache, watch=named)
            if number == 0 and asides is not None:
                asides["lookup"] = x
        return self.norm(x)

    def read(self, x: Float[Tensor, "*batch width"]) -> dict[str, Float[Tensor, "*batch symbol"]]:
        """Give the logits of every factor."""
        return {name: readout(x) for name, readout in self.readouts.items()}


def _places(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1], device=x.device)


def _prefixed(watch: Watch, layer: int) -> Watch:
    return lambda name, value: watch(f"{layer}.{name}", value)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
