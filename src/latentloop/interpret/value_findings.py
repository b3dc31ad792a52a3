"""What results say on how values are coded and added. As ``findings``, of which this is a part."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from latentloop.evaluate.metrics import wilson
from latentloop.interpret.embeddings import cosines
from latentloop.interpret.findings import BROKEN, MOST, Finding, percent, unharmed
from latentloop.interpret.flow import MOVED
from latentloop.interpret.fourier import LEAST
from latentloop.interpret.probes import OPERANDS

SUFFICIENT = 0.99
"""Share of triples right, for frequencies to suffice."""
FEW = 0.6
"""Largest share of all frequencies that counts as few."""
CONTROL = 0.9
"""Share of triples right that as many random directions must stay below."""
GEOMETRY = 0.5
"""Least circulant and orthogonality score."""
FALLS = 0.9
"""Largest share of itself that is left of what falls."""


def circulant(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether measured vectors of an operand's values lie on circles, and whether turning them adds to the value."""
    found = results["embeddings"]
    modulus = found.main.vectors.shape[1] - 1  # the last symbol is empty
    if modulus < LEAST:
        return f"{modulus} values have too few differences to tell a circle by: at least {LEAST}"
    scores, changes = found.circulant, found.changes
    return Finding(
        holds=bool(scores["measured"] >= GEOMETRY),
        evidence=f"circulant score {scores['measured']:.2f} of measured vectors{_weights(found, scores)}",
        checked=bool(changes.turned >= MOVED and changes.shuffled < CONTROL),
        check=f"one operand's vectors turned by the rotation that should add to its value: {changes.turned:.0%} of answers "
        f"move so; by the one nearest to a random order of values, {changes.shuffled:.0%}; exchanged, {changes.exchanged:.0%}",
        number=f"{scores['measured']:.2f}",
    )


def orthogonal(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether measured vectors of different operands are orthogonal, and what they share is not needed."""
    found = results["embeddings"]
    scores, changes = found.orthogonality, found.changes
    return Finding(
        holds=bool(scores["measured"] >= GEOMETRY),
        evidence=f"orthogonality score {scores['measured']:.2f} of measured vectors{_weights(found, scores)}",
        checked=bool(
            changes.right > BROKEN and unharmed(changes.unshared, changes.right) and changes.exchanged >= MOVED
        ),
        check=f"without what every operand's vectors have in the span of the others', {changes.unshared:.0%} of answers are "
        f"right, {changes.right:.0%} with it; one exchanged for that of another value, {changes.exchanged:.0%} move",
        number=f"{scores['measured']:.2f}",
    )


def empty(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the vector of an empty operand is orthogonal to those of its numbers, and what it shares is not needed."""
    found = results["embeddings"]
    modulus, changes = found.main.vectors.shape[1] - 1, found.changes
    score = float(np.mean([1 - np.abs(cosines(own)[modulus, :modulus]).max() for own in found.main.vectors]))
    return Finding(
        holds=bool(score >= GEOMETRY),
        evidence=f"1 less the largest absolute cosine, mean of the operands: {score:.2f}, of measured vectors less the mean of "
        f"numbers{_of_weights(found, modulus)}",
        checked=bool(changes.right > BROKEN and changes.empty >= MOVED and changes.no_empty < CONTROL),
        check=f"without what it has in the span of numbers, {changes.empty:.0%} of answers stay empty; without all of it, "
        f"{changes.no_empty:.0%}",
        number=f"{score:.2f}",
    )


def _of_weights(found: Any, modulus: int) -> str:
    """Say the same of vectors from weights, of empty and N/A together, as the paper does, or why there are none."""
    if found.similarity is None:
        return f" (from weights there are none: {found.unknown})"
    size = len(found.similarity) // len(OPERANDS)
    blocks = [found.similarity[s : s + size, s : s + size] for s in range(0, len(found.similarity), size)]
    apart = np.mean([1 - np.abs(b[modulus:, :modulus]).max(1) for b in blocks])
    pair = ", ".join(f"{b[modulus, modulus + 1]:.2f}" for b in blocks)
    return f"; from weights, empty and N/A: {apart:.2f}, and their cosine with each other: {pair}"


def _weights(found: Any, scores: Mapping[str, float]) -> str:
    """Say what the score of vectors from weights is, or why there is none."""
    if "weights" in scores:
        return f"; {scores['weights']:.2f} of those from weights"
    return f" (from weights there are none: {found.unknown})"


def frequencies(operation: str) -> Callable[[Mapping[str, Any]], Finding | str]:
    """Judge whether results of one operation end in (a,a,a), and need it."""

    def find(results: Mapping[str, Any]) -> Finding | str:
        pattern = _pattern(results, operation)
        if pattern is None:
            return f"the model does not know {operation}"
        sites, without = pattern.sites, pattern.without
        shares = [sites[0].diagonal, sites[-2].diagonal, sites[-1].diagonal]
        grown = ", ".join(f"{share:.0%}" for share in shares)
        bias = [sites[0].energy[0], sites[-2].energy[0]]
        gone = without.solved_without[-1]
        return Finding(
            holds=bool(
                pattern.right >= MOVED
                and shares[-1] >= MOST
                and shares[0] < shares[1] <= shares[2] + 0.01
                and bias[1] <= FALLS * bias[0]
            ),
            evidence=f"share of (a,a,a) in what varies, at the first pre-activation, the last output, the read-out: {grown}; "
            f"share of the bias at the first two: {percent(bias)}",
            checked=bool(without.solved > BROKEN and gone <= BROKEN * without.solved),
            check=f"without (a,a,a) {gone:.0%} of problems are solved, {without.solved:.0%} with it",
            number=f"{shares[-1]:.0%}",
        )

    return find


def alone(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether (a,a,a) is most of what the MLPs add, and all that is needed of it, whatever the operation."""
    patterns = results["fourier"].patterns
    shares = [pattern.sites[-2].diagonal for pattern in patterns]
    worst = min(patterns, key=lambda pattern: pattern.without.solved_without[:-1].min())
    left = worst.without.solved_without
    group = int(left[:-1].argmin())
    low, high = wilson(round(left[group] * worst.without.problems), worst.without.problems)
    return Finding(
        holds=bool(min(shares) >= MOST),
        evidence=f"share of (a,a,a) in what varies of the last output: {percent(shares)}",
        checked=bool(worst.without.solved > BROKEN and unharmed(left[group], worst.without.solved)),
        check=f"without {results['fourier'].groups[group]}, of all other groups the one needed most, {left[group]:.0%} of "
        f"{worst.without.problems} problems are solved (interval {low:.0%} .. {high:.0%}), {worst.without.solved:.0%} with it",
        number=f"{min(shares):.0%}; {left[group]:.0%}",
    )


def few(operation: str) -> Callable[[Mapping[str, Any]], Finding | str]:
    """Judge whether few frequencies suffice where values enter the MLPs, for one operation by itself."""

    def find(results: Mapping[str, Any]) -> Finding | str:
        pattern = _pattern(results, operation)
        if pattern is None:
            return f"the model does not know {operation}"
        without = pattern.without
        right = without.triples_strongest >= SUFFICIENT
        count = len(right)
        enough = int(right.argmax()) + 1 if right.any() else count + 1
        said = f"the {enough} strongest of {count}" if right.any() else f"not even all {count}"
        dropped = without.triples_without_entering[int(without.entering.argmax())]
        control = float(without.triples_random[min(enough, count) - 1])
        return Finding(
            holds=bool(pattern.right >= SUFFICIENT),
            evidence=f"{pattern.right:.1%} of triples are right; without the strongest frequency where values enter the MLPs, "
            f"{dropped:.0%}",
            checked=enough / count <= FEW and control < CONTROL,
            check=f"kept alone there, {said} suffice for {SUFFICIENT:.0%} of triples; as many directions of a random basis for "
            f"{control:.0%}",
            number=f"{enough} of {count}" if right.any() else f"none of {count}",
        )

    return find


def _pattern(results: Mapping[str, Any], operation: str) -> Any | None:
    """Return the spectra of an operation, if the model knows it."""
    wanted = f"a {operation} b {operation} c"
    return next((pattern for pattern in results["fourier"].patterns if pattern.name == wanted), None)
