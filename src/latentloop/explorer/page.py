"""Put the page together: one HTML file with styles, program, models and an opening problem inside, and a policy around them."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
STYLES = ("theme.css", "layout.css", "inside.css")
TASK = ("random.js", "task.js", "parse.js")
ENGINE = ("tokens.js", "linear.js", "attention.js", "model.js", "run.js", "why.js", "trace.js", "kernel.js")
VIEWS = (
    *("dom.js", "layered.js", "graph.js", "panes.js", "app.js", "values.js", "inspector.js", "problem.js"),
    *("transport.js", "link.js", "save.js", "main.js"),
)
"""The program, in its order. The page and its worker run the same text; its last file sees which of the two it is in."""
SCHEMA = Path(__file__).parent / "run.schema.json"


def build_page(models: Sequence[Mapping[str, Any]], *, problem: str | None = None) -> str:
    """Return the page that shows these models, the first one by itself and others to compare it with."""
    program = read_program()
    style = "\n".join((STATIC / name).read_text("utf-8") for name in STYLES)
    parts = {
        "policy": html.escape(policy(program, style)),
        "generator": html.escape(f"latentloop {_version()}, sources {sources_hash()}"),
        "title": html.escape(f"latentloop explore: {' and '.join(str(model['title']) for model in models)}"),
        "style": style,
        "opening": _data({"problem": problem}),
        "models": _data(models),
        "schema": _data(json.loads(SCHEMA.read_text("utf-8"))),
        "program": program,
    }
    page = (STATIC / "index.html").read_text("utf-8")
    pieces = page.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:  # in one pass, so that nothing inserted is read as a place to fill
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def read_program() -> str:
    """Return the program as the page runs it."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in (*TASK, *ENGINE, *VIEWS))
    assert "</script" not in text.lower()
    return f"\n{text}\n"


def policy(program: str, style: str) -> str:
    """Return a content security policy: this program and this style, workers of it, and nothing from anywhere."""
    rules = {
        "default-src": "'none'",
        "script-src": _hash(program),
        "style-src": _hash(style),
        "worker-src": "blob:",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def sources_hash() -> str:
    """Return a short hash of everything the page is made of but its models."""
    digest = hashlib.sha256()
    for path in sorted([*STATIC.iterdir(), SCHEMA]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(value: Any) -> str:
    """Return JSON that cannot end the element it stands in."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def _version() -> str:
    try:
        return version("latentloop")
    except PackageNotFoundError:
        return "from source"
