"""Transformers whose weights are written by hand, so that the circuit in them is known: the paper's, and that of ``stable``.

Features come in pairs, x and -x, so that LayerNorm finds a mean of 0; a large constant feature makes what it divides by the
same everywhere. Scores are so far apart that attention is one-hot. The MLP has a unit for every combination of values.
"""

from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np
import torch

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig
from latentloop.config.positions import DisentangledConfig, LocalConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.methods import Continuous, Discrete
from latentloop.model.build import build_model, weights_of
from latentloop.model.transformer import Output
from latentloop.operations import RESULTS
from latentloop.tokens.vocabulary import SYNTAX
from latentloop.train.checkpoint import Checkpoint

P, NAMES, HEADS, MANY_HEADS = 5, 12, 4, 8
CONSTANT = 8.0
LARGE_CONSTANT = 40.0
"""Where a head writes more than others, so that LayerNorm does not mind."""
MATCH, NUMBER, FLOOR = 90.0, 45.0, 66.0
"""Scores: for the right name, for holding a number, and what everything else is below a sink."""
TARGET, SINK, FALLBACK = 90.0, 60.0, 30.0
"""Scores: of the operand's distance; a separator's, and of distances where one stands if the operand is missing; of ``=``."""
DISTANCES = {0: 6, 1: 4, 2: 2}
SINKS = {0: (3, 5), 1: (3,), 2: ()}
"""Where an equation with fewer operands has its separator."""
FREQUENCY = 2
"""Of the circle that values lie on."""
SCATTERED = 39
"""Seed of vectors that lie on no circle."""
KEEP = 40.0
"""How loud a value is that is there already, for it to be kept: louder than what is computed."""
TASK = TaskConfig(modulus=P, names=NAMES)
GRAPH = GraphConfig(nodes=NAMES)


class Features:
    """Where each feature is kept, and how to read and write it."""

    def __init__(self, *, slots: bool, pinned: bool, heads: int = HEADS, constant: float = CONSTANT) -> None:
        self.heads, self.constant = heads, constant
        sizes = {"constant": 1, "name": NAMES, "value": P + 1, "=": 1, "sep": 1, "found": P + 1}
        sizes |= {} if pinned else {"syntax": len(SYNTAX), "operation": len(TASK.operations), "rhs": 1}
        sizes |= {f"name {i}": NAMES for i in range(3)} if slots else {}
        sizes |= {f"value {i}": P + 1 for i in range(3)} | {"result": P + 1}
        self.at, self.count = {}, 0
        for name, size in sizes.items():
            self.at[name] = range(self.count, self.count + size)
            self.count += size
        self.count = -(-self.count // heads) * heads  # heads share the width
        self.width = 2 * self.count
        others = 3 if pinned else 6  # features that a token has besides
        self.unit = (self.count / (constant**2 + others)) ** 0.5  # what LayerNorm makes of 1

    def write(self, matrix, name, which, column, amount=1.0):
        """Let a column of an output matrix, or of an embedding, write a feature."""
        place = self.at[name][which]
        matrix[place, column] += amount
        matrix[place + self.count, column] -= amount

    def read(self, matrix, row, name, which, amount=1.0):
        """Let a row of an input matrix read a feature as it was before LayerNorm."""
        matrix[row, self.at[name][which]] += amount / self.unit / (self.constant if name == "constant" else 1)


@dataclass(frozen=True)
class Code:
    """How the last layer's heads write an operand's value, and how its MLP reads it; the last symbol is empty."""

    written: np.ndarray
    """[symbol, place]"""
    matched: np.ndarray
    """[number, place]: reads at least 1 more of this number than of any other."""
    there: np.ndarray
    """[place]: reads 1 of every symbol."""

    @property
    def full(self):
        """What a number reads of itself."""
        return float((self.matched[0] * self.written[0]).sum())


def code_of(kind, operation):
    """Return the code ``one-hot``, ``circle`` (for products, of logarithms; 0 has a place of its own) or ``scattered``."""
    written, matched, there = np.eye(P + 1), np.eye(P, P + 1), np.ones(P + 1)
    if kind == "circle":
        written[:P], matched[:], there[:P] = 0, 0, 0
        there[2] = there[P - 1] = 1  # all on the circle share a place; P - 1 is that of 0, where it is not on it
        turns = [0, 1, 2, 3, 4] if operation != "*" else [None, 0, 1, 3, 2]  # 1, 2, 4, 3 are powers of 2 modulo 5
        frequency, count = (1, P - 1) if operation == "*" else (FREQUENCY, P)
        gap = 1 - np.cos(2 * np.pi / count)
        for value, turn in enumerate(turns):
            if turn is None:
                written[value, P - 1], matched[value, P - 1] = 1, 1 / gap
                continue
            angle = 2 * np.pi * frequency * turn / count
            matched[value, :2] = np.cos(angle), np.sin(angle)
            written[value, :3] = *matched[value, :2], 1
            matched[value] /= gap
    elif kind == "scattered":  # drawn at random, until they lay on no circle
        drawn = np.random.default_rng(SCATTERED).normal(size=(P, P))
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        written[:P, :P], matched[:, :P] = drawn, np.linalg.inv(drawn).T
        there[:P] = matched[:, :P].sum(0)
    return Code(written=written, matched=matched, there=there)


def _embed(weights, features):
    for table in ("syntax", "variable", "value", "operation"):
        weights[f"embeddings.{table}.weight"].zero_()
    syntax, names, values = (weights[f"embeddings.{table}.weight"].T for table in ("syntax", "variable", "value"))
    for kind in range(syntax.shape[1]):
        features.write(syntax, "constant", 0, kind, features.constant)
    features.write(syntax, "=", 0, 3)
    features.write(syntax, "sep", 0, 4)
    for name in range(NAMES):
        features.write(names, "name", name, name)
    for value in range(P):
        features.write(values, "value", value, value)
    features.write(values, "value", P, P + 1)  # empty; N/A is nothing


class Head:
    """One head's rows of the projection and columns of the output matrix."""

    def __init__(self, weights, features, layer, head, heads):
        prefix, size = f"layers.{layer}.attention", features.width // heads
        self.features, self.start = features, head * size
        self.matrix = weights[f"{prefix}.project.weight"]
        self.out = weights[f"{prefix}.out.weight"]

    def query(self, dim, name, which, amount):
        self.features.read(self.matrix, self.start + dim, name, which, amount)

    def key(self, dim, name, which, amount=1.0):
        self.features.read(self.matrix, self.features.width + self.start + dim, name, which, amount)

    def copy(self, source, target, count, amount=1.0, code=None):
        """Copy so many symbols of a feature, in a code; without one, where the other has fewer, some share a place."""
        for which in range(count):
            self.features.read(self.matrix, 2 * self.features.width + self.start + which, source, which)
            if code is None:
                place = which % len(self.features.at[target])
                self.features.write(self.out, target, place, self.start + which, amount)
                continue
            for place, number in enumerate(code.written[which]):
                self.features.write(self.out, target, place, self.start + which, amount * number)

    def look_up(self, *asked, scale):
        """Find a token of a name asked for that holds a number, or else one without; what is no match lies below 0."""
        for name in range(NAMES):
            for feature in asked:
                self.query(name, feature, name, MATCH / scale)
            self.key(name, "name", name)
        self.query(NAMES, "constant", 0, NUMBER / scale)
        for value in range(P):
            self.key(NAMES, "value", value)
        self.query(NAMES + 1, "constant", 0, -FLOOR / scale)
        self.key(NAMES + 1, "constant", 0)


def _compute(weights, features, code, operation):
    """Write the last layer's MLP: three, two or one operands, or something empty among them."""
    into, bias = weights["layers.1.mlps.0.into.weight"], weights["layers.1.mlps.0.into.bias"]
    out = weights["layers.1.mlps.0.out.weight"]
    unit = 0
    for count in (3, 2, 1):
        for values in product(range(P), repeat=count):
            for operand, value in zip(range(3 - count, 3), values, strict=True):
                for place, number in enumerate(code.matched[value]):
                    features.read(into, unit, f"value {operand}", place, number)
            for absent, (place, number) in product(range(3 - count), enumerate(code.there)):
                features.read(into, unit, f"value {absent}", place, -number)
            bias[unit] = 0.5 - count * code.full
            features.write(out, "result", reduce(RESULTS[operation], values) % P, unit, 8.0)
            unit += 1
    for place in range(3):
        features.read(into, unit, f"value {place}", P)
    bias[unit] = -0.5
    features.write(out, "result", P, unit, 8.0)
    readout = weights["readouts.value.weight"]
    for value in range(P):
        features.read(readout, value, "result", value, 4.0)
    features.read(readout, P + 1, "result", P, 4.0)
    weights["readouts.value.bias"][:P] = 2.0 * torch.arange(P)  # where nothing is computed, there is one answer
    weights["readouts.value.bias"][P] = -20.0  # never N/A


def _names_first(weights, features, code):
    """The paper's circuit: names to the right-hand side by distance, then their values by name.

    With many heads every operand has two in each layer; one head copies a token's own name, and is louder than all others;
    one reads two operands at once, a little.
    """
    heads = features.heads
    scale = (3 * features.width // heads) ** -0.5
    table = weights["positions.table.weight"]
    window, relative = table.shape
    table.zero_()
    for distance in range(window):
        table[distance, distance], table[distance, distance + relative // 2] = 1.0, -1.0
    strength = (relative / 2) ** 0.5  # what the table's LayerNorm makes of 1
    of_query, of_key = weights["positions.keys.0.weight"], weights["positions.queries.0.weight"]
    each = HEADS / heads  # what each head of an operand brings
    for number in range(heads):
        head, operand = Head(weights, features, 0, number, heads), number % HEADS
        head.query(0, "constant", 0, 1.0)
        if number == MANY_HEADS - 1:
            of_query[head.start, 0] = TARGET / scale / strength
            head.copy("name", "found", NAMES, 8.0)
            continue
        of_query[head.start, DISTANCES.get(operand, 2)] = TARGET / scale / strength
        of_query[head.start, 1] = FALLBACK / scale / strength
        head.key(1, "sep", 0)
        for distance in SINKS.get(operand, ()):
            of_key[head.start + 1, distance] = 2 * SINK / scale / strength
        if operand < 3:
            head.copy("name", f"name {operand}", NAMES, each)
        else:  # this head reads the literal of a leaf
            head.copy("value", "value 2", P, code=code)
    for number in range(heads):
        head, operand = Head(weights, features, 1, number, heads), number % HEADS
        if operand < 3:
            head.look_up(f"name {operand}", scale=scale)
            head.key(NAMES + 1, "=", 0, -1.0)  # a sink: 0
            head.copy("value", f"value {operand}", P + 1, each, code)
        elif number == MANY_HEADS - 1:
            head.look_up("name 0", "name 1", scale=scale)
            head.key(NAMES + 1, "=", 0, -1.0)
            head.copy("value", "found", P + 1, 0.4)


def _values_first(weights, features, code):
    """The circuit of ``stable``: values to where the operands stand by name, then to the right-hand side by distance."""
    head = Head(weights, features, 0, 0, 1)
    head.look_up("name", scale=features.width**-0.5)
    head.copy("value", "found", P + 1)
    size = features.width // HEADS
    bias = weights["positions.tables.0"]
    bias.zero_()
    for operand in range(3):
        head = Head(weights, features, 1, operand, HEADS)
        head.query(0, "constant", 0, SINK * size**0.5)
        head.key(0, "sep", 0)
        bias[operand, DISTANCES[operand]] = TARGET
        bias[operand, 1] = FALLBACK
        for distance in SINKS[operand]:
            bias[operand, distance] = SINK
        head.copy("found", f"value {operand}", P + 1, code=code)
        for value in range(P):  # a literal holds its number itself
            features.read(head.matrix, 2 * features.width + head.start + value, "value", value)


def _unpin(weights, features):
    """Let every token decode to itself, and right-hand sides alone, which follow a ``=``, to what is computed."""
    for factor, feature in (("syntax", "syntax"), ("operation", "operation"), ("variable", "name"), ("value", "value")):
        table, readout = weights[f"embeddings.{factor}.weight"].T, weights[f"readouts.{factor}.weight"]
        for which in range(len(features.at[feature])):
            symbol = P + 1 if (feature, which) == ("value", P) else which  # N/A stands before empty
            if feature in ("syntax", "operation"):
                features.write(table, feature, which, symbol)
            features.read(readout, symbol, feature, which, 4.0)
        if factor != "syntax":
            weights[f"readouts.{factor}.bias"].zero_()
            weights[f"readouts.{factor}.bias"][P if factor == "value" else -1] = 0.5  # N/A, where there is nothing
    head = Head(weights, features, 1, HEADS - 1, features.heads)
    if "positions.tables.0" in weights:
        weights["positions.tables.0"][HEADS - 1, 1] = TARGET
    else:
        head.query(0, "constant", 0, 1.0)
        scale, relative = (3 * features.width // features.heads) ** -0.5, weights["positions.table.weight"].shape[1]
        weights["positions.keys.1.weight"][head.start, 1] = TARGET / scale / (relative / 2) ** 0.5
    head.copy("=", "rhs", 1)
    into, bias = weights["layers.1.mlps.0.into.weight"], weights["layers.1.mlps.0.into.bias"]
    for unit in range(P**3 + P**2 + P + 1):
        features.read(into, unit, "rhs", 0, 4.0)
        bias[unit] -= 4.0


def _keep(weights, features):
    """Let a right-hand side that holds a number decode to it, whatever is computed."""
    for value in range(P):
        features.read(weights["readouts.value.weight"], value, "value", value, KEEP)


def _copy(weights, features):
    """Let the free head of the last layer of ``names`` bring a right-hand side its own value, louder than what is computed."""
    head = Head(weights, features, 1, HEADS - 1, features.heads)
    head.query(0, "constant", 0, 1.0)
    scale, relative = (3 * features.width // features.heads) ** -0.5, weights["positions.table.weight"].shape[1]
    weights["positions.keys.1.weight"][head.start, 0] = TARGET / scale / (relative / 2) ** 0.5
    head.copy("value", "result", P, KEEP)


def handmade(
    circuit: str,
    *,
    random: bool = False,
    pinned: bool = True,
    crowded: bool = False,
    code: str = "one-hot",
    operation: str = "+",
    keeps: bool = False,
    copies: bool = False,
    growth: float | None = None,
) -> LatentLoop:
    """A loaded model with the circuit ``names`` or ``values``, or with random weights in its place.

    Where it is not ``pinned``, every token decides on all of its factors. Where it is ``crowded``, which is for ``names``
    alone, there are more heads than an ideal circuit needs, as in a trained model. It knows one ``operation``, and reads
    operands in a ``code``. Where it ``keeps`` values, it computes none anew; where it ``copies`` them, a head does that.
    With a ``growth`` it carries hidden vectors, so many times as long after every iteration, of which it reads nothing but
    what they decode to.
    """
    names = circuit == "names"
    many = {"heads": MANY_HEADS} if crowded else {}
    if crowded or code != "one-hot":  # vectors that are longer
        many["constant"] = LARGE_CONSTANT
    pinned = pinned and growth is None
    features = Features(slots=names, pinned=pinned, **many)
    positions = DisentangledConfig(window=16, relative_width=32) if names else LocalConfig()
    model = ModelConfig(
        positions=positions, layers=2, heads=features.heads, width=features.width, mlp_ratio=1 if names and pinned else 2,
        dropout=0.0,
        **({} if names else {"first_heads": 1, "first_mlp": False}),
    )  # fmt: skip
    method = Discrete(pin_static=pinned) if growth is None else Continuous()
    run = RunConfig(method=method, task=replace(TASK, operations=(operation,)), graph=GRAPH, model=model)
    weights = {name: torch.from_numpy(weight.copy()) for name, weight in weights_of(build_model(run)).items()}
    if not random:
        weights = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        for name, weight in weights.items():
            if "norm" in name and name.endswith("weight"):
                weight.fill_(1.0)
        values = code_of(code, operation)
        _embed(weights, features)
        (_names_first if names else _values_first)(weights, features, values)
        _compute(weights, features, values, operation)
        if keeps:
            _keep(weights, features)
        if copies:
            _copy(weights, features)
        if not pinned:
            _unpin(weights, features)
    else:
        torch.manual_seed(1)
        weights = {name: weight + 0.3 * torch.randn_like(weight) for name, weight in weights.items()}
    arrays = {name: weight.numpy() for name, weight in weights.items()}
    trained = LatentLoop(Checkpoint(run=replace(run), weights=arrays, metrics={}))
    if growth is not None:
        _carry(trained.model, growth)
    return trained


def _carry(model, growth):
    """Let a model that carries hidden vectors read the symbols that these decode to."""
    once = model.forward

    def forward(state, layout, lookups=None):
        output = once(replace(state, hidden=None), layout, lookups)
        hidden = output.hidden * growth ** (state.iteration + 1)
        return Output(logits=output.logits, hidden=hidden, auxiliary=output.auxiliary)

    model.forward = forward
