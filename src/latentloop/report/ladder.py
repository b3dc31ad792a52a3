"""The registry of figures that are drawn from stored results of experiments: the paper's, and ours."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from latentloop.errors import UserError, nearest
from latentloop.experiments.jobs import Experiment, Job, Point, Scale
from latentloop.experiments.scores import CONFIGURATIONS, grouped
from latentloop.experiments.store import ALLOWED_PROBLEMS, Result
from latentloop.experiments.table import EXPERIMENTS
from latentloop.presets import preset
from latentloop.report import ladder_configurations as configurations
from latentloop.report import ladder_methods as comparisons
from latentloop.report.graph import save_figure
from latentloop.report.ladder_parts import Groups, NothingStoredError
from latentloop.report.palette import FAMILIES, STYLE

DPI = 200
PNG, PDF = ".png", ".pdf"
TRAINED_ON: dict[str, str] = {
    "laptop": "Trained on N = 8 .. 16, tested up to N = 64; the paper trains on up to 32 and tests up to 128.",
    "further": "Trained on N = 8 .. 32, tested up to N = 128, as in the paper; twice the time.",
    "paper": "Trained on up to 32 nodes, tested up to 128, as in the paper.",
}
"""What a caption says about a scale."""
LINES = "Lines are medians of the seeds; bands cover the 95 % Wilson intervals of all seeds."
BANDS = "Medians of the seeds; bands cover their 95 % Wilson intervals."
BARS = "Whiskers cover the 95 % Wilson intervals of all seeds."
BEST = (
    "Of a method's configurations the one with the lowest validation loss is drawn, as verdicts choose it; of corrected, of "
    "those with four layers, which its claims are about."
)
ZOOM = "An axis ends before 100 % where all that it shows is small."


@dataclass(frozen=True, kw_only=True)
class LadderFigure:
    """One figure: what it shows, of which runs, and how it is drawn."""

    title: str
    caption: str
    """What is seen, and what its intervals are."""
    repeats: str | None
    """Number of the paper's figure; None where it is ours."""
    experiments: tuple[str, ...]
    """Experiments at a laptop's scale whose runs it needs."""
    also: tuple[str, ...] = ()
    """Experiments whose runs it takes into account where they are there."""
    methods: tuple[str, ...] | None = None
    """Methods that it is about; None: all."""
    leaves_out: tuple[str, ...] = ()
    """Settings whose replacement makes a point one that it cannot draw."""
    draw: Callable[[Groups], Figure]

    def about(self, point: Point) -> bool:
        """Return whether a point is drawn, or may be."""
        chosen = self.methods is None or preset(point.preset).method.name in self.methods
        return chosen and not point.overrides.keys() & set(self.leaves_out)

    def jobs(self, scale: Scale) -> list[Job]:
        """Return the runs that it needs; a scale other than a laptop's is one experiment."""
        chosen = _experiments(self.experiments, scale)
        found = {job.name: job for one in chosen for point in one.points if self.about(point) for job in point.jobs}
        return list(found.values())

    def select(self, results: Mapping[str, Result], scale: Scale) -> dict[str, Result]:
        """Return the results that it is drawn from."""
        chosen = _experiments((*self.experiments, *self.also), scale)
        names = {point.name for one in chosen for point in one.points if self.about(point)}
        return {name: result for name, result in results.items() if result["point"] in names}


def _experiments(names: Sequence[str], scale: Scale) -> list[Experiment]:
    if scale == "laptop":
        return [EXPERIMENTS[name] for name in names]
    return [one for one in EXPERIMENTS.values() if one.points[0].scale == scale]


READOUTS = ("lookup_weight", "partial_weight")
"""Settings of the auxiliary losses: losses with and without them cannot be compared, so no best configuration is chosen so."""
LATENT = FAMILIES["latent"]
END_TO_END = FAMILIES["end-to-end"]

FIGURES: dict[str, LadderFigure] = {
    "methods": LadderFigure(
        title="Accuracy by method and size",
        caption="Problems fully solved by number of nodes, a panel for each method, with the steps that a pilot gave it in 20 "
        "minutes of one core; hollow markers have four times as many, in the configuration that was best when that run "
        f"was begun, one seed each. {LINES} {BEST} T are iterations (none: as many as a problem needs), L layers, H heads, D "
        "the width; few names first is a curriculum that begins with eight names and four nodes. A dotted line is the ladder's "
        "own preset, where another one is chosen.",
        repeats="4", experiments=("ladder",), also=CONFIGURATIONS, leaves_out=READOUTS, draw=comparisons.methods,
    ),
    "iterations": LadderFigure(
        title="Solved after each iteration",
        caption="Problems fully solved after each iteration, a line for each size: larger problems take more iterations. "
        f"{BANDS} The paper shows the corrected method; 4x has four times the budget. {BEST}",
        repeats="5", experiments=("ladder",), also=CONFIGURATIONS, methods=LATENT, leaves_out=READOUTS,
        draw=comparisons.iterations,
    ),
    "bars-end-to-end": LadderFigure(
        title="Average score of every end-to-end configuration",
        caption=f"Problems fully solved, averaged over all sizes tested: every feedforward and recurrent configuration. "
        f"{BARS} {ZOOM}",
        repeats="8", experiments=CONFIGURATIONS, methods=END_TO_END,
        draw=configurations.average_bars("end-to-end"),
    ),
    "bars-cot": LadderFigure(
        title="Average score of every chain-of-thought configuration",
        caption="Problems fully solved, averaged over all sizes tested: every configuration of chain of thought. Val writes "
        "values, Eq-Val equations and values, Eq-Op-Val the values of operands too; graphs are of 8 to 16 nodes in training, "
        f"or of a fixed number. {BARS} {ZOOM}",
        repeats="10", experiments=(*CONFIGURATIONS, "cot-formats"), methods=("cot",),
        draw=configurations.average_bars("chain of thought"),
    ),
    "bars-latent": LadderFigure(
        title="Average score of every latent configuration",
        caption=f"Problems fully solved, averaged over all sizes tested: every configuration with latent supervision. {BARS}",
        repeats="13", experiments=(*CONFIGURATIONS, "correction", "built-in", "plain"), methods=LATENT,
        draw=configurations.average_bars("latent"),
    ),
    "lines-by-encoding": LadderFigure(
        title="Every run, by positional encoding",
        caption="Problems fully solved by size, a line for each run in the color of its encoding; other settings vary. "
        f"{ZOOM}",
        repeats="9a, 12a, 14a", experiments=CONFIGURATIONS, also=("correction", "built-in", "cot-formats", "plain"),
        draw=configurations.lines_by_encoding,
    ),
    "best-per-encoding": LadderFigure(
        title="Each encoding, all else being equal",
        caption="Problems fully solved, averaged over all sizes tested, with each encoding, in the same time; ? is not "
        f"measured yet. The paper takes the best configuration of each encoding. {BARS} {ZOOM}",
        repeats="9b, 12b, 14b", experiments=("encodings",),
        methods=("feedforward", "recurrent", "cot", "discrete"), draw=configurations.best_per_encoding,
    ),
    **{
        f"encodings-{name}": LadderFigure(
            title=f"Encodings: {words}",
            caption=f"Problems fully solved by size, {words}: one line for each encoding, in the same time; local brings a "
            f"wide first head and noise in look-ups. {LINES} {ZOOM}",
            repeats=repeats, experiments=("encodings",), methods=(method,),
            draw=configurations.encodings_of(method),
        )
        for name, method, words, repeats in (
            ("feedforward", "feedforward", "feedforward", "9c"),
            ("recurrent", "recurrent", "recurrent", "9d"),
            ("cot", "cot", "chain of thought", "12c"),
            ("latent", "discrete", "discrete latent states", "14c"),
        )
    },
    **{
        f"architectures-{name}": LadderFigure(
            title=f"Architectures: {family}",
            caption=f"Problems fully solved by size, {family}: of each number of iterations T and layers L, of the points of "
            f"depth, the configuration with the lowest validation loss; {words}. {LINES} {ZOOM}",
            repeats=repeats, experiments=("depth",), methods=FAMILIES[family],
            draw=configurations.architectures(family),
        )
        for name, family, words, repeats in (
            ("end-to-end", "end-to-end", "colors tell T x L, markers L, and feedforward models are dashed", "9e"),
            ("cot", "chain of thought", "colors tell T x L, markers L", "12d"),
            ("latent", "latent", "dashed with two layers", "14d"),
        )
    },
    "entropy": LadderFigure(
        title="Entropy of attention by size",
        caption="Entropy of attention, the mean of all heads and query positions in the first application of the block. It "
        "rises where attention disperses as the input grows: attention to all tokens alike rises by log 4, 1.39, from N = 16 "
        "to 64. Where a layer sees 8 tokens alone (local) it is at most log 8, 2.08. Encodings and layers (L) differ between "
        "methods. Medians of the seeds, and bands from the lowest to the highest. "
        f"{BEST} By encoding, all have the same time.",
        repeats="9f", experiments=("ladder", "encodings"), also=CONFIGURATIONS,
        methods=("feedforward", "recurrent", "continuous", "discrete", "corrected", "stable"), draw=configurations.entropy,
    ),
    "structure": LadderFigure(
        title="Equations right in chains of thought",
        caption="Chains of thought that are right but for numbers, so that all equations are recalled (Val writes none, only "
        "names in their order), and those that give all values, averaged over all sizes tested. What lies between the two are "
        f"errors of arithmetic. A fifth is all sizes trained on and none beyond. Of the former: {BARS[0].lower()}{BARS[1:]}",
        repeats="11", experiments=(*CONFIGURATIONS, "cot-formats"), methods=("cot",),
        draw=configurations.structure,
    ),
    "compute": LadderFigure(
        title="Accuracy against operations per problem",
        caption="Problems fully solved against the floating-point operations that one problem takes at inference, at the "
        f"largest size trained on, twice and four times as large. Small markers are the ladder's own presets, where another "
        f"configuration is chosen. {BARS} {BEST}",
        repeats=None, experiments=("ladder",), also=CONFIGURATIONS, leaves_out=READOUTS, draw=comparisons.compute,
    ),
    "allowed": LadderFigure(
        title="Accuracy when allowed more iterations",
        caption="Problems fully solved after 1, 2, 4 and 16 times the iterations needed: the problem's depth, or the method's "
        f"own number. {ALLOWED_PROBLEMS} problems of each size; hollow markers have four times the budget, and small "
        f"ones are the ladder's own presets, where another configuration is chosen. {BANDS} {BEST}",
        repeats=None, experiments=("ladder",), also=CONFIGURATIONS, methods=(*END_TO_END, *LATENT), leaves_out=READOUTS,
        draw=comparisons.allowed,
    ),
    "correction": LadderFigure(
        title="Self-correction by corruption and layers",
        caption="Problems fully solved, averaged over sizes beyond those trained on, by the probability that a batch has wrong "
        f"values, with two and with four layers. Without corruption it is the discrete method. {BARS}",
        repeats=None, experiments=("correction",), draw=configurations.correction,
    ),
    "halting": LadderFigure(
        title="Halting rules compared",
        caption="Each method as the ladder sets it up. Above: problems fully solved under each halting rule. In the middle: "
        "how the fixed-point rule fails, in % of all problems. Below: iterations until it halts, divided by the depth of the "
        "problem. With hidden vectors a fixed point is approximate; 4x has four times the budget. All rules are measured "
        f"at all sizes, and markers alternate so that lines that coincide can be told apart. {BANDS} "
        "Above, the band is that of the fixed point.",
        repeats=None, experiments=("halting",), also=("ladder",), draw=comparisons.halting,
    ),
    "built-in": LadderFigure(
        title="What is built in, and what it is worth",
        caption="Problems fully solved, averaged over sizes in and out of distribution, with built-in aids removed one at "
        f"a time, and all together. {BARS}",
        repeats=None, experiments=("built-in",), methods=("discrete", "stable"), draw=configurations.built_in,
    ),
    "curricula": LadderFigure(
        title="Few names first",
        caption="Problems fully solved, averaged over sizes in and out of distribution, without and with a curriculum that "
        "begins with copies among four nodes and eight names. Both have the steps that a pilot gives them in the same time, "
        "but continuous and corrected with few names were timed after a faster engine, and have more steps than without. "
        f"{BARS} {ZOOM}",
        repeats=None, experiments=("curricula",), draw=configurations.curricula,
    ),
    "plain": LadderFigure(
        title="Nothing built in: the learning curve",
        caption="Values right in training, of equations with one, two and three operands, for the discrete method with the "
        "paper's own supervision, architecture and nothing else, through a curriculum that begins with few names, in larger "
        "batches; in one run sums begin among four nodes too, and the last one goes on with the weights of the "
        "first. A curve falls where a stage brings more names, more operands or larger graphs. One seed each.",
        repeats=None, experiments=("plain",), draw=comparisons.plain,
    ),
    "learning": LadderFigure(
        title="Learning curves",
        caption="Accuracy in training against problems seen, a line for each seed: of equations with three operands, and for "
        "chain of thought of all numbers written. Curves begin where "
        "the curriculum gives the first such equations, are of the problems of the stage, and may fall where one brings more "
        "names or larger graphs. For stable the states are random.",
        repeats=None, experiments=("ladder", "built-in"), also=CONFIGURATIONS, draw=comparisons.learning,
    ),
}  # fmt: skip
"""A new figure is a row here. Names are those of the files, and of ``figures`` in the table of experiments."""


def figure_named(name: str, scale: Scale = "laptop") -> LadderFigure:
    """Return a figure of a scale by name."""
    if name not in names_at(scale):
        where = "" if name not in FIGURES else f" at the scale {scale!r}"
        raise UserError(f"unknown figure {name!r}{where}: {nearest(name, names_at(scale))}")
    return FIGURES[name]


def names_at(scale: Scale) -> list[str]:
    """Return the figures of a scale: all at a laptop's, else those that its experiment names."""
    if scale == "laptop":
        return list(FIGURES)
    return [name for name in FIGURES if any(name in one.figures for one in _experiments((), scale))]


def missing(name: str, results: Mapping[str, Result], scale: Scale = "laptop") -> list[Job]:
    """Return the runs that a figure needs and that have no result yet."""
    return [job for job in figure_named(name).jobs(scale) if job.name not in results]


def caption(name: str, scale: Scale = "laptop") -> str:
    """Return what stands below a figure."""
    words = [FIGURES[name].caption, TRAINED_ON.get(scale, "")]
    return " ".join(word for word in words if word)


def draw(name: str, results: Mapping[str, Result], scale: Scale = "laptop") -> Figure:
    """Draw a figure from the results that are there; it says how many are not."""
    spec = figure_named(name)
    chosen = spec.select(results, scale)
    with rc_context(STYLE):
        try:
            figure = spec.draw(grouped(chosen))
        except NothingStoredError:
            raise _nothing(name, scale) from None
        left = len(missing(name, results, scale))
        if left:
            verb = "is" if left == 1 else "are"
            _note(figure, f"{left} of the {len(spec.jobs(scale))} runs of this figure {verb} not measured yet")
    return figure


def _nothing(name: str, scale: Scale) -> NothingStoredError:
    needed = " and ".join(FIGURES[name].experiments) if scale == "laptop" else scale
    first = FIGURES[name].experiments[0] if scale == "laptop" else scale
    return NothingStoredError(f"cannot draw {name}: it needs results of {needed}; run `latentloop reproduce {first}`")


def _note(figure: Figure, text: str) -> None:
    """Write a line at the bottom, below everything else."""
    height = figure.get_figheight()
    figure.set_figheight(height + 0.16)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, 0.16 / (height + 0.16), 1, height / (height + 0.16)))  # pyrefly: ignore
    figure.text(0.01, 0.03 / (height + 0.16), text, fontsize=7.0, style="italic", color="#8a3b00", va="bottom")


def fingerprint(name: str, results: Mapping[str, Result], scale: Scale = "laptop") -> str:
    """Return a hash of all that a figure shows, and of what stands below it, which is kept in its file."""
    spec = figure_named(name)
    shown = {
        "results": spec.select(results, scale),
        "runs": [job.name for job in spec.jobs(scale)],  # those without a result are counted in the figure
        "caption": caption(name, scale),
    }
    content = json.dumps(shown, sort_keys=True).encode()
    return f"latentloop figure {name}, results {hashlib.sha256(content).hexdigest()[:16]}"


def paths(name: str, folder: Path, scale: Scale = "laptop", suffixes: Sequence[str] = (PNG, PDF)) -> list[Path]:
    """Return the files of a figure."""
    return [folder / f"{name if scale == 'laptop' else f'{scale}-{name}'}{suffix}" for suffix in suffixes]


def redraw(
    names: Sequence[str] | None,
    results: Mapping[str, Result],
    folder: Path,
    scale: Scale = "laptop",
    suffixes: Sequence[str] = (PNG, PDF),
) -> Iterator[Path]:
    """Draw figures into a folder, as bitmaps and vectors, or all that have results; yield every file when it is written."""
    for name in names_at(scale) if names is None else names:
        try:
            figure = draw(name, results, scale)
        except NothingStoredError:
            if names is not None:
                raise
            continue
        source = fingerprint(name, results, scale)
        for path in paths(name, folder, scale, suffixes):
            with rc_context(STYLE):
                save_figure(figure, path, dpi=DPI, source=source)
            yield path
