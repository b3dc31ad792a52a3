"""Which frequencies does the answer need? Take one group of them out of what the last layer's MLPs add.

What the MLPs add at the right-hand side of a sum of three is a function of three values; its part in a frequency group is
subtracted wherever such a sum stands. Measured on all triples at once, and on whole problems, iteration by iteration: the
share fully solved. Cost: the p^3 probes of the transform, and a roll-out of problems for each group.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN, GraphConfig, TaskConfig
from latentloop.interpret.ablation import NODES
from latentloop.interpret.fourier import DIAGONAL, GROUPS, frequency_groups, grid_activations
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import patch
from latentloop.model.recurrence import update
from latentloop.task.graph import Problems, sample
from latentloop.task.oracle import solve
from latentloop.task.splits import generator
from latentloop.tokens.state import Layout, State, encode_state


@dataclass(frozen=True, kw_only=True)
class Frequencies:
    """The model without a group of frequencies, and with (0,0,0) and (a,a,a) alone."""

    groups: list[str]
    triples_without: Float[ndarray, "group"]
    """Share of triples right without each group."""
    triples_only: float
    """... and with (0,0,0) and (a,a,a) alone."""
    triples: float
    """... and with everything."""
    solved_without: Float[ndarray, "group"]
    """Share of problems of sums of three that are fully solved."""
    solved_only: float
    solved: float
    nodes: int
    problems: int


def part_of(
    grid: Float[Tensor, "x y z unit"], groups: Int[ndarray, "j k l"], chosen: Bool[ndarray, "group"]
) -> Float[Tensor, "x y z unit"]:
    """Return the part of a function of three values that lies in the chosen frequency groups."""
    spectrum = torch.fft.fftn(grid.double(), dim=(0, 1, 2))
    kept = torch.from_numpy(chosen[groups])
    return torch.fft.ifftn(spectrum * kept[..., None], dim=(0, 1, 2)).real.float()


@torch.inference_mode()
def analyze(subject: Subject) -> Frequencies:
    """Remove each group, then all but two."""
    last = len(subject.model.layers) - 1
    wanted: dict[str, tuple[int | None, str]] = {"before": (last, "resid_mid"), "after": (last, "resid_post")}
    grids, right = grid_activations(subject, "+", wanted)
    added = grids["after"] - grids["before"]
    groups = frequency_groups(subject.task.modulus)
    value = np.arange(subject.task.modulus)
    sums = torch.from_numpy((value[:, None, None] + value[:, None] + value) % subject.task.modulus)
    task = TaskConfig(operations=("+",), modulus=subject.task.modulus, names=subject.task.names)
    nodes = min(NODES, subject.size.nodes)
    graph = GraphConfig(nodes=nodes, family="triples")
    problems = sample(task, graph, subject.settings.rollouts, generator(subject.settings.seed, INTERPRET, 9))
    removals = [np.arange(len(GROUPS)) == group for group in range(len(GROUPS))]
    removals += [~np.isin(np.arange(len(GROUPS)), (0, DIAGONAL))]
    on_triples, on_problems = [], []
    for chosen in removals:
        part = part_of(added, groups, chosen)
        device = subject.model.norm.weight.device
        logits = subject.model.read(subject.model.norm((grids["after"] - part).to(device)))["value"].cpu()
        on_triples.append(float((logits.argmax(-1) == sums).float().mean()))
        on_problems.append(_solved(subject, problems, part.to(device)))
    return Frequencies(
        groups=list(GROUPS),
        triples_without=np.array(on_triples[:-1]),
        triples_only=on_triples[-1],
        triples=right,
        solved_without=np.array(on_problems[:-1]),
        solved_only=on_problems[-1],
        solved=_solved(subject, problems, None),
        nodes=nodes,
        problems=len(problems),
    )


def _solved(subject: Subject, problems: Problems, part: Float[Tensor, "x y z unit"] | None) -> float:
    """Return the share of problems fully solved when a part is taken out wherever three numbers are added."""
    model = subject.model
    last = len(model.layers) - 1
    solution = solve(problems)
    state, layout = encode_state(problems, subject.vocabulary)
    device = model.norm.weight.device
    state, layout = state.to(device), layout.to(device)
    for _ in range(int(solution.depths.max())):
        if part is None:
            state, _ = update(model, state, layout)
            continue
        less = _at_queries(model.method.pin_static, layout, _parts(state, layout, part))
        with patch(model, "resid_post", lambda x, less=less: x - less, layer=last):
            state, _ = update(model, state, layout)
    said = layout.read(state.value).cpu().numpy()
    return float((said == solution.values).all(1).mean())


def _parts(state: State, layout: Layout, part: Tensor) -> Float[Tensor, "batch node unit"]:
    """Return what to take out at each equation: nothing where one of three operands is missing or not yet a number."""
    values = layout.read(state.value)  # [batch, node]
    operands = values.gather(1, layout.parent.flatten(1)).unflatten(1, layout.parent.shape[1:])  # [batch, node, 3]
    known = (layout.fan_in == MAX_FAN_IN) & (operands < len(part)).all(-1)
    x, y, z = torch.where(known[..., None], operands, 0).unbind(-1)
    return part[x, y, z] * known[..., None]


def _at_queries(pinned: bool, layout: Layout, parts: Float[Tensor, "batch node unit"]) -> Tensor:
    """Put what belongs to equations where the model computes them: at right-hand sides alone, or at positions."""
    if pinned:
        return parts
    blank = parts.new_zeros(len(parts), layout.mask.shape[1], parts.shape[-1])
    return blank.scatter(1, layout.rhs[..., None].expand(parts.shape), parts)
