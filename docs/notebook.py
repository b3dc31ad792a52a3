"""Run docs/tour.ipynb from top to bottom and store its outputs. tests/test_docs.py runs it too, and compares.

python docs/notebook.py
"""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from latentloop.files import writing

PATH = Path(__file__).parent / "tour.ipynb"


def executed(path: Path = PATH) -> Any:
    """Return a notebook with the outputs that it has now; raise where a cell does. Warnings are left out."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # times of execution
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def said(notebook: Any) -> list[list[str]]:
    """Return what every code cell says: its text, or of a table its cells; pictures are only told to be there."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[_text(output) for output in cell.outputs] for cell in cells]


def _text(output: Any) -> str:
    data = output.get("data", {})
    return "picture" if "image/png" in data else data.get("text/html") or data.get("text/plain") or output.text


if __name__ == "__main__":
    notebook = executed()
    nbformat.validate(notebook)
    with writing(PATH) as file:
        nbformat.write(notebook, file)
