"""DeBERTa's attention in training on a CPU: a few rows of the batch at a time, so that their scores stay in the cache.

The plain way writes half a dozen tensors of the size of all scores, forward and backward. Here only the attention pattern is
kept for the backward pass; the rest is computed in buffers that are used again.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

SCORES_AT_ONCE = 2**18
"""Scores that are computed together: a megabyte, what a core's own cache holds."""
LONGEST = 256
"""Tokens beyond which the plain way is better: it leaves out most scores of later keys."""


def attend(
    queries: Float[Tensor, "batch head pos dim"],
    keys: Float[Tensor, "batch head pos dim"],
    values: Float[Tensor, "batch head pos dim"],
    with_query: Float[Tensor, "head distance dim"],
    with_key: Float[Tensor, "head distance dim"],
) -> Float[Tensor, "batch head pos dim"]:
    """Return mixed values of causal attention with scores q_i k_j + q_i r^K_{i-j} + k_j r^Q_{i-j}, already scaled.

    ``with_query`` holds r^K and ``with_key`` r^Q for distances 0, 1, ..; the last one stands for all that are larger.
    """
    length = queries.shape[-2]
    distances = torch.arange(length + 1, device=queries.device).clamp(max=with_query.shape[1] - 1)
    return _Attend.apply(queries, keys, values, with_query[:, distances.flip(0)], with_key[:, distances])  # pyrefly: ignore


class _Attend(Function):
    """The forward and the backward pass.

    A product with every distance is one column wider than the scores. Read with rows shorter by one, each row shifts
    against the one before, and what lay on diagonals comes to lie in columns.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        queries: Float[Tensor, "batch head pos dim"],
        keys: Float[Tensor, "batch head pos dim"],
        values: Float[Tensor, "batch head pos dim"],
        falling: Float[Tensor, "head distance dim"],
        rising: Float[Tensor, "head distance dim"],
    ) -> Float[Tensor, "batch head pos dim"]:
        """``falling`` is r^K from the largest distance to the smallest, ``rising`` r^Q from the smallest to the largest."""
        batch, heads, length, _ = queries.shape
        pattern = queries.new_empty(batch, heads, length, length)
        mixed = torch.empty_like(queries)
        later = torch.full((length, length), -torch.inf, dtype=queries.dtype, device=queries.device).triu(1)
        for some in _parts(queries):
            scores = pattern[some]  # [row, head, query, key]
            from_query = _from_query((queries[some] @ falling.mT).flatten(-2))
            from_key = _from_key((keys[some] @ rising.mT).flatten(-2))
            torch.add(from_query, from_key, out=scores)
            scores.flatten(0, 1).baddbmm_(queries[some].flatten(0, 1), keys[some].flatten(0, 1).mT)
            torch.softmax(scores.add_(later), -1, out=scores)
            mixed[some] = scores @ values[some]
        ctx.save_for_backward(queries, keys, values, falling, rising, pattern)
        return mixed

    @staticmethod
    def backward(  # pyrefly: ignore
        ctx: FunctionCtx, gradient: Float[Tensor, "batch head pos dim"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the gradients of queries, keys, values and both tables."""
        queries, keys, values, falling, rising, pattern = ctx.saved_tensors  # pyrefly: ignore
        to_queries, to_keys, to_values = (torch.empty_like(x) for x in (queries, keys, values))
        to_falling, to_rising = torch.zeros_like(falling), torch.zeros_like(rising)
        heads, length = queries.shape[1:3]
        # Gradients of both products with distances; where no score comes from, they stay zero for all parts.
        rows = next(_parts(queries)).stop
        by_query, by_key = queries.new_zeros(2, rows, heads, length * (length + 1)).unbind()
        for some in _parts(queries):
            weights = pattern[some]  # [row, head, query, key]
            count = len(weights)
            to_values[some] = weights.mT @ gradient[some]
            found = gradient[some] @ values[some].mT
            found = torch._softmax_backward_data(found, weights, -1, weights.dtype)  # of scores
            _from_query(by_query[:count]).copy_(found)
            _from_key(by_key[:count]).copy_(found)
            first, second = (x[:count].unflatten(-1, (length, length + 1)) for x in (by_query, by_key))
            to_queries[some] = first @ falling + found @ keys[some]
            to_keys[some] = second @ rising + found.mT @ queries[some]
            to_falling += (first.mT @ queries[some]).sum(0)
            to_rising += (second.mT @ keys[some]).sum(0)
        return to_queries, to_keys, to_values, to_falling, to_rising


def _parts(queries: Float[Tensor, "batch head pos dim"]) -> Iterator[slice]:
    """Yield as many rows of the batch at a time as fit the cache."""
    batch, heads, length, _ = queries.shape
    rows = min(batch, max(1, SCORES_AT_ONCE // (heads * length**2)))
    for start in range(0, batch, rows):
        yield slice(start, min(start + rows, batch))


def _length(product: Float[Tensor, "row head entry"]) -> int:
    """Return the number of positions, from that of products with one more distance than positions."""
    return int(product.shape[-1] ** 0.5)


def _from_query(product: Float[Tensor, "row head entry"]) -> Float[Tensor, "row head query key"]:
    """Entry [i, c] of the product is query i with distance length - c: row i of the scores starts at length - i."""
    length = _length(product)
    return product[..., length:].unflatten(-1, (length, length))


def _from_key(product: Float[Tensor, "row head entry"]) -> Float[Tensor, "row head query key"]:
    """Entry [j, d] of the product is key j with distance d: row j of the scores, by key, starts at -j."""
    length = _length(product)
    return product[..., : length**2].unflatten(-1, (length, length)).mT
