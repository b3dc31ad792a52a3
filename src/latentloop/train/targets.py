"""Training batches: what a model is shown and what it should predict, for every method.

For a latent method a row is a state to start from and the targets of its iterations: where states are discrete, all
iterations of a problem are rows side by side (teacher forcing); where hidden vectors are carried, they follow each other.
For chain of thought a row is a problem with its trajectory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentloop.config import RunConfig
from latentloop.methods import ChainOfThought, Corrected, EveryIteration, Stable
from latentloop.operations import OPERATIONS
from latentloop.task.arithmetic import table
from latentloop.task.graph import Problems
from latentloop.task.oracle import Solution, solve, update
from latentloop.tokens.state import Layout, State, encode_state, to_symbols
from latentloop.tokens.trajectory import encode_trajectories
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.corruption import corrupt
from latentloop.train.states import sample_states

Sums = dict[str, Tensor]
"""Named sums, to be added over micro-batches, steps and ranks before any of them is divided."""


@dataclass(frozen=True, kw_only=True)
class LatentBatch:
    """Rows for a latent method. A query is a position; where only values are read, a node's right-hand side."""

    start: State
    layout: Layout
    iterations: int
    """Applications of the block."""
    targets: Int[Tensor, "supervised row query"]
    """Value symbols after each of the last ``supervised`` iterations; targets of the other factors are the start's."""
    loss_mask: Bool[Tensor, "supervised row query"]
    """Which value targets have a loss."""
    counted_as: Int[Tensor, "supervised row query"]
    """Which share of right values a query counts for: of those that an iteration is the first to know, their number of parents
    plus one; 0: none."""
    auxiliary: dict[str, Tensor]
    """Targets of the auxiliary losses, -1 where there is none: ``lookup`` [supervised, row, pos], the value that each
    left-hand-side variable has before the iteration; ``partial`` [supervised, row, query], the first operation's result."""

    def __len__(self) -> int:
        return len(self.layout)

    def totals(self) -> Sums:
        """Return the number of terms of each loss."""
        counts = {name: (targets >= 0).sum() for name, targets in self.auxiliary.items()}
        return {"static": self.layout.mask.sum() * len(self.targets), "value": self.loss_mask.sum()} | counts

    def rows(self, part: slice) -> "LatentBatch":
        """Return some rows, padded to the longest of them only."""
        whole = self.layout
        layout = whole[part].trimmed()
        length, nodes = layout.mask.shape[1], layout.exists.shape[1]
        at_positions = self.targets.shape[-1] == whole.mask.shape[1] != whole.exists.shape[1]
        queries = length if at_positions else nodes
        ends = dict.fromkeys(self.auxiliary, queries) | {"lookup": length}
        return LatentBatch(
            start=State(**{name: numbers[part, :length] for name, numbers in self.start.factors().items()}),
            layout=layout,
            iterations=self.iterations,
            targets=self.targets[:, part, :queries],
            loss_mask=self.loss_mask[:, part, :queries],
            counted_as=self.counted_as[:, part, :queries],
            auxiliary={name: targets[:, part, : ends[name]] for name, targets in self.auxiliary.items()},
        )

    def to(self, device: torch.device | str) -> "LatentBatch":
        """Move to a device."""
        tensors: dict[str, Any] = {
            name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor | State | Layout)
        }
        auxiliary = {name: targets.to(device) for name, targets in self.auxiliary.items()}
        return LatentBatch(**tensors, iterations=self.iterations, auxiliary=auxiliary)


@dataclass(frozen=True, kw_only=True)
class TrajectoryBatch:
    """Rows for chain of thought: problems with their trajectories, whose tokens are the targets."""

    tokens: Int[Tensor, "row pos"]
    loss_mask: Bool[Tensor, "row next"]
    """Which next tokens have a loss: those after ``CoT``, ``end`` included."""
    number: Bool[Tensor, "row next"]
    """Which next tokens are numbers."""
    lengths: Int[Tensor, "row"]

    def __len__(self) -> int:
        return len(self.tokens)

    def totals(self) -> Sums:
        """Return the number of terms of the loss."""
        return {"token": self.loss_mask.sum()}

    def rows(self, part: slice) -> "TrajectoryBatch":
        """Return some rows, padded to the longest of them only."""
        length = int(self.lengths[part].max())
        return TrajectoryBatch(
            tokens=self.tokens[part, :length],
            loss_mask=self.loss_mask[part, : length - 1],
            number=self.number[part, : length - 1],
            lengths=self.lengths[part],
        )

    def to(self, device: torch.device | str) -> "TrajectoryBatch":
        """Move to a device."""
        return TrajectoryBatch(**{name: x.to(device) for name, x in vars(self).items()})


TrainingBatch = LatentBatch | TrajectoryBatch


def micro_batches(batch: TrainingBatch, rows: int) -> Iterator[TrainingBatch]:
    """Cut a batch into pieces of some rows."""
    for start in range(0, len(batch), rows):
        yield batch.rows(slice(start, start + rows))


def make_batch(
    problems: Problems,
    run: RunConfig,
    vocabulary: Vocabulary,
    generator: torch.Generator,
    *,
    validating: bool = False,
) -> TrainingBatch:
    """Make the batch that a run's method learns from, sorted by length so that micro-batches hold little padding.

    In validation every second problem of ``corrected`` has wrong values, so that its loss sees correction.
    """
    problems = problems[np.argsort(problems.lengths, kind="stable")]
    solution = solve(problems)
    match run.method:
        case ChainOfThought():
            return trajectory_batch(problems, solution, run.method, vocabulary)
        case Stable():
            return local_batch(problems, solution, run, vocabulary, generator)
        case _:
            return iterated_batch(problems, solution, run, vocabulary, generator, validating=validating)


def trajectory_batch(
    problems: Problems, solution: Solution, method: ChainOfThought, vocabulary: Vocabulary
) -> TrajectoryBatch:
    """Write problems with their chains of thought."""
    written = encode_trajectories(problems, solution, vocabulary, method.trajectory)
    order = np.argsort(written.lengths, kind="stable")
    tokens = torch.from_numpy(written.tokens[order].astype(np.int64))
    prompts = torch.from_numpy(written.prompt_lengths[order].astype(np.int64))
    following, places = tokens[:, 1:], torch.arange(1, tokens.shape[1])
    return TrajectoryBatch(
        tokens=tokens,
        loss_mask=(places >= prompts[:, None]) & (following != vocabulary.pad),
        number=following < vocabulary.task.modulus,
        lengths=torch.from_numpy(written.lengths[order].astype(np.int64)),
    )


def iterated_batch(
    problems: Problems,
    solution: Solution,
    run: RunConfig,
    vocabulary: Vocabulary,
    generator: torch.Generator,
    *,
    validating: bool = False,
) -> LatentBatch:
    """Lay out states and targets of the layer-by-layer algorithm, as the method's row of the table says."""
    method = run.method
    state, layout = encode_state(problems, vocabulary)
    answers = to_symbols(solution.values, vocabulary)  # [batch, node]
    depths = torch.from_numpy(solution.depths.astype(np.int64))  # [batch, node]
    deepest = int(depths.max())
    final = method.row.supervised == "final"
    after = torch.full((1,), deepest) if final else torch.arange(1, deepest + 1)  # [iteration]
    # Values known after and before each iteration [iteration, batch, node].
    known = (depths <= after[:, None, None]) & layout.exists
    before = torch.zeros_like(known) if final else (depths <= after[:, None, None] - 1) & layout.exists
    targets = torch.where(known, answers, vocabulary.empty)
    values = layout.write(state.value, torch.where(before, answers, vocabulary.empty))  # [iteration, batch, pos]
    if isinstance(method, Corrected):
        every_second = torch.arange(len(layout))[:, None] % 2 == 1 if validating else None
        values = corrupt(values, layout, depths, after, method, vocabulary, generator, every_second)
    ignored = isinstance(method, EveryIteration) and method.deeper == "ignored"
    counted_as = torch.where(known & ~before, layout.fan_in + 1, 0)
    if method.pin_static:  # queries are right-hand sides
        loss_mask = known if ignored else layout.exists.expand(known.shape)
    else:  # queries are positions
        unknown = layout.at_rhs(~known & layout.exists)
        loss_mask = layout.mask & ~unknown if ignored else layout.mask.expand(len(after), -1, -1)
        targets, counted_as = layout.write(state.value, targets), layout.at_rhs(counted_as)
    batch = LatentBatch(
        start=state,
        layout=layout,
        iterations=(method.iterations or 1) if final else deepest,
        targets=targets,
        loss_mask=loss_mask,
        counted_as=counted_as,
        auxiliary=_auxiliary(state, layout, values, run, vocabulary),
    )
    return batch if method.row.carries == "hidden" else _teacher_forced(batch, values)


def local_batch(
    problems: Problems, solution: Solution, run: RunConfig, vocabulary: Vocabulary, generator: torch.Generator
) -> LatentBatch:
    """Sample states of all kinds; the targets are one update of each, at every equation, from right and wrong values."""
    assert isinstance(run.method, Stable)
    state, layout = encode_state(problems, vocabulary)
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    states = sample_states(problems, solution, run.method, rng, products="*" in run.task.operations)
    updated = np.stack([update(problems, values) for values in states])
    targets = to_symbols(updated, vocabulary)  # [state, batch, node]
    values = layout.write(state.value, to_symbols(states, vocabulary))  # [state, batch, pos]
    known = (targets != vocabulary.empty) & layout.exists
    batch = LatentBatch(
        start=state,
        layout=layout,
        iterations=1,
        targets=targets,
        loss_mask=layout.exists.expand(targets.shape),
        counted_as=torch.where(known, layout.fan_in + 1, 0),
        auxiliary=_auxiliary(state, layout, values, run, vocabulary),
    )
    return _teacher_forced(batch, values)


def _teacher_forced(batch: LatentBatch, values: Int[Tensor, "iteration batch pos"]) -> LatentBatch:
    """Make all iterations of each problem rows side by side, each from its own state and with one iteration."""
    times = len(values)
    start = {name: numbers.repeat_interleave(times, dim=0) for name, numbers in batch.start.factors().items()}
    return LatentBatch(
        start=State(**start | {"value": _side_by_side(values)[0]}),
        layout=batch.layout[torch.arange(len(batch)).repeat_interleave(times)],
        iterations=1,
        targets=_side_by_side(batch.targets),
        loss_mask=_side_by_side(batch.loss_mask),
        counted_as=_side_by_side(batch.counted_as),
        auxiliary={name: _side_by_side(targets) for name, targets in batch.auxiliary.items()},
    )


def _side_by_side(values: Tensor) -> Tensor:
    """Turn [iteration, batch, query] into [1, batch * iteration, query], the iterations of a problem side by side."""
    return values.transpose(0, 1).flatten(0, 1)[None]


def _auxiliary(
    state: State, layout: Layout, values: Int[Tensor, "iteration batch pos"], run: RunConfig, vocabulary: Vocabulary
) -> dict[str, Tensor]:
    """Return the targets of the auxiliary losses in these states."""
    names = run.method.auxiliary
    if not names:
        return {}
    operands = layout.operand.flatten(1)  # [batch, node * 3]
    shape = (len(values), *operands.shape)
    definitions = layout.rhs.gather(1, layout.parent.flatten(1))  # where each operand is defined [batch, node * 3]
    held = values.gather(-1, definitions.expand(shape))
    held = torch.where(operands > 0, held, -1)  # absent operands write to position 0, which is no variable
    targets = {}
    if "lookup" in names:
        targets["lookup"] = torch.full_like(values, -1).scatter(-1, operands.expand(shape), held)
    if "partial" in names:
        left, right, _ = held.unflatten(-1, layout.operand.shape[1:]).unbind(-1)  # [iteration, batch, node] each
        # The operation stands right before the second operand; any will do where there is none.
        operation = state.operation.gather(1, (layout.operand[..., 1] - 1).clamp(min=0))  # [batch, node]
        result = torch.where(layout.fan_in > 1, _results(vocabulary)[operation, left, right], left)
        result = torch.where(layout.fan_in > 0, result, -1)
        targets["partial"] = result if run.method.pin_static else layout.at_rhs(result + 1) - 1
    return targets


def _results(vocabulary: Vocabulary) -> Int[Tensor, "operation left right"]:
    """Return the value symbol of every operation on every two value symbols; an empty operand makes it empty."""
    modulus, empty = vocabulary.task.modulus, vocabulary.empty
    operations = [OPERATIONS.index(operation) for operation in vocabulary.task.operations]
    symbols = torch.full((vocabulary.size("operation"), empty + 1, empty + 1), empty)
    symbols[: len(operations), :modulus, :modulus] = torch.from_numpy(table(modulus)[operations, :-1, :-1]).long()
    return symbols
