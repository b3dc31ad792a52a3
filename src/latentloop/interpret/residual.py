"""How much does each MLP change the residual stream? |before - after| / |before| at the right-hand side of probes.

Probes differ in all that a probe has: which nodes are its operands, their values, and its own name. A first layer that brings
neither names nor values to the right-hand side still sees its name. Cost: one run of 256 probes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.heads import FREE_NAMES
from latentloop.interpret.probes import Probes, Scene
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import capture
from latentloop.task.splits import generator

SAMPLES = 256


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Relative L2 change by every MLP of every layer."""

    mlps: list[str]
    """Names, as in ``layer 2, MLP 1``."""
    change: Float[ndarray, "mlp sample"]
    layer_of: list[int]


def relative_change(before: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Return |added| / |before|, vector by vector."""
    return added.norm(dim=-1) / before.norm(dim=-1)


def varied_probes(scene: Scene, count: int, rng: np.random.Generator) -> Probes:
    """Return probes of other operands, values and right-hand sides each; names that are free, where there are any."""
    names = scene.base.names[0]
    values = rng.integers(0, scene.task.modulus, (count, MAX_FAN_IN))
    nodes = np.stack([rng.permutation(scene.nodes)[: MAX_FAN_IN + 1] for _ in range(count)])
    rhs = rng.choice(scene.free, count) if len(scene.free) else names[nodes[:, -1]]  # not that of an operand
    return scene.probes(values=values, chosen=nodes[:, :MAX_FAN_IN], rhs=rhs.astype(np.int64))


def analyze(subject: Subject) -> Changes:
    """Measure 256 probes that have little in common."""
    model = subject.model
    parts: list[list[np.ndarray]] = []
    for number, scene in enumerate(subject.scenes(key=4, free=FREE_NAMES)):
        rng = generator(subject.settings.seed, INTERPRET, 5, number)
        bench = Bench(model, varied_probes(scene, -(-SAMPLES // subject.settings.scenes), rng))
        for rows in bench.chunks():
            with capture(model, ["resid_mid", "mlp_out"]) as seen:
                bench.answers(rows)
            found = []
            for layer, block in enumerate(model.layers):
                stream = seen[0, layer, "resid_mid"][:, -1]
                for mlp in range(len(block.mlps)):  # pyrefly: ignore
                    added = seen[0, layer, f"mlp_out.{mlp}" if mlp else "mlp_out"][:, -1]
                    found.append(relative_change(stream, added).cpu().numpy())
                    stream = stream + added
            parts.append(found)
    layers = [layer for layer, block in enumerate(model.layers) for _ in block.mlps]  # pyrefly: ignore
    names = [f"layer {layer + 1}, MLP {layers[:place].count(layer) + 1}" for place, layer in enumerate(layers)]
    change = np.stack([np.concatenate([part[mlp] for part in parts]) for mlp in range(len(names))])
    return Changes(mlps=names, change=change[:, :SAMPLES], layer_of=layers)
