"""How are values laid out where the last MLPs read them? Cosine similarity of new-value embeddings, from weights and measured.

From weights, new_value_i(v) is the OV matrix of operand i's group times the embedding of v (through the look-up, where the
first layer is one); where operands have no heads of their own, all heads count, each with its mean attention to where it
reads the value: the operand, or where that is defined. Where values that were looked up pass through an MLP, weights do not
tell. Measured, it is what the last layer's attention adds when operand i is worth v (in models of more than two layers, what
the stream has more then): outputs for random values are fitted by a constant and one
vector for each operand and value, whose mean over numbers is 0. A circulant similarity depends on v - w alone; what that
explains of the similarities off the diagonal is the circulant score. Cost: 1,024 probes for each kind of equation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN, TaskConfig
from latentloop.interpret.circuits import factor_embeddings, look_up_unknown, looked_up, normed, ov_matrix
from latentloop.interpret.flow import Flow
from latentloop.interpret.geometry import Changes, change
from latentloop.interpret.groups import Heads
from latentloop.interpret.probes import OPERANDS, Probes
from latentloop.interpret.shared import Bench
from latentloop.interpret.sinks import whole_pattern
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import capture
from latentloop.task.graph import EMPTY
from latentloop.task.splits import generator
from latentloop.tokens.state import encode_state

ALIKE = 0.01
"""Standard deviation of similarities below which they are taken to be all the same."""


@dataclass(frozen=True, kw_only=True)
class Additive:
    """What the last layer's attention adds, as a constant and a vector for each operand's value."""

    mean: Float[ndarray, "operand width"]
    """The constant; operands that share heads have the same."""
    vectors: Float[ndarray, "operand symbol width"]
    """For numbers and, last, empty."""
    explained: float
    """Share of the variance that the fit explains."""


@dataclass(frozen=True, kw_only=True)
class NewValues:
    """New-value embeddings of the three operands, and their geometry."""

    symbols: list[str]
    """Of the value factor: numbers, N/A, empty."""
    similarity: Float[ndarray, "row row"] | None
    """Cosines of the vectors from weights, operand by operand; None where weights alone do not tell."""
    raw_similarity: Float[ndarray, "row row"] | None
    """The same without any LayerNorm."""
    measured: dict[str, Additive]
    """By the operations of the equation: "+ +", "+" and "", those of three operands first."""
    measured_similarity: Float[ndarray, "number number"]
    """Cosines of the measured vectors of numbers, of the first kind of equation."""
    circulant: dict[str, float]
    """Mean circulant score of the operands: of ``weights``, ``raw`` and ``measured`` vectors."""
    orthogonality: dict[str, float]
    """1 - the largest absolute cosine of a vector with any of another operand, on average."""
    changes: Changes
    """Answers when measured vectors are changed."""
    grouped: bool
    """Whether measured vectors are those of each operand's own heads, or of all heads together, as where some serve several."""
    stream: bool
    """Whether they are those of the whole stream that the last MLPs read, as with more than two layers."""
    heads: list[list[int]]
    """Of each operand; all of the last layer's where it has none of its own."""
    unknown: str
    """Why there are no vectors from weights; empty where there are."""

    @property
    def main(self) -> Additive:
        """What was measured with three operands and the first operation."""
        return next(iter(self.measured.values()))


def cosines(vectors: Float[ndarray, "row width"]) -> Float[ndarray, "row row"]:
    """Return the cosine of every two vectors."""
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.maximum(size, 1e-12)
    return unit @ unit.T


def circulant_score(similarity: Float[ndarray, "value value"]) -> float:
    """Return the share of the variance off the diagonal that differences modulo p explain.

    Where all pairs are alike, as with one direction for each value, there is no circle to be seen, and the score is 0.
    """
    count = len(similarity)
    apart = (np.arange(count)[:, None] - np.arange(count)) % count
    off = apart != 0
    total = similarity[off].var()
    if total < ALIKE**2:
        return 0.0
    means = np.array([similarity[apart == distance].mean() for distance in range(count)])
    return float(1 - (similarity - means[apart])[off].var() / total)


def orthogonality_score(similarity: Float[ndarray, "row row"], operands: int = 3) -> float:
    """Return 1 - the largest absolute cosine of a vector with any vector of another operand, on average.

    A mean over all pairs would hide that two operands use the same vectors.
    """
    which = np.arange(len(similarity)) // (len(similarity) // operands)
    elsewhere = np.where(which[:, None] != which, np.abs(similarity), 0)
    return float(1 - elsewhere.max(1).mean())


def weights_unknown(subject: Subject, heads: Heads, flow: Flow) -> str:
    """Return why weights alone do not tell what the last layer adds for a value, or nothing."""
    if len(heads.layers) > 2:
        return "the model has layers between the first and the last"
    if not heads.layers[-1].disjoint and flow.first_layer == "neither":
        return "operands share heads, and it is not known what these read"
    last = len(heads.layers) - 1
    return look_up_unknown(subject.model, last) if flow.first_layer == "look-up" else ""


def new_values(subject: Subject, heads: Heads, flow: Flow, *, raw: bool) -> Float[Tensor, "operand symbol width"]:
    """Return the vectors from weights."""
    model, last = subject.model, len(heads.layers) - 1
    x = factor_embeddings(model)["value"]
    norm = model.layers[last].attention_norm
    if flow.first_layer == "look-up":
        x = looked_up(model, heads, x, raw=raw)
    x = x if raw else normed(x, norm)  # pyrefly: ignore
    layer = heads.layers[last]
    if layer.disjoint:
        return torch.stack([x @ ov_matrix(model, last, layer.values_at_rhs[place]).mT for place in OPERANDS])
    each = torch.stack([x @ ov_matrix(model, last, [head]).mT for head in range(layer.norm.shape[1])])
    return torch.einsum("ph,hsw->psw", attention_to_values(subject, flow).to(each), each)


def attention_to_values(subject: Subject, flow: Flow) -> Float[Tensor, "operand head"]:
    """Return the last layer's mean attention from the right-hand side of probes to each operand, or to its definition."""
    last, found = len(subject.model.layers) - 1, []
    for scene in subject.scenes(key=7):
        bench = Bench(subject.model, scene.probes())
        with capture(subject.model, ["pattern"], layers=[last]) as seen:
            bench.run()
        pattern = whole_pattern(seen[0, last, "pattern"].cpu(), bench.length)[0, :, -1]  # [head, key]
        if flow.first_layer == "names":  # values are read where they are defined
            _, layout = encode_state(bench.probes.problems, subject.vocabulary)
            places = layout.rhs[0, scene.operands].tolist()
        else:
            places = [bench.labels.index(place) - len(bench.labels) for place in OPERANDS]
        found.append(pattern[:, places].T)
    return torch.stack(found).mean(0)


def analyze(subject: Subject, heads: Heads, flow: Flow) -> NewValues:
    """Compare new-value embeddings with each other."""
    modulus, groups = subject.task.modulus, heads.layers[-1].values_at_rhs
    grouped = heads.layers[-1].disjoint
    every = sorted({head for some in groups.values() for head in some})
    chosen = [groups[place] if grouped else every for place in OPERANDS]
    similarities: dict[str, ndarray] = {}
    unknown, stream = weights_unknown(subject, heads, flow), len(heads.layers) > 2
    if not unknown:
        for kind, raw in (("weights", False), ("raw", True)):
            vectors = new_values(subject, heads, flow, raw=raw).flatten(0, 1).cpu().numpy().astype(np.float64)
            similarities[kind] = cosines(vectors)
    measured = {
        " ".join(operations): measure(subject, None if stream else chosen, operations)
        for operations in patterns(subject.task)
    }
    main = measured[" ".join([subject.task.operations[0]] * (MAX_FAN_IN - 1))]
    numbers = main.vectors[:, :modulus]
    similarities["measured"] = cosines(numbers.reshape(-1, numbers.shape[-1]))
    symbols = list(subject.vocabulary.symbols("value"))
    return NewValues(
        symbols=symbols,
        similarity=similarities.get("weights"),
        raw_similarity=similarities.get("raw"),
        measured=measured,
        measured_similarity=similarities["measured"],
        circulant={kind: _mean_circulant(found, modulus) for kind, found in similarities.items()},
        orthogonality={kind: orthogonality_score(found) for kind, found in similarities.items()},
        changes=change(subject, main.vectors),
        grouped=grouped and not stream,
        stream=stream,
        heads=chosen,
        unknown=unknown,
    )


def patterns(task: TaskConfig) -> Iterator[tuple[str, ...]]:
    """Yield the operations of all kinds of equations: three operands first, and the first operation first."""
    for operands in range(MAX_FAN_IN, 0, -1):
        yield from product(task.operations, repeat=operands - 1)


def measure(subject: Subject, chosen: list[list[int]] | None, operations: tuple[str, ...]) -> Additive:
    """Fit what each operand's heads add at the right-hand side of probes with these operations and random values.

    Without heads ``chosen``, fit all that the last MLPs read there, as it differs from the scene's mean.
    """
    modulus, scenes, operands = subject.task.modulus, list(subject.scenes(key=7)), len(operations) + 1
    outputs, designs = [], []
    for number, scene in enumerate(scenes):
        rng = generator(subject.settings.seed, INTERPRET, 10, number, operands)
        symbols = rng.integers(
            0, modulus + 1, (-(-subject.settings.samples // len(scenes)), MAX_FAN_IN)
        )  # the last one is empty
        values = np.where(symbols == modulus, EMPTY, symbols)
        probes = scene.probes(values=values, operations=operations, operands=operands)
        design = np.eye(modulus + 1)[symbols[:, -operands:]].reshape(len(symbols), -1)
        if chosen is None:
            found = _captured(subject, probes, "resid_mid").double().numpy()
            outputs.append(np.stack([found - found.mean(0)] * operands))
            design = design - design.mean(0)
        else:
            found = _captured(subject, probes, "head_out")
            outputs.append(np.stack([found[:, some].sum(1).double().numpy() for some in chosen[-operands:]]))
        designs.append(design)
    return fit(np.concatenate(outputs, axis=1), np.concatenate(designs), modulus)


def _captured(subject: Subject, probes: Probes, name: str) -> Float[Tensor, "sample *head width"]:
    """Return an activation of the last layer at the right-hand side."""
    bench, last = Bench(subject.model, probes), len(subject.model.layers) - 1
    parts = []
    for rows in bench.chunks():
        with capture(subject.model, [name], layers=[last]) as seen:
            bench.answers(rows)
        parts.append(seen[0, last, name][..., -1, :].cpu())
    return torch.cat(parts)


def fit(
    outputs: Float[ndarray, "operand sample width"], design: Float[ndarray, "sample column"], modulus: int
) -> Additive:
    """Fit a constant and a vector for each operand and symbol, by least squares; center vectors over numbers."""
    operands = len(outputs)
    columns = np.concatenate([np.ones((len(design), 1)), design], axis=1)
    together = np.linalg.lstsq(columns, np.concatenate(list(outputs), axis=1), rcond=None)[0]  # one matrix for all
    solved = np.split(together, operands, axis=1)
    vectors, means, missed, total = [], [], 0.0, 0.0
    for operand, (found, output) in enumerate(zip(solved, outputs, strict=True)):
        by_operand = found[1:].reshape(operands, modulus + 1, -1)
        centers = by_operand[:, :modulus].mean(1, keepdims=True)
        vectors.append((by_operand - centers)[operand])
        means.append(found[0] + centers.sum(0)[0])
        missed += float(((output - columns @ found) ** 2).sum())
        total += float(((output - output.mean(0)) ** 2).sum())
    return Additive(mean=np.stack(means), vectors=np.stack(vectors), explained=1 - missed / max(total, 1e-30))


def _mean_circulant(similarity: ndarray, modulus: int) -> float:
    size = len(similarity) // len(OPERANDS)
    starts = [which * size for which in range(len(OPERANDS))]
    return float(np.mean([circulant_score(similarity[s : s + modulus, s : s + modulus]) for s in starts]))
