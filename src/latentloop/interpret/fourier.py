"""In which frequencies is the arithmetic done? The discrete Fourier transform of activations over all triples of values.

Activations at the right-hand side of the probe are a function of the three operands' values. Its transform, unitary and over
the full cube of frequencies (the conjugate of frequency j is -j mod p), falls into the paper's seven groups. A sum of equal
signs lives in (a, a, a); for differences, frequencies of subtracted operands change their sign first; for products, values
run through the powers of a primitive root, so that frequencies are characters of the multiplicative group. Cost: p^3 probes
for each operation, twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.frequencies import DIAGONAL, GROUPS, Frequencies, Grids, ablate
from latentloop.interpret.probes import Probes, value_grid
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture

GROUP_OPERATIONS = ("+", "-", "*")
"""Operations whose results are a group's: those of an added row may be anything."""
LEAST, MOST = 5, 31
"""Moduli whose cube is probed: smaller ones have next to no frequencies, larger ones too many triples."""
BINS = 40


@dataclass(frozen=True, kw_only=True)
class Site:
    """One place in the network."""

    name: str
    energy: Float[ndarray, "group"]
    """Share of the squared norm in each group."""
    edges: Float[ndarray, "edge"]
    """Of histograms of the norm at single frequencies, on a logarithmic scale."""
    counts: Int[ndarray, "group bin"]

    @property
    def diagonal(self) -> float:
        """Share of the energy in (a, a, a) among all that depends on the values."""
        varying = 1 - self.energy[0]
        return float(self.energy[DIAGONAL] / varying) if varying > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One pattern of operations, such as ``a + b + c``."""

    name: str
    sites: list[Site]
    right: float
    """Share of all triples that the model answers right."""
    triples: int
    without: Frequencies
    """What the model can do without some frequencies."""


@dataclass(frozen=True, kw_only=True)
class Spectra:
    """All patterns that the model knows."""

    patterns: list[Pattern]
    groups: list[str]


def transform(grid: Float[Tensor, "x y z unit"]) -> Float[Tensor, "j k l"]:
    """Return the norm over units of the unitary transform, at every frequency."""
    count = grid.shape[2]
    half = torch.fft.rfftn(grid.double(), dim=(0, 1, 2), norm="ortho")  # [j, k, l <= count / 2, unit]
    norms = torch.view_as_real(half).square().sum((-1, -2)).sqrt()
    # A real function has the same norm at (j, k, l) and at (-j, -k, -l): that is the other half.
    turned = norms.flip(0, 1).roll((1, 1), (0, 1))[..., 1 : (count + 1) // 2].flip(-1)
    return torch.cat([norms, turned], dim=-1)


def frequency_groups(count: int, signs: Sequence[int] = (1, 1, 1)) -> Int[ndarray, "j k l"]:
    """Return the number of each frequency's group, 0 to 6; with ``signs``, of the frequencies times them."""
    axes = [(sign * np.arange(count)) % count for sign in signs]
    triple = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    zeros = (triple == 0).sum(-1)
    low, middle, high = np.moveaxis(np.sort(triple, axis=-1), -1, 0)
    distinct = 1 + (low != middle) + (middle != high)
    one_zero = np.where(middle == high, 3, 2)
    no_zero = np.select([distinct == 1, distinct == 2], [6, 5], 4)
    return np.select([zeros == 3, zeros == 2, zeros == 1], [0, 1, one_zero], no_zero)


def primitive_root(modulus: int) -> int:
    """Return the least generator of the multiplicative group."""
    return next(g for g in range(1, modulus) if len({pow(g, k, modulus) for k in range(1, modulus)}) == modulus - 1)


def operands_of(operation: str, modulus: int) -> tuple[list[int], tuple[int, int, int]]:
    """Return the values to run through, in the order of the group that the operation is of, and the signs of operands."""
    if operation == "*":
        root = primitive_root(modulus)
        return [pow(root, k, modulus) for k in range(modulus - 1)], (1, 1, 1)
    sign = -1 if operation == "-" else 1
    return list(range(modulus)), (1, sign, sign)


def summarize(name: str, norms: Float[Tensor, "j k l"], groups: Int[ndarray, "j k l"]) -> Site:
    """Return energies and histograms by group."""
    norm = norms.numpy()
    energy = np.array([(norm[groups == group] ** 2).sum() for group in range(len(GROUPS))])
    top = max(float(norm.max()), 1e-12)
    edges = np.geomspace(top * 1e-6, top * 1.01, BINS + 1)
    counts = np.stack([np.histogram(norm[groups == group].clip(edges[0]), edges)[0] for group in range(len(GROUPS))])
    return Site(name=name, energy=energy / max(float(energy.sum()), 1e-30), edges=edges, counts=counts)


def sites_of(subject: Subject) -> dict[str, tuple[int | None, str]]:
    """Return the places to look at, by what they are called, in their order: layer and activation."""
    last = len(subject.model.layers) - 1
    mlps = len(subject.model.layers[last].mlps)  # pyrefly: ignore
    found: dict[str, tuple[int | None, str]] = {}
    for mlp in range(mlps):
        suffix, title = f".{mlp}" if mlp else "", f"MLP {mlp + 1} " if mlps > 1 else "MLP "
        for name, what in (("mlp_pre", "pre-activation"), ("mlp_post", "post-activation"), ("mlp_out", "output")):
            found[title + what] = last, name + suffix
    return found | {"read-out": (None, "logits.value")}


def grid_of(subject: Subject, operation: str) -> Probes:
    """Return a probe for every triple of values of one operation."""
    values, _ = operands_of(operation, subject.task.modulus)
    scene = next(iter(subject.scenes(key=8)))
    return value_grid(scene, [operation] * (MAX_FAN_IN - 1), values)


def grid_activations(
    subject: Subject, probes: Probes, wanted: dict[str, tuple[int | None, str]]
) -> tuple[dict[str, Float[Tensor, "x y z unit"]], float]:
    """Run a grid of probes; return activations at the right-hand side, and the share right."""
    bench = Bench(subject.model, probes)
    parts: dict[str, list[Tensor]] = {name: [] for name in wanted}
    right = 0
    for rows in bench.chunks():
        with capture(subject.model, [name for _, name in wanted.values()]) as seen:
            said = bench.answers(rows).numpy()
        right += int((said == bench.probes.answers[rows]).sum())
        for title, (layer, name) in wanted.items():
            parts[title].append(seen[0, layer, name][:, -1].cpu())
    shape = (round(len(probes) ** (1 / MAX_FAN_IN)),) * MAX_FAN_IN
    return {title: torch.cat(some).unflatten(0, shape) for title, some in parts.items()}, right / len(bench.probes)


@torch.inference_mode()
def analyze(subject: Subject) -> Spectra:
    """Transform activations of a sum of three, and of differences and products where the model knows them."""
    last = len(subject.model.layers) - 1
    ends: dict[str, tuple[int | None, str]] = {"before": (last, "resid_mid"), "after": (last, "resid_post")}
    found = []
    for operation in (known for known in subject.task.operations if known in GROUP_OPERATIONS):
        values, signs = operands_of(operation, subject.task.modulus)
        groups = frequency_groups(len(values), signs)
        probes = grid_of(subject, operation)
        seen, right = grid_activations(subject, probes, sites_of(subject) | ends)
        answered, _ = grid_activations(subject, probes.answered(), ends)
        before, after = seen.pop("before"), seen.pop("after")
        added = torch.stack([after - before, answered["after"] - answered["before"]])
        seen["read-out"] = seen["read-out"][..., : subject.task.modulus]
        found.append(
            Pattern(
                name=f"a {operation} b {operation} c",
                sites=[summarize(title, transform(seen.pop(title)), groups) for title in list(seen)],
                right=right,
                triples=len(probes),
                without=ablate(subject, operation, Grids(before=before, after=after, added=added), values, groups),
            )
        )
    return Spectra(patterns=found, groups=list(GROUPS))
