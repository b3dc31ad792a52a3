"""The page in a real Chromium, opened from disk: what a person does with it. Every test also finds no error and no request."""

import json
import re
from dataclasses import replace

import pytest

from latentloop.config import GraphConfig
from latentloop.config.positions import AbsoluteConfig
from latentloop.explorer.models import pack_checkpoint
from latentloop.explorer.page import build_page
from latentloop.presets import preset
from latentloop.schema import changed
from paper import SEVEN_NODES
from untrained import untrained


def test_a_problem_is_typed_and_played_to_the_end(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.fill("#problem", "20 = x7\n2 = x42\nx7 + x42 = x23\nx23 * x23 = x1")
        page.settled()
        page.until("latentloop.problem.nodes.length === 4")
        page.click("#first")
        assert page.moment()["values"] == [-1, -1, -1, -1]
        page.select_option("#speed", "8")
        page.click("#play")
        page.until("!latentloop.playing")
        moment = page.moment()
        assert moment["values"] == moment["truth"] == [20, 2, 22, 1]
        assert moment["halt"]["reason"] == "fixpoint"
        assert "Fixed point after 4 iterations" in page.inner_text("#verdict")
        assert "all 4 values right" in page.inner_text("#verdict")
        assert page.locator(".node.right").count() == 4
        page.click("#back")
        page.click("#back")
        assert page.moment()["values"] == [20, 2, 22, -1]
        page.keyboard.press("End")
        page.until("latentloop.iteration === 4")


BARE = """async () => {
    [...document.querySelectorAll("button")].find((button) => button.textContent.trim() === "Next").click();
    let bare = 0;
    for (let frame = 0; frame < 20; frame++) {
        bare += document.querySelectorAll(".graph g[role=button]:not(.node)").length;
        await new Promise((done) => requestAnimationFrame(done));
    }
    return bare;
}"""


def test_new_nodes_are_drawn_empty_at_once(visit, page_file):
    """A node without its class would fade in from black."""
    with visit() as page:
        page.open(page_file)
        page.settled()
        assert page.evaluate(BARE) == 0


def test_a_slip_is_told_at_its_line(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.fill("#problem", "20 = x7\n2 = x42\nx7 ? x42 = x23")
        page.until("document.getElementById('problem-error').textContent.startsWith('Line 3')")
        assert page.inner_text("#problem-error") == (
            "Line 3: equation 3 ('x7 ? x42 = x23'): unknown operator '?': use one of + - *"
        )
        marked = page.locator(".mirror .bad").bounding_box()
        written = page.locator("#problem").bounding_box()
        assert abs(marked["y"] - written["y"] - 8 - 2 * 19) < 2  # the third line
        page.fill("#problem", "20 = x7\n2 = x42\nx7 + x42 = x23")
        page.until("document.getElementById('problem-error').hidden")


def test_what_is_broken_heals(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.keyboard.press("End")
        page.until("latentloop.iteration === 5")
        page.click("[data-share='1']")
        page.settled()
        moment = page.moment()
        assert moment["iteration"] == 5
        assert all(value != truth for value, truth in zip(moment["values"], moment["truth"], strict=True))
        assert page.locator(".node.broken").count() == 7
        page.keyboard.press("End")
        page.until("latentloop.iteration === latentloop.last")
        moment = page.moment()
        assert moment["values"] == moment["truth"]
        said = page.inner_text("#repair")  # wrong values are drawn at random, and some give right results by chance
        assert re.fullmatch(r"7 values set at iteration 5\. Healed after [1-4] iterations?; the depth is 4\.", said)
        page.click("#unbreak")
        page.settled()
        assert page.moment()["last"] == 5


def test_one_node_is_set_by_hand(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.keyboard.press("End")
        page.until("latentloop.iteration === 5")
        page.locator(".node").nth(3).click()
        page.select_option("#set-value", "9")
        page.click("#set-button")
        page.settled()
        assert page.moment()["values"][3] == 9
        assert "x2: 9, wrong, broken" in page.locator(".node").nth(3).get_attribute("aria-label")
        page.keyboard.press("ArrowRight")
        page.until("latentloop.iteration === 6")
        moment = page.moment()
        assert moment["values"][3] == moment["truth"][3]  # repaired at once
        assert moment["values"][5] != moment["truth"][5]  # and its child has seen the wrong one


def test_why_is_answered_and_checked(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.keyboard.press("End")
        page.until("latentloop.iteration === 5")
        page.locator(".node").nth(6).click()  # x1 - x9 * x2 = x4
        page.until("Boolean(document.querySelector('#why-panel .heads'))")
        said = page.inner_text("#why-panel")
        assert "Right, and for the right reason." in said
        for name in ("x1", "x9", "x2"):
            assert f"{name} was looked up at its definition" in said
        for arrived in ("12 arrived for x1", "0 arrived for x9", "1 arrived for x2"):
            assert arrived in said
        assert "12 - 0 gives 12, halfway" in said
        assert "12 - 0 * 1 gives 12" in said
        assert page.locator(".heads tbody tr").count() == 5  # one head of the first layer, four of the second
        attention = page.evaluate(
            "latentloop.ask('why', {id: latentloop.main.id, pane: 0, node: 6, iteration: 5}).then((why) =>"
            " why.heads.heads.map(({inside, elsewhere, sink}) => inside.reduce((a, b) => a + b, 0) + elsewhere + (sink ?? 0)))"
        )
        assert attention == pytest.approx([1] * 5, abs=1e-6)


def test_two_are_compared(visit, tmp_path, laptop_all, laptop_add):
    path = tmp_path / "two.html"
    path.write_text(
        build_page([laptop_add, laptop_all], problem="3 = x1\n4 = x2\nx1 + x2 = x3\nx3 + x3 + x1 = x4"), "utf-8"
    )
    with visit() as page:
        page.open(path)
        assert page.locator(".pane").count() == 2
        assert "laptop-add" in page.locator(".caption").nth(0).inner_text()
        assert "laptop-all" in page.locator(".caption").nth(1).inner_text()
        page.keyboard.press("End")
        page.until("latentloop.iteration === latentloop.last")
        assert page.evaluate("latentloop.panes.map((pane) => Array.from(pane.at(pane.last)))") == [[3, 4, 7, 17]] * 2
        page.select_option("#compare", "oracle")
        page.settled()
        assert page.evaluate("Array.from(latentloop.panes[1].values[2])") == [3, 4, 7, -1]
        page.select_option("#compare", "")
        page.settled()
        assert page.locator(".pane").count() == 1


def test_a_chain_of_thought_comes_token_by_token(visit, tmp_path, laptop_all):
    run = changed(preset("tiny-cot"), operations=("+", "-", "*"))
    cot = pack_checkpoint(untrained(run), "tiny-cot", half=False)
    path = tmp_path / "cot.html"
    path.write_text(build_page([laptop_all, cot], problem=SEVEN_NODES), "utf-8")
    with visit() as page:
        page.open(path)
        page.evaluate("latentloop.go(4)")
        page.until("document.querySelectorAll('.written')[1].textContent.split(' ').length === 4")
        assert "token 4" in page.locator(".caption").nth(1).inner_text()
        page.select_option("#pane-select", "1")
        page.until("document.getElementById('clock').textContent.startsWith('token 4 of ')")
        assert re.search(r"Stopped at the cap of \d+ tokens|Wrote \d+ tokens", page.inner_text("#verdict"))
        saved = page.saved("#save-json", tmp_path)
        page.set_input_files("#run-file", saved)
        page.until("latentloop.main.source.kind === 'recorded'")
        page.evaluate("latentloop.go(4)")
        page.until("document.getElementById('clock').textContent.startsWith('token 4 of ')")
        assert page.evaluate("latentloop.depth") == 4  # the graph came with it


def test_a_model_with_another_modulus_is_not_compared(visit, tmp_path, laptop_add):
    other = pack_checkpoint(untrained(changed(preset("tiny-stable"), modulus=11)), "other", half=False)
    path = tmp_path / "moduli.html"
    path.write_text(build_page([laptop_add, other], problem="3 = x1\nx1 + x1 = x2"), "utf-8")
    with visit() as page:
        page.open(path)
        said = "other cannot read this problem: it computes modulo 11, and the problem is one modulo 23"
        assert page.locator(".caption").nth(1).inner_text() == said
        page.select_option("#pane-select", "1")
        page.click("#search")
        page.until("document.getElementById('search').textContent === 'Search'")
        assert page.inner_text("#search-report").startswith("other cannot be asked: it computes modulo 11")
        page.select_option("#pane-select", "0")
        page.until("document.getElementById('verdict').textContent.includes('all 2 values right')")


def test_a_search_that_cannot_go_on_says_why(visit, tmp_path):
    run = preset("tiny-discrete")
    positions = AbsoluteConfig(max_positions=18)
    run = replace(run, model=replace(run.model, positions=positions), graph=GraphConfig(nodes=2))
    path = tmp_path / "short.html"
    path.write_text(build_page([pack_checkpoint(untrained(run), "short", half=False)], problem="1 = x1"), "utf-8")
    with visit() as page:
        page.open(path)
        page.fill("#sample-nodes", "24")
        page.click("#search")
        page.until("document.getElementById('search-report').textContent.startsWith('short cannot be asked: ')")
        assert "absolute positions for 18 tokens" in page.inner_text("#search-report")
        assert page.inner_text("#search") == "Search"


def test_a_failure_is_searched_for(visit, page_file, tmp_path):
    packed = pack_checkpoint(untrained(preset("tiny-stable")), "untrained", half=False)
    path = tmp_path / "untrained.html"
    path.write_text(build_page([packed], problem="1 = x1 ; x1 + x1 = x2"), "utf-8")
    with visit() as page:
        page.open(path)
        page.fill("#sample-nodes", "6")
        page.click("#search")
        page.until("document.getElementById('search-report').textContent.includes('gets this one wrong')")
        page.settled()
        assert page.inner_text("#search-report").startswith("1 problem of 6 nodes (random) tried")
        assert page.evaluate("latentloop.problem.nodes.length") == 6
        assert page.moment()["truth"] != page.evaluate("Array.from(latentloop.panes[0].values.at(-1))")
    with visit() as page:
        page.open(page_file)
        page.fill("#sample-nodes", "8")
        page.click("#search")
        page.until(r"/^(?!1 )[\d,]+ problems/.test(document.getElementById('search-report').textContent)")
        page.click("#search")
        page.until("document.getElementById('search-report').textContent.includes('all solved by laptop-all')")


def test_samples_are_those_of_the_command(visit, page_file, run):
    with visit() as page:
        page.open(page_file)
        page.fill("#sample-nodes", "12")
        page.select_option("#sample-family", "tree")
        page.fill("#sample-seed", "41")
        page.click("#sample-next")
        page.settled()
        typed = page.input_value("#problem").split("\n")
        facts = page.inner_text("#problem-facts")
    _, printed, _ = run("sample", "--nodes", "12", "--family", "tree", "--seed", "42", "--task", "all")
    assert [equation for line in printed.splitlines() for equation in line.split(" ; ")] == typed
    assert facts.startswith("12 nodes, depth ")


def test_bad_input_freezes_nothing_and_runs_nothing(visit, page_file):
    with visit() as page:
        page.open(page_file)
        for text, message in (
            (
                "'1 = x1 ; '.repeat(1_200_000)",
                "the text has 262145 characters, more than the 262144 a problem may have",
            ),
            ("'1=x1;'.repeat(50_000)", "the problem has 50000 equations, and 4096 is the limit"),
            ("'<img src onerror> = x1'", "an operator is missing before 'img'"),
            ("'3 = <script>'", "expected one variable on the right, got '< script >'"),
        ):
            page.evaluate(
                "() => { const box = document.getElementById('problem'); box.focus();"
                f" box.value = ({text}).slice(0, box.maxLength); box.dispatchEvent(new Event('input')); }}"
            )
            page.until(f"document.getElementById('problem-error').textContent.includes({json.dumps(message)})", 20)
        assert page.locator("main img, main script").count() == 0
        page.fill("#sample-nodes", "100000")
        page.click("#sampler button[type=submit]")
        page.until("document.getElementById('problem-error').textContent.includes('must be 1 to 128, got 100000')")


def test_without_workers_the_page_computes_by_itself(visit, page_file):
    with visit() as page:
        page.page.add_init_script("delete globalThis.Worker")
        page.open(page_file)
        assert page.inner_text("#notice").startswith("This browser runs no workers here")
        assert page.moment()["last"] == 5
        assert page.evaluate("Array.from(latentloop.panes[0].values.at(-1))") == page.moment()["truth"]


def test_a_strange_script_does_not_run(visit, page_file, tmp_path):
    altered = tmp_path / "altered.html"
    altered.write_text(page_file.read_text("utf-8").replace("</body>", "<script>globalThis.evil = 1</script></body>"))
    with visit(complains=True) as page:
        page.open(altered)
        assert page.evaluate("globalThis.evil === undefined")
        assert any("Content Security Policy" in text for text in page.complaints)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_everything_fits_both_widths_in_both_themes(visit, page_file, width, theme):
    with visit(viewport={"width": width, "height": 800}, color_scheme=theme) as page:
        page.open(page_file)
        page.keyboard.press("End")
        page.until("latentloop.iteration === 5")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        graph = page.locator(".graph").bounding_box()
        for node in page.locator(".node").all():
            box = node.bounding_box()
            assert graph["x"] <= box["x"] < box["x"] + box["width"] <= graph["x"] + graph["width"] + 1
            assert box["width"] >= 24
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
        assert dark == (theme == "dark")


def test_a_screen_reader_finds_names_and_states(visit, page_file):
    with visit() as page:
        page.open(page_file)
        page.keyboard.press("ArrowRight")
        page.until("document.getElementById('announce').textContent === 'Iteration 1: 3 right, 0 wrong, 4 empty.'")
        assert page.get_by_role("button", name="x8: 6, right, changed").count() == 1
        assert page.get_by_role("row").count() == 8
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, input:not([hidden]), select, textarea')].filter((element) =>"
            " !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length)).map((e) => e.id)"
        )
        assert unnamed == []
        page.keyboard.press("ArrowDown")
        page.until("document.activeElement.classList.contains('node')")
        page.click("#save-button")
        page.keyboard.press("ArrowUp")  # from the first item to the last
        assert page.evaluate("document.activeElement.id") == "open-run"
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.id") == "copy-link"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "save-button"
