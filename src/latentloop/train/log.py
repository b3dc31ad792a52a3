"""What a run tells while it goes: a line of JSON for every measurement, a CSV of them, TensorBoard events, live progress.

None of these is worth a run: where the disk is full, training says so once and goes on to its next checkpoint.
"""

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyrefly: ignore
from tensorboardX.summary import scalar

from latentloop.errors import UserError
from latentloop.files import parse_json, to_json, writing

MAX_LINE = 65_536


class RunLog:
    """The metrics of one run; those of steps that a resumed run does again are dropped first."""

    def __init__(self, folder: Path, step: int, say: Callable[[str], None]) -> None:
        self.path, self.say = folder / "metrics.jsonl", say
        self.lost: set[str] = set()
        rows, damaged = _read(self.path)
        if damaged:
            say(f"{self.path}: left out {damaged} lines that are no measurements")
        with writing(self.path) as file:
            file.writelines(to_json(row) + "\n" for row in rows if row["step"] <= step)
        self.file = self.path.open("ab")
        self.events: Events | None = None
        with self._at_best("events"):
            self.events = Events(folder / "events", step)

    def write(self, kind: str, step: int, figures: dict[str, float]) -> None:
        """Record figures of a step: ``kind`` is train or validation."""
        with self._at_best("metrics.jsonl"):  # what a full disk does not take stays buffered, and is tried again
            self.file.write(to_json({"kind": kind, "step": step, **figures}).encode() + b"\n")
            self.file.flush()
        if self.events is not None and "events" not in self.lost:
            with self._at_best("events"):
                self.events.write(kind, step, figures)

    def close(self) -> None:
        """Finish the files and write the CSV."""
        with self._at_best("metrics.jsonl"):
            self.file.close()
        if self.events is not None:
            with self._at_best("events"):
                self.events.close()
        rows = read_log(self.path.parent)
        text = io.StringIO()
        table = csv.DictWriter(text, sorted({key for row in rows for key in row}, key=_column))
        table.writeheader()
        table.writerows(rows)
        with self._at_best("metrics.csv"), writing(self.path.with_suffix(".csv")) as file:
            file.write(text.getvalue())

    def _at_best(self, name: str) -> "_AtBest":
        return _AtBest(self, name)


class _AtBest:
    """Within this context, a file that cannot be written costs a line on the console, once, and not the run."""

    def __init__(self, log: RunLog, name: str) -> None:
        self.log, self.name = log, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, OSError | UserError):
            return False
        if self.name not in self.log.lost:
            self.log.lost.add(self.name)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.log.say(f"cannot write {self.log.path.with_name(self.name)}: {reason}; training goes on")
        return True


class Events:
    """TensorBoard's event file, written in the calling thread: a queue to a thread that died would block forever."""

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = EventsWriter(str(folder / "events"), f".{step}")
        start = SessionLog(status=SessionLog.START)  # hides events of later steps, which are done again
        self.writer.write_event(Event(step=step + 1, session_log=start))
        self.writer.flush()

    def write(self, kind: str, step: int, figures: dict[str, float]) -> None:
        """Add figures of a step."""
        for name, value in figures.items():
            event = Event(step=step, wall_time=time.time(), summary=scalar(f"{kind}/{name}", value))
            self.writer.write_event(event)
        self.writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()


def _column(name: str) -> tuple[int, str]:
    front = ("step", "kind", "loss")
    return front.index(name) if name in front else len(front), name


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run; lines that are no measurements, such as one cut off by a crash, are left out."""
    return _read(folder / "metrics.jsonl")[0]


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the measurements of a metrics file, and the number of other lines."""
    rows: list[dict[str, Any]] = []
    damaged = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE):
                row = _measurement(line)
                rows += [] if row is None else [row]
                damaged += row is None
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return rows, damaged


def _measurement(line: bytes) -> dict[str, Any] | None:
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int or not isinstance(row.get("kind"), str):
        return None
    numbers = all(value is None or type(value) in (int, float) for name, value in row.items() if name != "kind")
    return row if numbers and row["step"] >= 0 else None


class LiveProgress:
    """Step, bar, time left and loss, and other figures as room allows; in a file, a line now and then."""

    TIME = 9  # characters of the time left

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console, self.total = console, total
        label, bar, _ = self._layout()
        columns = (
            *([TextColumn("step")] if label else []),
            MofNCompleteColumn(),
            BarColumn(bar_width=bar),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
        )
        self.bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal, speed_estimate_period=600
        )
        self.task = self.bar.add_task("steps", total=total, completed=done, figures="")
        self.bar.start()

    def _layout(self) -> tuple[bool, int, int]:
        """Return whether there is room for a label, the width of the bar, and the characters left for figures."""
        width = self.console.width
        label = width >= 60
        taken = 2 * len(str(self.total)) + 1 + self.TIME + 4 * label + (3 + label)  # a blank after each column
        bar = max(3, min(width // 5, width - taken - len("loss 0.1234")))
        return label, bar, width - taken - bar

    def advance(self, step: int) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=step)

    def show(self, step: int, figures: dict[str, float], *, line: bool) -> None:
        """Show the figures after a step, the first of them in any case."""
        texts = [f"{name} {value:.4g}" for name, value in figures.items()]
        shown, room = texts[0], self._layout()[2]
        for text in texts[1:]:
            if len(shown) + 2 + len(text) > room:
                break
            shown += f"  {text}"
        self.bar.update(self.task, completed=step, figures=shown)
        if line and not self.console.is_terminal:
            self.console.print(f"step {step}  {'  '.join(texts)}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bar."""
        self.bar.stop()
