"""The recurrent block: pre-LayerNorm causal layers, with factored or flat embeddings and read-outs."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentloop.config import ModelConfig
from latentloop.methods import MethodConfig
from latentloop.model.attention import Attention, Cache, Mix, take
from latentloop.model.lookups import LEAST_LENGTH, Lookups
from latentloop.model.positions import POSITIONS, Positions
from latentloop.model.products import Linear
from latentloop.model.tap import Tap, Taps
from latentloop.tokens.state import Layout, State
from latentloop.tokens.vocabulary import FACTORS, Vocabulary


class MLP(nn.Module):
    """LayerNorm, then one hidden layer of ReLU units."""

    def __init__(self, config: ModelConfig, number: int, tap: Tap) -> None:
        super().__init__()
        hidden = config.mlp_ratio * config.width
        self.norm = nn.LayerNorm(config.width)
        self.into = Linear(config.width, hidden)
        self.out = Linear(hidden, config.width)
        self.tap = tap
        self.suffix = f".{number}" if number else ""

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Return what is added to the residual stream."""
        units = F.relu(self.tap(f"mlp_pre{self.suffix}", self.into(self.norm(x))))  # [.., hidden]
        return self.tap(f"mlp_out{self.suffix}", self.out(self.tap(f"mlp_post{self.suffix}", units)))


class Layer(nn.Module):
    """Attention, then MLPs, each added to what came in."""

    def __init__(self, config: ModelConfig, number: int, taps: Taps) -> None:
        super().__init__()
        self.tap = Tap(taps, number)
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config, number, self.tap)
        self.mlps = nn.ModuleList(MLP(config, which, self.tap) for which in range(config.mlps_of(number)))
        self.dropout = nn.Dropout(config.dropout)
        self.attention_dropout = self.dropout if config.dropout_at == "outputs" else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "*rows width"],
        positions: Positions,
        places: Int[Tensor, "..."],
        *,
        index: Int[Tensor, "batch pos"] | None = None,
        chosen: Int[Tensor, "batch query"] | None = None,
        visible: Tensor | None = None,
        mix: Mix | None = None,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "batch query width"], Float[Tensor, "batch query width"]]:
        """Apply the layer at all positions or the chosen ones; return its result, and that of half of its MLPs.

        ``x`` has a row for each position, or, with an ``index`` of which stands where, for each distinct token.
        """
        rows, x = x, x if index is None else F.embedding(index, x)
        patched = self.tap("resid_pre", x)
        if patched is not x or index is None:  # equal tokens need no longer be equal
            rows, x, index = patched, patched, None
        added = self.attention(
            self.attention_norm(rows),
            positions,
            places,
            index=index,
            chosen=chosen,
            visible=visible,
            mix=mix,
            cache=cache,
        )
        x = self.tap("resid_mid", (x if chosen is None else take(x, chosen)) + self.attention_dropout(added))
        halfway = x
        for number, mlp in enumerate(self.mlps):
            if number == len(self.mlps) // 2:
                halfway = x
            x = x + self.dropout(mlp(x))
        return self.tap("resid_post", x), halfway


@dataclass(frozen=True, kw_only=True)
class Output:
    """What one application of the block gives, at every position; where only values are read, at right-hand sides."""

    logits: dict[str, Float[Tensor, "batch query _symbol"]]
    """By factor."""
    hidden: Float[Tensor, "batch query width"]
    auxiliary: dict[str, Float[Tensor, "batch _query _symbol"]]
    """Logits of the auxiliary read-outs, in training: ``lookup`` at every position, ``partial`` where logits are."""


class Transformer(nn.Module):
    """Embeddings, one block of layers, a final LayerNorm, read-outs. ``recurrence`` applies it again and again."""

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary, method: MethodConfig) -> None:
        super().__init__()
        self.config, self.vocabulary, self.method = config, vocabulary, method
        self.taps = Taps()
        self.tap = Tap(self.taps)
        flat = not method.row.latent
        sizes = {"token": len(vocabulary)} if flat else {factor: vocabulary.size(factor) for factor in FACTORS}
        self.embeddings = nn.ModuleDict({name: nn.Embedding(size, config.width) for name, size in sizes.items()})
        read = {"value": sizes["value"]} if method.pin_static else sizes
        self.readouts = nn.ModuleDict({name: Linear(config.width, size) for name, size in read.items()})
        self.positions = POSITIONS[config.positions.name](config)
        self.dropout = nn.Dropout(config.dropout if config.dropout_at == "authors" else 0.0)
        self.layers = nn.ModuleList(Layer(config, number, self.taps) for number in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.apply(lambda module: _initialize(module, config.embedding_std))
        self.auxiliary = nn.ModuleDict(
            {
                name: nn.Sequential(nn.LayerNorm(config.width), Linear(config.width, sizes["value"]))
                for name in method.auxiliary
            }
        )

    def disturb(self, done: float) -> None:
        """Let the noise in the first layer's scores grow with the share of the training that is done."""
        noise = self.layers[0].attention.noise  # pyrefly: ignore
        if noise is not None:
            noise.fill_(self.config.lookup_noise * done)

    def keeps_lookups(self, layout: Layout) -> bool:
        """Return whether the sums of the first layer are worth keeping between iterations: for one large problem."""
        plain = self.positions.self_sink and self.method.row.carries == "state"
        everywhere = len(self.layers) > 1 or not self.method.pin_static  # all positions are queries
        large = len(layout) == 1 and layout.mask.shape[1] >= LEAST_LENGTH
        exact = layout.mask.device.type != "mps"  # which has no double precision
        watched = torch.is_grad_enabled() or self.training or bool(self.taps.listeners)
        return plain and everywhere and large and exact and not watched

    def forward(self, state: State, layout: Layout, lookups: Lookups | None = None) -> Output:
        """Apply the block once to a state; ``lookups`` are the first layer's sums from earlier iterations."""
        if state.hidden is None:
            tokens, index = distinct(torch.stack(list(state.factors().values())))
            x = self.embed(dict(zip(FACTORS, tokens, strict=True)))  # [token, width]
        else:
            x, index = state.hidden, None
        # Where only values are read, the last layer is needed at right-hand sides only.
        chosen = layout.rhs if self.method.pin_static else None
        mix = None if lookups is None else partial(lookups.mix, torch.cat(list(state.factors().values())))
        hidden, inner = self.block(x, index=index, iteration=state.iteration, chosen=chosen, mix=mix)
        auxiliary = {name: read(inner[name]) for name, read in self.auxiliary.items() if self.training}
        return Output(logits=self.read(hidden), hidden=hidden, auxiliary=auxiliary)

    def embed(self, symbols: dict[str, Int[Tensor, "*rows"]]) -> Float[Tensor, "*rows width"]:
        """Sum the embeddings of all factors."""
        return torch.stack([self.embeddings[name](numbers) for name, numbers in symbols.items()]).sum(0)

    def block(
        self,
        x: Float[Tensor, "*rows width"],
        places: Int[Tensor, "..."] | None = None,
        *,
        index: Int[Tensor, "batch pos"] | None = None,
        iteration: int = 0,
        chosen: Int[Tensor, "batch query"] | None = None,
        visible: Bool[Tensor, "batch 1 pos key"] | None = None,
        mix: Mix | None = None,
        caches: list[Cache] | None = None,
    ) -> tuple[Float[Tensor, "batch query width"], dict[str, Tensor]]:
        """Apply all layers once, the last one at ``chosen`` positions only, and the final LayerNorm.

        ``x`` has a row for each position, or, with an ``index`` of which stands where, for each distinct token. ``mix``
        does the first layer's attention in its place. Return the result, and what the auxiliary read-outs look at.
        """
        self.taps.iteration = iteration
        length = x.shape[1] if index is None else index.shape[1]
        places = torch.arange(length, device=x.device) if places is None else places
        if self.positions.enters or (self.training and self.dropout.p > 0):  # equal tokens become different
            x, index = x if index is None else F.embedding(index, x), None
            x = self.dropout(self.positions.enter(x, places))
        inner: dict[str, Tensor] = {}
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            before = x
            x, halfway = layer(
                x,
                self.positions,
                places,
                index=None if number else index,
                mix=None if number else mix,
                chosen=chosen if last else None,
                visible=visible,
                cache=None if caches is None else caches[number],
            )
            if number == 0:
                if self.training and self.config.stray and chosen is not None and not last:
                    x = self._astray(x, before if index is None else F.embedding(index, before), chosen)
                inner["lookup"] = x
            if last:
                inner["partial"] = halfway
        return self.norm(x), inner

    def _astray(
        self,
        x: Float[Tensor, "batch pos width"],
        before: Float[Tensor, "batch pos width"],
        rhs: Int[Tensor, "batch node"],
    ) -> Float[Tensor, "batch pos width"]:
        """Give some right-hand sides what a token at a random position has looked up, in place of their own."""
        found = x - before  # what the first layer has added
        others = take(found, torch.randint(x.shape[1], rhs.shape, device=x.device))
        # [batch, node]; where there is no node, 0 stands for its position
        swapped = (torch.rand(rhs.shape, device=x.device) < self.config.stray) & (rhs > 0)
        change = torch.where(swapped[..., None], others - take(found, rhs), 0.0)
        return x.scatter_add(1, rhs[..., None].expand_as(change), change)

    def read(self, x: Float[Tensor, "*batch width"]) -> dict[str, Float[Tensor, "*batch symbol"]]:
        """Return the logits of every factor that is read."""
        return {name: self.tap(f"logits.{name}", readout(x)) for name, readout in self.readouts.items()}


def distinct(
    factors: Int[Tensor, "factor batch pos"],
) -> tuple[Int[Tensor, "factor token"], Int[Tensor, "batch pos"]]:
    """Return the tokens that occur, each once, and which of them stands where.

    What depends on a token alone is then computed once for all of its places: of thousands in a batch, most are equal.
    """
    sizes = factors.amax((1, 2)).tolist()
    codes = factors[0]
    for numbers, largest in zip(factors[1:], sizes[1:], strict=True):
        codes = codes * (largest + 1) + numbers
    codes, index = codes.unique(return_inverse=True)
    tokens = []
    for largest in reversed(sizes[1:]):
        tokens.append(codes % (largest + 1))
        codes = codes // (largest + 1)
    return torch.stack([codes, *reversed(tokens)]), index


def _initialize(module: nn.Module, embedding_std: float) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=embedding_std)
