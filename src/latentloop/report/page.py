"""One offline HTML page out of sections: text, numbers, tables, figures, pictures, and what was measured how.

    page = Page(
        title="laptop-add, asked",
        intro="What **every head** of the first layer attends to.",
        sections=[
            Section(
                heading="Which token does a head look at?",
                verdict=Verdict(kind="yes", text="the definition of its operand"),
                blocks=[
                    "Measured at `blocks.0.pattern`.",
                    Number(value="99.98 %", label="of the attention", detail="median of 1,024 look-ups"),
                    FigureBlock(figure=figure, caption="Attention by head and operand"),  # of plotly, or {"data", "layout"}
                    TableBlock(columns=["head", "attention"], rows=[[0, 0.99], [1, 0.98]]),
                ],
            )
        ],
        configuration=run.to_dict(),
        provenance=document["provenance"],
    )
    write_page(page, Path("page.html"))

The file needs no network and asks for none: styles, scripts and plotly.js are inside, once, and its content security policy
lets nothing else load or run. All text is escaped; what may be marked up is in ``latentloop.report.markup``.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from latentloop.files import parse_json, to_json, writing
from latentloop.report.markup import block_html, inline_html

TRACES = (
    *("bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour", "image", "pie", "scatter"),
    *("scatterternary", "violin"),
)
"""Kinds of traces that the bundled part of plotly.js can draw: ``plotly.js-cartesian-dist-min``."""
PICTURES = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


@runtime_checkable
class PlotlyFigure(Protocol):
    """What a page needs of ``plotly.graph_objects.Figure``."""

    def to_json(self) -> str | None:
        """Return data and layout."""
        ...


@dataclass(frozen=True, kw_only=True)
class FigureBlock:
    """An interactive figure: one of plotly, or its plain form with ``data`` and ``layout``.

    Colors of text, axes and background follow the page, light or dark; those of traces are the figure's own, or the page's
    where it names none. ``height`` is in pixels.
    """

    figure: PlotlyFigure | Mapping[str, Any]
    caption: str = ""
    height: int = 380


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """A table. Numbers are shown as they are given: round them first. Strings may have inline markup."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Number:
    """One figure that matters, large, with what it is of and how it was measured."""

    value: str
    label: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class PictureBlock:
    """A picture: the bytes of a PNG, GIF, JPEG or WebP file. ``alt`` says what it shows to those who cannot see it."""

    content: bytes
    alt: str
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to a section's question: ``yes`` (green), ``partly`` (yellow), ``no`` (red) or ``open`` (gray)."""

    kind: Literal["yes", "partly", "no", "open"]
    text: str = ""
    label: str = ""
    """What the badge says; without one, the kind."""


Block = str | FigureBlock | TableBlock | Number | PictureBlock


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, often a question, its verdict, and what there is to see; a string is text with a little markup."""

    heading: str
    blocks: Sequence[Block] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that one file holds. Sections are listed under the intro where there are more than two."""

    title: str
    intro: str = ""
    sections: Sequence[Section] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """Settings, nested as they are stored."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What ``latentloop.provenance.provenance`` returned when the numbers were measured."""


def write_page(page: Page, path: Path) -> None:
    """Write the page atomically."""
    html = page_html(page)
    with writing(path) as file:
        file.write(html)


def page_html(page: Page) -> str:
    """Return the page as one HTML document."""
    figures: list[str] = []
    anchors = _anchors(page.sections)
    sections = [_section(section, anchor, figures) for section, anchor in zip(page.sections, anchors, strict=True)]
    body = [
        '<header><button id="theme" type="button" hidden>Light or dark</button>',
        f"<h1>{inline_html(page.title)}</h1>{block_html(page.intro)}{_contents(page.sections, anchors)}</header>",
        f"<main>{''.join(sections)}{_details('Configuration', page.configuration)}",
        f"{_details('Provenance', page.provenance)}</main>",
    ]
    scripts = [_asset("page.js")]
    if figures:
        scripts.insert(0, _asset("vendor/plotly-cartesian.min.js"))
        body.append("<noscript><p>The figures of this page need JavaScript.</p></noscript>")
    title = re.sub("[`*]", "", page.title)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">',
            f'<title>{escape(title)}</title><link rel="icon" href="data:,">',
            f"<style>{_asset('page.css')}</style></head><body>",
            *body,
            *(f'<script type="application/json" class="figure-data">{figure}</script>' for figure in figures),
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        ]
    )


@cache
def _asset(name: str) -> str:
    text = (files("latentloop.report") / "static" / name).read_text(encoding="utf-8")
    assert "</script" not in text, "a script within a page must not end it"
    return text


def _policy(scripts: Sequence[str]) -> str:
    """Return a policy under which these scripts run and no others; nothing is loaded, and no form is sent.

    Styles may be inline, because plotly.js adds its own; pictures are in the page, or made by it to be saved.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Return a name for the address of each section, from its heading."""
    names: list[str] = []
    for section in sections:
        plain = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-")[:60] or "section"
        names.append(f"{plain}-{len(names) + 1}" if plain in names else plain)
    return names


def _contents(sections: Sequence[Section], anchors: Sequence[str]) -> str:
    if len(sections) <= 2:
        return ""
    items = [
        f'<li><a href="#{anchor}">{inline_html(section.heading)}</a>{_badge(section.verdict, short=True)}</li>'
        for section, anchor in zip(sections, anchors, strict=True)
    ]
    return f'<nav aria-label="Contents"><ol>{"".join(items)}</ol></nav>'


def _section(section: Section, anchor: str, figures: list[str]) -> str:
    """Return a section; its figures are appended to those of the page."""
    head = f"<h2>{inline_html(section.heading)}</h2>{_badge(section.verdict)}"
    return f'<section id="{anchor}">{head}{"".join(_blocks(section.blocks, figures))}</section>'


def _badge(verdict: Verdict | None, *, short: bool = False) -> str:
    if verdict is None:
        return ""
    text = f" {inline_html(verdict.text)}" if verdict.text and not short else ""
    badge = f'<span class="badge {verdict.kind}">{inline_html(verdict.label or verdict.kind)}</span>{text}'
    return f" {badge}" if short else f'<p class="verdict">{badge}</p>'


def _blocks(blocks: Sequence[Block], figures: list[str]) -> Iterator[str]:
    numbers: list[Number] = []
    for block in blocks:
        if isinstance(block, Number):  # neighbors stand side by side
            numbers.append(block)
            continue
        yield _numbers(numbers)
        numbers = []
        match block:
            case str():
                yield block_html(block)
            case TableBlock():
                yield _table(block)
            case PictureBlock():
                yield _picture(block)
            case FigureBlock():
                yield _figure(block, len(figures))
                figures.append(_figure_json(block.figure))
    yield _numbers(numbers)


def _numbers(numbers: Sequence[Number]) -> str:
    if not numbers:
        return ""
    items = (
        f"<div><dd>{inline_html(number.value)}</dd><dt>{inline_html(number.label)}</dt>"
        f"<dd class='detail'>{inline_html(number.detail)}</dd></div>"
        for number in numbers
    )
    return f'<dl class="numbers">{"".join(items)}</dl>'


def _table(block: TableBlock) -> str:
    for row in block.rows:
        if len(row) != len(block.columns):
            raise ValueError(f"expected rows of {len(block.columns)} cells, got {len(row)}: {row!r}")
    texts = [["" if value is None else str(value) for value in row] for row in block.rows]
    marks = [_alignment([row[place] for row in texts]) for place in range(len(block.columns))]
    head = "".join(
        f'<th scope="col"{mark}>{inline_html(column)}</th>' for column, mark in zip(block.columns, marks, strict=True)
    )
    cells = ((f"<td{mark}>{inline_html(text)}</td>" for text, mark in zip(row, marks, strict=True)) for row in texts)
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return (
        f'<figure><div class="scroll" tabindex="0" role="region" aria-label="{_plain(block.caption) or "Table"}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{_caption(block.caption)}</figure>"
    )


def _alignment(column: Sequence[str]) -> str:
    """Return the mark of a column of numbers, which are set flush right."""
    numbers = (re.fullmatch(r"[-+−<>≤≥~]?\s?[\d.,:%/ ]*(?:e[-+]?\d+)?|nan", text) for text in column)
    return ' class="number"' if all(numbers) else ""


def _picture(block: PictureBlock) -> str:
    kind = next((kind for start, kind in PICTURES.items() if block.content.startswith(start)), None)
    if kind is None:
        raise ValueError(
            f"expected a picture as PNG, GIF, JPEG or WebP, got bytes that begin with {block.content[:8]!r}"
        )
    source = f"data:{kind};base64,{base64.b64encode(block.content).decode()}"
    return f'<figure><img src="{source}" alt="{escape(block.alt)}">{_caption(block.caption)}</figure>'


def _figure(block: FigureBlock, number: int) -> str:
    label = _plain(block.caption) or f"Figure {number + 1}"
    return (
        f'<figure><div class="plot" data-figure="{number}" data-height="{int(block.height)}" role="img" '
        f'aria-label="{label}"></div>{_caption(block.caption)}</figure>'
    )


def _figure_json(figure: PlotlyFigure | Mapping[str, Any]) -> str:
    """Return data and layout as JSON that cannot end the element it stands in; the page has a template of its own."""
    plain = dict(figure) if isinstance(figure, Mapping) else parse_json((figure.to_json() or "{}").encode())
    traces = [dict(trace) for trace in plain.get("data", ())]
    for trace in traces:
        if trace.get("type", "scatter") not in TRACES:
            raise ValueError(f"this page cannot draw {trace['type']!r}: choose from {', '.join(TRACES)}")
    layout = {key: value for key, value in plain.get("layout", {}).items() if key != "template"}
    return to_json({"data": traces, "layout": layout}).replace("<", "\\u003c")


def _details(title: str, values: Mapping[str, Any]) -> str:
    if not values:
        return ""
    return f"<details><summary>{title}</summary>{_settings(values)}</details>"


def _settings(values: Mapping[str, Any]) -> str:
    """Return settings as nested lists of names and values."""
    items = "".join(f"<dt>{escape(str(key))}</dt><dd>{_setting(value)}</dd>" for key, value in values.items())
    return f'<dl class="settings">{items}</dl>'


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return _settings(value) if value else "-"
    if isinstance(value, list | tuple):
        if any(isinstance(item, Mapping) for item in value):
            return f"<code>{escape(to_json(value))}</code>"
        return escape(", ".join(map(str, value))) or "-"
    return "-" if value is None else escape(str(value))


def _caption(text: str) -> str:
    return f"<figcaption>{inline_html(text)}</figcaption>" if text else ""


def _plain(text: str) -> str:
    """Return text without its marks, for an attribute."""
    return escape(re.sub("[`*]", "", text))
