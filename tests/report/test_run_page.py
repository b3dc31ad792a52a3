import json
import shutil
from pathlib import Path

import plotly.graph_objects as go
import pytest

from latentloop.config import RunConfig
from latentloop.evaluate.hub import shipped
from latentloop.report.page import FigureBlock, TableBlock, page_html
from latentloop.report.run_page import report_page
from latentloop.report.stored import StoredRun, check_result, read_folder, read_result

FOLDER = shipped("laptop-add")
CURVES = {"8": {"solved_by_iteration": [0, 0.5, 1], "right_by_depth": {"1": 1.0, "2": 0.5}, "halts": {"fixpoint": 2}}}
ROWS = [
    {"kind": kind, "step": step, "loss": 10.0 / step, "right_leaf": 0.5, "right_one": 0.2, "lr": 0.1}
    for kind in ("train", "validation")
    for step in range(1, 3000)
]


def _evaluation(**changes):
    document = json.loads((FOLDER / "evaluation.json").read_text()) | {"curves": CURVES}
    return document | changes


def _blocks(page, kind):
    return [block for section in page.sections for block in section.blocks if isinstance(block, kind)]


def test_a_shipped_folder_gives_all_its_results():
    page = report_page(read_folder(FOLDER))
    headings = " ".join(section.heading for section in page.sections)
    for words in ("was trained", "How far", "size by size", "arithmetic", "not trained"):
        assert words in headings
    document = json.loads((FOLDER / "evaluation.json").read_text())
    html = page_html(page)
    assert document["model"]["sha256"][:12] in html
    assert document["provenance"]["commit"] in html
    for row in document["rows"]:
        assert any(
            row["nodes"] in cells and "100.00" in cells for table in _blocks(page, TableBlock) for cells in table.rows
        )


def test_a_run_and_evaluations_are_drawn_with_figures_that_plotly_knows():
    run = StoredRun(name="first", run=RunConfig(), rows=ROWS, metrics={"step": 2999, "seconds": 8000, "best_loss": 0.1})
    one, other = (check_result(_evaluation(), Path(name)) for name in ("one.json", "other.json"))
    page = report_page([run, one, other])
    figures = [block.figure for block in _blocks(page, FigureBlock)]
    assert len(figures) == 4 + 1 + 2 * 2
    drawn = [go.Figure(figure) for figure in figures]  # raises where an attribute is none of plotly's
    loss = drawn[0].data
    assert {trace.name for trace in loss} == {"train", "validation"}
    assert all(len(trace.x) <= 1001 and trace.x[-1] == 2999 and trace.y[-1] == 10 / 2999 for trace in loss)
    assert [trace.name for trace in drawn[4].data] == ["one", "other"]
    assert drawn[4].layout.shapes[0].x1 == 32
    assert list(drawn[5].data[0].y) == [0, 50, 100]
    assert [list(row) for row in drawn[6].data[0].z] == [[100, 50]]
    assert "2.2 h" in page_html(page)


def test_a_document_is_the_same_before_and_after_it_is_stored():
    measured = {8: CURVES["8"] | {"right_by_depth": {1: 1.0, 2: 0.5}}}  # keys of JSON are strings
    pages = [report_page([check_result(_evaluation(curves=curves), Path("a"))]) for curves in (CURVES, measured)]
    assert page_html(pages[0]) == page_html(pages[1])


def test_the_command_writes_one_file(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(_evaluation()))
    assert run("report", "a.json") == (0, "", "wrote results/a-report.html\n")
    code, _, said = run("report", "laptop-add", "a.json", "--output", "b.html")
    assert (code, said) == (0, "wrote b.html\n")
    assert "<h1>Report: laptop-add, a</h1>" in (tmp_path / "b.html").read_text()


def _broken_run(folder):
    shutil.copytree(FOLDER, folder)
    (folder / "config.json").write_text('{"method": {"name": "nothing"}}')


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing"], "no run and no result at 'missing'"),
        ([], "a report needs a run folder"),
        (["empty"], "no run at empty"),
        (["broken"], "cannot use broken/config.json: unknown"),
        (["text.json"], "it is not JSON"),
        (["list.json"], "expected a JSON object"),
        (["foreign.json"], "and it has no list of rows"),
        (["rows.json"], "a row of it has 'many' as nodes"),
        (["share.json"], "a row of it has 40 as solved"),
        (["curves.json"], "one of its curves has '<b>'"),
        (["model.json"], "it has no model"),
        (["deep.json"], "a result is nested too deeply"),
        (["good.json", "--output", "page.txt"], "must end in .html"),
        (["good.json", "--output", "empty"], "must end in .html"),
        (["good.json", "--output", "text.json/page.html"], "is a file"),
    ],
)
def test_bad_input_is_one_line(words, said, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = _evaluation()["rows"]
    documents = {
        "list": [1], "foreign": {"a": 1}, "good": _evaluation(), "model": _evaluation(model=None),
        "rows": _evaluation(rows=[rows[0] | {"nodes": "many"}]), "share": _evaluation(rows=[rows[0] | {"solved": 40}]),
        "curves": _evaluation(curves={"8": {"solved_by_iteration": ["<b>"], "right_by_depth": {}}}),
    }  # fmt: skip
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "text.json").write_text("{")
    deep = json.dumps(_evaluation(settings="deep")).replace('"deep"', '{"a":' * 800 + "1" + "}" * 800)
    (tmp_path / "deep.json").write_text(deep)
    (tmp_path / "empty").mkdir()
    _broken_run(tmp_path / "broken")
    before = sorted(tmp_path.rglob("*"))
    code, out, error = run("report", *words)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_hostile_text_of_a_result_is_shown_as_text():
    evil = "<script>alert(1)</script>"
    document = _evaluation(model={"checkpoint": evil, "name": evil, "method": evil, "config": {evil: evil}})
    html = page_html(report_page([check_result(document, Path(f"{evil}.json"))]))
    assert evil not in html
    assert "&lt;script&gt;alert" in html


def test_an_interrupted_evaluation_says_so():
    pages = [report_page([check_result(_evaluation(**more), Path("a"))]) for more in ({}, {"interrupted": True})]
    assert ["Interrupted" in page_html(page) for page in pages] == [False, True]


def test_stress_and_certificates_say_when_something_is_wrong():
    stress = json.loads((FOLDER / "stress.json").read_text())
    stress["rows"][0]["solved"] = 0.5
    certificate = json.loads((FOLDER / "certificate.json").read_text())
    certificate["sizes"][0]["wrong"] = [{"pattern": "a + b", "operands": [1, 2], "said": 4}]
    page = report_page([check_result(document, Path("a.json")) for document in (stress, certificate)])
    assert [section.verdict.kind for section in page.sections] == ["partly", "no"]
    assert read_result(FOLDER / "stress.json").kind == "stress"
