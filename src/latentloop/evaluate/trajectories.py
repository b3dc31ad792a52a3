"""Let a chain-of-thought model write."""

from collections.abc import Iterator

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
KEYS_AT_ONCE = 2**23
"""Entries of one layer's keys that a cache may hold: decides how many problems are written side by side."""
NODE_TOKENS = 24
"""About as many tokens as a node takes, in a problem and in its trajectory."""


def write_in_parts(
    model: Transformer, problems: Problems, solution: Solution, trajectory: Format
) -> Iterator[tuple[Int[ndarray, "part"], Int[ndarray, "part pos"], Int[ndarray, "part pos"]]]:
    """Write on problems of similar length at a time, as many as there is room for; yield their rows with each result."""
    order = np.argsort(problems.lengths, kind="stable")
    room = max(1, min(64, KEYS_AT_ONCE // (problems.width * NODE_TOKENS * model.config.width)))
    for start in range(0, len(order), room):
        rows = order[start : start + room]
        part = problems[rows]
        truth = Solution(values=solution.values[rows, : part.width], depths=solution.depths[rows, : part.width])
        yield rows, *write_trajectories(model, part, truth, trajectory)


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
