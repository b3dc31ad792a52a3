"""Problems, their solutions, pictures and files: sample, solve, draw, dataset."""

import json as json_format
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from latentloop.commands.terminal import Json, ProblemText, errors, print_json, problem_text, progress
from latentloop.commands.terminal import output as standard_output
from latentloop.config import TASKS, FamilyName, GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.evaluate.solve import Solver, answer_lines, oracle_solver
from latentloop.files import writing
from latentloop.task.graph import Problems
from latentloop.task.graph import sample as sample_problems
from latentloop.task.oracle import solve as solve_problems
from latentloop.task.oracle import trace as trace_problems
from latentloop.task.splits import drawn_generator
from latentloop.task.text import parse, to_text

TaskName = Literal[tuple(TASKS)]  # pyrefly: ignore


@dataclass(frozen=True, kw_only=True)
class Language:
    """What problems may say."""

    task: TaskName | None = None
    """Operations: 'add' is {+}, 'all' is {+, -, *}. Default: the model's, or all."""
    modulus: int | None = None
    """A prime from 2 to 97; values are taken modulo it. Default: the model's, or 23."""
    names: int | None = None
    """Number of variable names, x0 and up. Default: the model's, or 128."""

    def config(self, model: TaskConfig | None = None) -> TaskConfig:
        """Give the configuration these options stand for; a model has its own, which they must not contradict."""
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
class Drawing(Language):
    """Which problems to draw at random."""

    nodes: int = 32
    """Nodes in a graph, leaves included."""
    min_nodes: int | None = None
    """Draw the number of nodes from here up to --nodes."""
    leaves: int | None = None
    """Nodes with a given value. Default: the family's own number, 6 for random graphs."""
    depth_limit: int | None = None
    """Largest depth, leaves counting 1; the paper trains with 7. Default: none."""
    family: FamilyName = "random"
    """Shape of the graph: random is the paper's; a chain is N deep; a star copies one leaf; a tree folds its leaves two by
    two; wide is one layer; equal and zeros have such leaves; copies and triples have 1 and 3 parents; far uses the first
    leaf everywhere."""
    seed: int = 0
    """The same seed gives the same problems."""

    def graph(self) -> GraphConfig:
        """Give the distribution these options stand for."""
        return GraphConfig(
            nodes=self.nodes,
            min_nodes=self.min_nodes,
            leaves=self.leaves,
            depth_limit=self.depth_limit,
            family=self.family,
        )

    def draw_one(self) -> Problems:
        """Draw one problem."""
        return sample_problems(self.config(), self.graph(), 1, drawn_generator(self.seed, 0))


ANY_LANGUAGE, ANY_DRAWING = Language(), Drawing()


def sample(drawing: Drawing, *, json: Json = False) -> None:
    """Draw a problem and print it, one generation a line, in the form that `latentloop solve` reads."""
    problems, task = drawing.draw_one(), drawing.config()
    if json:
        from latentloop.tokens.dataset import problem_record, work_out
        from latentloop.tokens.vocabulary import Vocabulary

        record = problem_record(work_out(problems, Vocabulary(task=task)), 0)
        print_json({**record, "task": task.to_dict(), "graph": drawing.graph().to_dict(), "seed": drawing.seed})
        return
    if (task.modulus, task.names) != (TaskConfig.modulus, TaskConfig.names):
        print(f"# solve with --oracle --modulus {task.modulus} --names {task.names}")  # noqa: T201
    depths, equations = solve_problems(problems).depths[0].tolist(), to_text(problems).split(" ; ")
    for depth in sorted(set(depths)):
        print(" ; ".join(e for e, d in zip(equations, depths, strict=True) if d == depth))  # noqa: T201


def solve(
    problem: ProblemText = None,
    *,
    language: Language = ANY_LANGUAGE,
    checkpoint: str | None = None,
    oracle: bool = False,
    trace: bool = False,
    json: Json = False,
    input: Path | None = None,
    output: Path | None = None,
    cap: int | None = None,
    device: str = "cpu",
) -> None:
    """Solve a problem, or a file of problems, with a trained model or with the oracle.

    Args:
        problem: Equations such as "20 = x7 ; 2 = x42 ; x7 + x42 = x23", or a file of them, or - for standard input
            (the default).
        language: What problems may say.
        checkpoint: A shipped name, a checkpoint, a run folder or a hub id: the model to ask. Default: laptop-all.
        oracle: Compute the true values instead.
        trace: Show the values after every iteration.
        json: Print one JSON document on standard output, and nothing else there.
        input: Solve many: a file of lines {"id": .., "text": ".."}.
        output: Where the answers to --input go, one line each in the same order. Default: standard output.
        cap: Iterations after which a model is stopped. Default: nodes + 2.
        device: Where a model runs: cpu, cuda, mps.
    """
    if input is not None and (problem is not None or trace or json):
        raise UserError("--input solves a file of problems: leave out the problem, --trace and --json")
    if output is not None and input is None:
        raise UserError("--output goes with --input: a single answer is printed, redirect it")
    if oracle and checkpoint is not None:
        raise UserError("--oracle and --checkpoint are two ways to solve: choose one")
    if not oracle:
        from latentloop.commands.models import solve_with_model

        shown: dict[str, Any] = {"trace": trace, "json": json, "input": input, "output": output}
        solve_with_model(checkpoint, language, problem, **shown, cap=cap, device=device)
    elif input is not None:
        solve_many(input, output, language.config(), oracle_solver)
    else:
        _solve_with_oracle(problem_text(problem), language.config(), trace=trace, json=json)


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
    from latentloop.report.console import layer_table, trace_tables

    out = standard_output()
    tables = (
        trace_tables(problems, trace_problems(problems), width=out.width)
        if trace
        else [layer_table(problems, solution)]
    )
    for table in tables:
        out.print(table)
    out.print(f"all values modulo {problems.modulus}", style="dim")


def solve_many(source: Path, target: Path | None, task: TaskConfig, solver: Solver, name: str = "the oracle") -> None:
    """Answer a file of JSON lines."""
    try:
        lines = nullcontext(sys.stdin.buffer) if str(source) == "-" else source.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}") from error
    failed = count = 0
    with lines as questions, writing(target) if target else nullcontext(sys.stdout) as file:
        for answer in answer_lines(questions, task, solver):
            file.write(json_format.dumps(answer) + "\n")
            count += 1
            failed += "error" in answer
    note = f"; {failed} could not be read, see their 'error'" if failed else ""
    errors.print(f"{name} answered {count - failed} of {count} problems{note}")


def dataset(drawing: Drawing, *, output: Path, count: int = 1024) -> None:
    """Write many problems with text, values, depths and tokens to a file; its settings go beside it.

    Args:
        drawing: Which problems to draw.
        output: A name that ends in .jsonl (one problem a line) or .npz (arrays; docs/task.md says which).
        count: Number of problems.
    """
    from latentloop.tokens.dataset import check_dataset, write_dataset

    task, graph = drawing.config(), drawing.graph()
    check_dataset(task, graph, count, drawing.seed, output)
    with progress("problems", count) as advance:
        write_dataset(task, graph, count, drawing.seed, output, advance=advance)
    errors.print(f"wrote {count} problems to {output}, their settings to {output}.config.json")


def draw(problem: ProblemText = None, *, drawing: Drawing = ANY_DRAWING, output: Path = Path("graph.png")) -> None:
    """Draw a problem's graph, coloured by depth, with its names and values.

    Args:
        problem: Equations, a file of them, or - for standard input. Default: one drawn at random.
        drawing: Which problem to draw at random.
        output: A name that ends in .png, .svg or .pdf.
    """
    from latentloop.report.graph import graph_figure, save_figure

    problems = drawing.draw_one() if problem is None else parse(problem_text(problem), drawing.config())
    save_figure(graph_figure(problems, solve_problems(problems)), output)
    errors.print(f"drew {problems.sizes[0]} nodes to {output}")
