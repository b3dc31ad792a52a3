"""How are values laid out where the last MLPs read them? Cosine similarity of new-value embeddings, from weights and measured.

From weights, new_value_i(v) is the OV matrix of operand i's group times the embedding of v (through the look-up, where the
first layer has one). Measured, it is what the last layer's attention adds when operand i is worth v, less its mean over v.
A circulant similarity depends on v - w alone; what that explains of the similarities off the diagonal is the circulant score.
Cost: the probes with varied values once more.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.interpret.circuits import factor_embeddings, looked_up, normed, ov_matrix
from latentloop.interpret.heads import Heads, head_outputs
from latentloop.interpret.probes import OPERANDS, varied_values
from latentloop.interpret.subject import Subject


@dataclass(frozen=True, kw_only=True)
class NewValues:
    """New-value embeddings of the three operands, and their geometry."""

    symbols: list[str]
    """Of the value factor: numbers, N/A, empty."""
    similarity: Float[ndarray, "row row"] | None
    """Cosines of the vectors from weights, operand by operand; None where the operands have no head groups of their own."""
    raw_similarity: Float[ndarray, "row row"] | None
    """The same without the LayerNorm."""
    measured: Float[ndarray, "operand symbol width"]
    """Measured vectors of numbers and, last, empty; their mean over numbers is taken off."""
    mean: Float[ndarray, "operand width"]
    """That mean."""
    measured_similarity: Float[ndarray, "row row"]
    circulant: dict[str, float]
    """Mean circulant score of the operands: of ``weights``, ``raw`` and ``measured`` vectors."""
    orthogonality: dict[str, float]
    """1 - the mean absolute cosine between vectors of different operands."""
    grouped: bool
    """Whether measured vectors are those of each operand's own heads, or of all heads together."""
    heads: list[list[int]]


def cosines(vectors: Float[ndarray, "row width"]) -> Float[ndarray, "row row"]:
    """Return the cosine of every two vectors."""
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.maximum(size, 1e-12)
    return unit @ unit.T


def circulant_score(similarity: Float[ndarray, "value value"]) -> float:
    """Return the share of the variance off the diagonal that differences modulo p explain; 1 where there is no variance."""
    count = len(similarity)
    apart = (np.arange(count)[:, None] - np.arange(count)) % count
    off = apart != 0
    total = similarity[off].var()
    if total < 1e-8:
        return 1.0
    means = np.array([similarity[apart == distance].mean() for distance in range(count)])
    return float(1 - (similarity - means[apart])[off].var() / total)


def orthogonality_score(similarity: Float[ndarray, "row row"], operands: int = 3) -> float:
    """Return 1 - the mean absolute cosine between vectors of different operands."""
    count = len(similarity) // operands
    which = np.arange(len(similarity)) // count
    return float(1 - np.abs(similarity[which[:, None] != which]).mean())


def new_values(subject: Subject, heads: Heads, *, raw: bool) -> Float[Tensor, "operand symbol width"]:
    """Return the vectors from weights."""
    model, last = subject.model, len(heads.layers) - 1
    x = factor_embeddings(model)["value"]
    norm = model.layers[last].attention_norm
    if last > 0 and heads.layers[0].lookups:
        x = looked_up(model, heads, x)
    x = x if raw else normed(x, norm)  # pyrefly: ignore
    groups = heads.layers[last].values_at_rhs
    return torch.stack([x @ ov_matrix(model, last, groups[place]).mT for place in OPERANDS])


def analyze(subject: Subject, heads: Heads) -> NewValues:
    """Compare new-value embeddings with each other."""
    modulus, groups = subject.task.modulus, heads.layers[-1].values_at_rhs
    grouped = heads.layers[-1].disjoint
    every = sorted({head for some in groups.values() for head in some})
    chosen = [groups[place] if grouped else every for place in OPERANDS]
    similarities: dict[str, ndarray] = {}
    if grouped:
        for kind, raw in (("weights", False), ("raw", True)):
            vectors = new_values(subject, heads, raw=raw).flatten(0, 1).cpu().numpy().astype(np.float64)
            similarities[kind] = cosines(vectors)
    sums = []
    for scene in subject.scenes(key=7):
        by_operand = []
        for place, some in zip(OPERANDS, chosen, strict=True):
            outputs = head_outputs(subject.model, varied_values(scene, place, empty=True))[-1]
            by_operand.append(outputs[:, some, -1].sum(1).double().numpy())  # [symbol, width]
        sums.append(np.stack(by_operand))
    # What other operands add differs between scenes, and does not depend on the value: take it off scene by scene.
    centers = [part[:, :modulus].mean(1, keepdims=True) for part in sums]
    measured = np.mean([part - center for part, center in zip(sums, centers, strict=True)], axis=0)
    numbers = measured[:, :modulus]
    similarities["measured"] = cosines(numbers.reshape(-1, numbers.shape[-1]))
    symbols = list(subject.vocabulary.symbols("value"))
    return NewValues(
        symbols=symbols,
        similarity=similarities.get("weights"),
        raw_similarity=similarities.get("raw"),
        measured=measured,
        mean=np.mean(centers, axis=0)[:, 0],
        measured_similarity=similarities["measured"],
        circulant={kind: _mean_circulant(found, modulus) for kind, found in similarities.items()},
        orthogonality={kind: orthogonality_score(found) for kind, found in similarities.items()},
        grouped=grouped,
        heads=chosen,
    )


def _mean_circulant(similarity: ndarray, modulus: int) -> float:
    size = len(similarity) // len(OPERANDS)
    starts = [which * size for which in range(len(OPERANDS))]
    return float(np.mean([circulant_score(similarity[s : s + modulus, s : s + modulus]) for s in starts]))
