"""Where do heads look when an operand is missing? Attention maps of probes with three, two and one operands.

Cost: three probes.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.heads import Heads
from latentloop.interpret.probes import OPERANDS, Probes, labels
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture
from latentloop.tokens.factored import decode, encode

COLUMNS = 50
"""Keys that a map shows, the last ones."""


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
    return Sinks(maps=maps, sinks=_sinks(maps, heads))


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
