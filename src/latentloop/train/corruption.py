"""Wrong values on purpose: states from which a model learns to correct itself."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentloop.methods import Corrected
from latentloop.tokens.state import Layout
from latentloop.tokens.vocabulary import Vocabulary


def corrupt(
    values: Int[Tensor, "iteration batch pos"],
    layout: Layout,
    depths: Int[Tensor, "batch node"],
    iterations: Int[Tensor, "iteration"],
    method: Corrected,
    vocabulary: Vocabulary,
    generator: torch.Generator,
    chosen: Bool[Tensor, "batch 1"] | None = None,
) -> Int[Tensor, "iteration batch pos"]:
    """Replace some values that the given iterations start from by random symbols.

    One coin decides for the whole batch, unless ``chosen`` says which problems are corrupted. All draws happen in every
    batch, so that the stream of random numbers does not depend on the coin.
    """
    coin = torch.rand((), generator=generator) < method.corruption
    iteration = iterations[:, None, None]
    match method.corruption_of:
        case "last":
            candidates = depths == iteration - 1
        case "frontier":
            candidates = depths == iteration
        case _:
            candidates = (depths > 0).expand(len(iterations), -1, -1)
    hit = torch.rand(candidates.shape, generator=generator) < method.corruption_share  # [iteration, batch, node]
    hit = hit & candidates & layout.exists & (coin if chosen is None else chosen)
    symbols = torch.randint(0, vocabulary.size("value"), hit.shape, generator=generator)
    rhs = layout.rhs.expand(hit.shape)
    return values.scatter(-1, rhs, torch.where(hit, symbols, values.gather(-1, rhs)))
