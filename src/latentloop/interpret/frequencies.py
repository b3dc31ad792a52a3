"""Which frequencies does the answer need? Take one group of them out of what the last layer's MLPs add.

What the MLPs add at the right-hand side of a sum of three is a function of three values, and of whether the result is there
already: a model that keeps values adds something else then. Both functions are measured, with the right-hand side empty and
with its answer in it. Of the one that fits, the part in a frequency group is subtracted wherever such a sum stands: on all
triples at once, and in whole problems, iteration by iteration. To keep (0,0,0) and (a,a,a) alone is to average over all
triples of one sum, which a model that is right everywhere survives; so the sharper question is asked where values enter the
MLPs: which frequencies of each operand's value do they need there? What has another frequency of any operand is removed, be it
of one value or of several that an earlier layer has combined. The control is a random basis of functions of a value, of
which as many directions are kept, the strongest too. Cost: a roll-out of problems for each group.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float, Int
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN, GraphConfig, TaskConfig
from latentloop.interpret.ablation import NODES
from latentloop.interpret.nodes import at_nodes, with_nodes
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import patch
from latentloop.model.recurrence import update
from latentloop.operations import OPERATIONS
from latentloop.task.arithmetic import table
from latentloop.task.graph import Problems, sample
from latentloop.task.oracle import solve
from latentloop.task.splits import generator
from latentloop.tokens.state import Layout, encode_state

GROUPS = ("(0,0,0)", "(0,0,a)", "(0,a,b)", "(0,a,a)", "(a,b,c)", "(a,a,b)", "(a,a,a)")
"""The paper's groups, in its order; a, b and c are not 0 and differ, and an order of the three stands for all of them."""
DIAGONAL = len(GROUPS) - 1
DRAWS = 3
"""Random bases of the control."""
ROWS = 1024
"""Vectors that go through the MLPs at once: more do not fit in a processor's cache."""


@dataclass(frozen=True, kw_only=True)
class Frequencies:
    """The model without a group of frequencies, and with (0,0,0) and (a,a,a) alone."""

    triples_without: Float[ndarray, "group"]
    """Share of triples right without each group."""
    solved_without: Float[ndarray, "group"]
    """Share of problems of sums of three that are fully solved without each group ..."""
    solved_only: float
    """... with (0,0,0) and (a,a,a) alone, ..."""
    solved: float
    """... and with all groups."""
    entering: Float[ndarray, "frequency"]
    """Share of the energy where values enter the MLPs at frequencies 1, 2, .. (p - 1) / 2 of any of them."""
    triples_without_entering: Float[ndarray, "frequency"]
    """Share of triples right without one of these frequencies there."""
    triples_strongest: Float[ndarray, "count"]
    """... with the 1, 2, .. strongest alone, ..."""
    triples_random: Float[ndarray, "count"]
    """... and with as many of the strongest directions of a random basis alone, the mean of a few draws."""
    nodes: int
    problems: int


def spectrum_of(grid: Float[Tensor, "x y z unit"]) -> Complex[Tensor, "j k half unit"]:
    """Return the transform of a real function of three values; the half of it that determines the rest."""
    return torch.fft.rfftn(grid.double(), dim=(0, 1, 2))


def part_of(spectrum: Complex[Tensor, "j k half unit"], chosen: Bool[ndarray, "j k l"]) -> Float[Tensor, "x y z unit"]:
    """Return the part of a function that lies in chosen frequencies, of which there must be the conjugates too."""
    kept = torch.from_numpy(chosen[..., : spectrum.shape[2]])
    return torch.fft.irfftn(spectrum * kept[..., None], s=chosen.shape, dim=(0, 1, 2))


@dataclass(frozen=True, kw_only=True)
class Grids:
    """The residual stream at the right-hand side of every triple of values, around the last layer's MLPs."""

    before: Float[Tensor, "x y z unit"]
    after: Float[Tensor, "x y z unit"]
    added: Float[Tensor, "held x y z unit"]
    """What the MLPs add: where the right-hand side is empty, and where it holds its answer."""


def ablate(
    subject: Subject, operation: str, grids: Grids, values: list[int], groups: Int[ndarray, "j k l"]
) -> Frequencies:
    """Remove each group from what the MLPs add, then all but two; values are in the order of the grid."""
    model, device = subject.model, subject.model.norm.weight.device
    answers = torch.from_numpy(_answers(operation, values, subject.task.modulus))
    task = TaskConfig(operations=(operation,), modulus=subject.task.modulus, names=subject.task.names)
    graph = GraphConfig(nodes=min(NODES, subject.size.nodes), family="triples")
    problems = sample(task, graph, subject.settings.rollouts, generator(subject.settings.seed, INTERPRET, 9))
    spectra = [spectrum_of(added) for added in grids.added]
    rest = grids.added.double()
    triples_without, solved_without = [], []
    for group in range(len(GROUPS)):
        part = torch.stack([part_of(spectrum, groups == group) for spectrum in spectra])
        logits = model.read(model.norm((grids.after - part[0].float()).to(device)))["value"].cpu()
        triples_without.append(float((logits.argmax(-1) == answers).float().mean()))
        solved_without.append(_solved(subject, problems, part.float().to(device), values))
        if group in (0, DIAGONAL):
            rest = rest - part
    energy, without, strongest, control = _entering(subject, grids.before, answers)
    return Frequencies(
        triples_without=np.array(triples_without),
        solved_without=np.array(solved_without),
        solved_only=_solved(subject, problems, rest.float().to(device), values),
        solved=_solved(subject, problems, None, values),
        entering=energy,
        triples_without_entering=without,
        triples_strongest=strongest,
        triples_random=control,
        nodes=graph.nodes,
        problems=len(problems),
    )


def _answers(operation: str, values: list[int], modulus: int) -> Int[ndarray, "x y z"]:
    """Return what the operation gives for every triple of values."""
    result = table(modulus)[OPERATIONS.index(operation)].astype(np.int64)
    value = np.array(values)
    two = result[value[:, None], value]  # [x, y]
    return result[two[:, :, None], value]


def waves(count: int) -> list[Float[Tensor, "value direction"]]:
    """Return an orthonormal basis of the functions of a value with frequency a, for a = 1, 2, .. count // 2."""
    angle = 2 * np.pi * np.outer(np.arange(count), np.arange(1, count // 2 + 1)) / count  # [value, frequency]
    both = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    found = []
    for frequency in range(both.shape[1]):
        size = np.linalg.norm(both[:, frequency], axis=0)
        found.append(torch.from_numpy(both[:, frequency, size > 1e-6] / size[size > 1e-6]))  # count / 2 has no sine
    return found


def projector(basis: Float[Tensor, "value direction"]) -> Float[Tensor, "value value"]:
    """Return the projection on what is constant and on an orthonormal basis of functions of mean 0."""
    return basis @ basis.T + 1 / len(basis)


def projected(grid: Float[Tensor, "x y z unit"], kept: Float[Tensor, "value value"]) -> Float[Tensor, "x y z unit"]:
    """Apply a projection to each of the three values: whatever depends on any of them in another way is gone."""
    for axis in range(MAX_FAN_IN):
        grid = torch.tensordot(kept, grid, dims=([1], [axis])).movedim(0, axis)
    return grid


def energies(grid: Float[Tensor, "x y z unit"], basis: Float[Tensor, "value direction"]) -> Float[ndarray, "direction"]:
    """Return the energy along each direction, of all three values together."""
    along = [torch.tensordot(basis.T, grid, dims=([1], [axis])).square().sum((1, 2, 3)) for axis in range(MAX_FAN_IN)]
    return torch.stack(along).sum(0).numpy()


def random_basis(count: int, rng: np.random.Generator) -> Float[Tensor, "value direction"]:
    """Return an orthonormal basis of the functions of a value with mean 0, drawn at random."""
    drawn = rng.standard_normal((count, count - 1))
    return torch.from_numpy(np.linalg.qr(drawn - drawn.mean(0))[0])


def _entering(
    subject: Subject, before: Float[Tensor, "x y z unit"], sums: Tensor
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Take frequencies of values out of what enters the MLPs: one at a time, then all but the strongest; then, for
    comparison, all but as many directions of a random basis."""
    grid, answers, count = before.double(), sums.flatten(), len(before)
    by_frequency = waves(count)
    energy = np.array([energies(grid, basis).sum() for basis in by_frequency])

    def right(kept: Float[Tensor, "value value"]) -> float:
        entering = projected(grid, kept).float().flatten(0, 2)
        said = torch.cat([_finished(subject, rows) for rows in entering.split(ROWS)])
        return float((said == answers).float().mean())

    order = np.argsort(-energy)
    without = [right(torch.eye(count).double() - basis @ basis.T) for basis in by_frequency]
    kept = [torch.cat([by_frequency[place] for place in order[: some + 1]], dim=1) for some in range(len(order))]
    strongest = [right(projector(basis)) for basis in kept]
    rng = generator(subject.settings.seed, INTERPRET, 10)
    control = []
    for drawn in (random_basis(count, rng) for _ in range(DRAWS)):
        best = torch.from_numpy(np.argsort(-energies(grid, drawn)))
        control.append([right(projector(drawn[:, best[: basis.shape[1]]])) for basis in kept])  # as many directions
    return energy / max(float(energy.sum()), 1e-30), np.array(without), np.array(strongest), np.mean(control, axis=0)


def _finished(subject: Subject, x: Float[Tensor, "row width"]) -> Int[Tensor, "row"]:
    """Return the symbols that the last layer's MLPs and the read-out make of what enters them."""
    x = x.to(subject.model.norm.weight.device)
    for mlp in subject.model.layers[-1].mlps:  # pyrefly: ignore
        x = x + mlp(x)  # pyrefly: ignore
    return subject.model.read(subject.model.norm(x))["value"].argmax(-1).cpu()


def _solved(
    subject: Subject, problems: Problems, part: Float[Tensor, "held x y z unit"] | None, values: list[int]
) -> float:
    """Return the share of problems fully solved when a part is taken out wherever an equation has three known operands."""
    model = subject.model
    last = len(model.layers) - 1
    solution = solve(problems)
    state, layout = encode_state(problems, subject.vocabulary)
    device = model.norm.weight.device
    state, layout = state.to(device), layout.to(device)
    index = torch.full((subject.vocabulary.size("value"),), -1, device=device)  # where the grid has a value
    index[torch.tensor(values)] = torch.arange(len(values), device=device)
    reached = state.value.clone()  # [batch, pos]
    rows = torch.arange(len(problems), device=device)
    for _ in range(int(solution.depths.max())):
        mine = layout[rows]
        with ExitStack() as stack:
            if part is not None:
                held = mine.read(state.value) < problems.modulus  # [batch, node]
                taken = partial(_without, layout=mine, less=_parts(index[state.value], held, mine, part))
                stack.enter_context(patch(model, "resid_post", taken, layer=last))
            following, _ = update(model, state, mine)
        reached[rows] = following.value
        going = following.differs(state, layout[rows])
        if not going.any():
            break
        rows, state = rows[going], following[going]  # a state that repeats stays as it is
    said = layout.read(reached).cpu().numpy()
    return float((said == solution.values).all(1).mean())


def _parts(
    places: Int[Tensor, "batch pos"], held: Bool[Tensor, "batch node"], layout: Layout, part: Tensor
) -> Float[Tensor, "batch node unit"]:
    """Return what to take out at each equation: nothing where one of three operands is missing or not in the grid.

    An equation that holds a number, right or wrong, is taken for one that holds its answer.
    """
    values = layout.read(places)  # [batch, node]
    operands = values.gather(1, layout.parent.flatten(1)).unflatten(1, layout.parent.shape[1:])  # [batch, node, 3]
    known = (layout.fan_in == MAX_FAN_IN) & (operands >= 0).all(-1)
    x, y, z = torch.where(known[..., None], operands, 0).unbind(-1)
    return part[held.long(), x, y, z] * known[..., None]


def _without(x: Tensor, layout: Layout, less: Float[Tensor, "batch node unit"]) -> Tensor:
    """Subtract what belongs to equations where the model computes them."""
    return with_nodes(x, layout, at_nodes(x, layout) - less)
