"""Figures of stored results: list them, draw them again. Nothing is measured here, and torch is never imported."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from latentloop.commands.terminal import Json, print_json, progress, stderr
from latentloop.commands.terminal import output as standard_output
from latentloop.errors import UserError
from latentloop.experiments.jobs import Scale
from latentloop.experiments.store import SHIPPED
from latentloop.experiments.table import EXPERIMENTS
from latentloop.files import check_writable

if TYPE_CHECKING:
    from rich.table import Table

FigureNames = Positional[Annotated[tuple[str, ...], arg(metavar="[NAME ...]")]]
ALL = "all"


def figures(
    names: FigureNames = (),
    *,
    folder: Path = SHIPPED,
    output: Path = Path("docs/images"),
    scale: Scale = "laptop",
    formats: tuple[Literal["png", "pdf", "svg"], ...] = ("png", "pdf"),
    json: Json = False,
) -> None:
    """Draw figures again from stored results of experiments, or list them, with the results that are missing.

    A figure is drawn from what is there, and says how many runs are not measured yet. `all` draws every figure that has
    results.

    Args:
        names: Figures to draw, or all. Default: list them.
        folder: Where results are stored, in results/.
        output: Folder for the figures.
        scale: Whose runs to draw: laptop, further (trained on up to 32 nodes), or paper (full size).
        formats: Kinds of files to write: bitmaps (png), vectors (pdf, svg).
        json: Print one JSON document on standard output, and nothing else there.
    """
    from latentloop.experiments.scores import load
    from latentloop.report.ladder import figure_named, missing, names_at, paths, redraw

    if not names_at(scale):
        raise UserError(f"the scale {scale} has no figures")
    for name in names:
        if name != ALL:
            figure_named(name, scale)
    chosen = names_at(scale) if ALL in names else list(dict.fromkeys(names))
    if not formats:
        raise UserError("--formats needs at least one of png, pdf, svg")
    if folder != SHIPPED and not folder.is_dir():
        raise UserError(f"there is no folder {folder}: --folder is where experiments are stored")
    results = load(folder, scale)
    if not names:
        rows = _rows(results, scale)
        if json:
            print_json({"scale": scale, "folder": str(folder), "figures": rows})
        else:
            standard_output().print(_table(rows))
        return
    suffixes = [f".{kind}" for kind in dict.fromkeys(formats)]
    for name in chosen:
        for path in paths(name, output, scale, suffixes):
            check_writable(path)
    written: list[Path] = []
    with progress("files", len(chosen) * len(suffixes)) as advance:
        for path in redraw(None if ALL in names else chosen, results, output, scale, suffixes):
            written.append(path)
            advance(1)
    if not written:
        first = next(name for name, one in EXPERIMENTS.items() if one.figures and one.points[0].scale == scale)
        raise UserError(f"no figure has results in {folder / 'results'}: run `latentloop reproduce {first}` first")
    for name in chosen:
        left = [job.name for job in missing(name, results, scale)]
        if left and paths(name, output, scale, suffixes)[0] in written:
            stderr.print(f"{name}: not measured yet: {_first(left)}")
    stderr.print(f"wrote {len(written)} files to {output}")
    if json:
        print_json({"files": [str(path) for path in written]})


def _first(names: list[str], most: int = 3) -> str:
    """Name some runs."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _rows(results: dict[str, Any], scale: Scale) -> list[dict[str, Any]]:
    """Return what is listed of each figure."""
    from latentloop.report.ladder import FIGURES, missing, names_at

    return [
        {
            "name": name,
            "title": FIGURES[name].title,
            "repeats": FIGURES[name].repeats,
            "runs": len(FIGURES[name].jobs(scale)),
            "missing": [job.name for job in missing(name, results, scale)],
        }
        for name in names_at(scale)
    ]


def _table(rows: list[dict[str, Any]]) -> "Table":
    """Return the list as a table."""
    from latentloop.report.console import plain_table

    table = plain_table("figure", "runs stored", "missing", "paper's figure", "shows")
    for row in rows:
        stored = f"{row['runs'] - len(row['missing'])} of {row['runs']}"
        points = list(dict.fromkeys(name.rpartition("-seed")[0] for name in row["missing"]))
        table.add_row(row["name"], stored, _first(points, 1), row["repeats"] or "(ours)", row["title"])
    return table
