"""The table of analyses: what each one asks, what it needs, and what computes it. A new analysis is a row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from latentloop.config import MAX_FAN_IN
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.families import FAMILIES
from latentloop.interpret import (
    ablation,
    circuits,
    drift,
    embeddings,
    errors,
    flow,
    fourier,
    groups,
    heads,
    iterations,
    keeping,
    recompute,
    residual,
    sharpness,
    sinks,
)
from latentloop.interpret.subject import LEAST_NAMES, SIZE_READS, Subject

Condition = Callable[[LatentLoop], str]
"""Says in one line why an analysis does not apply; nothing where it does."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One row."""

    title: str
    question: str
    kind: type
    """The dataclass of its result."""
    run: Callable[[Subject, Mapping[str, Any]], Any]
    """From the model and earlier results."""
    needs: tuple[str, ...] = ()
    """Analyses whose results it takes."""
    conditions: tuple[Condition, ...] = ()
    unfound: Callable[[Mapping[str, Any]], str] = lambda results: ""
    """Says in one line why it does not apply to what the analyses it needs have found; nothing where it does."""
    reads: tuple[str, ...] = ()
    """Settings that it reads, besides those that every analysis depends on (``SIZE_READS``) and those of what it needs."""
    split: Callable[[Subject], list[Subject]] = lambda subject: [subject]
    """Splits what takes long into parts, whose results are kept as each is finished, ..."""
    merge: Callable[[Sequence[Any]], Any] = itemgetter(0)
    """... and makes one result of all of them."""
    version: int = 1
    """To be raised when its results change."""


def _latent(trained: LatentLoop) -> str:
    return "" if trained.method.latent else "a chain of thought writes tokens: there is no state to look at"


def _state(trained: LatentLoop) -> str:
    if trained.method.carries == "state":
        return ""
    if trained.run.method.iterations == 1:
        return f"{trained.run.method.name} applies the block once: there is no state to put values into"
    return f"{trained.run.method.name} carries hidden vectors: values cannot be put into its state"


def _adaptive(trained: LatentLoop) -> str:
    if trained.method.adaptive:
        return ""
    return f"{trained.run.method.name} is trained on final values alone: its iterations have no values in between"


def _two_layers(trained: LatentLoop) -> str:
    layers = trained.run.model.layers
    return "" if layers == 2 else f"sources are told apart in a circuit of two layers, and the model has {layers}"


def _three_operands(trained: LatentLoop) -> str:
    graph = trained.run.graph
    known = graph.fan_ins or FAMILIES[graph.family].fan_ins
    return "" if MAX_FAN_IN in known else "the model was never trained on equations of three operands"


def _names(trained: LatentLoop) -> str:
    names = trained.run.task.names
    return "" if names >= LEAST_NAMES else f"probes need at least {LEAST_NAMES} names, and the model knows {names}"


def _other_values(trained: LatentLoop) -> str:
    if trained.run.task.operations[0] == "*" and trained.run.task.modulus == 2:
        return (
            "of 2 values one alone gives a product that is not 0: no operand can be exchanged for one of another value"
        )
    return ""


def _two_wrong_values(trained: LatentLoop) -> str:
    modulus = trained.run.task.modulus
    return "" if modulus > 2 else f"of {modulus} values there are not two wrong ones to exchange"


def _frequencies(trained: LatentLoop) -> str:
    modulus = trained.run.task.modulus
    if modulus < fourier.LEAST:
        return f"{modulus} values have too few frequencies to tell apart: at least {fourier.LEAST}"
    return "" if modulus <= fourier.MOST else f"all triples of {modulus} values are too many: at most {fourier.MOST}"


def _group_operation(trained: LatentLoop) -> str:
    known = [op for op in trained.run.task.operations if op in fourier.GROUP_OPERATIONS]
    return "" if known else "none of its operations is a sum, a difference or a product"


def _has_mlp(trained: LatentLoop) -> str:
    return "" if any(len(layer.mlps) for layer in trained.model.layers) else "the model has no MLP"  # pyrefly: ignore


def settings_read(name: str) -> set[str]:
    """Return the settings that an analysis depends on, by itself or by what it needs."""
    row = ANALYSES[name]
    return {*SIZE_READS, *row.reads}.union(*(settings_read(need) for need in row.needs))


PROBED = (_latent, _state, _three_operands, _names)

ANALYSES: dict[str, Analysis] = {
    "heads": Analysis(
        title="Head groups",
        question="Which heads move which operand's name or value?",
        kind=groups.Heads,
        run=lambda subject, results: heads.analyze(subject),
        conditions=PROBED,
        version=5,
    ),
    "flow": Analysis(
        title="Where values pass through",
        question="Does the answer move as the arithmetic says when one activation is patched?",
        kind=flow.Flow,
        run=lambda subject, results: flow.analyze(subject, results["heads"]),
        needs=("heads",),
        conditions=(*PROBED, _other_values),
        reads=("pairs",),
        version=5,
    ),
    "circuits": Analysis(
        title="What head groups copy",
        question="Which of a token's four factors passes through each group's OV matrix?",
        kind=circuits.Copies,
        run=lambda subject, results: circuits.analyze(subject, results["heads"], results["flow"]),
        needs=("heads", "flow"),
        conditions=PROBED,
        version=5,
    ),
    "ablation": Analysis(
        title="Without a part",
        question="Which groups, heads and MLPs are needed to solve problems?",
        kind=ablation.Ablations,
        run=lambda subject, results: ablation.analyze(subject, results["heads"]),
        needs=("heads",),
        conditions=PROBED,
        version=3,
    ),
    "sinks": Analysis(
        title="Attention maps and sinks",
        question="Where do heads look when an operand is missing?",
        kind=sinks.Sinks,
        run=lambda subject, results: sinks.analyze(subject, results["heads"]),
        needs=("heads",),
        conditions=PROBED,
        version=5,
    ),
    "residual": Analysis(
        title="What each MLP changes",
        question="How much does each MLP change the residual stream?",
        kind=residual.Changes,
        run=lambda subject, results: residual.analyze(subject),
        conditions=(*PROBED, _has_mlp),
        version=4,
    ),
    "embeddings": Analysis(
        title="New-value embeddings",
        question="How are values laid out where the last MLPs read them?",
        kind=embeddings.NewValues,
        run=lambda subject, results: embeddings.analyze(subject, results["heads"], results["flow"]),
        needs=("heads", "flow"),
        conditions=PROBED,
        reads=("samples",),
        version=6,
    ),
    "fourier": Analysis(
        title="Arithmetic in frequencies",
        question="In which frequencies of the three values is the result computed, and which are needed?",
        kind=fourier.Spectra,
        run=lambda subject, results: fourier.analyze(subject),
        conditions=(*PROBED, _has_mlp, _frequencies, _group_operation),
        version=5,
    ),
    "errors": Analysis(
        title="Where errors come from",
        question="Which part of the circuit did not do its work when a value is wrong?",
        kind=errors.Errors,
        run=lambda subject, results: errors.analyze(subject, results["heads"], results["flow"], results["embeddings"]),
        needs=("heads", "flow", "embeddings"),
        conditions=(*PROBED, _two_layers),
        unfound=lambda results: errors.unfound(results["flow"]),
        reads=("instances",),
        split=errors.split,
        merge=errors.merge,
        version=8,
    ),
    "sharpness": Analysis(
        title="Attention by size",
        question="Does attention stay sharp as problems grow?",
        kind=sharpness.Sharpness,
        run=lambda subject, results: sharpness.analyze(subject),
        conditions=(_latent,),
        version=6,
    ),
    "recompute": Analysis(
        title="After it is done",
        question="Does the model compute a value again that it has already?",
        kind=recompute.Recomputation,
        run=lambda subject, results: recompute.analyze(subject),
        conditions=(_latent, _state),
    ),
    "keeping": Analysis(
        title="How values are kept",
        question="Which heads keep a value that is there, and does it pass through them?",
        kind=keeping.Keeping,
        run=lambda subject, results: keeping.analyze(subject),
        conditions=(*PROBED, _two_wrong_values),
    ),
    "iterations": Analysis(
        title="Between iterations",
        question="Is what one iteration writes what the next one reads?",
        kind=iterations.BetweenIterations,
        run=lambda subject, results: iterations.analyze(subject),
        conditions=(_latent, _adaptive),
        version=3,
    ),
    "drift": Analysis(
        title="The state over time",
        question="Can the state be read at every iteration, and does it hold when the problem is solved?",
        kind=drift.Drift,
        run=lambda subject, results: drift.analyze(subject),
        conditions=(_latent, _adaptive),
        version=2,
    ),
}
