"""The recurrent block: pre-LayerNorm causal layers, with factored or flat embeddings and read-outs."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.model.attention import Attention, Cache, Watch
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


_MLPS = {"relu": _relu_mlp, "gated": GatedMLP}


class Layer(nn.Module):
    """Attention, then an MLP, each added to what came in."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config, number)
        self.mlp = _MLPS[config.mlp](config.width, config.mlp_ratio * config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, positions: Positions, places: Tensor, layer: int, **attention) -> Tensor:
        """Apply the layer; ``attention`` is passed on (mask, cache, watch)."""
        watch = attention.get("watch")
        middle = x + self.dropout(self.attention(self.attention_norm(x), positions, places, layer, **attention))
        post = self.mlp(self.mlp_norm(middle))
        if watch is not None:
            watch("resid_pre", x)
            watch("resid_mid", middle)
            watch("mlp_post", post)
        return middle + self.dropout(post)


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
        if config.lookup:
            self.lookup = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, sizes["value"]))
        if config.value_init == "characters":
            start_from_characters(self.embeddings["value"], vocabulary.task.modulus)

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
        first: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch pos width"]:
        """Apply all layers once, and the final LayerNorm; what leaves the first layer is added to ``first``."""
        places = _places(x) if places is None else places
        for number, layer in enumerate(self.layers):
            named = None if watch is None else _prefixed(watch, number)
            cache = None if caches is None else caches[number]
            x = layer(x, self.positions, places, number, visible=visible, cache=cache, watch=named)
            if number == 0 and first is not None:
                first.append(x)
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
