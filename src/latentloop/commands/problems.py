"""Problems, their solutions, pictures and files: sample, solve, draw, dataset."""

import json as json_format
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from latentloop.commands.terminal import (
    Json,
    ProblemText,
    check_iterations,
    first_interrupt,
    is_file,
    print_json,
    problem_text,
    progress,
    refuse_overwriting,
    stderr,
)
from latentloop.commands.terminal import output as standard_output
from latentloop.config import TASKS, FamilyName, GraphConfig, OrderName, TaskConfig
from latentloop.errors import UserError
from latentloop.evaluate.solve import Solver, answer_lines, oracle_solver
from latentloop.files import writing
from latentloop.task.graph import Problems
from latentloop.task.graph import sample as sample_problems
from latentloop.task.oracle import solve as solve_problems
from latentloop.task.oracle import trace as trace_problems
from latentloop.task.splits import sampled_generator
from latentloop.task.text import parse, to_text

TaskName = Literal[tuple(TASKS)]  # pyrefly: ignore
Trace = Literal["none", "states", "full"]


def trace_words(words: Sequence[str]) -> list[str]:
    """Complete ``--trace`` without a choice: it means ``--trace states``."""
    following = [*words[1:], ""]
    complete = [
        [word, "states"] if word == "--trace" and after not in get_args(Trace) else [word]
        for word, after in zip(words, following, strict=True)
    ]
    return [word for part in complete for word in part]


@dataclass(frozen=True, kw_only=True)
class Language:
    """Which equations are allowed."""

    task: TaskName | None = None
    """Operations: 'add' allows +, 'all' allows + - *. Default: the model's, or all."""
    modulus: int | None = None
    """Prime from 2 to 97; all values are computed modulo it. Default: the model's, or 23."""
    names: int | None = None
    """Number of variable names: x0, x1, ... Default: the model's, or 128."""

    def config(self, model: TaskConfig | None = None) -> TaskConfig:
        """Return the configuration these options stand for; a model has its own, which they must not contradict."""
        given = {name: value for name, value in (("modulus", self.modulus), ("names", self.names)) if value is not None}
        asked = TaskConfig.named(self.task or "all", **given)
        if model is None:
            return asked
        for name, wanted in (*given.items(), *([("operations", asked.operations)] if self.task else [])):
            if getattr(model, name) != wanted:
                raise UserError(
                    f"the model was trained with {name} {getattr(model, name)}, got {wanted}: "
                    "leave it out, or choose --oracle or another --checkpoint"
                )
        return model


@dataclass(frozen=True, kw_only=True)
class Sampling(Language):
    """Which problems to sample at random."""

    nodes: int = 32
    """Number of nodes (equations) of a problem, leaves included."""
    min_nodes: int | None = None
    """Sample the number of nodes uniformly from this one to --nodes. Default: always --nodes."""
    leaves: int | None = None
    """Number of nodes whose value is given. Default: the family's own number, 6 for random graphs."""
    depth_limit: int | None = None
    """Largest depth of a node; leaves have depth 1. The paper trains with 7. Default: no limit."""
    family: FamilyName = "random"
    """Shape of the graph: random (the paper's), chain (depth = nodes), star (copies of one leaf), tree (binary), wide (one
    layer of equations), equal or zeros (all leaves have the same value, or 0), copies or triples (1 or 3 parents each), far
    (the first leaf is a parent of every node)."""
    order: OrderName = "drawn"
    """Order of the equations of one depth: as the nodes were created, or as a topological sort gives them (the authors'
    code)."""
    seed: int = 0
    """Seed of the random numbers, 0 to 2^64 - 1: the same one gives the same problems."""

    def graph(self) -> GraphConfig:
        """Return the distribution these options stand for."""
        return GraphConfig(
            nodes=self.nodes,
            min_nodes=self.min_nodes,
            leaves=self.leaves,
            depth_limit=self.depth_limit,
            family=self.family,
            order=self.order,
        )

    def sample_one(self) -> Problems:
        """Sample one problem."""
        return sample_problems(self.config(), self.graph(), 1, sampled_generator(self.seed, 0))[:1]  # without padding


ANY_LANGUAGE = Language()
ANY_SAMPLING = Sampling()


def sample(sampling: Sampling, *, json: Json = False) -> None:
    """Sample a random problem and print it in the form that `latentloop solve` reads, the equations of one depth a line."""
    problems = sampling.sample_one()
    task = sampling.config()
    if json:
        from latentloop.tokens.dataset import problem_record, work_out
        from latentloop.tokens.vocabulary import Vocabulary

        record = problem_record(work_out(problems, Vocabulary(task=task)), 0)
        print_json({**record, "task": task.to_dict(), "graph": sampling.graph().to_dict(), "seed": sampling.seed})
        return
    if (task.modulus, task.names) != (TaskConfig.modulus, TaskConfig.names):
        print(f"# solve with --oracle --modulus {task.modulus} --names {task.names}")  # noqa: T201
    depths = solve_problems(problems).depths[0].tolist()
    equations = to_text(problems).split(" ; ")
    for depth in sorted(set(depths)):
        print(" ; ".join(e for e, d in zip(equations, depths, strict=True) if d == depth))  # noqa: T201


def solve(
    problem: ProblemText = None,
    *,
    language: Language = ANY_LANGUAGE,
    checkpoint: str | None = None,
    oracle: bool = False,
    trace: Trace = "none",
    json: Json = False,
    input: Path | None = None,
    output: Path | None = None,
    cap: int | None = None,
    device: str = "cpu",
) -> None:
    """Solve a problem, or a file of problems, with a trained model or with the oracle.

    Exits with 1 if --input was given and none of its problems could be answered.

    Args:
        problem: Equations such as "20 = x7 ; 2 = x42 ; x7 + x42 = x23", or a file of them, or - for standard input
            (the default).
        language: Which equations are allowed.
        checkpoint: The model to ask: a shipped name, a checkpoint or run folder, or a hub id. Default: laptop-all.
        oracle: Compute the true values instead of asking a model.
        trace: Show the value of every node after every iteration (--trace alone means states). With --json, full prints
            the run in the form that the page of `latentloop explore` reads: tokens, attention and margins, too.
        json: Print one JSON document on standard output, and nothing else there.
        input: Solve a file of problems instead, one JSON object {"id": .., "text": ".."} a line; - is standard input.
        output: File for the answers to --input, one line each in the same order. Default: standard output.
        cap: Stop a model after this many iterations. Default: nodes + 2.
        device: Device of the model: cpu, cuda or mps.
    """
    if input is not None and (problem is not None or trace != "none" or json):
        raise UserError("--input solves a file of problems: leave out the problem, --trace and --json")
    if output is not None and input is None:
        raise UserError("--output goes with --input: a single answer is printed, redirect it")
    if oracle and checkpoint is not None:
        raise UserError("--oracle and --checkpoint are two ways to solve: choose one")
    if trace == "full" and (oracle or not json):
        raise UserError("--trace full is a JSON document of a model's run: add --json, and leave out --oracle")
    check_iterations("--cap", cap)
    if input is not None:
        refuse_overwriting([output], [input])
    if not oracle:
        from latentloop.commands.models import solve_with_model

        shown: dict[str, Any] = {"trace": trace, "json": json, "input": input, "output": output}
        solve_with_model(checkpoint, language, problem, **shown, cap=cap, device=device)
    elif input is not None:
        solve_many(input, output, language.config(), oracle_solver)
    else:
        _solve_with_oracle(problem_text(problem), language.config(), trace=trace != "none", json=json)


def _solve_with_oracle(text: str, task: TaskConfig, *, trace: bool, json: bool) -> None:
    problems = parse(text, task)
    solution = solve_problems(problems)
    if json:
        answer: dict[str, Any] = {"text": to_text(problems), "modulus": problems.modulus, "solver": "oracle"}
        answer["values"] = problems.by_variable(0, solution.values[0])
        answer["depths"] = problems.by_variable(0, solution.depths[0])
        if trace:
            answer["trace"] = [problems.by_variable(0, state[0]) for state in trace_problems(problems)]
        print_json(answer)
        return
    from latentloop.report.console import answer_table, trace_tables

    out = standard_output()
    if trace:
        for table in trace_tables(problems, trace_problems(problems), width=out.width):
            out.print(table)
    else:
        out.print(answer_table(problems, solution))
    out.print(f"all values modulo {problems.modulus}", style="dim")


def solve_many(source: Path, target: Path | None, task: TaskConfig, solver: Solver, name: str = "the oracle") -> None:
    """Answer a file of JSON lines; exit with 1 if there is no answer among the results."""
    if str(source) == "-" and sys.stdin is None:
        raise UserError("standard input is closed: give a file of problems")
    try:
        lines = nullcontext(sys.stdin.buffer) if str(source) == "-" else source.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}") from error
    failed = 0
    count = 0
    quiet = target is None and sys.stdout.isatty()  # answers and a bar would share the screen
    with (
        lines as questions,
        writing(target) if target else nullcontext(sys.stdout) as file,
        progress("problems", _count_lines(source), shown=not quiet) as advance,
    ):
        for answer in answer_lines(questions, task, solver):
            file.write(json_format.dumps(answer) + "\n")
            count += 1
            failed += "error" in answer
            advance(1)
    note = f"; {failed} could not be read, see their 'error'" if failed else ""
    stderr.print(f"{name} answered {count - failed} of {count} problems{note}")
    if failed == count:
        sys.exit(1)


def _count_lines(source: Path) -> int | None:
    """Count the problems of a file; None for a stream, whose end is not known."""
    if not source.is_file():
        return None
    with source.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def dataset(sampling: Sampling, *, output: Path, count: int = 1024) -> None:
    """Write many sampled problems with text, values, depths and tokens to a file, and the settings to a file beside it.

    Ctrl-C and SIGTERM keep the problems that are finished.

    Args:
        sampling: Which problems to sample at random.
        output: File to write; its name ends in .jsonl (one problem a line) or .npz (arrays; see docs/task.md).
        count: Number of problems.
    """
    from latentloop.tokens.dataset import check_dataset, write_dataset

    task = sampling.config()
    graph = sampling.graph()
    check_dataset(task, graph, count, sampling.seed, output)
    with first_interrupt() as stopped, progress("problems", count) as advance:
        written = write_dataset(
            task, graph, count, sampling.seed, output, advance=advance, stopped=lambda: bool(stopped())
        )
    if written < count:
        stderr.print(
            f"interrupted: kept the first {written} of {count} problems in {output}; "
            "the same command writes all of them, these first"
        )
        sys.exit(stopped())
    stderr.print(f"wrote {count} problems to {output}, their settings to {output}.config.json")


def draw(problem: ProblemText = None, *, sampling: Sampling = ANY_SAMPLING, output: Path = Path("graph.png")) -> None:
    """Draw a picture of a problem's graph: nodes with names and values, colored by depth.

    Args:
        problem: Equations, a file of them, or - for standard input. Default: a problem sampled at random.
        sampling: Which problem to sample at random.
        output: Picture to write; its name ends in .png, .svg or .pdf.
    """
    from latentloop.report.graph import graph_figure, save_figure

    if problem is not None and (problem == "-" or is_file(problem)):
        refuse_overwriting([output], [Path(problem)])
    problems = sampling.sample_one() if problem is None else parse(problem_text(problem), sampling.config())
    save_figure(graph_figure(problems, solve_problems(problems)), output)
    stderr.print(f"drew {problems.sizes[0]} nodes to {output}")
