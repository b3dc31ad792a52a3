"""A worst case for look-ups: the least attention that the right definition can get, over every problem and every state.

Without positions, the scores of the first layer depend on two tokens alone, and tokens are few: a name with a value, a
constant, an operation, `=`, and `;`. So the worst problem of N nodes need not be searched for, it can be written down. All
scores come with a bound of their rounding errors in single precision, whatever the order of sums, and every step rounds
against the claim.

What it covers: the attention of the first layer from every variable on a left-hand side, in every problem of up to N nodes
(any graph, any order, operands repeated or not) and every state, each right-hand side a number, right or wrong, or empty. The
model must carry values alone, and a state in which it wrote `N/A` for a value is outside. There are two cases. A definition
that holds a number should be found: `known` is the least attention that it gets. A definition that is empty leaves nothing to
find: `empty` is the least attention that tokens without a number get together. What it does not cover: what the following
layers make of what was looked up.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from latentloop.config import MAX_FAN_IN, ModelConfig
from latentloop.errors import UserError
from latentloop.tokens.vocabulary import FACTORS, Factor, Vocabulary

ROUNDOFF = 2.0**-24
"""The most by which single precision rounds, relative to the result."""
CASES = ("known", "empty")
PLACELESS = ("local", "nope")
SHARE = 0.9
"""The attention that a look-up should keep."""
SIZES = (32, 128, 1024, 4096)
QUERIES = 256
"""Names whose scores are held at once."""
NORM_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class LookupBound:
    """The worst case of the look-up head of one model, for any number of nodes.

    Everything is what keys weigh at most where the right thing to find weighs one, for each case and each name asked for.
    """

    head: int
    names: int
    own: Float[ndarray, "case name"]
    """A left-hand side of the same name."""
    others: Float[ndarray, "case name rank"]
    """Definitions of other names, each in its worst state, the heaviest first, added up."""
    operands: Float[ndarray, "case name"]
    """A left-hand side of any other name."""
    constants: Float[ndarray, "case name"]
    operations: Float[ndarray, "case name"]
    equals: Float[ndarray, "case name"]
    sep: Float[ndarray, "case name"]
    sink: Float[ndarray, "case name"]
    """The attention sink in place of the query's own key, where there is one."""

    def attention(self, nodes: int) -> dict[str, float]:
        """Return the least share of attention that goes where it should, by case, in any problem of so many nodes."""
        if not 1 <= nodes <= self.names:
            raise UserError(f"the bound is for problems of 1 to {self.names} nodes, got {nodes}")
        variables = MAX_FAN_IN * np.maximum(self.own, self.operands) + (MAX_FAN_IN - 1) * self.operations
        equation = np.maximum(variables, self.constants) + self.equals + self.sep
        others = self.others[..., nodes - 2] if nodes > 1 else 0.0
        rounding = 2 * (nodes * (2 * MAX_FAN_IN + 2) + 8) * ROUNDOFF  # of a sum over all tokens
        rivals = (others + nodes * equation + self.sink) * (1 + rounding)
        least = (1 / (1 + rivals)).min(1) * (1 - rounding)
        return dict(zip(CASES, least.tolist(), strict=True))

    def largest(self, case: str, share: float = SHARE) -> int:
        """Return the largest number of nodes for which the least attention is at least ``share``; 0 if there is none."""
        low, high = 0, self.names
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.attention(middle)[case] >= share else (low, middle - 1)
        return low


def worst_case(config: ModelConfig, vocabulary: Vocabulary, weights: dict[str, ndarray]) -> dict[str, Any]:
    """Return the least attention of look-ups by number of nodes, and the largest number for which it stays above 0.9."""
    bound = lookup_bound(config, vocabulary, weights)
    attention = {str(nodes): bound.attention(nodes) for nodes in SIZES if nodes <= bound.names}
    largest = {case: bound.largest(case) for case in CASES}
    return {"head": bound.head, "attention": attention, "share": SHARE, "largest": largest, "names": bound.names}


def lookup_bound(config: ModelConfig, vocabulary: Vocabulary, weights: dict[str, ndarray]) -> LookupBound:
    """Return the worst case of the first layer's head that looks up best."""
    if config.positions.name not in PLACELESS:
        raise UserError(
            f"a worst case of look-ups needs a first layer without positions, {' or '.join(PLACELESS)}, "
            f"got {config.positions.name}"
        )
    found = [_bound_head(head, config, vocabulary, weights) for head in range(config.heads_of(0))]
    return max(found, key=lambda bound: bound.attention(min(2, bound.names))["known"])


def _bound_head(head: int, config: ModelConfig, vocabulary: Vocabulary, weights: dict[str, ndarray]) -> LookupBound:
    names, modulus = vocabulary.task.names, vocabulary.task.modulus
    self_sink = config.positions.name == "local"
    values = [*range(modulus), vocabulary.empty]
    name, value = np.repeat(np.arange(names), len(values)), np.tile(values, names)
    keys = Rows.project(1, head, config, weights, _tokens(weights, vocabulary, "variable", variable=name, value=value))
    queries = Rows.project(
        0, head, config, weights, _tokens(weights, vocabulary, "variable", variable=np.arange(names), value=values[-1])
    )
    special = {
        kind: Rows.project(1, head, config, weights, tokens)
        for kind, tokens in {
            "constants": _tokens(weights, vocabulary, "value", value=np.arange(modulus)),
            "operations": _tokens(
                weights, vocabulary, "operation", operation=np.arange(len(vocabulary.task.operations))
            ),
            "equals": _tokens(weights, vocabulary, "="),
            "sep": _tokens(weights, vocabulary, "sep"),
        }.items()
    }
    parts: dict[str, dict[str, list[ndarray]]] = {}
    for start in range(0, names, QUERIES):
        asked = queries[start : start + QUERIES]
        rows = np.arange(len(asked.numbers))
        low, high = asked.scores(keys)
        low, high = (scores.reshape(len(rows), names, len(values)) for scores in (low, high))
        own_low, own_high = low[rows, start + rows], high[rows, start + rows]  # [query, value]
        high[rows, start + rows] = -np.inf
        rivals = {
            "others": high.max(2),
            "operands": high[:, :, -1].max(1),
            "constants": asked.scores(special["constants"])[1].max(1),
            "operations": asked.scores(special["operations"])[1].max(1),
            "equals": asked.scores(special["equals"])[1][:, 0],
            "sep": asked.scores(special["sep"])[1][:, 0],
            "sink": np.full(len(rows), 0.0 if self_sink else -np.inf),
        }
        # A definition with a number must outweigh everything else. Where it is empty, what matters is that no number is found
        # elsewhere: what holds none, such as the tokens of its own equation, must outweigh constants and other definitions.
        known = own_low[:, :modulus].min(1)
        resting = [own_low[:, -1], *(asked.scores(special[kind])[0][:, 0] for kind in ("equals", "sep"))]
        empty = np.logaddexp.reduce([*resting, rivals["sink"]])
        numbers = {kind: np.full(len(rows), -np.inf) for kind in rivals}
        numbers |= {"constants": rivals["constants"], "others": high[:, :, :modulus].max(2)}
        cases = (known, rivals | {"own": own_high[:, -1]}), (empty, numbers | {"own": numbers["sep"]})
        for case, (right, weighed) in zip(CASES, cases, strict=True):
            found = {kind: _weights(scores, right) for kind, scores in weighed.items()}
            found["others"] = np.sort(found["others"], axis=1)[:, :0:-1].cumsum(1)
            for kind, weight in found.items():
                parts.setdefault(kind, {}).setdefault(case, []).append(weight)
    joined = {kind: np.stack([np.concatenate(by_case[case]) for case in CASES]) for kind, by_case in parts.items()}
    return LookupBound(head=head, names=names, **joined)


def _weights(scores: Float[ndarray, "query *key"], right: Float[ndarray, "query"]) -> Float[ndarray, "query *key"]:
    """Return what keys weigh where the right one weighs one, rounded up, as are differences of scores."""
    gaps = (scores.T - right).T
    return np.exp(gaps) * (1 + (8 + 2 * np.where(np.isfinite(gaps), np.abs(gaps), 0)) * ROUNDOFF)


@dataclass(frozen=True)
class Rows:
    """Queries or keys in double precision, with a bound of how far off single precision may be."""

    numbers: Float[ndarray, "row dim"]
    error: Float[ndarray, "row"]
    """Length of the vector of errors."""

    def __getitem__(self, rows: slice) -> "Rows":
        return Rows(self.numbers[rows], self.error[rows])

    @classmethod
    def project(
        cls, which: int, head: int, config: ModelConfig, weights: dict[str, ndarray], tokens: tuple[ndarray, ndarray]
    ) -> "Rows":
        """Apply the first layer's LayerNorm and the query (0) or key (1) matrix of a head."""
        x, magnitude = tokens
        width = x.shape[1]
        gain, shift = (weights[f"layers.0.attention_norm.{part}"].astype(np.float64) for part in ("weight", "bias"))
        mean = x.mean(1, keepdims=True)
        centered = x - mean
        variance = (centered**2).mean(1, keepdims=True)
        rate = 1 / np.sqrt(variance + NORM_EPS)
        normal = centered * rate * gain + shift
        # Errors of sums: four embeddings, then a mean over the width, whatever the order (n roundings each).
        off = _gamma(4) * magnitude + _gamma(width + 4) * magnitude.mean(1, keepdims=True)
        off_variance = (2 * np.abs(centered) * off + off**2).mean(1, keepdims=True) + _gamma(width + 6) * variance
        off_rate = rate**3 * off_variance + 4 * ROUNDOFF * rate
        off = np.abs(gain) * (off * rate + np.abs(centered) * off_rate + off * off_rate) + _gamma(4) * (
            np.abs(normal) + np.abs(shift)
        )
        size = config.width // config.heads_of(0)
        rows = slice(which * width + head * size, which * width + (head + 1) * size)
        matrix = weights["layers.0.attention.project.weight"][rows].astype(np.float64)
        bias = weights["layers.0.attention.project.bias"][rows].astype(np.float64)
        scale = size**-0.5 if which == 0 else 1.0
        projected = (normal @ matrix.T + bias) * scale
        magnitude = np.abs(matrix) @ np.abs(normal).T + np.abs(bias)[:, None]
        error = np.linalg.norm((np.abs(matrix) @ off.T + _gamma(width + 4) * magnitude) * scale, axis=0)
        return cls(projected, 1.001 * error)

    def scores(self, keys: "Rows") -> tuple[Float[ndarray, "query key"], Float[ndarray, "query key"]]:
        """Return the least and the largest score of each pair."""
        products = self.numbers @ keys.numbers.T
        long, long_keys = np.linalg.norm(self.numbers, axis=1), np.linalg.norm(keys.numbers, axis=1)
        gamma = _gamma(self.numbers.shape[1] + 2)
        # |q k' - q' k| with Cauchy and Schwarz, and the rounding of the product itself.
        error = np.outer(self.error + gamma * long, long_keys + keys.error) + np.outer(long + self.error, keys.error)
        return products - 1.001 * error, products + 1.001 * error


def _gamma(roundings: int) -> float:
    return roundings * ROUNDOFF / (1 - roundings * ROUNDOFF)


def _tokens(
    weights: dict[str, ndarray], vocabulary: Vocabulary, syntax: str, **numbers: ndarray | int
) -> tuple[Float[ndarray, "token width"], Float[ndarray, "token width"]]:
    """Return the sums of the embeddings of some tokens, and the sums of their magnitudes."""
    symbols: dict[Factor, ndarray | int] = {
        factor: numbers.get(factor, vocabulary.symbols(factor).index("N/A")) for factor in FACTORS if factor != "syntax"
    }
    symbols["syntax"] = vocabulary.symbols("syntax").index(syntax)
    rows = [weights[f"embeddings.{factor}.weight"][number].astype(np.float64) for factor, number in symbols.items()]
    shape = np.broadcast_shapes(*(row.shape for row in rows), (1, rows[0].shape[-1]))
    return np.broadcast_to(sum(rows), shape), np.broadcast_to(sum(map(np.abs, rows)), shape)
