"""The report of an interpretation, from the results that docs/studies holds: what rests on an analysis, and the pictures."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from latentloop.interpret.claims import STATEMENTS
from latentloop.interpret.study import read_study
from latentloop.report.study import draw_pictures, picture_source, study_charts, study_parts

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
    return f"{part.verdict.label}: {part.verdict.text}"


def test_an_analysis_says_whether_statements_rest_on_it():
    assert verdict_on("iterations", []).startswith("numbers: no statement rests on it")
    one = verdict_on("iterations", ["does not apply"])
    assert one == "numbers: the statement that rests on it does not apply: the numbers are all it says"
    assert verdict_on("iterations", ["not computed"]).startswith(
        "numbers: the statement that rests on it is not computed"
    )
    assert verdict_on("iterations", ["supported"]) == "1 of 1 supported: the statement that rests on it"


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in STUDIES.glob("*/verdicts.json")), ids=lambda one: one.name
)
def test_pictures_are_drawn_from_what_is_stored(folder):
    charts = study_charts(read_study(folder))
    named = {name: chart for figures in charts.values() for name, chart in figures.items()}
    assert {path.stem for path in folder.glob("*.png")} == named.keys(), "run python docs/build.py"
    for name, chart in named.items():
        source = Image.open(folder / f"{name}.png").info.get("Description")
        assert source == picture_source(name, chart), f"{name}.png is of other results: run python docs/build.py"


def test_a_picture_says_what_it_was_drawn_from(tmp_path):
    charts = {"drift": study_charts(SMALL)["drift"]}
    (path,) = draw_pictures(tmp_path, charts)
    first = path.read_bytes()
    assert Image.open(path).info["Description"] == picture_source("drift", charts["drift"]["drift"])
    draw_pictures(tmp_path, charts)
    assert path.read_bytes() == first
    stored = SMALL.stored["drift"]
    changed = replace(stored, result=replace(stored.result, right=stored.result.right / 2))
    other = study_charts(replace(SMALL, stored=SMALL.stored | {"drift": changed}))["drift"]["drift"]
    assert picture_source("drift", other) != picture_source("drift", charts["drift"]["drift"])
    assert picture_source("drift", replace(other, caption="")) == picture_source("drift", other)


@pytest.mark.parametrize("name", ["corrected-4x-seed0", "laptop-all"])
def test_every_axis_has_a_name_and_every_share_ends_at_1(name):
    charts = study_charts(read_study(STUDIES / name))
    for figures in charts.values():
        for title, chart in figures.items():
            for place, panel in enumerate(getattr(chart, "panels", ())):
                if panel.kind != "heatmap":
                    assert panel.y_label or place % chart.columns, f"{title}: {panel.title}"
                if panel.y_label.startswith("share"):
                    assert panel.top in (1.0, None), f"{title}: {panel.title}"


def test_heads_between_the_first_and_the_last_layer_are_shown():
    study = read_study(STUDIES / "corrected-4x-seed0")
    layers = len(study.results["heads"].layers)
    charts = study_charts(study)["heads"]
    for name, count in (("heads-names", 4), ("heads-lookups", 3)):
        assert len(charts[name].panels) == count * (layers - 1)
        assert charts[name].columns == count
        assert "layer 3" in charts[name].panels[-1].title


def test_ablated_parts_are_compared_with_the_whole_model():
    study = read_study(STUDIES / "discrete-plain-long-seed0")
    chart, ablation = study_charts(study)["ablation"]["ablation"], study.results["ablation"]
    assert all([level.y for level in panel.levels] == [ablation.solved, ablation.values] for panel in chart.panels)
    assert "is its mean" in chart.caption
    assert "is 0" not in chart.caption
