"""The page of results says what is stored, and what is not."""

import importlib
import re
from pathlib import Path

import pytest

from experiment_documents import documents, everything, labels_of, with_steps
from latentloop.experiments.claims import claims, decide_all
from latentloop.experiments.jobs import MINUTES, TIMED
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
    about = f"Eq-Val {labels_of(POINTS['cot-4x'].jobs[0])['model']}, few names first, 4x the budget"
    assert (
        runs.splitlines()[-1]
        == f"| `cot-4x` | 0 | cot | {about} | 4,000 | 64,000 | 8.0 | 10.0 | 1,190 | 100.0 | 25.0 |"
    )


def test_what_was_compared_stands_under_its_claim_with_what_to_read_beside_it():
    results = documents(
        continuous=0.0,
        discrete={"solved": 0.9, "loss": 2.0},
        discrete_rope={"solved": {8: 1.0, 20: 0.1}, "loss": 1.0},
        continuous_4x=0.5,
    )
    page = {name: PARTS[name](results, _all_drawn) for name in ("claims", "verdicts")}
    about = page["claims"].split("### discrete-over-continuous")[1].split("###")[0]
    assert [line.split(" | ")[:2] for line in about.splitlines() if line.startswith("| `")] == [
        ["| `continuous`", "compared"],
        ["| `discrete-rope`", "compared"],
        ["| `continuous-4x`", "continuous: four times the budget"],
        ["| `discrete`", "discrete: as the ladder sets it up"],
    ]
    assert "| `discrete-rope` | compared | 100.0 % (99.9 .. 100.0) | 10.0 % (" in about
    assert "90.0, 90.0, 90.0 % (" in about
    (row,) = [line for line in page["verdicts"].splitlines() if "(#discrete-over-continuous)" in line]
    assert "| 0.0 .. 100.0 |" in row
    assert "| - |" in next(line for line in page["verdicts"].splitlines() if "(#stable-first)" in line)


def test_the_score_counts_verdicts_that_may_change():
    results = everything()
    assert "so far" not in PARTS["score"](results, _all_drawn)
    fewer = {name: result for name, result in results.items() if result["point"] != "discrete-L4"}
    waiting = [verdict for verdict in decide_all(fewer) if verdict.waiting]
    said = PARTS["score"](fewer, _all_drawn)
    assert sum(int(count) for count in re.findall(r"\((\d+) so far\)", said)) == len(waiting) > 2
    assert re.search(r"\d+ reproduced \(\d+ so far\)", said)
    assert 'A verdict "so far" may change' in said


def test_the_table_of_runs_does_not_call_passes_tokens():
    heads = PARTS["runs"](documents(cot=0.5), _all_drawn).splitlines()[0]
    assert "| million token passes |" in heads


def test_the_page_says_what_all_runs_cost():
    timed = [job for point in POINTS.values() if point.scale in TIMED for job in point.jobs]
    minutes = MINUTES * sum(job.point.budget for job in timed)
    said = PARTS["cost"](documents(cot=0.5), _all_drawn)
    assert f"{len(timed)} runs, {minutes:,.0f} minutes of one core" in said
    assert "The 3 runs above took 60 minutes" in said  # 1,190.5 seconds each


def test_ratios_of_decoding_say_of_what(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")
    row = {"nodes": 8, "latent_seconds": 0.01, "chain_seconds": 0.05, "ratio": 5.1, "ratio_quartiles": [4.9, 5.25]}
    row |= {"latent_bytes": 6e5, "chain_bytes": 5e5, "bytes_ratio": 0.84}
    heads, _, line = importlib.import_module("page_tables").decoding_table({"decoding": {"rows": [row]}}).splitlines()
    by_head = dict(zip(heads.split(" | "), line.split(" | "), strict=True))
    assert by_head["time, chain / latent"] == "5.1 (4.9 .. 5.2)"
    assert by_head["memory, chain / latent |"] == "0.84 |"
