"""Made-up results of experiments, in the form of real ones: for tests of what is read off them, and for nothing else."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from latentloop.evaluate.metrics import wilson
from latentloop.experiments import jobs
from latentloop.experiments.jobs import Job
from latentloop.experiments.measure import ALLOWED
from latentloop.experiments.store import FORMAT, Result, labels
from latentloop.experiments.table import ENCODINGS, EXPERIMENTS, POINTS
from latentloop.methods import METHODS
from latentloop.task.splits import PUBLISHED_SEED

Solved = float | Mapping[int, float] | Callable[[int], float]
RULES = ("fixpoint", "depth", "paper", "2x", "4x")


def with_steps(monkeypatch) -> None:
    """Give every point its steps, whether or not a pilot has timed it."""
    monkeypatch.setattr(jobs, "pilot", lambda: {point.like or point.name: 100 for point in POINTS.values()})


_LABELS: dict[str, dict] = {}


def labels_of(job: Job) -> dict:
    """Return a job's labels, worked out once for all of its seeds."""
    if job.point.name not in _LABELS:
        _LABELS[job.point.name] = labels(job)
    return _LABELS[job.point.name]


def share(solved: Solved, nodes: int) -> float:
    if isinstance(solved, Mapping):
        return solved[max(size for size in solved if size <= nodes)]
    return solved(nodes) if callable(solved) else solved


def document(job: Job, solved: Solved, *, problems: int = 1000, loss: float | None = 1.0, **changes: Solved) -> Result:
    """Make a result; ``changes`` are other numbers of its rows, by name."""
    about = labels_of(job)
    method = METHODS[about["method"]]
    sizes = job.evaluation.sizes
    rows = []
    for nodes in sizes:
        right = round(share(solved, nodes) * problems)
        low, high = wilson(right, problems)
        depth = 3 + nodes**0.5
        row = {
            "nodes": nodes, "problems": problems, "solved": right / problems, "solved_low": low, "solved_high": high,
            "nodes_right": (right / problems) ** 0.1, "iterations": depth if method.adaptive else 4.0,
            "iterations_by_depth": 1.1, "false_halts": (1 - right / problems) * 0.8, "cycles": (1 - right / problems) * 0.2,
            "caps": 0.0, "correction_rate": None, "operations": 1e6 * nodes * (9 if method.latent else 25),
        }  # fmt: skip
        if method.adaptive:
            row |= {f"solved_{rule}": right / problems for rule in RULES}
        if not method.latent:
            row["structure_right"] = min(1.0, right / problems + 0.6 * (1 - right / problems))
        rows.append(row | {name: share(change, nodes) for name, change in changes.items()})
    inside = [row["solved"] for row in rows if row["nodes"] <= about["trained_to"]]
    outside = [row["solved"] for row in rows if row["nodes"] > about["trained_to"]]
    steps = [10 * (place + 1) for place in range(40)]
    kinds = ("leaf", "one", "two", "three") if method.latent else ("token", "number")
    curve = {f"right_{kind}": [step / (step + 40 * place + 20) for step in steps] for place, kind in enumerate(kinds)}
    return {
        "format": FORMAT, "point": job.point.name, "seed": job.seed, "key": "made-up", "labels": about,
        "training": {
            "minutes_of_one_core": 20.0 * job.point.budget, "steps": 4000, "problems": 64000, "tokens": 8_000_000,
            "operations": 1e13, "seconds": 1190.5, "provenance": {},
            "curve": {"step": steps, "loss": [50 / (step + 50) for step in steps], **curve, "seconds": steps},
        },
        "validation": {"loss": loss}, "rows": rows,
        "curves": {
            str(row["nodes"]): {
                "right_by_depth": {},
                "solved_by_iteration": curve_of(row["solved"], row["nodes"]) if method.latent else [],
                "halts": {},
            }
            for row in rows
        },
        "average": sum(row["solved"] for row in rows) / len(rows), "average_in": sum(inside) / max(len(inside), 1),
        "average_out": sum(outside) / len(outside) if outside else None,
        "allowed": {
            str(nodes): {f"{times}x": share(solved, nodes) * (1 if times < 16 else 0.97) for times in ALLOWED}
            for nodes in job.evaluation.allowed
        } if method.latent else None,
        "entropy": {
            str(nodes): {"mean": nodes**0.3, "heads": [[nodes**0.3]]} for nodes in job.evaluation.entropy
        } if method.latent else None,
        "approximate_fixpoint": False, "model": {"sha256": "0" * 64, "parameters": 400_000, "config": {}},
        "settings": {"sizes": list(sizes), "instances": problems, "seed": PUBLISHED_SEED}, "provenance": {"commit": "made-up"},
    }  # fmt: skip


def curve_of(solved: float, nodes: int) -> list[float]:
    """Return a share that rises around the depth of a size, and stays."""
    middle = round(1.6 * nodes**0.6)
    return [solved * min(1.0, max(0.0, (t - middle / 2) / middle)) for t in range(3 * middle)]


def documents(**points: Solved | dict) -> dict[str, Result]:
    """Make the results of points, all seeds of the table: shares, or the arguments of ``document``; - is written _."""
    found = {}
    for name, given in points.items():
        for job in POINTS[name if name in POINTS else name.replace("_", "-")].jobs:
            arguments = given if isinstance(given, dict) and "solved" in given else {"solved": given}
            found[job.name] = document(job, **arguments)
    return found


def named(names: Iterable[str], **given: Solved) -> dict[str, Result]:
    """Make results of many points: those given with their shares, the others with nothing solved; - is written _."""
    return documents(**{name: given.get(name.replace("-", "_"), 0.0) for name in names})


def encoded(method: str, encoding: str) -> str:
    """Return the name of a method's point with an encoding; with its own, it is the method's."""
    points = EXPERIMENTS["encodings"].points
    jobs = [point.jobs[0] for point in points if point.preset == f"ladder-{method}"]
    return next(job.point.name for job in jobs if labels_of(job)["encoding"] == encoding)


def another(method: str) -> str:
    """Return the name of a method's point with another encoding than its own."""
    return next(name for encoding in ENCODINGS if (name := encoded(method, encoding)) != method)


def with_keys(results: Mapping[str, Result]) -> dict[str, Result]:
    """Give results the keys of today's configurations, so that they can be stored and read."""
    jobs = {job.name: job for point in POINTS.values() for job in point.jobs}
    return {name: result | {"key": jobs[name].key} for name, result in results.items()}


@cache
def everything(scale: str = "laptop") -> dict[str, Result]:
    """Make a plausible result for every run of a scale; not to be changed."""
    reach = {
        "feedforward": 8,
        "recurrent": 10,
        "cot": 18,
        "continuous": 40,
        "discrete": 60,
        "corrected": 90,
        "stable": 2000,
    }
    factor = {"abpe": 0.6, "rope": 0.9, "nope": 0.8, "deberta": 1.0, "local": 1.1}
    found = {}
    for place, point in enumerate(point for point in POINTS.values() if point.scale == scale):
        for job in point.jobs:
            about = labels_of(job)
            far = reach[about["method"]] * factor[about["encoding"]] * (1 + 0.08 * job.seed) * point.budget**0.3
            far *= (0.5 if not about["auxiliary"] and "unaided" in point.name else 1) * (
                0.1 if "plain" in point.name else 1
            )
            far *= min(about["layers"] * (about["iterations"] or 4), 8) / 8 * (2 if scale == "paper" else 1)
            cost = 3e5 * (place % 7 + 1) * (40 if about["method"] == "cot" else 4)
            found[job.name] = document(
                job, lambda nodes, far=far: 1 / (1 + (nodes / far) ** 6), problems=256, loss=0.5 + 0.01 * place,
                operations=lambda nodes, cost=cost: cost * nodes,
            )  # fmt: skip
            _vary(found[job.name], 0.2 + 0.02 * (place % 11) + 0.01 * job.seed)
    return found


def _vary(result: Result, by: float) -> None:
    """Make entropies and learning curves of several runs differ."""
    result["entropy"] = result["entropy"] and {n: {"mean": int(n) ** by} for n in result["entropy"]}
    curve = result["training"]["curve"]
    for name in curve:
        if name.startswith("right"):
            curve[name] = [share ** (4 * by) for share in curve[name]]
