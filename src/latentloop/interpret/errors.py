"""Where do errors come from? Each wrong value is put down to the first part of the circuit that did not do its work.

At every right-hand side and iteration of plain problems, as large as names allow, since a model makes no errors where it
solves everything: does the first layer's group attend where it should (0.9 of its
attention; where heads share the work out, that of the head which does it), is what the last layer's heads add what
the operands' values give (cosine 0.9, of measured new-value embeddings), is the decoded value what the model's own state
gives? The first that fails is the source. Where every operand has last-layer heads of its own, and weights tell what these
read, the paper's cosine is counted too: that with the OV matrix of these heads times the value's embedding. Where depth >=
iteration the value is still to be computed; where depth < iteration it is there already. What is put down to the feed-forward
part is computed again with just what the operands' values give: then it is wrong all the same. Cost: one roll-out of all
problems with attention kept, and one iteration more where there are such errors. Many problems are done in parts, whose
counts are added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray

from latentloop.interpret.attribution import ATTENTION, COSINE, SOURCES, Tally
from latentloop.interpret.embeddings import NewValues
from latentloop.interpret.flow import Flow
from latentloop.interpret.groups import Heads
from latentloop.interpret.subject import LONGEST_NODE, Subject
from latentloop.task.splits import published_problems

FALSE_ALARMS = 0.05
"""Largest share of operands of right values below a threshold, for a source to be told by it."""
PATTERNS_AT_ONCE = 2**25
PART = 1000
"""Problems whose counts are kept when they are done: a few minutes of work."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Wrong values by source, and histograms of what the sources are told by."""

    instances: int
    nodes: int
    checked: int
    """Values with depth >= iteration."""
    counts: dict[str, int]
    """Wrong values by source."""
    retried: int
    """Feed-forward errors that were computed again with just what the operands' values give in place of what the last layer's
    attention added: ..."""
    wrong_again: float
    """... the share that is wrong all the same."""
    circuit: str
    """What the first layer's groups are for: names at right-hand sides, or look-ups at operands."""
    grouped: bool
    """Whether operands have last-layer heads of their own; else the cosine is that of all heads and operands together."""
    attention_edges: Float[ndarray, "edge"]
    attention: Int[ndarray, "row operand correct bin"]
    """Counts of the group's attention; rows are depth >= iteration and depth < iteration; wrong values first."""
    cosine_edges: Float[ndarray, "edge"]
    cosine: Int[ndarray, "row operand correct bin"]
    weights_cosine: Int[ndarray, "row operand correct bin"] | None
    """The same with vectors from weights, as in the paper; None where an operand has no heads of its own, or weights do not
    tell what these read."""
    weights_counts: dict[str, int] | None
    """Wrong values by source, told by that cosine."""

    def attended(self, *, late: bool) -> Float[ndarray, "operand"]:
        """Return the mean attention to each operand, to the width of a bin, where depth < iteration or else before."""
        counts = self.attention[int(late)].sum(1)  # [operand, bin]
        centers = (self.attention_edges[:-1] + self.attention_edges[1:]) / 2
        return counts @ centers / np.maximum(counts.sum(1), 1)

    def below(self, what: Literal["attention", "cosine", "weights_cosine"]) -> float:
        """Return the share of operands of right values, where depth >= iteration, below the threshold: false alarms."""
        edges, least = (self.attention_edges, ATTENTION) if what == "attention" else (self.cosine_edges, COSINE)
        right = getattr(self, what)[0, :, 1]  # [operand, bin]
        return float(right[:, edges[1:] <= least + 1e-9].sum() / max(right.sum(), 1))

    @property
    def doubtful(self) -> list[str]:
        """Sources whose threshold does not tell right values from wrong ones."""
        checks: tuple[Literal["attention", "cosine"], ...] = ("attention", "cosine")
        return [source for source, what in zip(SOURCES, checks, strict=False) if self.below(what) > FALSE_ALARMS]


def unfound(flow: Flow) -> str:
    """Return why errors cannot be put down to the first layer, or nothing."""
    if flow.first_layer == "neither":
        return "the first layer brings neither all names nor all values, so there is no circuit to put errors down to"
    return ""


def split(subject: Subject) -> list[Subject]:
    """Split the problems into parts."""
    count = subject.settings.instances
    return [
        replace(subject, settings=replace(subject.settings, instances=min(PART, count - skip)), skip=skip)
        for skip in range(0, count, PART)
    ]


def merge(parts: Sequence[Errors]) -> Errors:
    """Add up what was counted in the parts."""
    retried = sum(part.retried for part in parts)
    cosines = [part.weights_cosine for part in parts if part.weights_cosine is not None]
    by_weights = [part.weights_counts for part in parts if part.weights_counts is not None]
    return replace(
        parts[0],
        instances=sum(part.instances for part in parts),
        checked=sum(part.checked for part in parts),
        counts=_added([part.counts for part in parts]),
        retried=retried,
        wrong_again=sum(part.wrong_again * part.retried for part in parts) / max(retried, 1),
        attention=np.sum([part.attention for part in parts], axis=0),
        cosine=np.sum([part.cosine for part in parts], axis=0),
        weights_cosine=np.sum(cosines, axis=0) if cosines else None,
        weights_counts=_added(by_weights) if by_weights else None,
    )


def _added(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {source: sum(one[source] for one in counts) for source in SOURCES}


@torch.inference_mode()
def analyze(subject: Subject, heads: Heads, flow: Flow, values: NewValues) -> Errors:
    """Roll the model out on plain problems."""
    assert len(heads.layers) > 1
    assert not unfound(flow)
    nodes = subject.largest
    problems = published_problems(subject.task, nodes, subject.settings.instances, skip=subject.skip)
    tally = Tally(subject, heads, flow, values)
    length = LONGEST_NODE * nodes
    room = max(1, PATTERNS_AT_ONCE // (length**2 * heads.layers[0].norm.shape[1]))
    for start in range(0, len(problems), room):
        tally.roll_out(problems[start : start + room])
    return Errors(
        instances=len(problems),
        nodes=nodes,
        checked=tally.checked,
        counts=_by_source(tally.counts),
        retried=len(tally.again),
        wrong_again=float(np.mean(tally.again)) if tally.again else 0.0,
        circuit=flow.first_layer,
        grouped=values.grouped,
        attention_edges=tally.attention_edges,
        attention=tally.attention,
        cosine_edges=tally.cosine_edges,
        cosine=tally.cosine,
        weights_cosine=tally.weights_cosine if tally.expected is not None else None,
        weights_counts=_by_source(tally.weights_counts) if tally.expected is not None else None,
    )


def _by_source(counts: Int[ndarray, "source"]) -> dict[str, int]:
    return {source: int(counts[place]) for place, source in enumerate(SOURCES)}
