"""Evaluating and asking models: evaluate, and the model's side of solve.

Signatures and docstrings are what --help shows. It must come at once, so torch is imported inside the functions only.
"""

import hashlib
import json as json_format
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentloop.commands.problems import Language, Trace, solve_many
from latentloop.commands.terminal import (
    CheckpointName,
    Json,
    check_iterations,
    finished,
    print_json,
    problem_text,
    progress,
    refuse_overwriting,
    stderr,
)
from latentloop.commands.terminal import output as standard_output
from latentloop.config import MAX_NODES, FamilyName, OrderName
from latentloop.errors import UserError
from latentloop.files import check_writable, read_json, to_json
from latentloop.halting import RuleName
from latentloop.presets import DEFAULT_MODEL
from latentloop.task.graph import Problems, check_names
from latentloop.task.oracle import solve as solve_problems
from latentloop.task.splits import TEST_INSTANCES, check_range
from latentloop.task.text import parse, to_text

if TYPE_CHECKING:
    from latentloop.evaluate.pretrained import LatentLoop

NODES_AT_ONCE = 2**27
"""Nodes of the problems that an evaluation keeps in memory, about 3 GB."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which model to ask, and where it runs."""

    name: CheckpointName = None
    """The model: a shipped name, a checkpoint folder, a run folder (its best checkpoint) or a hub id. Default: laptop-all."""
    checkpoint: str | None = None
    """The same, as an option."""
    device: str = "cpu"
    """Device of the model: cpu, cuda or mps."""

    def __post_init__(self) -> None:
        if None not in (self.name, self.checkpoint):
            raise UserError(f"one model at a time, got {self.name} and --checkpoint {self.checkpoint}")

    @property
    def title(self) -> str:
        """What was asked for, as typed."""
        given = [name for name in (self.name, self.checkpoint) if name is not None]
        return given[0] if given else DEFAULT_MODEL

    def load(self) -> "LatentLoop":
        """Load it."""
        from latentloop.evaluate.pretrained import LatentLoop

        return LatentLoop.from_pretrained(self.title, device=self.device)

    def describe(self, trained: "LatentLoop") -> dict[str, Any]:
        """Return which model it is, by the name that was asked for too."""
        return {"checkpoint": self.title} | trained.describe()

    def refuse_overwriting(self, written: Sequence[Path]) -> None:
        """Refuse to write a result over a file of the checkpoint."""
        from latentloop.evaluate.hub import resolve

        folder = resolve(self.title)
        folders = [folder, folder / "best", folder / "last"]
        kinds = "*.safetensors", "config.json", "metrics.json*", "manifest.json"
        refuse_overwriting(written, [file for place in folders for kind in kinds for file in place.glob(kind)])


DEFAULT = Asked()


def result_path(
    output: Path | None, model: Asked, trained: "LatentLoop", kind: str, settings: Mapping[str, Any]
) -> Path:
    """Name a result, if its user has not, after the model and all that was asked of it: others keep theirs."""
    if output is not None:
        return output
    asked = json_format.dumps([settings, trained.sha256, trained.run.to_dict()], sort_keys=True)
    key = hashlib.sha256(asked.encode()).hexdigest()
    words = Path(model.title).resolve().parts[-2:]
    title = "-".join(words if re.match("best$|last$|step-", words[-1]) else words[-1:])
    return Path("results") / f"{title}-{kind}-{key[:6]}.json"


def unfinished(path: Path, trained: "LatentLoop", settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what an interrupted command has left, if it is whole and of the same model and settings."""
    if not path.is_file():  # to read a pipe would be to wait
        return None
    try:
        document = read_json(path)
        if document.pop("checksum") != _checksum(document):  # a number in it may have changed
            return None
        model = document["model"]
        wanted = json_format.loads(json_format.dumps([trained.sha256, trained.run.to_dict(), settings]))
        left = [model["sha256"], model["config"], {name: document["settings"][name] for name in settings}]
        return document if document.pop("interrupted") and left == wanted else None
    except (UserError, KeyError, TypeError):
        return None


def interrupted(document: dict[str, Any]) -> dict[str, Any]:
    """Mark a result as one that the same command goes on with."""
    marked = json_format.loads(to_json(document | {"interrupted": True}))
    return marked | {"checksum": _checksum(marked)}


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_format.dumps(document, sort_keys=True).encode()).hexdigest()


def evaluate(
    model: Asked = DEFAULT,
    *,
    sizes: tuple[str, ...] = ("8", "16", "..", "128"),
    instances: int = TEST_INSTANCES,
    skip: int = 0,
    halt: RuleName | None = None,
    iterations: int | None = None,
    cap: int | None = None,
    family: FamilyName = "random",
    order: OrderName = "drawn",
    output: Path | None = None,
    json: Json = False,
) -> None:
    """Measure how far a model generalizes: % of the published test problems fully solved, size by size.

    Every size is written when it is finished: after Ctrl-C, or a crash, the same command does the others.

    Args:
        model: Which model to ask, and where it runs.
        sizes: Numbers of nodes of the problems; "8 16 .. 128" goes on in equal steps.
        instances: Problems of each size: the first ones of the published list.
        skip: Leave out this many at the beginning of that list, to evaluate on problems nobody has looked at.
        halt: When to stop iterating: fixpoint (the state repeats), depth (the problem's depth), paper (the depth of the
            deepest problem + 1, as the authors do) or fixed (--iterations). Default: fixpoint, or the method's own rule.
        iterations: Number of iterations for --halt fixed. Default: the model's own.
        cap: Stop a model that has not halted after this many iterations. Default: nodes + 2; where hidden vectors are carried,
            which never come to rest for certain, four times the problem's depth.
        family: Shape of the graphs, as for `latentloop sample`.
        order: Order of the equations of one depth: drawn (as sampled), or topological (the authors', which the paper-*
            presets are trained on).
        output: File for the results; .json and .csv are written. Default: in results/, named after model and settings.
        json: Print one JSON document on standard output, and nothing else there.
    """
    numbers = expand_sizes(sizes)
    check_instances(instances, skip, max(numbers))
    check_iterations("--cap", cap)
    check_iterations("--iterations", iterations)
    from latentloop.evaluate.generalization import effective_rule, evaluate_sizes, evaluation_paths, write_evaluation
    from latentloop.report.console import evaluation_table

    trained = model.load()
    check_names(trained.run.task, max(numbers))
    rule = effective_rule(trained, halt, cap, iterations)
    asked: dict[str, Any] = {"cap": cap, "iterations": iterations, "family": family, "order": order, "skip": skip}
    settings = asked | {"halt": rule, "sizes": numbers, "instances": instances}
    path = result_path(output, model, trained, rule, settings)
    paths = evaluation_paths(path)
    model.refuse_overwriting(paths)
    for written in paths:
        check_writable(written)
    earlier = unfinished(paths[0], trained, settings)
    parts = [earlier] if earlier else []
    done = len(earlier["rows"]) if earlier else 0
    description = {"model": model.describe(trained)}

    def evaluated(advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        for nodes in numbers[done:]:
            parts.append(evaluate_sizes(trained, [nodes], instances, halt=halt, **asked, advance=advance))
            document = _joined(parts, numbers) | description
            if len(document["rows"]) < len(numbers):
                document = interrupted(document)
            write_evaluation(document, path)
            yield document

    with progress("problems", instances * len(numbers)) as advance:
        advance(instances * done)
        documents, code = finished(evaluated(advance), parts[:1])
    document = documents[-1]
    if json:
        print_json(document)
    else:
        standard_output().print(evaluation_table(document))
    stderr.print("wrote " + " and ".join(map(str, paths)))
    if code:
        stop(code, len(document["rows"]), len(numbers), "sizes", "the same command goes on with the others")


def _joined(parts: Sequence[dict[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Join evaluations of some sizes each into one."""
    rows = [row for part in parts for row in part["rows"]]
    return parts[-1] | {
        "rows": rows,
        "curves": {str(nodes): curves for part in parts for nodes, curves in part["curves"].items()},
        "average": float(np.mean([row["solved"] for row in rows])),
        "settings": parts[-1]["settings"] | {"sizes": list(sizes)},
    }


def stop(code: int, done: int, total: int, unit: str, advice: str) -> None:
    """End an interrupted command that has kept what was finished."""
    stderr.print(f"interrupted: kept {done} of {total} {unit}; {advice}")
    sys.exit(code)


def check_instances(instances: int, skip: int, nodes: int) -> None:
    """Refuse a number of problems that is none, or too large for the memory."""
    check_range(instances, skip)
    if instances * nodes > NODES_AT_ONCE:
        most = NODES_AT_ONCE // nodes
        raise UserError(
            f"--instances must be at most {most} at {nodes} nodes, got {instances}: use --skip for the rest"
        )


def expand_sizes(words: Sequence[str]) -> list[int]:
    """Read sizes such as ``8 16 .. 128``."""
    sizes: list[int] = []
    pending = False
    for word in words:
        if word in ("..", "...") and len(sizes) >= 2:
            pending = True
            continue
        if not word.isdecimal() or len(word) > 9 or not 1 <= int(word) <= MAX_NODES:
            raise UserError(f"sizes are numbers of nodes from 1 to {MAX_NODES} such as 8 16 .. 128, got {word[:40]!r}")
        if pending and not sizes[-2] < sizes[-1] < int(word):
            raise UserError(f"sizes around '..' must rise, as in 8 16 .. 128, got {sizes[-2]} {sizes[-1]} .. {word}")
        if pending:
            sizes += range(2 * sizes[-1] - sizes[-2], int(word), sizes[-1] - sizes[-2])
            pending = False
        sizes.append(int(word))
    if not sizes or pending:
        raise UserError(f"sizes are numbers of nodes such as 8 16 .. 128, got {' '.join(words)!r}")
    return sizes


def solve_with_model(
    checkpoint: str | None,
    language: Language,
    problem: str | None,
    *,
    trace: Trace,
    json: bool,
    input: Path | None,
    output: Path | None,
    cap: int | None,
    device: str,
) -> None:
    """Ask a model, the default one if none is named, and compare its values with the oracle's."""
    from latentloop.report.console import answer_table, trace_tables

    model = Asked(checkpoint=checkpoint, device=device)
    trained = model.load()
    task = language.config(trained.run.task)
    if input is not None:

        def solver(problems: Problems) -> list[dict[str, Any]]:
            return [answer.to_dict() for answer in trained.solve_problems(problems, cap=cap)]

        solve_many(input, output, task, solver, model.title)
        return
    problems = parse(problem_text(problem), task)
    solution = solve_problems(problems)
    answer = trained.solve_problems(problems, cap=cap, solution=solution)[0]
    if trace == "full":
        from latentloop.explorer.runs import record_run

        print_json(record_run(trained, model.title, problems, solution, answer))
        return
    if json:
        solver_names = {"solver": model.title, "sha256": trained.sha256}
        head = {"text": to_text(problems), "modulus": problems.modulus} | solver_names
        print_json(head | answer.to_dict(trace=trace != "none"))
        return
    out = standard_output()
    states = problems.states(answer.trace if trace != "none" else [answer.values])
    if trace != "none":
        for table in trace_tables(problems, states, truth=solution.values, width=out.width):
            out.print(table)
    else:
        out.print(answer_table(problems, solution, states[-1, 0]))
    verdict = "all right" if answer.correct else "not all right: wrong values are marked with !"
    unit = "iterations" if trained.method.latent else "tokens"
    out.print(f"{model.title}: {answer.halt} after {answer.iterations} {unit}, {verdict} (modulo {problems.modulus})")
