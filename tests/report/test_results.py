"""The page of results says what is stored, and what is not."""

import re

import pytest

from experiment_documents import documents, everything, labels_of, with_steps
from latentloop.experiments.claims import claims
from latentloop.experiments.table import EXPERIMENTS, POINTS
from latentloop.report.ladder import FIGURES, names_at
from latentloop.report.results import CLAIM_FIGURES, PAGE_SCALES, PARTS


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


def _all_drawn(name):
    return f"images/{name}.png"


def test_every_claim_has_its_figures():
    assert CLAIM_FIGURES.keys() == claims().keys()
    assert {name for names in CLAIM_FIGURES.values() for name in names} <= FIGURES.keys()


def test_the_page_without_results_says_so():
    page = {name: part({}, lambda name: None) for name, part in PARTS.items()}
    assert page["verdicts"].count("**not measured yet**") == len(claims())
    assert page["runs"] == "No run is stored yet."
    assert page["figures"] == "No figure is drawn yet."
    assert f"| `ladder` | 0 of {len(EXPERIMENTS['ladder'].jobs)} | `feedforward-seed0`" in page["missing"]


def test_the_page_of_all_results():
    results = everything()
    page = {name: part(results, _all_drawn) for name, part in PARTS.items()}
    assert "not measured yet" not in page["verdicts"] + page["claims"]
    assert page["figures"].count("![") == sum(len(names_at(scale)) for scale in PAGE_SCALES)
    assert len(page["runs"].splitlines()) == len(results) + 2
    lines = page["missing"].splitlines()[2:]
    assert all(line.endswith("| nothing |") for line in lines if "`further`" not in line)
    for name in re.findall(r"\(#(?:figure-)?([\w-]+)\)", page["claims"] + page["verdicts"]):
        assert f"### Figure {name}\n" in page["figures"] or f"### {name}\n" in page["claims"]


def test_a_row_of_the_table_of_runs():
    runs = PARTS["runs"](documents(cot_4x={8: 1.0, 20: 0.25}), _all_drawn)
    about = f"Eq-Val {labels_of(POINTS['cot-4x'].jobs[0])['model']}, 4x the budget"
    assert (
        runs.splitlines()[-1]
        == f"| `cot-4x` | 0 | cot | {about} | 4,000 | 64,000 | 8.0 | 10.0 | 1,190 | 100.0 | 25.0 |"
    )
