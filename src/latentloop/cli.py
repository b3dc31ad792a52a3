"""The command line: thin, since every command is a call of the package."""

import json as json_format
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg
from tyro.extras import SubcommandApp

from latentloop.config import TASKS, GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.files import read_text, writing
from latentloop.task.families import FAMILIES
from latentloop.task.graph import Problems
from latentloop.task.graph import sample as sample_problems
from latentloop.task.oracle import solve as solve_problems
from latentloop.task.oracle import trace as trace_problems
from latentloop.task.splits import drawn_generator
from latentloop.task.text import parse, to_text

app = SubcommandApp()
errors = Console(stderr=True)

TaskName = Literal[tuple(TASKS)]  # pyrefly: ignore
FamilyName = Literal[tuple(FAMILIES)]  # pyrefly: ignore
ProblemText = Positional[Annotated[str | None, arg(metavar="PROBLEM")]]
Json = Annotated[bool, arg(help="Print one JSON document on standard output, and nothing else there.")]


@dataclass(frozen=True, kw_only=True)
class Language:
    """What problems may say."""

    task: TaskName = "all"
    """Operations: 'add' is {+}, 'all' is {+, -, *}."""
    modulus: int = 23
    """A prime from 2 to 97; values are taken modulo it."""
    names: int = 128
    """Number of variable names, x0 and up."""

    def config(self) -> TaskConfig:
        """Give the configuration these options stand for."""
        return TaskConfig.named(self.task, modulus=self.modulus, names=self.names)


@dataclass(frozen=True, kw_only=True)
class Drawing(Language):
    """Which problems to draw at random."""

    nodes: int = 32
    """Nodes in a graph, leaves included."""
    min_nodes: int | None = None
    """Draw the number of nodes from here up to --nodes."""
    leaves: int | None = None
    """Nodes with a given value; default: the family's own number (6 for random graphs)."""
    depth_limit: int | None = None
    """Largest depth, leaves counting 1 (the paper trains with 7); default: no limit."""
    family: FamilyName = "random"
    """Shape of the graph: 'random' is the paper's."""
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


@app.command
def sample(drawing: Drawing, *, json: Json = False) -> None:
    """Draw a problem and print it, one generation a line, in the form that `latentloop solve` reads."""
    problems = drawing.draw_one()
    solution = solve_problems(problems)
    if json:
        from latentloop.tokens.dataset import problem_record, work_out
        from latentloop.tokens.vocabulary import Vocabulary

        record = problem_record(work_out(problems, Vocabulary(task=drawing.config())), 0)
        settings = {"task": drawing.config().to_dict(), "graph": drawing.graph().to_dict(), "seed": drawing.seed}
        _print_json({**record, **settings})
        return
    depths = solution.depths[0].tolist()
    equations = to_text(problems).split(" ; ")
    for depth in sorted(set(depths)):
        print(" ; ".join(e for e, d in zip(equations, depths, strict=True) if d == depth))  # noqa: T201


@app.command
def solve(
    problem: ProblemText = None,
    *,
    language: Language = ANY_LANGUAGE,
    oracle: bool = False,
    trace: bool = False,
    json: Json = False,
    input: Path | None = None,
    output: Path | None = None,
) -> None:
    """Solve a problem, or a file of problems.

    Args:
        problem: Equations such as "20 = x7 ; 2 = x42 ; x7 + x42 = x23", or a file of them, or - for standard input
            (the default).
        language: What problems may say.
        oracle: Compute the true values.
        trace: Show the values after every iteration.
        json: Print one JSON document on standard output, and nothing else there.
        input: Solve many: a file of lines {"id": .., "text": ".."}.
        output: Where the answers to --input go, one line each in the same order; default: standard output.
    """
    from latentloop.evaluate.solve import by_variable, oracle_solver

    if input is not None:
        if problem is not None or trace or json:
            raise UserError("--input solves a file of problems: leave out the problem, --trace and --json")
        _solve_many(input, output, language.config(), oracle_solver)
        return
    if output is not None:
        raise UserError("--output goes with --input: a single answer is printed, redirect it")
    if not oracle:
        errors.print("[dim]no model is asked for: these are the oracle's values[/dim]")
    problems = parse(_problem_text(problem), language.config())
    solution, states = solve_problems(problems), trace_problems(problems)
    if json:
        answer: dict[str, Any] = {"text": to_text(problems), "modulus": problems.modulus, "solver": "oracle"}
        answer["values"] = by_variable(problems, 0, solution.values[0])
        answer["depths"] = by_variable(problems, 0, solution.depths[0])
        if trace:
            answer["trace"] = [by_variable(problems, 0, state[0]) for state in states]
        _print_json(answer)
        return
    from latentloop.report.console import layer_table, trace_tables

    out = Console(highlight=False)
    for table in trace_tables(problems, states, width=out.width) if trace else [layer_table(problems, solution)]:
        out.print(table)


@app.command
def dataset(drawing: Drawing, *, output: Path, count: int = 1024) -> None:
    """Write many problems with text, values, depths and tokens to a file; its settings go beside it.

    Args:
        drawing: Which problems to draw.
        output: A name that ends in .jsonl (one problem a line) or .npz (arrays; text as UTF-8 bytes).
        count: Number of problems.
    """
    from latentloop.tokens.dataset import write_dataset

    with _progress("problems", count) as advance:
        write_dataset(drawing.config(), drawing.graph(), count, drawing.seed, output, advance=advance)
    errors.print(f"wrote {count} problems to {output}, their settings to {output}.config.json", highlight=False)


@app.command
def draw(problem: ProblemText = None, *, drawing: Drawing = ANY_DRAWING, output: Path = Path("graph.png")) -> None:
    """Draw a problem's graph, coloured by depth, with its names and values.

    Args:
        problem: Equations, a file of them, or - for standard input; default: one drawn at random.
        drawing: Which problem to draw at random.
        output: A name that ends in .png, .svg or .pdf.
    """
    from latentloop.report.graph import graph_figure, save_figure

    problems = drawing.draw_one() if problem is None else parse(_problem_text(problem), drawing.config())
    save_figure(graph_figure(problems, solve_problems(problems)), output)
    errors.print(f"drew {problems.sizes[0]} nodes to {output}", highlight=False)


def _problem_text(problem: str | None) -> str:
    """Find the text: typed, in a file, or on standard input."""
    if problem is None or problem == "-":
        if sys.stdin.isatty():
            errors.print("[dim]type equations, then Ctrl-D[/dim]")
        try:
            return sys.stdin.read()
        except UnicodeDecodeError as error:
            raise UserError("cannot read standard input: it is not UTF-8 text") from error
    if "=" in problem or "->" in problem or not problem.strip():
        return problem
    path = Path(problem)
    if "\n" in problem or len(problem) > 255 or not path.exists():
        raise UserError(f"{problem[:60]!r} is neither an equation such as '20 = x7' nor a file")
    return read_text(path)


def _solve_many(source: Path, target: Path | None, task: TaskConfig, solver: Any) -> None:
    from latentloop.evaluate.solve import answer_lines

    try:
        lines = source.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}") from error
    failed = count = 0
    with lines, writing(target) if target else _standard_output() as file:
        for answer in answer_lines(lines, task, solver):
            file.write(json_format.dumps(answer) + "\n")
            count += 1
            failed += "error" in answer
    note = f"; {failed} could not be read, see their 'error'" if failed else ""
    errors.print(f"answered {count - failed} of {count} problems{note}", highlight=False)


@contextmanager
def _standard_output() -> Iterator[Any]:
    yield sys.stdout


@contextmanager
def _progress(label: str, total: int) -> Iterator[Any]:
    """Show progress on standard error; gives the function to call with each advance."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors, transient=True) as progress:
        bar = progress.add_task(label, total=total)
        yield lambda done: progress.advance(bar, done)


def _print_json(document: Any) -> None:
    print(json_format.dumps(document, ensure_ascii=False))  # noqa: T201


def main() -> None:
    """Run the command line; mistakes of the user end in one line and exit code 2."""
    try:
        app.cli(
            prog="latentloop",
            description="Transformers that reason recursively in latent space: problems, solutions, models.",
            config=(FlagCreatePairsOff, OmitArgPrefixes),
        )
        sys.stdout.flush()
    except UserError as error:
        errors.print(f"[bold red]error:[/bold red] {_escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(" ".join(text.split()))


if __name__ == "__main__":
    main()
