"""Wrong values on purpose: states from which a model learns to correct itself."""

import torch
from jaxtyping import Int
from torch import Tensor

from latentloop.config import TrainConfig
from latentloop.tokens.batch import Batch
from latentloop.tokens.vocabulary import Vocabulary


def corrupt(
    values: Int[Tensor, "iteration batch pos"],
    batch: Batch,
    iterations: Int[Tensor, "iteration"],
    train: TrainConfig,
    vocabulary: Vocabulary,
    generator: torch.Generator,
) -> Int[Tensor, "iteration batch pos"]:
    """In some batches, replace some values that the given iterations start from by random symbols.

    Draws happen in every batch, so that the stream of random numbers does not depend on the first of them.
    """
    chosen = torch.rand((), generator=generator) < train.corruption
    step = iterations[:, None, None]
    match train.corruption_of:
        case "last":
            candidates = batch.depth == step - 1
        case "frontier":
            candidates = batch.depth == step
        case _:
            candidates = (batch.depth > 0).expand(len(iterations), -1, -1)
    hit = torch.rand(candidates.shape, generator=generator) < train.corruption_share
    hit = hit & candidates & batch.exists & chosen
    symbols = torch.randint(0, vocabulary.size("value"), hit.shape, generator=generator)
    target = batch.target.expand(hit.shape)
    return values.scatter(-1, target, torch.where(hit, symbols, values.gather(-1, target)))
