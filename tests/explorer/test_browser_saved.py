"""The page in a real Chromium: links, saved runs, pages and pictures, and opening them again."""

import json

import pytest

from latentloop.explorer.runs import check_run, record_run
from paper import SEVEN_NODES


def test_a_link_leads_back_to_the_moment(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.evaluate("latentloop.go(2)")
        page.locator(".node").nth(4).click()
        page.evaluate("latentloop.change([[1, 5], [2, -1]])")
        page.settled()
        page.until("location.hash.includes('b=2')")
        link = page.evaluate("location.hash")
        before = page.moment()
    with visit() as page:
        page.open(page_file, link)
        page.until("latentloop.iteration === 2")
        assert page.moment() == before
        assert page.evaluate("latentloop.selected") == 4
        assert page.evaluate("latentloop.changes") == [{"at": 2, "values": [[1, 5], [2, -1]]}]


@pytest.mark.parametrize(
    "link",
    ["#p=x1", "#p=3%3Dx1&t=-5", "#p=3%3Dx1&s=x99", "#p=3%3Dx1&b=1:1=99", "#t=3", "#p=%E0%A4%A", "#p=3%3Dx1&c=m7"],
)
def test_a_broken_link_is_told_and_passed_over(visit, page_file, link):
    with visit() as page:
        page.open(page_file, link)
        assert page.inner_text("#notice").startswith("The link cannot be read: ")
        assert page.evaluate("latentloop.problem.nodes.length") == 7


def test_the_run_is_saved_as_python_records_it(visit, page_file, tmp_path):
    from latentloop.evaluate.pretrained import LatentLoop
    from latentloop.task.oracle import solve
    from latentloop.task.text import parse

    with visit() as page:
        page.open(page_file)
        path = page.saved("#save-json", tmp_path)
    saved = check_run(json.loads(path.read_text()))
    trained = LatentLoop.from_pretrained("laptop-all")
    problems = parse(SEVEN_NODES, trained.run.task)
    answer = trained.solve_problems(problems)[0]
    recorded = record_run(trained, "laptop-all", problems, solve(problems), answer)
    for name in ("model", "text", "modulus", "truth", "halt", "tokens", "nodes", "states"):
        assert saved[name] == recorded[name], name
    for one, other in zip(saved["margins"], recorded["margins"], strict=True):
        assert one == pytest.approx(other, abs=0.1)  # weights in half precision
    (mine,), (theirs,) = saved["attention"], recorded["attention"]
    assert (mine["layer"], mine["head"], mine["queries"]) == (theirs["layer"], theirs["head"], theirs["queries"])
    for one, other in zip(mine["top"], theirs["top"], strict=True):
        for found, wanted in zip(one, other, strict=True):
            assert (
                found[0] == pytest.approx(wanted[0], abs=0.01) or wanted[0][1] < 0.6
            )  # what is empty is found nowhere


def test_a_recorded_run_is_shown(visit, page_file, tmp_path):
    recorded = {
        "format": "latentloop-run", "version": 1, "model": {"name": "<b>another</b>"}, "modulus": 5,
        "nodes": [{"name": "a"}, {"name": "<script>b</script>", "parents": [0]}], "truth": [3, 1],
        "states": [[None, None], [3, None], [3, 4]], "halt": {"reason": "cap", "at": 2},
    }  # fmt: skip
    good, bad = tmp_path / "run.json", tmp_path / "bad.json"
    good.write_text(json.dumps(recorded))
    bad.write_text('{"format": "latentloop-run"}')
    with visit() as page:
        page.open(page_file)
        page.set_input_files("#run-file", bad)
        page.until("!document.getElementById('notice').hidden")
        assert page.inner_text("#notice") == "bad.json is no run that this page can show: run lacks version"
        page.set_input_files("#run-file", good)
        page.until("latentloop.problem.nodes.length === 2")
        page.keyboard.press("End")
        page.until("latentloop.iteration === 2")
        assert page.locator(".caption").inner_text().startswith("<b>another</b>")
        assert "<script>b</script>: 4, wrong" in page.locator(".node").nth(1).get_attribute("aria-label")
        assert "Stopped at the cap of 2 iterations" in page.inner_text("#verdict")
        assert page.is_disabled("#compare")
        saved = page.saved("#save-page", tmp_path)
        page.click("#sample-next")
        page.settled()
        assert page.locator(".caption").inner_text().startswith("laptop-all")
        assert not page.is_disabled("#compare")
    with visit() as page:
        page.open(saved)
        assert page.locator(".caption").inner_text().startswith("<b>another</b>")
        assert page.evaluate("Array.from(latentloop.panes[0].values.at(-1))") == [3, 4]


def test_the_moment_is_saved_as_a_page_and_a_picture(visit, page_file, tmp_path):
    with visit() as page:
        page.open(page_file)
        page.evaluate("latentloop.go(3)")
        picture = page.saved("#save-png", tmp_path)
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 5000
        saved = page.saved("#save-page", tmp_path)
        before = page.moment()
    with visit() as page:
        page.open(saved)
        page.until("latentloop.iteration === 3")
        assert page.moment() == before
