"""The page's engine in a real Chromium: the states of PyTorch on many problems, and the time that an iteration takes.

python benchmarks/explorer.py            (writes benchmarks/results/explorer.json; 1,000 problems for each model)

Needs playwright and Chromium. Times depend on what else the machine does: the load average is stored beside them.
"""

import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from latentloop import LatentLoop
from latentloop.explorer.models import pack_model
from latentloop.explorer.page import ENGINE, STATIC, TASK, build_page
from latentloop.files import write_json
from latentloop.provenance import provenance
from latentloop.task.graph import Problems
from latentloop.task.splits import published_problems
from latentloop.task.text import to_text

MODELS = ("laptop-add", "laptop-all")
COMPARED = ((16, 400), (32, 400), (64, 150), (128, 50))
"""Nodes and problems: a thousand in all."""
SKIP = 8192
TIMED = ((32, 8), (128, 8))
AT_ONCE = 10
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BUILD = """(model) => {
  const tensors = readTensors(model.tensors, bytesOf(model.data).buffer);
  globalThis.engine = new Engine({ ...model, tensors, task: makeTask(model.task) });
}"""
RUN = """(texts) => texts.map((text) => {
  const run = new Run(engine, parseProblem(text, engine.task));
  const milliseconds = [];
  while (!run.halt) {
    const start = performance.now();
    run.step();
    milliseconds.push(performance.now() - start);
  }
  return {
    states: run.values.map((state) => Array.from(state, (value) => (value === EMPTY ? null : value))),
    halt: run.halt.reason,
    milliseconds,
  };
})"""


def main() -> None:
    """Compare every state, then take times."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in MODELS:
            packed = pack_model(name)
            trained = LatentLoop.from_pretrained(name)
            page = browser.new_page()
            page.add_script_tag(content="\n".join((STATIC / file).read_text() for file in (*TASK, *ENGINE)))
            page.evaluate(BUILD, packed)
            row: dict[str, Any] = {"name": name, "precision": packed["precision"], "sha256": packed["sha256"]}
            row["page_bytes"] = len(build_page([packed]).encode())
            row["compared"] = [compare(page, trained, nodes, count or problems) for nodes, problems in COMPARED]
            row["timed"] = [take_times(page, trained, nodes, problems) for nodes, problems in TIMED]
            rows.append(row)
            page.close()
        version = browser.version
        browser.close()
    path = Path(__file__).parent / "results" / "explorer.json"
    document = {"models": rows, "chromium": version, "load_average": os.getloadavg(), "provenance": provenance()}
    if count is None:
        write_json(path, document)


def compare(page: Page, trained: LatentLoop, nodes: int, count: int) -> dict[str, int]:
    """Count problems on which the page went through the very states of PyTorch."""
    problems = published_problems(trained.run.task, nodes, count, skip=SKIP)
    same = 0
    states = 0
    clock = time.perf_counter()
    answers = trained.solve_problems(problems)
    for start, found in run_all(page, problems):
        for row, one in enumerate(found, start):
            wanted = [list(state.values()) for state in answers[row].trace]
            same += one["states"] == wanted and one["halt"] == answers[row].halt
            states += len(wanted)
    print(f"{nodes} nodes: {same} of {count} alike, {states} states, {time.perf_counter() - clock:.0f} s", flush=True)
    return {"nodes": nodes, "problems": count, "states": states, "same": same}


def take_times(page: Page, trained: LatentLoop, nodes: int, count: int) -> dict[str, Any]:
    """Take the time of every iteration but those of the first problem, which warms up."""
    problems = published_problems(trained.run.task, nodes, count + 1, skip=SKIP)
    runs = [one["milliseconds"] for _, found in run_all(page, problems) for one in found][1:]
    every = [each for run in runs for each in run]
    first = [run[0] for run in runs]
    shown = {
        "median": statistics.median(every),
        "mean": statistics.fmean(every),
        "smallest": min(every),
        "largest": max(every),
        "first_iteration": statistics.median(first),
    }
    print(
        f"{nodes} nodes: {shown['median']:.0f} ms an iteration in the median, {shown['largest']:.0f} at most",
        flush=True,
    )
    return {"nodes": nodes, "problems": count, "milliseconds": shown}


def run_all(page: Page, problems: Problems) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Run the page's engine on problems, a few at a time."""
    texts = [to_text(problems, row) for row in range(len(problems))]
    for start in range(0, len(texts), AT_ONCE):
        yield start, page.evaluate(RUN, texts[start : start + AT_ONCE])


if __name__ == "__main__":
    main()
