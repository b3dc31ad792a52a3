"""The table of experiments: which runs are compared, with which seeds and budgets. No torch."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import product
from typing import Any

from latentloop.config.positions import (
    AbsoluteConfig,
    DisentangledConfig,
    LocalConfig,
    NoneConfig,
    PositionsConfig,
    RotaryConfig,
)
from latentloop.errors import UserError, nearest
from latentloop.experiments.jobs import Experiment, Point
from latentloop.methods import TRAJECTORIES
from latentloop.presets import LOOKUP_FIRST, preset
from latentloop.schema import changed

THREE = (0, 1, 2)
ENCODINGS: dict[str, PositionsConfig] = {
    "abpe": AbsoluteConfig(max_positions=2048),
    "rope": RotaryConfig(),
    "nope": NoneConfig(),
    "deberta": DisentangledConfig(relative_width=128),
    "local": LocalConfig(),
}
LATENT_ENCODING = "rope"
"""Of the encodings of ``discrete`` the one with the lowest validation loss: other latent methods are run with it too."""
UNAIDED: dict[str, Any] = {"lookup_weight": 0.0, "partial_weight": 0.0}
"""The paper's own supervision: no auxiliary read-outs."""
GLOBAL: dict[str, Any] = {"positions": ENCODINGS["deberta"], "first_heads": None, "lookup_noise": 0.0}
"""Every layer sees everything, so that a model may use any circuit."""
PLAIN: dict[str, Any] = UNAIDED | GLOBAL | {"mlp_depth": 1, "curriculum": ()}
"""Nothing built in: the paper's own architecture too, and its problems from the first step."""
FEW_NAMES: dict[str, Any] = {
    "curriculum": (
        "4,2@8/1x8:0.25", "4,2@16/1x8:0.05", "4,2@32/1x8:0.05", "4,2/1x8:0.05", "8,3/1x4:0.05", "8,3/12x4:0.1", "16/12x2:0.1",
    ),
    "muon_lr": 0.01, "lr": 0.001,
}  # fmt: skip
"""Copies among four nodes with eight names first, then more names, then larger graphs: where nothing else starts look-ups.
At larger rates the plateau is not left, nor in small batches."""
FEWER_COPIES: dict[str, Any] = FEW_NAMES | {
    "curriculum": (
        "4,2@8/1x8:0.06", "4,2@16/1x8:0.02", "4,2@32/1x8:0.02", "4,2/1x8:0.03", "8,3/1x4:0.04", "8,3/12x4:0.13", "16/12x2:0.2",
    ),
}  # fmt: skip
"""The same stages for a long run: as many steps on copies as they take, and the rest for sums."""
SUMS_FIRST: dict[str, Any] = FEW_NAMES | {
    "curriculum": (
        "4,2@8/1x8:0.08", "4,2@16/1x8:0.03", "4,2@32/1x8:0.03", "4,2/1x8:0.04", "4,3/12x8:0.1", "4,3/23x8:0.17",
        "8,3/123x4:0.15",
    ),
}  # fmt: skip
"""Sums of two and of three among four nodes too, in large batches, before graphs grow."""
MORE_SUMS: dict[str, Any] = FEW_NAMES | {
    "start": "d1f2fa8f882801cbcab08b3bde7ae16eb8979e3a761e4898317fb7f0f303aef5",
    "curriculum": ("8,4/1233x4:0.5", "16/1233x2:0.2"),
    "warmup": 100,
}
"""The long plain run's weights, and sums of three for half of all equations, where there are more leaves than operands."""
STARTED = ("recurrent", "cot")
"""Methods that few names first give a lower validation loss: their encodings and depths begin so too."""
LONGER: dict[str, tuple[str, dict[str, Any]]] = {
    "feedforward": ("feedforward-L2", {"layers": 2}),
    "recurrent": ("recurrent-T2L2-few-names", {"iterations": 2} | FEW_NAMES),
    "cot": ("cot-few-names", FEW_NAMES),
    "continuous": ("continuous-few-names", {"curriculum": FEW_NAMES["curriculum"]}),
    "corrected": ("corrected", {}),
}
"""Methods that do not learn the task in one unit of the budget, and get four: like which point, and how it is set up.
It is the one that had the lowest validation loss when the longer run was begun."""
RUNGS = ("feedforward", "recurrent", "cot", "continuous", "discrete", "corrected", "stable")
CORRUPTIONS = (0.05, 0.25, 1.0)
GRID = tuple((encoding, layers) for encoding in ("abpe", "rope", "nope", "deberta") for layers in (2, 4, 8))


def _ladder(
    method: str,
    suffix: str = "",
    *,
    seeds: tuple[int, ...] = (0,),
    budget: float = 1.0,
    like: str = "",
    **overrides: Any,
) -> Point:
    name = f"{method}-{suffix}" if suffix else method
    return Point(name=name, preset=f"ladder-{method}", overrides=overrides, seeds=seeds, budget=budget, like=like)


def _varied(method: str, suffix: str = "", **overrides: Any) -> Point:
    """Return a method's point with other settings, and the curriculum that starts it."""
    if method not in STARTED:
        return _ladder(method, suffix, **overrides)
    return _ladder(method, f"{suffix}-few-names" if suffix else "few-names", **overrides, **FEW_NAMES)


def _longer(method: str) -> Point:
    """Return a method's point with four times the budget."""
    like, overrides = LONGER[method]
    return _ladder(method, "4x", budget=4.0, like=like, **overrides)


def _encoding(method: str, encoding: str) -> Point:
    """Return a method's point with an encoding, which may be its own. One head and noise go with ``local``."""
    model = preset(f"ladder-{method}").model
    if model.positions.name == encoding:
        return _varied(method)
    if encoding == "local":
        return _varied(method, encoding, **LOOKUP_FIRST)
    alone: dict[str, Any] = {"first_heads": None, "lookup_noise": 0.0} if model.first_heads else {}
    return _varied(method, encoding, positions=ENCODINGS[encoding], **alone)


def _corrected(corruption: float, layers: int) -> Point:
    run = preset("ladder-corrected")
    changes: dict[str, Any] = {"corruption": corruption, "layers": layers}
    own = {"corruption": run.method.corruption, "layers": run.model.layers}  # pyrefly: ignore
    different = {name: value for name, value in changes.items() if value != own[name]}
    return _ladder("corrected", "-".join(f"{name}{value:g}" for name, value in different.items()), **different)


def _chain(trajectory: str, *, fixed: bool) -> Point:
    run = preset("ladder-cot")
    different: dict[str, Any] = {} if trajectory == run.method.trajectory else {"trajectory": trajectory}  # pyrefly: ignore
    different |= {"min_nodes": None} if fixed else {}
    return _ladder(
        "cot", "-".join([*([trajectory] if "trajectory" in different else []), *(["fixed"] * fixed)]), **different
    )


def _chain_with_few_names(trajectory: str) -> Point:
    own = trajectory == preset("ladder-cot").method.trajectory  # pyrefly: ignore
    return _varied("cot") if own else _varied("cot", trajectory, trajectory=trajectory)


def _paper() -> Iterator[Point]:
    """Yield the authors' grid around their best models, and ours: encodings, layers, iterations, widths, formats."""
    best = (
        "feedforward",
        "recurrent",
        "cot",
        "cot-nope",
        "cot-variable",
        "continuous",
        "discrete",
        "corrected",
        "stable",
    )
    seen = [preset(f"paper-{name}") for name in best]
    for name in best:
        yield Point(name=f"paper-{name}", preset=f"paper-{name}", seeds=THREE, scale="paper")
    for method in RUNGS:
        source = preset(f"paper-{method}")
        grid: dict[str, dict[str, Any]] = {}
        for encoding, layers in GRID:
            kind = replace(ENCODINGS[encoding], relative_width=256) if encoding == "deberta" else ENCODINGS[encoding]  # pyrefly: ignore
            grid[f"{encoding}-L{layers}"] = {"positions": kind, "layers": layers}
        grid |= {f"D{width}": {"width": width} for width in (128, 256, 384)}
        if method in ("recurrent", "cot"):
            grid |= {f"T{iterations}": {"iterations": iterations} for iterations in (1, 2, 4, 8)}
        if method == "cot":
            sizes = {"fixed": None, "variable": preset("paper-cot-variable").graph.min_nodes}
            for trajectory, (name, least) in product(TRAJECTORIES, sizes.items()):
                grid[f"{trajectory}-{name}"] = {"trajectory": trajectory, "min_nodes": least}
        for name, overrides in grid.items():
            if changed(source, **overrides) not in seen:
                seen.append(changed(source, **overrides))
                yield Point(name=f"paper-{method}-{name}", preset=f"paper-{method}", scale="paper", overrides=overrides)


def _further(method: str, **overrides: Any) -> Point:
    """Return a method trained on the paper's sizes, 8 to 32 nodes, and tested on up to 128."""
    overrides |= {"names": 128, "nodes": 32, "curriculum": ("16/12:0.2", "16:0.5")}
    name, source = f"{method}-further", f"ladder-{method}"
    return Point(name=name, preset=source, overrides=overrides, budget=2.0, scale="further")


def _tuning(method: str, rate: float) -> Point:
    """Return a run of a fifth of the time, to choose a learning rate by its validation loss."""
    overrides = {"muon_lr": rate, "lr": rate / 15}
    name, source = f"{method}-rate{rate:g}", f"ladder-{method}"
    return Point(name=name, preset=source, overrides=overrides, budget=0.2, scale="tuning", like=f"tuning-{method}")


EXPERIMENTS: dict[str, Experiment] = {
    "tuning": Experiment(
        question="Which learning rate suits which method, by validation loss after a fifth of the time?",
        points=(
            *(_tuning(method, rate) for method in RUNGS for rate in (0.01, 0.02, 0.04)),
            *(_tuning(method, 0.08) for method in ("continuous", "stable")),  # the best of the others is the largest
        ),
    ),
    "ladder": Experiment(
        question="What does each mechanism add, at equal compute?",
        points=(
            *(_ladder(method, seeds=THREE) for method in RUNGS),
            *map(_longer, LONGER),
            # The paper's own best model.
            _ladder("corrected", "deberta-4x", budget=4.0, like="corrected-deberta", **GLOBAL),
            *(_ladder(method, "unaided", **UNAIDED) for method in ("continuous", "discrete", "corrected", "stable")),
        ),
        figures=(
            "methods",
            "iterations",
            "bars-end-to-end",
            "bars-cot",
            "bars-latent",
            "compute",
            "allowed",
            "learning",
        ),
    ),
    "encodings": Experiment(
        question="Which positional encoding suits which method?",
        points=(
            *(
                _encoding(method, encoding)
                for method in ("feedforward", "recurrent", "cot", "discrete")
                for encoding in ENCODINGS
                if encoding != "local"
                or method in ("recurrent", "discrete")  # one look-up a block: no chain, no copied equation
            ),
            *(_encoding(method, LATENT_ENCODING) for method in ("continuous", "corrected")),
            _encoding("corrected", "deberta"),  # the paper's own best model
        ),
        figures=(
            "lines-by-encoding",
            "best-per-encoding",
            "encodings-feedforward",
            "encodings-recurrent",
            "encodings-cot",
            "encodings-latent",
            "entropy",
        ),
    ),
    "depth": Experiment(
        question="How many layers and iterations does a method need?",
        points=(
            *(_varied("feedforward", f"L{layers}", layers=layers) for layers in (2, 4)),
            _varied("feedforward"),
            *(
                _varied("recurrent", f"T{iterations}L{layers}", iterations=iterations, layers=layers)
                for iterations, layers in ((1, 2), (2, 2), (8, 2), (4, 4))
            ),
            _varied("recurrent"),
            *(_varied("cot", f"L{layers}", layers=layers) for layers in (2, 8)),
            _varied("cot", "T4L2", iterations=4, layers=2),
            _varied("cot"),
            _ladder("cot", "T4L2", iterations=4, layers=2),
            _ladder("discrete", "L4", layers=4),
            _ladder("discrete"),
            _corrected(0.05, 2),
            _corrected(0.05, 4),
        ),
        figures=("architectures-end-to-end", "architectures-cot", "architectures-latent"),
    ),
    "cot-formats": Experiment(
        question="What should a chain of thought write, and does it need problems of all sizes?",
        points=(
            *(_chain(trajectory, fixed=fixed) for trajectory in TRAJECTORIES for fixed in (False, True)),
            *(_chain_with_few_names(trajectory) for trajectory in TRAJECTORIES),
        ),
        figures=("structure", "bars-cot"),
    ),
    "correction": Experiment(
        question="How much corruption does self-correction need, and how many layers?",
        points=(
            *(_corrected(corruption, layers) for layers in (2, 4) for corruption in CORRUPTIONS),
            _ladder("discrete"),
            _ladder("discrete", "L4", layers=4),
        ),
        figures=("correction",),
    ),
    "halting": Experiment(
        question="Does halting at the fixed point, without an oracle, cost accuracy?",
        points=tuple(_ladder(method, seeds=THREE) for method in ("continuous", "discrete", "corrected", "stable")),
        figures=("halting",),
    ),
    "built-in": Experiment(
        question="What is built in, and what is it worth?",
        points=(
            _ladder("discrete"),
            _ladder("discrete", "unaided", **UNAIDED),
            _encoding("discrete", "deberta"),
            _ladder("discrete", "uniform", curriculum=()),
            _ladder("discrete", "plain", **PLAIN),
            _ladder("stable"),
            _encoding("stable", "deberta"),
            _ladder("stable", "unaided", **UNAIDED),
            _ladder("stable", "deberta-unaided", like="stable-deberta", **UNAIDED, **GLOBAL),
            _ladder("stable", "even", skew=0.0),
            _ladder("stable", "true-states", true_states=1.0),
            _ladder("stable", "uniform", curriculum=()),
            _ladder("stable", "plain", skew=0.0, true_states=1.0, **PLAIN),
        ),
        figures=("built-in",),
    ),
    "further": Experiment(
        question="Trained on up to 32 nodes, as in the paper: which methods reach 128?",
        # Four layers of corrected need four times the budget on half of these sizes already.
        points=(_further("discrete"), _further("corrected", layers=2), _further("stable")),
        figures=("methods", "iterations"),
    ),
    "curricula": Experiment(
        question="Does a curriculum that starts with few names help a model to learn the look-up?",
        points=(
            *(
                point
                for method in ("feedforward", "recurrent", "cot")
                for point in (
                    _ladder(method, seeds=THREE),
                    _ladder(method, "few-names", seeds=THREE if method in STARTED else (0,), **FEW_NAMES),
                )
            ),
            *(
                point
                for method in ("continuous", "corrected")
                for point in (
                    _ladder(method, seeds=THREE),
                    _ladder(method, "few-names", curriculum=FEW_NAMES["curriculum"]),
                )
            ),
        ),
        figures=("curricula",),
    ),
    "plain": Experiment(
        question="With the paper's own supervision and nothing built in, what does a long run give?",
        points=(
            _ladder("discrete", "plain-long", budget=8.0, like="discrete-plain-few-names", **PLAIN | FEWER_COPIES),
            _ladder("discrete", "plain-sums", budget=6.0, like="discrete-plain-few-names", **PLAIN | SUMS_FIRST),
            _ladder("discrete", "plain-more", budget=3.0, like="discrete-plain-few-names", **PLAIN | MORE_SUMS),
        ),
        figures=("plain",),
    ),
    "rehearsal": Experiment(
        question="Does everything work together? Seconds, not science.",
        points=tuple(
            Point(name=f"tiny-{method}", preset=f"tiny-{method}", overrides={"steps": 20}, scale="rehearsal")
            for method in ("discrete", "stable", "cot")
        ),
        figures=("methods",),
    ),
    "paper": Experiment(
        question="The authors' grid at full size, for machines with GPUs.",
        points=tuple(_paper()),
        figures=(
            "methods",
            "iterations",
            "bars-end-to-end",
            "bars-cot",
            "bars-latent",
            "lines-by-encoding",
            "best-per-encoding",
            *(f"encodings-{name}" for name in ("feedforward", "recurrent", "cot", "latent")),
            *(f"architectures-{name}" for name in ("end-to-end", "cot", "latent")),
            "entropy",
            "structure",
            "compute",
            "allowed",
            "learning",
        ),
    ),
}
POINTS: dict[str, Point] = {}
"""All points by name; of one in several experiments, the one with the most seeds."""
for _experiment in EXPERIMENTS.values():
    for _one in _experiment.points:
        _before = POINTS.setdefault(_one.name, _one)
        assert (_before.preset, _before.overrides, _before.budget) == (_one.preset, _one.overrides, _one.budget), (
            _one.name
        )
        if len(_one.seeds) > len(_before.seeds):
            POINTS[_one.name] = _one


def experiment(name: str) -> Experiment:
    """Return an experiment by name, or that of a single point with three seeds, or of one of these runs."""
    single = {name: replace(point, seeds=THREE) for name, point in POINTS.items()}
    single |= {job.name: replace(point, seeds=(job.seed,)) for point in single.values() for job in point.jobs}
    if name in single and name not in EXPERIMENTS:
        return Experiment(question=f"How does {name} do?", points=(single[name],))
    if name not in EXPERIMENTS:
        alike = get_close_matches(name, [*EXPERIMENTS, *single], n=1)
        hint = f"did you mean {alike[0]!r}?" if alike else nearest(name, EXPERIMENTS)
        raise UserError(f"unknown experiment {name!r}: {hint}")
    return EXPERIMENTS[name]
