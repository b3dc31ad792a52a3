"""What a model sees: the state of a problem as tensors, and the layout of its positions. The truth is not in them."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.task.graph import ABSENT, EMPTY, Problems
from latentloop.tokens.factored import Factors, Tokens, encode
from latentloop.tokens.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class State(Factors):
    """What is carried from one iteration to the next: four factors at every position, or hidden vectors as well."""

    hidden: Float[Tensor, "batch pos width"] | None = None
    """Hidden vectors, where the method carries them; the factors are then what they decode to."""
    iteration: int = 0
    """Iterations done so far."""

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> "State":
        hidden = None if self.hidden is None else self.hidden[rows]
        kept = {name: numbers[rows] for name, numbers in self.factors().items()}
        return State(**kept, hidden=hidden, iteration=self.iteration)

    def differs(self, other: "State", layout: "Layout") -> Bool[Tensor, "batch"]:
        """Return which rows have another token than in another state of the same problems; padding does not count."""
        pairs = zip(self.factors().values(), other.factors().values(), strict=True)
        return torch.stack([((mine != theirs) & layout.mask).any(1) for mine, theirs in pairs]).any(0)

    def to(self, device: torch.device | str) -> "State":
        """Move to a device."""
        moved: dict[str, Any] = {name: numbers.to(device) for name, numbers in self.factors().items()}
        return replace(self, **moved, hidden=None if self.hidden is None else self.hidden.to(device))

    def numbers(self) -> Int[np.ndarray, "factor batch pos"]:
        """Return all factors as one array."""
        return torch.stack(list(self.factors().values())).cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where things stand in each problem, found once when it is encoded. A problem's equations are its nodes."""

    mask: Bool[Tensor, "batch pos"]
    """Which positions are tokens, not padding."""
    exists: Bool[Tensor, "batch node"]
    """Which node columns hold a node."""
    rhs: Int[Tensor, "batch node"]
    """Position of each node's right-hand side; 0, which is never one, where there is no node."""
    operand: Int[Tensor, "batch node 3"]
    """Positions of the variables on each left-hand side; 0 where there is none."""
    parent: Int[Tensor, "batch node 3"]
    """The nodes they name; 0 where there is none."""
    fan_in: Int[Tensor, "batch node"]
    """Number of parents: 0 for leaves."""

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, rows: Tensor | np.ndarray | slice) -> "Layout":
        return Layout(**{slot.name: getattr(self, slot.name)[rows] for slot in fields(self)})

    def to(self, device: torch.device | str) -> "Layout":
        """Move to a device."""
        return Layout(**{slot.name: getattr(self, slot.name).to(device) for slot in fields(self)})

    def trimmed(self) -> "Layout":
        """Drop columns that no row needs."""
        length = int(self.mask.sum(1).max())
        nodes = int(self.exists.sum(1).max())
        columns = {slot.name: getattr(self, slot.name)[:, :nodes] for slot in fields(self) if slot.name != "mask"}
        return Layout(mask=self.mask[:, :length], **columns)

    def at_rhs(self, values: Tensor) -> Tensor:
        """Put node values [.., batch, node] at right-hand sides [.., batch, pos]; zero elsewhere."""
        blank = values.new_zeros(*values.shape[:-1], self.mask.shape[1])
        return blank.scatter(
            -1, self.rhs.expand(values.shape), torch.where(self.exists, values, torch.zeros_like(values))
        )

    def write(
        self, values: Int[Tensor, "batch pos"], symbols: Int[Tensor, "*more batch node"]
    ) -> Int[Tensor, "*more batch pos"]:
        """Write value symbols of nodes into a value factor."""
        shape = (*symbols.shape[:-2], *values.shape)
        rhs, exists = self.rhs.expand(symbols.shape), self.exists.expand(symbols.shape)
        # Columns without a node point at position 0: give it back what it had.
        return values.expand(shape).scatter(-1, rhs, torch.where(exists, symbols, values[:, :1]))

    def read(self, values: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch node"]:
        """Read value symbols of nodes off a value factor; undoes ``write`` where there is a node."""
        return values.gather(-1, self.rhs)


def encode_state(problems: Problems, vocabulary: Vocabulary) -> tuple[State, Layout]:
    """Encode problems: the state before the first iteration, and the layout."""
    return to_tensors(problems, encode(problems, vocabulary))


def to_tensors(problems: Problems, tokens: Tokens) -> tuple[State, Layout]:
    """Turn encoded problems into a state and its layout."""
    factors: dict[str, Any] = {
        name: torch.from_numpy(numbers.astype(np.int64)) for name, numbers in tokens.factors().items()
    }
    exists = torch.from_numpy(tokens.rhs != ABSENT)
    fan_in = problems.fan_in.astype(np.int64)
    # An equation ends in `x3 + x22 * x11 = x26`: from its right-hand side, operands stand at every second place back.
    operands = tokens.rhs[..., None] - 2 * (fan_in[..., None] - np.arange(MAX_FAN_IN))
    there = problems.parents != ABSENT
    layout = Layout(
        mask=torch.arange(tokens.syntax.shape[1]) < torch.from_numpy(tokens.lengths.astype(np.int64))[:, None],
        exists=exists,
        rhs=torch.from_numpy(tokens.rhs.astype(np.int64)) * exists,
        operand=torch.from_numpy(np.where(there, operands, 0)),
        parent=torch.from_numpy(np.where(there, problems.parents, 0).astype(np.int64)),
        fan_in=torch.from_numpy(fan_in),
    )
    return State(**factors), layout


def to_symbols(values: np.ndarray, vocabulary: Vocabulary) -> Int[Tensor, "*batch node"]:
    """Turn node values into value symbols; ``EMPTY`` has one of its own."""
    numbers = torch.from_numpy(values.astype(np.int64))
    return torch.where(numbers == EMPTY, vocabulary.empty, numbers)


def with_values(state: State, layout: Layout, values: np.ndarray, vocabulary: Vocabulary) -> State:
    """Return a state whose right-hand sides hold the given node values [batch, node]."""
    symbols = to_symbols(values, vocabulary).to(state.value.device)
    return replace(state, value=layout.write(state.value, symbols))
