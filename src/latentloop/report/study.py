"""The report of an interpretation."""

from pathlib import Path


def write_report(folder: Path) -> Path:
    """Draw all figures and the page from the results in a folder."""
    return folder
