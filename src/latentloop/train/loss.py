"""The losses: one for all latent methods, one for chain of thought. Sums are divided by totals given from outside."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from latentloop.config import TrainConfig
from latentloop.methods import Method
from latentloop.model.generate import forward_trajectories
from latentloop.model.recurrence import unroll
from latentloop.model.transformer import Transformer
from latentloop.train.targets import Counts, Lesson, TrajectoryLesson

FAN_INS = ("leaf", "one", "two", "three")


class Learner(nn.Module):
    """A model with its loss, so that strategies for many devices see one forward pass."""

    def __init__(self, model: Transformer, method: Method, train: TrainConfig | None = None) -> None:
        super().__init__()
        train = train or TrainConfig()
        self.model, self.method = model, method
        self.weights = {"lookup": train.lookup_weight, "partial": train.partial_weight}

    def forward(self, sealed: "Sealed") -> tuple[Float[Tensor, ""], Counts]:
        """Give the loss of some rows, as their share of the whole, and counts of what came out right."""
        if isinstance(sealed.lesson, Lesson):
            return latent_loss(self.model, sealed.lesson, self.method, sealed.totals, self.weights)
        return trajectory_loss(self.model, sealed.lesson, sealed.totals)


class Sealed:
    """A lesson with its totals, as one thing that Fabric does not look into to convert it."""

    def __init__(self, lesson: Lesson | TrajectoryLesson, totals: Counts) -> None:
        self.lesson, self.totals = lesson, totals


def latent_loss(
    model: Transformer, lesson: Lesson, method: Method, totals: Counts, weights: Mapping[str, float] | None = None
) -> tuple[Float[Tensor, ""], Counts]:
    """Add the cross-entropies of all four factors and of what is read aside, each divided by its total.

    Counts tell how many values came out right that an iteration is the first to know, by number of parents.
    """
    loss = torch.zeros((), device=lesson.mask.device)
    counts: Counts = {}
    first = lesson.iterations - len(lesson.wanted)
    for iteration, step in zip(range(lesson.iterations), unroll(model, lesson.start, method), strict=False):
        if iteration < first:
            continue
        logits = step.logits
        wanted, counted, fresh = (x[iteration - first] for x in (lesson.wanted, lesson.counted, lesson.fresh))
        for factor, scores in logits.items():
            value = factor == "value"
            where, target = (counted, wanted) if value else (lesson.mask, lesson.start.factors()[factor])
            summed = F.cross_entropy(scores[where].float(), target[where], reduction="sum")
            loss = loss + summed / totals["value" if value else "static"]
        for name, scores in step.asides.items():
            held = lesson.asides[name][iteration - first]
            where = held >= 0
            summed = F.cross_entropy(scores[where].float(), held[where], reduction="sum")
            loss = loss + (weights or {}).get(name, 1.0) * summed / totals[name].clamp(min=1)
            add_counts(counts, {f"right/{name}": (scores.argmax(-1) == held).sum(), f"all/{name}": where.sum()})
        right = logits["value"].argmax(-1) == wanted
        for number, name in enumerate(FAN_INS, 1):
            new = {f"right/{name}": (right & (fresh == number)).sum(), f"all/{name}": (fresh == number).sum()}
            add_counts(counts, new)
    return loss, counts


def trajectory_loss(model: Transformer, lesson: TrajectoryLesson, totals: Counts) -> tuple[Float[Tensor, ""], Counts]:
    """Sum the next-token cross-entropy of everything after ``CoT``, divided by its total."""
    logits, target = forward_trajectories(model, lesson.tokens[:, :-1]), lesson.tokens[:, 1:]
    loss = F.cross_entropy(logits[lesson.counted].float(), target[lesson.counted], reduction="sum") / totals["token"]
    right, number = (logits.argmax(-1) == target) & lesson.counted, lesson.number & lesson.counted
    return loss, {
        "right/token": right.sum(),
        "all/token": lesson.counted.sum(),
        "right/number": (right & number).sum(),
        "all/number": number.sum(),
    }


def add_counts(totals: Counts, more: Counts) -> Counts:
    """Add counts to totals, in place."""
    for name, count in more.items():
        totals[name] = totals[name] + count if name in totals else count
    return totals
