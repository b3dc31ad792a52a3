"""The report of an interpretation, from the results that docs/studies holds: what rests on an analysis, and the pictures."""

from dataclasses import replace
from pathlib import Path

from latentloop.interpret.claims import STATEMENTS
from latentloop.interpret.study import read_study
from latentloop.report.study import study_charts, study_parts

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
SMALL = read_study(STUDIES / "continuous-seed0")
"""A study of few analyses, with few numbers."""


def verdict_on(analysis, verdicts):
    """Return what the report says of an analysis when the statements that rest on it have these verdicts."""
    resting = [claim for claim in SMALL.claims if analysis in STATEMENTS[claim.name].needs]
    claims = [replace(claim, verdict=verdict) for claim, verdict in zip(resting, verdicts, strict=False)]
    study = replace(SMALL, claims=claims)
    parts = study_parts(study, study_charts(study))
    (part,) = [one for one in parts if one.title == "Between iterations"]
    return part.verdict.text


def test_an_analysis_says_whether_statements_rest_on_it():
    assert verdict_on("iterations", []).startswith("no statement rests on it")
    one = verdict_on("iterations", ["does not apply"])
    assert one == "the statement that rests on it does not apply: the numbers are all it says"
    assert verdict_on("iterations", ["not computed"]).startswith("the statement that rests on it is not computed")
    assert verdict_on("iterations", ["supported"]) == "1 of 1 statements that rest on it are supported"
