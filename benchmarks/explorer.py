"""The page's engine in a real Chromium: the states of PyTorch on many problems, and the time that an iteration takes.

python benchmarks/explorer.py            (writes benchmarks/results/explorer.json; 1,000 problems for each model)
python benchmarks/explorer.py timed      (one part: compared or timed; the other stays as it is stored)

Needs playwright and Chromium. Milliseconds depend on what else the machine does: beside them are those of the processor, and
the load average.
"""

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from latentloop import LatentLoop
from latentloop.explorer.models import pack_model
from latentloop.explorer.page import ENGINE, STATIC, TASK, build_page
from latentloop.files import read_json, write_json
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
    """Compare every state, and take times."""
    path = Path(__file__).parent / "results" / "explorer.json"
    document = read_json(path) if path.exists() else {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for part in sys.argv[1:] or PARTS:
            models = [measure(browser, name, PARTS[part]) for name in MODELS]
            facts = {"chromium": browser.version, "load_average": os.getloadavg(), "provenance": provenance()}
            document[part] = {"models": models, **facts}
            write_json(path, document)
        browser.close()


def measure(browser: Browser, name: str, part: Callable[[Page, LatentLoop], Any]) -> dict[str, Any]:
    """Load a model into an empty page, and do one part with it."""
    packed = pack_model(name)
    page = browser.new_page()
    page.add_script_tag(content="\n".join((STATIC / file).read_text() for file in (*TASK, *ENGINE)))
    page.evaluate(BUILD, packed)
    trained = LatentLoop.from_pretrained(name)
    assert trained.model is not None  # once it is built PyTorch answers, and not NumPy
    rows = part(page, trained)
    page.close()
    size = len(build_page([packed]).encode())
    return {
        "name": name,
        "sha256": packed["sha256"],
        "precision": packed["precision"],
        "page_bytes": size,
        "rows": rows,
    }


def compared(page: Page, trained: LatentLoop) -> list[dict[str, Any]]:
    """Compare problems of all sizes."""
    return [compare(page, trained, nodes, count) for nodes, count in COMPARED]


def timed(page: Page, trained: LatentLoop) -> list[dict[str, Any]]:
    """Take times of all sizes."""
    return [take_times(page, trained, nodes, count) for nodes, count in TIMED]


PARTS: dict[str, Callable[[Page, LatentLoop], Any]] = {"compared": compared, "timed": timed}


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
    """Take the time of every iteration, after the same problems have been solved once to warm up."""
    problems = published_problems(trained.run.task, nodes, count, skip=SKIP)
    list(run_all(page, problems))
    before = processor_seconds()
    every = [each for _, found in run_all(page, problems) for one in found for each in one["milliseconds"]]
    processor = 1000 * (processor_seconds() - before) / len(every)
    milliseconds = {"median": statistics.median(every), "mean": statistics.fmean(every), "largest": max(every)}
    print(f"{nodes} nodes: {milliseconds['median']:.0f} ms an iteration, {processor:.0f} of the processor", flush=True)
    return {"nodes": nodes, "problems": count, "milliseconds": milliseconds | {"processor_mean": processor}}


def processor_seconds() -> float:
    """Return what Chromium, all processes that this one has started, has taken of the processor so far."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    for _ in stats:  # children may have smaller numbers than their parents
        found = {process for process, (parent, _) in stats.items() if parent in ours} - ours
        if not found:
            break
        ours |= found
    return sum(stats[process][1] for process in ours if process != os.getpid()) / os.sysconf("SC_CLK_TCK")


def run_all(page: Page, problems: Problems) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Run the page's engine on problems, a few at a time."""
    texts = [to_text(problems, row) for row in range(len(problems))]
    for start in range(0, len(texts), AT_ONCE):
        yield start, page.evaluate(RUN, texts[start : start + AT_ONCE])


if __name__ == "__main__":
    main()
