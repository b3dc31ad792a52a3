"""Batches for a model: named tensors, a mask, and the truth beside them."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.task.graph import ABSENT, Problems
from latentloop.task.oracle import Solution, solve
from latentloop.tokens.factored import encode
from latentloop.tokens.vocabulary import FACTORS, Vocabulary


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Factored tokens of some problems, right-padded, with nothing computed yet, and what is true of them."""

    syntax: Int[Tensor, "batch pos"]
    variable: Int[Tensor, "batch pos"]
    operation: Int[Tensor, "batch pos"]
    value: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch pos"]
    """Which positions are tokens, not padding."""
    target: Int[Tensor, "batch node"]
    """Position of each node's right-hand side; 0 where there is no node."""
    exists: Bool[Tensor, "batch node"]
    """Which node columns hold a node."""
    operand: Int[Tensor, "batch node 3"]
    """Positions of the variables on each left-hand side; 0 where there is none."""
    parent: Int[Tensor, "batch node 3"]
    """The nodes they name; 0 where there is none."""
    fan_in: Int[Tensor, "batch node"]
    """Number of parents: 0 for leaves."""
    depth: Int[Tensor, "batch node"]
    answer: Int[Tensor, "batch node"]
    """True values; 0 where there is no node."""

    @classmethod
    def of(cls, problems: Problems, vocabulary: Vocabulary, solution: Solution | None = None) -> "Batch":
        """Encode problems and attach their true values and depths."""
        tokens = encode(problems, vocabulary)
        solution = solution or solve(problems)
        long = {factor: torch.from_numpy(getattr(tokens, factor).astype(np.int64)) for factor in FACTORS}
        exists = torch.from_numpy(tokens.targets != ABSENT)
        fan_in = problems.fan_in.astype(np.int64)[..., None]
        # An equation ends in `x3 + x22 * x11 = x26`: from its target, operands stand at every second place back.
        operands = tokens.targets[..., None] - 2 * (fan_in - np.arange(MAX_FAN_IN))
        there = problems.parents != ABSENT
        return Batch(
            **long,
            mask=torch.arange(tokens.syntax.shape[1]) < torch.from_numpy(tokens.lengths.astype(np.int64))[:, None],
            target=torch.from_numpy(tokens.targets.astype(np.int64)) * exists,
            exists=exists,
            operand=torch.from_numpy(np.where(there, operands, 0)),
            parent=torch.from_numpy(np.where(there, problems.parents, 0).astype(np.int64)),
            fan_in=torch.from_numpy(fan_in[..., 0]),
            depth=torch.from_numpy(solution.depths.astype(np.int64)),
            answer=torch.from_numpy(solution.values.astype(np.int64)) * exists,
        )

    def to(self, device: torch.device | str) -> "Batch":
        """Move all tensors to a device."""
        return Batch(**{slot.name: getattr(self, slot.name).to(device) for slot in fields(self)})

    def __len__(self) -> int:
        return len(self.mask)

    def values_at(self, states: Int[Tensor, "*batch node"], empty: int) -> Int[Tensor, "*batch pos"]:
        """Write node values into the value factor, where a negative one is ``empty``: a state as a model sees it."""
        symbols = torch.where(states < 0, empty, states)
        shape = (*states.shape[:-2], *self.value.shape)
        target, exists = (x.expand(*states.shape) for x in (self.target, self.exists))
        # Columns without a node point at position 0, which is never a right-hand side: give it back what it had.
        return self.value.expand(shape).scatter(-1, target, torch.where(exists, symbols, self.value[:, :1]))
