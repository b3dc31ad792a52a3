"""Look-ups in large problems: sums of attention that are kept from one iteration to the next.

Where the first layer knows no positions, its queries, keys and values depend on tokens alone, and between two iterations few
tokens change: right-hand sides that became known. So each query keeps the sum of its weights and of its weighted values.
Where a key changes, its old share is taken out and its new one put in: the same sums in another order, at a cost that grows
with what changed, not with the square of the length. In place of its own key, each query has an attention sink.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 256
"""Queries, or changed keys, whose scores are held at once."""
LEAST_LENGTH = 2048
"""Tokens from which this is worth it."""


class Lookups:
    """The sums of one problem's first layer."""

    tokens: Int[Tensor, "factor pos"] | None = None

    def mix(
        self,
        tokens: Int[Tensor, "factor pos"],
        queries: Float[Tensor, "head pos dim"],
        keys: Float[Tensor, "head pos dim"],
        values: Float[Tensor, "head pos dim"],
    ) -> Float[Tensor, "head pos dim"]:
        """Return mixed values, from what changed since the last call."""
        length = tokens.shape[1]
        if self.tokens is None:
            sums = queries.new_zeros(*queries.shape[:2], dtype=torch.float64)
            self.top, self.weight, self.peak = sums, sums.clone(), sums.clone()
            self.mixed = torch.zeros_like(values, dtype=torch.float64)
            anew = torch.arange(length, device=tokens.device)
        else:
            changed = (tokens != self.tokens).any(0).nonzero()[:, 0]
            for part in _blocks(changed):
                self._replace(part, queries, keys, values)
            # Taking out most of a sum leaves its rounding errors; and a query that changed has other scores altogether.
            lost = (self.weight < 0.5 * self.peak).any(0)
            lost[changed] = True
            anew = lost.nonzero()[:, 0]
        for part in _blocks(anew):
            self._sum(part, queries, keys, values)
        self.tokens, self.keys, self.values = tokens, keys, values
        return (self.mixed / self.weight[..., None]).to(values.dtype)

    def _sum(self, rows: Int[Tensor, "row"], queries: Tensor, keys: Tensor, values: Tensor) -> None:
        """Add up everything that some queries see."""
        reach = int(rows[-1]) + 1
        scores = queries[:, rows] @ keys[:, :reach].mT  # [head, row, key]
        scores.masked_fill_(torch.arange(reach, device=rows.device) >= rows[:, None], -torch.inf)
        top = scores.amax(-1, keepdim=True).clamp(min=0)  # the sink's score
        weights = (scores - top).exp_()
        self.top[:, rows] = top[..., 0].double()
        self.weight[:, rows] = weights.sum(-1, dtype=torch.float64) + (-top[..., 0].double()).exp()
        self.peak[:, rows] = self.weight[:, rows]
        self.mixed[:, rows] = (weights @ values[:, :reach]).double()

    def _replace(self, changed: Int[Tensor, "changed"], queries: Tensor, keys: Tensor, values: Tensor) -> None:
        """Take out what some keys gave in the last iteration, and put in what they give now, where queries see them."""
        first = int(changed[0])
        later = changed >= torch.arange(first, queries.shape[1], device=changed.device)[:, None]  # [query, changed]
        scores = [
            (queries[:, first:] @ some[:, changed].mT).masked_fill_(later, -torch.inf) for some in (self.keys, keys)
        ]
        # Weights are relative to the largest score seen so far: rescale where a larger one comes.
        top = self.top[:, first:]
        higher = torch.maximum(top, scores[1].amax(-1).double())
        factor = (top - higher).exp()
        old, new = ((score - higher[..., None].to(score.dtype)).exp_() for score in scores)
        self.top[:, first:] = higher
        self.weight[:, first:] = self.weight[:, first:] * factor + (
            new.sum(-1, dtype=torch.float64) - old.sum(-1, dtype=torch.float64)
        )
        self.peak[:, first:] = torch.maximum(self.peak[:, first:] * factor, self.weight[:, first:])
        added = (new @ values[:, changed]).double() - (old @ self.values[:, changed]).double()
        self.mixed[:, first:] = self.mixed[:, first:] * factor[..., None] + added


def _blocks(places: Int[Tensor, "place"]) -> Iterable[Int[Tensor, "some"]]:
    return places.split(BLOCK) if len(places) else ()
