"""What a run tells while it goes: a line of JSON for every measurement, a CSV of them, TensorBoard events, live progress."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tensorboardX import SummaryWriter

from latentloop.files import writing


class RunLog:
    """The metrics of one run; those of steps that a resumed run does again are dropped first."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [row for row in read_log(folder) if row["step"] <= step]
        with writing(self.path) as file:
            file.writelines(json.dumps(row) + "\n" for row in kept)
        self.file = self.path.open("a", encoding="utf-8")
        self.events = SummaryWriter(str(folder / "events"), purge_step=step + 1)

    def write(self, kind: str, step: int, figures: dict[str, float]) -> None:
        """Record figures of a step: ``kind`` is train or validation."""
        self.file.write(json.dumps({"kind": kind, "step": step, **figures}) + "\n")
        self.file.flush()
        for name, value in figures.items():
            self.events.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Finish the files and write the CSV."""
        self.file.close()
        self.events.close()
        rows = read_log(self.path.parent)
        text = io.StringIO()
        table = csv.DictWriter(text, sorted({key for row in rows for key in row}, key=_column))
        table.writeheader()
        table.writerows(rows)
        with writing(self.path.with_suffix(".csv")) as file:
            file.write(text.getvalue())


def _column(name: str) -> tuple[int, str]:
    front = ("step", "kind", "loss")
    return front.index(name) if name in front else len(front), name


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Read the metrics of a run; a line cut off by a crash is left out."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


class LiveProgress:
    """A bar with the latest figures and the time that remains; in a file, a line now and then."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console = console
        columns = (
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("steps", total=total, completed=done, figures="")
        self.bar.start()

    def show(self, step: int, figures: dict[str, float], *, line: bool) -> None:
        """Show the figures after so many steps."""
        text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self.bar.update(self.task, completed=step, figures=text)
        if line and not self.console.is_terminal:
            self.console.print(f"step {step}  {text}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bar."""
        self.bar.stop()
