"""Write what README and docs quote from stored results: tables between ``<!-- built: NAME -->`` marks, a page for each model
that was interpreted, and the pictures.

Nothing is measured here. tests/test_numbers.py checks that all of it is up to date, and that every other measured number
in the text is that of a stored result (docs/numbers.toml says which).

A picture of a model's study is drawn where it shows something else than before; with ``--again`` all are, for changes of how
they look.

python docs/build.py
"""

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

import page_studies
import page_tables
from latentloop.evaluate.metrics import wilson
from latentloop.files import writing
from latentloop.interpret.study import judge_again, read_study
from latentloop.report.figures import results_figure
from latentloop.report.graph import save_figure
from latentloop.report.ladder import redraw
from latentloop.report.results import PAGE_SCALES, PARTS
from latentloop.report.study import draw_pictures, picture_source, study_charts
from page_sources import MODELS, ROOT, STUDIES, seeds_of, sources, study_folders

IMAGES = ROOT / "docs" / "images"
PICTURE = IMAGES / "results.png"


def _page_part(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what writes a part of the page of results."""
    return lambda found: PARTS[name](found["experiments"], _drawn)


def _drawn(name: str) -> str | None:
    """Return where the page finds a figure's picture, if there is one."""
    return f"images/{name}.png" if (IMAGES / f"{name}.png").is_file() else None


TABLES = {
    "reproduce": page_tables.reproduce_table,
    "statements": page_studies.statements_table,
    "rules": page_studies.rules_table,
    "analyses": page_studies.analyses_table,
    "sources": page_studies.sources_table,
    "results": page_tables.results_table,
    "seeds": page_tables.seeds_table,
    "worst": page_tables.worst_table,
    "factors": page_tables.factors_table,
    "large": page_tables.large_table,
    "order": page_tables.order_table,
    "costs": page_tables.costs_table,
    "iteration": page_tables.iteration_table,
    "decoding": page_tables.decoding_table,
    "faults": page_tables.faults_table,
    "fuzz": page_tables.fuzz_table,
    **{name: _page_part(name) for name in PARTS},
}
PAGES = (
    "docs/interpret.md",
    "README.md",
    "docs/recipe.md",
    "docs/engine.md",
    "docs/task.md",
    "docs/fidelity.md",
    "docs/reliability.md",
    "docs/results.md",
    "docs/halting.md",
    "docs/reproduce.md",
)
MARKS = re.compile(r"(<!-- built: (\w+) -->\n).*?(<!-- end -->)", re.S)


def built(text: str, found: Mapping[str, Any]) -> str:
    """Return a page with all tables between marks written anew."""
    return MARKS.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](found)}\n\n{match[3]}", text)


def study_pages(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the page of every model that was interpreted, by its path."""
    folder = STUDIES.relative_to(ROOT)
    return {
        f"{folder}/{name}/verdicts.md": page_studies.study_page(name, one) for name, one in found["studies"].items()
    }


def pictured(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return what the picture shows: of each model all seeds, and of the largest one the problems far beyond training."""
    shown = {name: [{"rows": list(run["rows"])} for run in seeds_of(found, name)] for name in MODELS}
    beyond = [row for row in found["derived"]["large"].values() if row["family"] == "random"]
    for name in MODELS:
        shown[name][0]["model"] = found[f"{name}-seed0"]["model"]
    for row in beyond:
        for one, count in zip(shown[MODELS[-1]], row["counts"], strict=False):  # of the seeds that were measured
            low, high = wilson(count, row["problems"])
            solved = {"solved": count / row["problems"], "solved_low": low, "solved_high": high}
            one["rows"].append(row | solved)
    return shown


def draw_study(folder: Path, *, again: bool) -> None:
    """Draw the figures of a model that was interpreted, those that changed or all again; remove what is not among them."""
    charts = {name: one for figures in study_charts(read_study(folder)).values() for name, one in figures.items()}
    sources = {path.stem: Image.open(path).info.get("Description") for path in folder.glob("*.png")}
    stale = {name: one for name, one in charts.items() if again or sources.get(name) != picture_source(name, one)}
    draw_pictures(folder, {"stale": stale})
    for name in sources.keys() - charts.keys():
        (folder / f"{name}.png").unlink()


def main(*, again: bool) -> None:
    """Judge stored studies by the statements as they are now, draw figures, then write all pages."""
    for folder in study_folders():
        judge_again(folder)
        draw_study(folder, again=again)
    found = sources()
    for scale in PAGE_SCALES:
        list(redraw(None, found["experiments"], IMAGES, scale))
    save_figure(results_figure(pictured(found)), PICTURE)
    write_pages(found)


def write_pages(found: Mapping[str, Any]) -> None:
    """Write all tables anew, and the pages of models."""
    texts = {page: built((ROOT / page).read_text(), found) for page in PAGES}
    for page, text in (texts | study_pages(found)).items():
        with writing(ROOT / page) as file:
            file.write(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write tables, pages and pictures from stored results.")
    parser.add_argument(
        "--again", action="store_true", help="draw pictures of studies that show the same as before, too"
    )
    main(again=parser.parse_args().again)
