"""Which heads move which operand? The variance of every head's output when one name, or one value, changes.

Relative variance of a head, over samples that differ in one thing only: tr(Cov(output)) / E[|output|^2], at every token of
the probe. Groups follow from it by a rule, not by eye (``groups``). A look-up may be shared out among heads by name, so it is
probed with many names. Cost: some 130 probes a name and 23 a value, for every scene.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.interpret.groups import (
    OTHERS,
    RULE,
    Heads,
    LayerHeads,
    by_value_too,
    find_groups,
    moves,
    relative_variance,
)
from latentloop.interpret.probes import (
    OPERANDS,
    RHS,
    Probes,
    labels,
    varied_literals,
    varied_names,
    varied_operations,
    varied_values,
)
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture
from latentloop.model.transformer import Transformer

LOOKUP_SCENES = 5
"""Times as many scenes to find look-ups in as for all else."""
FREE_NAMES = 32
"""Names to vary a right-hand side over, where they must be free."""


def moments(outputs: Float[Tensor, "sample *more width"]) -> tuple[Float[Tensor, "*more"], Float[Tensor, "*more"]]:
    """Return the trace of the covariance over samples, and the mean squared norm."""
    outputs = outputs.double()
    variance = (outputs - outputs.mean(0)).square().sum(-1).mean(0)
    return variance, outputs.square().sum(-1).mean(0)


def head_outputs(
    model: Transformer, probes: Probes, before: int = 0
) -> list[Float[Tensor, "sample head position width"]]:
    """Return what each head of each layer adds at each token of the probe, and at some tokens before it."""
    bench = Bench(model, probes)
    found: list[list[Tensor]] = [[] for _ in model.layers]
    for rows in bench.chunks():
        with capture(model, ["head_out"]) as seen:
            bench.run(rows)
        for layer, parts in enumerate(found):
            parts.append(seen[0, layer, "head_out"][:, :, -len(bench.labels) - before :].cpu())
    return [torch.cat(parts) for parts in found]


def analyze(subject: Subject) -> Heads:
    """Vary every name and every value, one at a time."""
    positions = labels()
    names = _moments(subject, "name")
    values = _moments(subject, "value")
    literals, operations = _others(subject)
    lookup_shares = _lookup_shares(subject)
    layers = []
    for layer in range(len(subject.model.layers)):
        name_variance, name_norm = names[layer]
        value_variance, value_norm = values[layer]
        by_name = relative_variance(name_variance, name_norm)  # [place, position, head]
        by_value = relative_variance(value_variance, value_norm)
        layers.append(
            LayerHeads(
                by_name=by_name,
                by_value=by_value,
                name_variance=name_variance[:, -1],
                name_norm=name_norm[:, -1],
                variance=value_variance[:, -1],
                norm=value_norm[:, -1],
                names_at_rhs=_names_at_rhs(by_name, by_value, name_variance[:, -1], name_norm[:, -1]),
                values_at_rhs=find_groups(by_value[:, -1], value_variance[:, -1], value_norm[:, -1].mean(0), OPERANDS),
                lookup_share=lookup_shares[layer],
                by_literal=literals[layer],
                by_operation=operations[layer],
                rule=RULE,
            )
        )
    windows = [subject.model.positions.window_of(layer) for layer in range(len(layers))]
    return Heads(
        positions=positions,
        layers=layers,
        rule=RULE,
        windows=[None if window is None else window.shape[-1] for window in windows],
    )


def _names_at_rhs(by_name: ndarray, by_value: ndarray, variance: ndarray, norm: ndarray) -> dict[str, list[int]]:
    """Group heads by the name that moves them at the right-hand side, without those that a value alone moves as well."""
    groups = find_groups(by_name[:, -1], variance, norm.mean(0), (*OPERANDS, RHS))
    too = by_value_too(by_name, by_value)
    for which, place in enumerate(OPERANDS):
        moved = [head for head in groups[place] if too[which, head]]
        groups[place] = [head for head in groups[place] if head not in moved]
        groups[OTHERS] = sorted(groups[OTHERS] + moved)
    return groups


def _lookup_shares(subject: Subject) -> list[Float[ndarray, "head"]]:
    """Return for every layer and head the share of operands whose own value moves it where they stand."""
    moved: list[list[ndarray]] = [[] for _ in subject.model.layers]
    for scene in subject.scenes(key=15, times=LOOKUP_SCENES):
        for place in OPERANDS:
            at = labels().index(place)
            for parts, outputs in zip(moved, head_outputs(subject.model, varied_values(scene, place)), strict=True):
                variance, norm = (one.numpy() for one in moments(outputs[:, :, at]))  # [head]
                parts.append(moves(relative_variance(variance, norm)[None], variance[None], norm)[0])
    return [np.mean(parts, axis=0) for parts in moved]


def _others(subject: Subject) -> tuple[list[ndarray], list[ndarray]]:
    """Return the relative variance [head] of every layer when a literal changes, and when operations do."""
    found: list[list[list[ndarray]]] = [[], []]
    for scene in subject.scenes():
        literal = [out[:, :, 0] for out in head_outputs(subject.model, varied_literals(scene), before=1)]
        operation = [head_outputs(subject.model, probes) for probes in varied_operations(scene)]
        changed = [torch.cat([one[layer][:, :, -1] for one in operation]) for layer in range(len(literal))]
        for parts, outputs in zip(found, (literal, changed), strict=True):
            parts.append([torch.stack(moments(out)).numpy() for out in outputs])
    means = [[np.mean([one[layer] for one in parts], axis=0) for layer in range(len(parts[0]))] for parts in found]
    literals, operations = ([relative_variance(*one) for one in layers] for layers in means)
    return literals, operations


def _moments(subject: Subject, kind: str) -> list[tuple[ndarray, ndarray]]:
    """Return variance and norm [place, position, head] of every layer, means over scenes."""
    places = (*OPERANDS, RHS) if kind == "name" else OPERANDS
    sums: list[list[ndarray]] = []
    for place in places:
        free = FREE_NAMES if place == RHS else 1
        scenes = list(subject.scenes(free=free))
        parts = []
        for scene in scenes:
            probes = varied_names(scene, place) if kind == "name" else varied_values(scene, place)
            outputs = head_outputs(subject.model, probes)
            parts.append([torch.stack(moments(out.transpose(1, 2))).numpy() for out in outputs])
        sums.append([np.mean([part[layer] for part in parts], axis=0) for layer in range(len(subject.model.layers))])
    return [
        (np.stack([one[layer][0] for one in sums]), np.stack([one[layer][1] for one in sums]))
        for layer in range(len(subject.model.layers))
    ]
