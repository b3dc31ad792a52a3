"""A first look: a problem, a model that solves it, and how far that model goes.

python examples/tour.py
"""

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from latentloop import LatentLoop
from latentloop.config import GraphConfig
from latentloop.evaluate.generalization import evaluate_sizes
from latentloop.presets import DEFAULT_MODEL
from latentloop.report.console import evaluation_table, trace_tables
from latentloop.report.figures import generalization_figure
from latentloop.report.graph import save_figure
from latentloop.report.page import Section, TableBlock, write_page
from latentloop.report.run_page import report_page
from latentloop.report.stored import check_result
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import sampled_generator
from latentloop.task.text import equation_text

MODEL, SIZES, INSTANCES = DEFAULT_MODEL, (8, 16, 32, 64, 96, 128), 16
PICTURE, REPORT = Path("results") / "generalization.png", Path("results") / "tour.html"

console = Console(highlight=False)
trained = LatentLoop.from_pretrained(MODEL)
about = trained.describe()
weights, trained_to = about["parameters"], trained.run.graph.nodes
console.rule(f"{MODEL}: {weights:,} weights, trained on graphs of at most {trained_to} nodes", align="left")

problems = sample(trained.run.task, GraphConfig(nodes=14), 1, sampled_generator(1))
answer = trained.solve_problems(problems)[0]
console.rule("a problem, and the values that the model holds after 0, 1, 2, ... iterations", align="left")
for table in trace_tables(problems, problems.states(answer.trace), truth=solve(problems).values, width=console.width):
    console.print(table)
verdict = "all values are right" if answer.correct else "some values are wrong"
console.print(f"It stopped by itself ({answer.halt}) after {answer.iterations} iterations, and {verdict}.")

console.rule(f"{INSTANCES} published problems of each size", align="left")
with Progress(console=console, transient=True) as progress:
    bar = progress.add_task("solving", total=INSTANCES * len(SIZES))
    document = evaluate_sizes(trained, SIZES, INSTANCES, advance=lambda done: progress.advance(bar, done))
console.print(evaluation_table(document))
save_figure(generalization_figure({MODEL: document}), PICTURE)
columns = ["equation", *map(str, range(len(answer.trace)))]
rows = [
    [f"`{equation_text(problems, 0, node)}`", *(state[name] for state in answer.trace)]
    for node, name in enumerate(answer.values)
]
trace = Section(heading="A problem, iteration by iteration", blocks=[TableBlock(columns=columns, rows=rows)])
page = report_page([check_result(document, Path(MODEL))])
write_page(replace(page, sections=[trace, *page.sections]), REPORT)
console.print(f"The picture is {PICTURE}; `latentloop evaluate {MODEL}` measures all sizes in full.")
console.print(f"Open the report in a browser, it needs no network: {REPORT.resolve()}", soft_wrap=True)
