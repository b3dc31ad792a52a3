"""The losses: one for all latent methods, one for chain of thought. Sums are divided by totals given from outside."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from latentloop.model.generate import forward_trajectories
from latentloop.model.recurrence import Fixed, iterate
from latentloop.model.transformer import Transformer
from latentloop.train.targets import LatentBatch, Sums, TrainingBatch, TrajectoryBatch

FAN_INS = ("leaf", "one", "two", "three")


class Learner(nn.Module):
    """A model with its loss, so that strategies for many devices see one forward pass."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, sealed: "Sealed") -> tuple[Float[Tensor, ""], Sums]:
        """Return the loss of some rows, as their share of the whole, and counts of correct predictions."""
        if isinstance(sealed.batch, LatentBatch):
            return latent_loss(self.model, sealed.batch, sealed.totals)
        return trajectory_loss(self.model, sealed.batch, sealed.totals)


class Sealed:
    """A batch with its totals, as one thing that Fabric does not look into to convert it."""

    def __init__(self, batch: TrainingBatch, totals: Sums) -> None:
        self.batch, self.totals = batch, totals


def latent_loss(model: Transformer, batch: LatentBatch, totals: Sums) -> tuple[Float[Tensor, ""], Sums]:
    """Add the cross-entropies of all factors read and of the auxiliary read-outs, each divided by its total.

    Counts tell how many values are right that an iteration is the first to know, by number of parents.
    """
    loss = torch.zeros((), device=batch.layout.mask.device)
    counts: Sums = {}
    first = batch.iterations - len(batch.targets)
    outputs = iterate(model, batch.start, batch.layout, Fixed(batch.iterations))
    for iteration, (_, output) in enumerate(outputs):
        if iteration < first:
            continue
        which = iteration - first
        targets, loss_mask, counted_as = batch.targets[which], batch.loss_mask[which], batch.counted_as[which]
        for factor, scores in output.logits.items():
            if factor == "value":
                loss = loss + _cross_entropy(scores, targets, loss_mask) / totals["value"]
            else:
                loss = loss + _cross_entropy(scores, getattr(batch.start, factor), batch.layout.mask) / totals["static"]
        for name, scores in output.auxiliary.items():
            wanted = batch.auxiliary[name][which]
            summed = _cross_entropy(scores, wanted, wanted >= 0)
            loss = loss + model.method.auxiliary[name] * summed / totals[name].clamp(min=1)
            right = {f"right/{name}": (scores.argmax(-1) == wanted).sum(), f"all/{name}": (wanted >= 0).sum()}
            add_sums(counts, right)
        right = output.logits["value"].argmax(-1) == targets
        for number, name in enumerate(FAN_INS, 1):
            new = counted_as == number
            add_sums(counts, {f"right/{name}": (right & new).sum(), f"all/{name}": new.sum()})
    return loss, counts


def _cross_entropy(scores: Tensor, targets: Tensor, mask: Tensor) -> Float[Tensor, ""]:
    """Sum the cross-entropy where the mask says."""
    return F.cross_entropy(scores[mask].float(), targets[mask], reduction="sum")


def trajectory_loss(model: Transformer, batch: TrajectoryBatch, totals: Sums) -> tuple[Float[Tensor, ""], Sums]:
    """Sum the next-token cross-entropy of everything after ``CoT``, divided by its total."""
    logits, targets = forward_trajectories(model, batch.tokens[:, :-1]), batch.tokens[:, 1:]
    loss = _cross_entropy(logits, targets, batch.loss_mask) / totals["token"]
    right, number = (logits.argmax(-1) == targets) & batch.loss_mask, batch.number & batch.loss_mask
    return loss, {
        "right/token": right.sum(),
        "all/token": batch.loss_mask.sum(),
        "right/number": (right & number).sum(),
        "all/number": number.sum(),
    }


def add_sums(totals: Sums, more: Sums) -> Sums:
    """Add sums to totals, in place."""
    for name, count in more.items():
        totals[name] = totals[name] + count if name in totals else count
    return totals
