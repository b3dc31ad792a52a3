"""The model once more, in NumPy alone: every latent method and every encoding, in its plainest form.

It is made to be read from top to bottom, and to be tested against: the torch model computes the same in quicker ways, and
the two share no code. It answers where torch is not installed, and where loading torch would take longer than the answer.

One problem at a time, so that no array has a batch axis. All it needs is ``config.json`` and ``model.safetensors``:

    run = RunConfig.from_dict(read_json(folder / "config.json"))
    model = Reference(run, safetensors.numpy.load_file(folder / "model.safetensors"))
    for step in model.iterate(encode(problems, model.vocabulary)): ...
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from latentloop.config import RunConfig
from latentloop.config.positions import DisentangledConfig, LocalConfig
from latentloop.errors import UserError
from latentloop.tokens.factored import Tokens
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

ENCODINGS = ("abpe", "rope", "nope", "deberta", "local")
BLOCK = 128
"""Queries whose scores are held at once: memory then grows with the length, not with its square."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one iteration gives."""

    state: dict[str, Int[ndarray, "pos"]]
    """The next state: a symbol of each factor at every position."""
    hidden: Float[ndarray, "query width"]
    """The block's result: at right-hand sides where only values are read, else at every position."""
    logits: dict[str, Float[ndarray, "query _symbol"]]
    """By factor, where ``hidden`` is."""
    patterns: list[Float[ndarray, "_head _query pos"]] = field(default_factory=list)
    """Attention of each layer, if it was asked for; the share of a query's sink stands at its own key."""


class Reference:
    """A trained model: its configuration, and its weights by name."""

    def __init__(self, run: RunConfig, weights: Mapping[str, ndarray]) -> None:
        if not run.method.row.latent or run.model.positions.name not in ENCODINGS:
            raise UserError(f"NumPy runs latent methods with {', '.join(ENCODINGS)}: this model needs torch")
        self.run, self.weights = run, weights
        self.config, self.method, self.vocabulary = run.model, run.method, Vocabulary(task=run.task)
        positions = run.model.positions
        self.encoding = positions.name
        self.window = positions.window if isinstance(positions, DisentangledConfig | LocalConfig) else 0

    # The recursion: a state goes through the block, a decision is made, and the decision is the next state.

    def iterate(self, tokens: Tokens, row: int = 0, *, patterns: bool = False) -> Iterator[Step]:
        """Yield one step after the other, without end, on one problem of a batch."""
        state = {name: numbers[row, : tokens.lengths[row]].astype(int) for name, numbers in tokens.factors().items()}
        rhs = tokens.rhs[row][tokens.rhs[row] >= 0].astype(int)
        hidden = None
        while True:
            step = self.update(state, rhs, hidden, patterns=patterns)
            yield step
            state = step.state
            hidden = step.hidden if self.method.row.carries == "hidden" else None

    @np.errstate(over="ignore", invalid="ignore")  # whatever a stranger's weights give is an answer
    def update(
        self, state: dict[str, ndarray], rhs: ndarray, hidden: ndarray | None = None, *, patterns: bool = False
    ) -> Step:
        """Apply the block once, to hidden vectors or else to the embedded state, and take the likeliest symbols."""
        x = self.embed(state) if hidden is None else hidden
        pinned = self.method.pin_static  # only values change, and only at right-hand sides
        seen: list[ndarray] = []
        hidden = self.block(x, rhs if pinned else np.arange(len(x)), seen if patterns else None)
        logits = {name: self.linear(hidden, f"readouts.{name}") for name in (("value",) if pinned else FACTORS)}
        decided = {name: scores.argmax(-1) for name, scores in logits.items()}
        if pinned:
            value = state["value"].copy()
            value[rhs] = decided["value"]
            decided = state | {"value": value}
        return Step(state=decided, hidden=hidden, logits=logits, patterns=seen)

    # The block: embeddings, then layers of attention and MLPs, each added to what came in, and a LayerNorm.

    def embed(self, state: dict[str, Int[ndarray, "pos"]]) -> Float[ndarray, "pos width"]:
        """Sum the embeddings of the four factors."""
        return np.sum([self.weights[f"embeddings.{name}.weight"][state[name]] for name in FACTORS], axis=0)

    def block(
        self, x: Float[ndarray, "pos width"], asked: Int[ndarray, "query"], seen: list[ndarray] | None = None
    ) -> Float[ndarray, "query width"]:
        """Apply all layers, the last one only at the positions that are ``asked``; ``seen`` collects attention."""
        if self.encoding == "abpe":
            x = self.placed(x)
        for layer in range(self.config.layers):
            last = layer == self.config.layers - 1
            queries = asked if last else np.arange(len(x))
            x = x[queries] + self.attend(self.norm(x, f"layers.{layer}.attention_norm"), layer, queries, seen)
            # The last layer may have several MLPs, and the first of several layers none.
            count = self.config.mlp_depth if last else int(layer > 0 or self.config.first_mlp)
            for number in range(count):
                x = x + self.mlp(x, f"layers.{layer}.mlps.{number}")
        return self.norm(x, "norm")

    def mlp(self, x: Float[ndarray, "query width"], name: str) -> Float[ndarray, "query width"]:
        """LayerNorm, then one hidden layer of ReLU units."""
        units = self.linear(self.norm(x, f"{name}.norm"), f"{name}.into")
        return self.linear(np.maximum(units, 0), f"{name}.out")

    def linear(self, x: Float[ndarray, "row width"], name: str) -> Float[ndarray, "row units"]:
        """Multiply with a matrix [units, width], and add a bias."""
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Float[ndarray, "row width"], name: str) -> Float[ndarray, "row width"]:
        """LayerNorm: mean 0 and variance 1 in each row, then a learned scale and shift."""
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5)
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    # Attention: each query takes a mean of the values up to its own place, weighted by the softmax of its scores.

    def attend(
        self, x: Float[ndarray, "pos width"], layer: int, asked: Int[ndarray, "query"], seen: list[ndarray] | None
    ) -> Float[ndarray, "query width"]:
        """Return what all heads of a layer add at the positions that are asked."""
        heads = self.config.heads_of(layer)
        projected = self.linear(x, f"layers.{layer}.attention.project").reshape(len(x), 3, heads, -1)
        q, k, v = projected.transpose(1, 2, 0, 3)  # [head, pos, dim] each
        if self.encoding == "rope":
            q, k = self.rotated(q), self.rotated(k)
        found = np.empty((heads, len(asked), v.shape[-1]), v.dtype)
        pattern = np.zeros((heads, len(asked) if seen is not None else 0, len(x)), v.dtype)
        for start in range(0, len(asked), BLOCK):
            rows = slice(start, start + BLOCK)
            places = asked[rows]
            # Keys that some query of the block may see: all before it, or those in a window.
            windowed = self.encoding == "local" and layer > 0
            keys = slice(max(0, places.min() + 1 - self.window) if windowed else 0, places.max() + 1)
            distance = places[:, None] - np.arange(keys.start, keys.stop)  # [query, key]
            scores = self.scores(q[:, places], k[:, keys], distance, layer)  # [head, query, key]
            weights = softmax(np.where(distance >= 0, scores, -np.inf))
            if seen is not None:
                pattern[:, rows, keys] = weights
            if self.encoding == "local" and layer == 0:  # the sink, in the place of a token's own key, has no value
                weights = np.where(distance == 0, 0, weights)
            found[:, rows] = weights @ v[:, keys]
        if seen is not None:
            seen.append(pattern)
        return self.linear(found.transpose(1, 0, 2).reshape(len(asked), -1), f"layers.{layer}.attention.out")

    def scores(self, q: ndarray, k: ndarray, distance: ndarray, layer: int) -> Float[ndarray, "head query key"]:
        """Return how well each key answers each query; the caller masks keys that come after their query."""
        products = q @ k.transpose(0, 2, 1)  # [head, query, key]
        root = k.shape[-1] ** 0.5
        if self.encoding == "deberta":  # products of queries and of keys with vectors for their distance, as well
            return (products + self.with_distances(q, k, distance, layer)) / (3**0.5 * root)
        if self.encoding == "local" and layer == 0:  # an attention sink: score 0 in the place of a token's own key
            return np.where(distance == 0, 0, products / root)
        if self.encoding == "local":  # a bias for each distance within the window
            bias = self.weights[f"positions.tables.{layer - 1}"][:, distance.clip(0, self.window - 1)]
            return np.where(distance < self.window, products / root + bias, -np.inf)
        return products / root

    # Where a token stands: what the other encodings do.

    def placed(self, x: Float[ndarray, "pos width"]) -> Float[ndarray, "pos width"]:
        """AbPE: add a learned vector for each position, then a LayerNorm."""
        table = self.weights["positions.table.weight"]
        if len(x) > len(table):
            raise UserError(f"the model has absolute positions for {len(table)} tokens, the sequence has {len(x)}")
        return self.norm(x + table[: len(x)], "positions.norm")

    def rotated(self, x: Float[ndarray, "head pos dim"]) -> Float[ndarray, "head pos dim"]:
        """RoPE: rotate each pair of units (i, i + dim / 2), as one complex number, by position x rate."""
        half = x.shape[-1] // 2
        rates = self.config.positions.rope_base ** (-np.arange(half) / half)  # pyrefly: ignore
        turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * np.arange(x.shape[1])[:, None] * rates)
        return np.concatenate([turned.real, turned.imag], -1).astype(x.dtype)

    def with_distances(self, q: ndarray, k: ndarray, distance: ndarray, layer: int) -> Float[ndarray, "head query key"]:
        """DeBERTa: return the products of each query, and of each key, with the vector of the distance between them."""
        table = self.norm(self.weights["positions.table.weight"], "positions.norm")  # [distance, relative width]
        by_head = (len(table), len(q), -1)
        as_keys = self.linear(table, f"positions.keys.{layer}").reshape(by_head).transpose(1, 2, 0)
        as_queries = self.linear(table, f"positions.queries.{layer}").reshape(by_head).transpose(1, 2, 0)
        near = distance.clip(0, self.window - 1)[None]  # from the window's end on, distances share one vector
        of_queries = np.take_along_axis(q @ as_keys, near, axis=2)  # [head, query, key]
        of_keys = np.take_along_axis(k @ as_queries, near.transpose(0, 2, 1), axis=2)  # [head, key, query]
        return of_queries + of_keys.transpose(0, 2, 1)


def softmax(scores: Float[ndarray, "head query key"]) -> Float[ndarray, "head query key"]:
    """Return shares that add up to one over keys."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)
