"""Where do heads look when an operand is missing? Attention maps of probes with three, two and one operands.

A sink is where attention goes to bring nothing: what heads of a missing operand take from separators and equals signs is cut
off, and answers should stay as they are. Cost: three probes for maps, and 32 a scene.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.groups import Heads
from latentloop.interpret.probes import OPERANDS, RHS, Probes, labels
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import capture, patch
from latentloop.task.splits import generator
from latentloop.tokens.factored import decode, encode

COLUMNS = 50
"""Keys that a map shows, the last ones."""
SINKS = (";", "=")
"""Tokens that the paper found to be sinks."""
PROBES = 16
"""Of each scene and number of operands."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """Attention in one layer, of a probe with some operands."""

    layer: int
    operands: int
    rows: list[str]
    """Tokens of the probe."""
    columns: list[str]
    """The last tokens of the sequence."""
    weights: Float[ndarray, "head row column"]
    at_rhs: list[str]
    """For each head, the token that its right-hand side attends to most, and its weight: ``VAR2 0.97``."""


@dataclass(frozen=True, kw_only=True)
class Sinks:
    """Maps of every layer with three, two and one operands."""

    maps: list[Map]
    sinks: dict[str, str]
    """For heads that read an operand, where it is missing: what they attend to most instead, and its weight. Those of VAR0 in
    equations of two operands, those of VAR1 and of several operands in equations of one."""
    weights: dict[str, float]
    """For heads of one operand, where it is missing: mean attention to all separators and equals signs."""
    right: float
    """Share of answers right in equations of two operands and of one: as the model is, ..."""
    masked: float
    """... and when these heads bring nothing from separators and equals signs."""


def whole_pattern(pattern: Float[Tensor, "batch head query key"], length: int) -> Tensor:
    """Return attention by key, where a layer with a window has it by distance: the last queries of a sequence."""
    if pattern.shape[-1] == length:
        return pattern
    queries, window = pattern.shape[-2:]
    places = torch.arange(length - queries, length)
    keys = (places[:, None] - torch.arange(window)).clamp(min=0)  # before the first token there is no weight
    full = pattern.new_zeros(*pattern.shape[:-1], length)
    return full.scatter_add(-1, keys.expand(pattern.shape), pattern)


def analyze(subject: Subject, heads: Heads) -> Sinks:
    """Draw the maps of one scene."""
    scene = next(iter(subject.scenes(key=6)))
    maps = []
    for operands in range(MAX_FAN_IN, 0, -1):
        probes = scene.probes(operands=operands)
        bench = Bench(subject.model, probes)
        with capture(subject.model, ["pattern"]) as seen:
            bench.run()
        words, rows = _words(subject, probes), labels(operands)
        for layer in range(len(heads.layers)):
            pattern = whole_pattern(seen[0, layer, "pattern"].cpu(), bench.length)[0]  # [head, row, key]
            known = _places(words, rows)
            best = pattern[:, -1].max(-1)
            at_rhs = [
                f"{known[place]} {weight:.2f}" for weight, place in zip(best[0].tolist(), best[1].tolist(), strict=True)
            ]
            maps.append(
                Map(
                    layer=layer,
                    operands=operands,
                    rows=rows,
                    columns=words[-COLUMNS:],
                    weights=pattern[:, -len(rows) :, -COLUMNS:].numpy(),
                    at_rhs=at_rhs,
                )
            )
    weights, right, masked = _masked(subject, heads)
    return Sinks(maps=maps, sinks=_sinks(maps, heads), weights=weights, right=right, masked=masked)


def _masked(subject: Subject, heads: Heads) -> tuple[dict[str, float], float, float]:
    """Return attention to sinks of every head whose operand is missing, and the share of answers right with it and without."""
    weights: dict[str, list[float]] = {}
    right, masked = [], []
    for number, scene in enumerate(subject.scenes(key=6)):
        rng = generator(subject.settings.seed, INTERPRET, 16, number)
        for operands in range(MAX_FAN_IN - 1, 0, -1):
            values = rng.integers(0, subject.task.modulus, (PROBES, MAX_FAN_IN))
            bench = Bench(subject.model, scene.probes(values=values, operands=operands), chunk=PROBES)
            sinks = torch.tensor([word in SINKS for word in _words(subject, bench.probes)])
            with capture(subject.model, ["pattern"]) as seen:
                right.append(bench.answers().numpy() == bench.probes.answers)
            with ExitStack() as stack:
                for layer in range(len(heads.layers)):
                    chosen = _missing(heads, layer, operands)
                    if not chosen:
                        continue
                    pattern = seen[0, layer, "pattern"][:, :, -1:].cpu()  # [sample, head, right-hand side, key]
                    found = whole_pattern(pattern, bench.length)[..., sinks].sum(-1).mean((0, 2))
                    for head in chosen:
                        weights.setdefault(f"layer {layer + 1}, head {head}", []).append(float(found[head]))
                    # In a layer with a window keys are counted back from the right-hand side, the last token.
                    whole = pattern.shape[-1] == bench.length
                    kept = (~sinks if whole else ~sinks.flip(0)[: pattern.shape[-1]]).to(bench.device)
                    place, less = [bench.position(RHS, layer)], partial(_without, kept=kept)
                    stack.enter_context(
                        patch(subject.model, "pattern", less, layer=layer, positions=place, heads=chosen)
                    )
                masked.append(bench.answers().numpy() == bench.probes.answers)
    means = {head: float(np.mean(found)) for head, found in sorted(weights.items())}
    return means, float(np.mean(right)), float(np.mean(masked))


def _without(pattern: Tensor, kept: Bool[Tensor, "key"]) -> Tensor:
    """Return attention without what it gives to some keys; a block of queries may see the first ones alone."""
    return pattern * kept[: pattern.shape[-1]]


def _missing(heads: Heads, layer: int, operands: int) -> list[int]:
    """Return the heads of a layer that have one operand, which an equation of so many operands has not."""
    own = heads.layers[layer]
    return sorted(
        {
            head
            for place in OPERANDS[: MAX_FAN_IN - operands]
            for head in (*own.names_at_rhs[place], *own.values_at_rhs[place])
        }
    )


def _words(subject: Subject, probes: Probes) -> list[str]:
    return decode(encode(probes.problems, subject.vocabulary), subject.vocabulary).split(" ")


def _places(words: list[str], rows: list[str]) -> list[str]:
    """Name every token: those of the probe by their role, others as they are written."""
    earlier = [f"earlier {word}" for word in words[: -len(rows)]]
    return [*earlier, *rows]


def _sinks(maps: list[Map], heads: Heads) -> dict[str, str]:
    """Say where the heads of an operand look when there is none."""
    found = {}
    for layer, group in enumerate(heads.layers):
        last = layer == len(heads.layers) - 1
        for which, place in enumerate(OPERANDS[:-1]):
            chosen = {
                *group.names_at_rhs[place],
                *group.values_at_rhs[place],
                *(group.shared if last and which else ()),
            }
            fewer = next(one for one in maps if one.layer == layer and one.operands == MAX_FAN_IN - 1 - which)
            for head in sorted(chosen):
                found[f"layer {layer + 1}, head {head}"] = fewer.at_rhs[head]
    return found
