"""Lessons: what a model is shown and what it should say, for every method.

A lesson is a set of rows. For a latent method a row is a state to start from and the values wanted after its iterations:
where states are discrete, all iterations of a problem are rows side by side (teacher forcing); where hidden vectors are
carried, they follow each other. For chain of thought a row is a problem with its trajectory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentloop.config import OPERATIONS, ModelConfig, RunConfig
from latentloop.methods import method as lookup
from latentloop.model.recurrence import State
from latentloop.task.arithmetic import table
from latentloop.task.graph import Problems
from latentloop.task.oracle import solve, step
from latentloop.tokens.batch import Batch
from latentloop.tokens.trajectory import encode_trajectories
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.corruption import corrupt
from latentloop.train.states import draw_states

Counts = dict[str, Tensor]
"""Named sums, to be added over pieces, steps and ranks before any of them is divided."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Rows for a latent method: values wanted after the last iterations; other factors should stay as they are."""

    start: State
    iterations: int
    """Applications of the block."""
    wanted: Int[Tensor, "supervised row pos"]
    """Value symbols after the last ``supervised`` iterations."""
    counted: Bool[Tensor, "supervised row pos"]
    """Which of them have a loss."""
    mask: Bool[Tensor, "row pos"]
    """Which positions are tokens, not padding."""
    fresh: Int[Tensor, "supervised row pos"]
    """Right-hand sides that an iteration is the first to know: one more than their number of parents; 0 elsewhere."""
    asides: dict[str, Tensor]
    """Value symbols [supervised, row, pos] for what is read aside, -1 where nothing is: ``lookup``, what variables on
    left-hand sides stand for before each of these iterations; ``partial``, what the first two operands give."""

    def __len__(self) -> int:
        return len(self.mask)

    def totals(self) -> Counts:
        """Count what the loss of values, and that of each other factor, is the mean of."""
        asides = {name: (held >= 0).sum() for name, held in self.asides.items()}
        return {"static": self.mask.sum() * len(self.wanted), "value": self.counted.sum()} | asides

    def rows(self, part: slice) -> "Lesson":
        """Take some rows, no longer than the longest of them."""
        length = int(self.mask[part].sum(1).max())
        return Lesson(
            start=State(**{name: numbers[part, :length] for name, numbers in self.start.factors().items()}),
            iterations=self.iterations,
            wanted=self.wanted[:, part, :length],
            counted=self.counted[:, part, :length],
            mask=self.mask[part, :length],
            fresh=self.fresh[:, part, :length],
            asides={name: held[:, part, :length] for name, held in self.asides.items()},
        )

    def to(self, device: torch.device | str) -> "Lesson":
        """Move to a device."""
        start = State(**{name: numbers.to(device) for name, numbers in self.start.factors().items()})
        tensors = {name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)}
        asides = {name: held.to(device) for name, held in self.asides.items()}
        return Lesson(start=start, iterations=self.iterations, asides=asides, **tensors)


@dataclass(frozen=True, kw_only=True)
class TrajectoryLesson:
    """Rows for chain of thought: next tokens wanted after ``CoT``, ``end`` included."""

    tokens: Int[Tensor, "row pos"]
    counted: Bool[Tensor, "row next"]
    """Which next tokens have a loss."""
    number: Bool[Tensor, "row next"]
    """Which next tokens are numbers."""
    lengths: Int[Tensor, "row"]

    def __len__(self) -> int:
        return len(self.tokens)

    def totals(self) -> Counts:
        """Count what the loss is the mean of."""
        return {"token": self.counted.sum()}

    def rows(self, part: slice) -> "TrajectoryLesson":
        """Take some rows, no longer than the longest of them."""
        length = int(self.lengths[part].max())
        return TrajectoryLesson(
            tokens=self.tokens[part, :length],
            counted=self.counted[part, : length - 1],
            number=self.number[part, : length - 1],
            lengths=self.lengths[part],
        )

    def to(self, device: torch.device | str) -> "TrajectoryLesson":
        """Move to a device."""
        return TrajectoryLesson(**{name: x.to(device) for name, x in vars(self).items()})


def pieces(lesson: Lesson | TrajectoryLesson, rows: int) -> Iterator[Lesson | TrajectoryLesson]:
    """Cut a lesson into pieces of some rows."""
    for start in range(0, len(lesson), rows):
        yield lesson.rows(slice(start, start + rows))


def make_lesson(
    problems: Problems, run: RunConfig, vocabulary: Vocabulary, generator: torch.Generator
) -> Lesson | TrajectoryLesson:
    """Make the lesson that a run's method draws from some problems, sorted by length so that pieces hold little padding."""
    problems = problems[np.argsort(problems.fan_in.sum(1) + problems.sizes, kind="stable")]
    match lookup(run.method).supervised:
        case "next-token":
            return trajectory_lesson(problems, run, vocabulary)
        case "local":
            return local_lesson(problems, run, vocabulary, generator)
        case _:
            return latent_lesson(Batch.of(problems, vocabulary), run, vocabulary, generator)


def trajectory_lesson(problems: Problems, run: RunConfig, vocabulary: Vocabulary) -> TrajectoryLesson:
    """Write problems with their chains of thought."""
    written = encode_trajectories(problems, solve(problems), vocabulary, run.train.trajectory)
    order = np.argsort(written.lengths, kind="stable")
    tokens = torch.from_numpy(written.tokens[order].astype(np.int64))
    prompts = torch.from_numpy(written.prompt_lengths[order].astype(np.int64))
    following, places = tokens[:, 1:], torch.arange(1, tokens.shape[1])
    return TrajectoryLesson(
        tokens=tokens,
        counted=(places >= prompts[:, None]) & (following != vocabulary.pad),
        number=following < vocabulary.task.modulus,
        lengths=torch.from_numpy(written.lengths[order].astype(np.int64)),
    )


def latent_lesson(batch: Batch, run: RunConfig, vocabulary: Vocabulary, generator: torch.Generator) -> Lesson:
    """Lay out states and wanted values as the method's row of the table says."""
    method = lookup(run.method)
    depth = int(batch.depth.max())
    after = torch.full((1,), depth) if method.supervised == "final" else torch.arange(1, depth + 1)
    known = _known(batch, after)
    before = _known(batch, after - 1) if method.supervised == "every" else torch.zeros_like(known)
    wanted = batch.values_at(torch.where(known, batch.answer, -1), vocabulary.empty)
    counted = batch.mask.expand(wanted.shape)
    if run.train.deeper == "ignored":
        counted = counted & ~_at_targets(batch, ~known & batch.exists)
    fresh = _at_targets(batch, torch.where(known & ~before, batch.fan_in + 1, 0))
    values = batch.values_at(torch.where(before, batch.answer, -1), vocabulary.empty)
    if method.carries == "hidden":
        return Lesson(
            start=State.of(batch),
            iterations=(run.model.iterations or 1) if method.supervised == "final" else depth,
            wanted=wanted,
            counted=counted,
            mask=batch.mask,
            fresh=fresh,
            asides=_asides(batch, values, run.model, vocabulary),
        )
    if method.corrupted:
        values = corrupt(values, batch, after, run.train, vocabulary, generator)
    return _teacher_forced(batch, values, wanted, counted, fresh, _asides(batch, values, run.model, vocabulary))


def local_lesson(problems: Problems, run: RunConfig, vocabulary: Vocabulary, generator: torch.Generator) -> Lesson:
    """Draw states of all kinds and want one update of each: every equation is a lesson, from right and wrong values."""
    batch = Batch.of(problems, vocabulary)
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    states = draw_states(problems, run.train, rng, products="*" in run.task.operations)
    updated = torch.from_numpy(np.stack([step(problems, state) for state in states])).long()
    values = batch.values_at(torch.from_numpy(states).long(), vocabulary.empty)
    known = _at_targets(batch, torch.where((updated >= 0) & batch.exists, batch.fan_in + 1, 0))
    counted = _at_targets(batch, batch.exists.expand(updated.shape))
    asides = _asides(batch, values, run.model, vocabulary)
    return _teacher_forced(batch, values, batch.values_at(updated, vocabulary.empty), counted, known, asides)


def _teacher_forced(
    batch: Batch, values: Tensor, wanted: Tensor, counted: Tensor, fresh: Tensor, asides: dict[str, Tensor]
) -> Lesson:
    """Make all states [iteration, batch, pos] of each problem rows side by side, each followed by one iteration."""
    times = len(values)
    static = {name: numbers for name, numbers in State.of(batch).factors().items() if name != "value"}
    return Lesson(
        start=State(
            **{name: numbers.repeat_interleave(times, dim=0) for name, numbers in static.items()},
            value=_side_by_side(values)[0],
        ),
        iterations=1,
        wanted=_side_by_side(wanted),
        counted=_side_by_side(counted),
        mask=batch.mask.repeat_interleave(times, dim=0),
        fresh=_side_by_side(fresh),
        asides={name: _side_by_side(held) for name, held in asides.items()},
    )


def _asides(
    batch: Batch, values: Int[Tensor, "iteration batch pos"], model: ModelConfig, vocabulary: Vocabulary
) -> dict[str, Tensor]:
    """Give what the model's asides should read in these states."""
    shape = (*values.shape[:1], *batch.operand.shape[:1], -1)
    definition = batch.target.gather(1, batch.parent.flatten(1))
    held = values.gather(-1, definition.expand(shape))
    held = torch.where(batch.operand.flatten(1) > 0, held, -1)  # absent operands write to place 0, which is no variable
    blank, found = torch.full_like(values, -1), {}
    if model.lookup:
        found["lookup"] = blank.scatter(-1, batch.operand.flatten(1).expand(shape), held)
    if model.partial:
        left, right, _ = held.unflatten(-1, batch.operand.shape[1:]).unbind(-1)
        partial = torch.where(batch.fan_in > 1, _results(vocabulary)[_first_operation(batch), left, right], left)
        found["partial"] = torch.where(
            _at_targets(batch, batch.fan_in.expand(partial.shape)) > 0, _at_targets(batch, partial), -1
        )
    return found


def _first_operation(batch: Batch) -> Int[Tensor, "batch node"]:
    """Give the symbol between the first two operands, any where there are not two."""
    return batch.operation.gather(1, (batch.operand[..., 1] - 1).clamp(min=0))


def _results(vocabulary: Vocabulary) -> Int[Tensor, "operation left right"]:
    """Give the value symbol of every operation symbol on every two value symbols; what has an empty operand is empty."""
    modulus, empty = vocabulary.task.modulus, vocabulary.empty
    operations = [OPERATIONS.index(operation) for operation in vocabulary.task.operations]
    symbols = torch.full((vocabulary.size("operation"), empty + 1, empty + 1), empty)
    symbols[: len(operations), :modulus, :modulus] = torch.from_numpy(table(modulus)[operations, :-1, :-1]).long()
    return symbols


def _known(batch: Batch, iterations: Int[Tensor, "iteration"]) -> Bool[Tensor, "iteration batch node"]:
    """Say which nodes the layer-by-layer algorithm knows after so many iterations."""
    return (batch.depth <= iterations[:, None, None]) & batch.exists


def _at_targets(batch: Batch, values: Tensor) -> Tensor:
    """Put node values [iteration, batch, node] at right-hand sides, zero elsewhere; absent nodes write 0 to place 0."""
    blank = values.new_zeros(*values.shape[:-1], batch.mask.shape[1])
    return blank.scatter(-1, batch.target.expand(values.shape), values)


def _side_by_side(values: Tensor) -> Tensor:
    """Make the iterations [iteration, batch, pos] of each problem rows of one [1, batch * iteration, pos]."""
    return values.transpose(0, 1).flatten(0, 1)[None]
