"""Look at a model: explore."""

import os
import re
import sys
import webbrowser
from pathlib import Path
from typing import Any

from latentloop.commands.terminal import CheckpointName, problem_text, stderr
from latentloop.config import GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.files import check_writable, writing
from latentloop.presets import DEFAULT_MODEL
from latentloop.task.graph import sample
from latentloop.task.splits import sampled_generator
from latentloop.task.text import parse, to_text

OPENING_NODES, OPENING_SEED = 24, 4
"""The problem that a page opens with, if its user names none."""


def explore(
    checkpoint: CheckpointName = None,
    *,
    problem: str | None = None,
    compare: str | None = None,
    output: Path = Path("explore.html"),
    open: bool = True,
) -> None:
    """Write one HTML file in which a model solves problems before your eyes, and open it.

    The model is in the file, which needs no server and no network. In it: type a problem or sample one, step through the
    iterations, break values and watch the repair, ask why of any value, search for a failure.

    Args:
        checkpoint: The model: a shipped name, a checkpoint or run folder, or a hub id. Default: laptop-all.
        problem: Equations to begin with, a file of them, or - for standard input. Default: a sample of 24 nodes.
        compare: A second model, shown side by side with the first.
        output: File to write; its name ends in .html.
        open: Do not open the page. Default: it opens in the browser, where there is a screen.
    """
    if output.suffix not in (".html", ".htm"):
        raise UserError(f"--output must end in .html, got {output.name!r}")
    check_writable(output)
    text = None if problem is None else problem_text(problem)
    from latentloop.explorer.models import pack_model
    from latentloop.explorer.page import build_page

    names = [checkpoint or DEFAULT_MODEL, *([compare] if compare is not None else [])]
    models = [pack_model(name, _title(name)) for name in names]
    task = _task(models[0])
    begin = _opening(task) if text is None else to_text(parse(text, task))
    page = build_page(models, problem=begin.replace(" ; ", "\n")).encode()
    with writing(output, "wb") as file:
        file.write(page)
    stderr.print(f"wrote {output} ({len(page) / 1e6:.1f} MB): one file, to be opened in any browser")
    if open and sys.stdout.isatty() and _has_screen():
        webbrowser.open(output.resolve().as_uri())


def _title(name: str) -> str:
    """Name a model after what was typed: a shipped name, or the last parts of a path."""
    words = [word for word in Path(name).parts if word != "/"]
    return "/".join(words[-2:] if re.match("best$|last$|step-", words[-1]) else words[-1:])


def _task(model: dict[str, Any]) -> TaskConfig:
    task = model["task"]
    return TaskConfig(operations=tuple(task["operations"]), modulus=task["modulus"], names=task["names"])


def _opening(task: TaskConfig) -> str:
    graph = GraphConfig(nodes=min(OPENING_NODES, task.names))
    return to_text(sample(task, graph, 1, sampled_generator(OPENING_SEED, 0)))


def _has_screen() -> bool:
    """Return whether a browser with windows can be expected: without one, a browser for terminals would take this one."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
