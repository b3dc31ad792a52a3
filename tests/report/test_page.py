import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest

from latentloop.provenance import provenance
from latentloop.report.markup import block_html, inline_html
from latentloop.report.page import (
    FigureBlock,
    Number,
    Page,
    PictureBlock,
    Section,
    TableBlock,
    Verdict,
    page_html,
    write_page,
)

EVIL = "</script><script>window.broken = true</script><img src=x onerror='window.broken = true'>\"'`*&"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LINES = {"data": [{"x": [1, 2], "y": [3, float("nan")], "name": EVIL}], "layout": {"title": {"text": EVIL}}}
HEATMAP = go.Figure(go.Heatmap(z=[[1.0, 2.0], [3.0, 4.0]])).update_layout(xaxis_title=EVIL)
PAGE = Page(
    title=EVIL,
    intro=EVIL,
    sections=[
        Section(
            heading=f"{EVIL}?",
            verdict=Verdict(kind="yes", text=EVIL),
            blocks=[
                EVIL,
                Number(value=EVIL, label=EVIL, detail=EVIL),
                TableBlock(columns=[EVIL, "number"], rows=[[EVIL, 1.5]], caption=EVIL),
                FigureBlock(figure=LINES, caption=EVIL),
                FigureBlock(figure=HEATMAP),
                PictureBlock(content=PIXEL, alt=EVIL, caption=EVIL),
            ],
        ),
        *(Section(heading="the same heading") for _ in range(3)),
    ],
    configuration={EVIL: {"a": [EVIL, 1], "b": None}},
    provenance=provenance() | {"command": EVIL},
)


class Elements(HTMLParser):
    """All elements of a document with their attributes."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_every_text_is_escaped():
    found = Elements(page_html(PAGE)).found
    kinds = [tag for tag, _ in found]
    assert kinds.count("script") == 4  # two figures, plotly.js and the page's own
    assert kinds.count("img") == 1
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for tag, attributes in found if tag == "a"}
    assert targets <= set(ids)
    assert len(targets) == 4


def test_the_markup_is_small_and_safe():
    assert inline_html("**a** *b* `*c*` 2 * 3 * 4") == "<strong>a</strong> <em>b</em> <code>*c*</code> 2 * 3 * 4"
    assert inline_html("[a](https://b.org/?c=1&d)") == (
        '<a href="https://b.org/?c=1&amp;d" rel="noopener noreferrer">a</a>'
    )
    for address in ("javascript:alert(1)", "data:text/html,x", "JaVaScript:x", "//evil.org", 'a"onclick=b'):
        assert "<a" not in inline_html(f"[a]({address})")
    assert block_html("one\ntwo\n\n- a\n- b\n  c\n") == "<p>one two</p>\n<ul><li>a</li><li>b c</li></ul>"
    assert block_html("before\n```sh\n*x* < 1\n\ny\n```\nafter") == (
        "<p>before</p>\n<pre><code>*x* &lt; 1\n\ny</code></pre>\n<p>after</p>"
    )


def test_nothing_is_loaded_and_plotly_comes_once_or_not_at_all():
    html = page_html(PAGE)
    assert html.count("plotly.js (cartesian") == 1
    assert len(html) < 1_700_000
    for tag, attributes in Elements(html).found:
        assert not attributes.get("src", "data:").startswith("http"), tag
        assert tag not in ("iframe", "object", "embed", "form")
    plain = page_html(replace(PAGE, sections=()))
    assert "plotly.js (cartesian" not in plain
    assert len(plain) < 20_000


def test_figures_of_plotly_and_plain_ones_are_the_same():
    plain, drawn = LINES, go.Figure(json.loads(json.dumps(LINES).replace("NaN", "null")))
    plain, drawn = (_figures(page_html(_page_of(FigureBlock(figure=figure)))) for figure in (plain, drawn))
    assert plain == drawn
    assert plain[0]["data"][0]["y"] == [3, None]


def _page_of(block):
    return Page(title="a", sections=[Section(heading="b", blocks=[block])])


def _figures(html):
    data = re.findall(r'<script type="application/json" class="figure-data">(.*?)</script>', html)
    figures = [json.loads(figure) for figure in data]
    for figure in figures:
        for trace in figure["data"]:
            trace.setdefault("type", "scatter")
    return figures


@pytest.mark.parametrize(
    "block",
    [
        FigureBlock(figure={"data": [{"type": "scatter3d"}]}),
        TableBlock(columns=["a"], rows=[[1, 2]]),
        PictureBlock(content=b"<svg onload='alert(1)'>", alt="a"),
    ],
)
def test_what_cannot_be_shown_is_refused(block):
    with pytest.raises(ValueError, match=r"expected|cannot draw"):
        page_html(_page_of(block))


def test_in_a_browser_it_draws_and_breaks_no_policy(chromium, tmp_path):
    write_page(PAGE, tmp_path / "page.html")
    tab = chromium.new_page(viewport={"width": 400, "height": 900}, color_scheme="dark")
    said, asked = [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((tmp_path / "page.html").as_uri())
    for plot in tab.query_selector_all(".plot"):
        plot.scroll_into_view_if_needed()
    tab.wait_for_function("document.querySelectorAll('.plot .main-svg .xaxislayer-above').length >= 2")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    before = tab.evaluate(background)
    tab.click("#theme")
    assert tab.evaluate(background) != before
    assert not tab.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not tab.evaluate("'broken' in window")
    buttons = tab.evaluate("[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)")
    assert buttons
    assert not [title for title in buttons if re.search("cloud|share|studio|upload", title, re.IGNORECASE)]
    assert not said
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
    tab.close()
