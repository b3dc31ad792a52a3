"""Let a chain-of-thought model write."""

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray

from latentloop.model.generate import generate
from latentloop.model.transformer import Transformer
from latentloop.task.graph import Problems
from latentloop.task.oracle import Solution
from latentloop.tokens.trajectory import Format, encode_trajectories

SPARE = 16
"""Tokens a model may write beyond the length of the true trajectory."""


def write_trajectories(
    model: Transformer, problems: Problems, solution: Solution, trajectory: Format
) -> tuple[Int[ndarray, "batch pos"], Int[ndarray, "batch pos"]]:
    """Generate what follows ``CoT`` for each problem, and return the true one too in the same form."""
    true = encode_trajectories(problems, solution, model.vocabulary, trajectory)
    pad, device = model.vocabulary.pad, model.norm.weight.device
    width, limit = int(true.prompt_lengths.max()), int((true.lengths - true.prompt_lengths).max()) + SPARE
    prompts = np.where(np.arange(width) < true.prompt_lengths[:, None], true.tokens[:, :width], pad)
    written = generate(
        model,
        torch.from_numpy(prompts.astype(np.int64)).to(device),
        torch.from_numpy(true.prompt_lengths.astype(np.int64)).to(device),
        limit=limit,
    )
    own = (true.lengths - true.prompt_lengths)[:, None] + SPARE  # a row's limit does not depend on its neighbors
    written = np.where(np.arange(limit) < own, written.cpu().numpy(), pad)
    padded = np.pad(true.tokens, [(0, 0), (0, limit)], constant_values=pad)
    reference = np.take_along_axis(padded, true.prompt_lengths[:, None] + np.arange(limit), axis=1)
    return written, reference.astype(np.int64)
