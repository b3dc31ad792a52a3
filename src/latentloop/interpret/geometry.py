"""Does the model need its vectors of values to lie as they do? Change them where the last MLPs read them, and see the answer.

Vectors are those of ``embeddings``, one for each operand and value; all changes are at the right-hand side of probes. If the
vectors of an operand lie on circles, by differences modulo p, then there is a rotation that turns each of them into that of
the value s further on, and answers follow it as the arithmetic says. As a control, the rotation that comes nearest to putting
values in random order: answers follow that too where all pairs of vectors are alike, and not where they lie on circles. If
operands are orthogonal, what their vectors have in the span of the others' is not needed; and so for the vector of an empty
operand and the span of numbers. Cost: seven runs of 64 probes a scene.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.probes import RHS, Scene
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import patch
from latentloop.task.graph import EMPTY
from latentloop.task.splits import generator

PROBES = 64
"""Of each scene, for each change."""
SPAN = 0.99
"""Share of the energy of vectors that counts as their span: the rest is taken for noise of the fit."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Answers when vectors are changed."""

    right: float
    """Share of answers that are right when nothing is changed."""
    exchanged: float
    """Share that moves as the arithmetic says when one operand's vector is exchanged for that of another number: whether
    these vectors are used."""
    turned: float
    """The same when it is turned by the rotation that should add to its number."""
    shuffled: float
    """The same when it is turned by the rotation that comes nearest to putting numbers in random order: the control."""
    unshared: float
    """Share right when every operand's vector loses its part in the span of the others'."""
    empty: float
    """Share that stays empty when an empty operand's vector loses its part in the span of that operand's numbers, ..."""
    no_empty: float
    """... and when it is taken out whole, so that the mean of numbers is left: the control."""


def turned(vectors: Float[ndarray, "value width"], order: Int[ndarray, "value"]) -> Float[ndarray, "value width"]:
    """Return the vectors, turned by the orthogonal map that brings each nearest to that of another value, ``order[v]``."""
    left, sizes, basis = np.linalg.svd(vectors, full_matrices=False)
    found = left * sizes  # coordinates in the span of all vectors
    before, _, after = np.linalg.svd(found.T @ found[order])
    return found @ before @ after @ basis


def outside(vectors: Float[ndarray, "row width"], others: Float[ndarray, "other width"]) -> Float[ndarray, "row width"]:
    """Return vectors without their part in the span of others: of its directions those that hold most of the energy."""
    _, sizes, basis = np.linalg.svd(others, full_matrices=False)
    energy = np.cumsum(sizes**2)
    kept = basis[: int((energy < SPAN * energy[-1]).sum()) + 1] if energy[-1] > 0 else basis[:0]
    return vectors - vectors @ kept.T @ kept


def change(subject: Subject, vectors: Float[ndarray, "operand symbol width"]) -> Changes:
    """Make all changes; the last symbol is empty."""
    modulus = subject.task.modulus
    numbers = vectors[:, :modulus]
    unshared = np.stack(
        [outside(own, np.delete(numbers, which, 0).reshape(-1, own.shape[1])) for which, own in enumerate(numbers)]
    )
    empty = np.stack([outside(own[modulus:], own[:modulus])[0] for own in vectors])  # [operand, width]
    parts = []
    for number, scene in enumerate(subject.scenes(key=7)):
        rng = generator(subject.settings.seed, INTERPRET, 13, number)
        parts.append(_of_scene(subject, scene, vectors, unshared - numbers, empty - vectors[:, modulus], rng))
    return Changes(**{name: _share([part[name] for part in parts]) for name in parts[0]})


def _of_scene(
    subject: Subject,
    scene: Scene,
    vectors: Float[ndarray, "operand symbol width"],
    less: Float[ndarray, "operand number width"],
    less_empty: Float[ndarray, "operand width"],
    rng: np.random.Generator,
) -> dict[str, Bool[ndarray, "_row"]]:
    """Return which answers are as they should be, by the field of ``Changes`` that counts them."""
    modulus, rows = subject.task.modulus, np.arange(PROBES)
    values = rng.integers(0, modulus, (PROBES, MAX_FAN_IN))
    which = rng.integers(0, MAX_FAN_IN, PROBES)  # the operand that is changed
    held = values[rows, which]
    added = (np.arange(modulus) + rng.integers(1, modulus, PROBES)[:, None]) % modulus
    shuffled = np.stack([rng.permutation(modulus) for _ in rows])
    missing = values.copy()
    missing[rows, which] = EMPTY
    whole, lacking = (Bench(subject.model, scene.probes(values=some), chunk=PROBES) for some in (values, missing))
    truth = whole.probes.answers

    def moved(order: Int[ndarray, "row value"], after: Float[ndarray, "row width"]) -> Bool[ndarray, "_row"]:
        """Return which answers become those of the value that another one is put in the place of."""
        other = values.copy()
        other[rows, which] = order[rows, held]
        wanted = scene.probes(values=other).answers
        return (_answers(whole, after - vectors[which, held]) == wanted)[wanted != truth]

    def turn(order: Int[ndarray, "row value"]) -> Float[ndarray, "row width"]:
        return np.stack([turned(vectors[w, :modulus], o)[v] for w, o, v in zip(which, order, held, strict=True)])

    empty = subject.vocabulary.empty
    return {
        "right": _answers(whole, np.zeros_like(vectors[which, held])) == truth,
        "exchanged": moved(added, vectors[which, added[rows, held]]),
        "turned": moved(added, turn(added)),
        "shuffled": moved(shuffled, turn(shuffled)),
        "unshared": _answers(whole, less[np.arange(MAX_FAN_IN), values].sum(1)) == truth,
        "empty": _answers(lacking, less_empty[which]) == empty,
        "no_empty": _answers(lacking, -vectors[which, modulus]) == empty,
    }


def _share(parts: list[ndarray]) -> float:
    holds = np.concatenate(parts)
    return float(holds.mean()) if len(holds) else 0.0


def _answers(bench: Bench, added: Float[ndarray, "row width"]) -> Int[ndarray, "row"]:
    """Return the symbols at right-hand sides where something is added to what the last MLPs read."""
    last = len(bench.model.layers) - 1
    more = torch.from_numpy(added).to(bench.model.norm.weight)[:, None]
    with patch(bench.model, "resid_mid", lambda x: x + more, layer=last, positions=[bench.position(RHS, last)]):
        return bench.answers().numpy()
