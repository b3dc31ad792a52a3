"""The docs site: its navigation, the links of its pages, and the notebook. `make docs` builds it, warnings are errors."""

import importlib.util
import json
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def _load(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = _load("hooks")
GENERATED = HOOKS.generated()
PAGES = {address: (source, text) for address, (source, text) in GENERATED.items()} | {
    str(path.relative_to(DOCS)): (str(path.relative_to(ROOT)), path.read_text()) for path in DOCS.rglob("*.md")
}


def test_every_page_is_in_the_navigation_and_the_other_way_round():
    listed = [target for entry in SETTINGS["nav"] for target in entry.values() if target]
    assert len(listed) == len(set(listed))
    for target in listed:
        assert target in PAGES or target in HOOKS.LATER, f"mkdocs.yml lists {target}, and there is none"
    for address in PAGES:
        hidden = address.startswith(("api/", "cards/", "studies/")) or address == "records.md"
        assert hidden or address in listed, f"{address} is not in the navigation of mkdocs.yml"


@pytest.mark.parametrize("address", PAGES)
def test_links_of_the_site_lead_somewhere(address):
    source, text = PAGES[address]
    shown = HOOKS.with_links(text, address, source)
    prose = re.sub(r"^```.*?^```", "", shown, flags=re.S | re.M)
    for target in re.findall(r"\]\(([^()\s#]+)(?:#[^)\s]*)?\)", re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", prose)):
        if "://" not in target:
            there = posixpath.normpath(posixpath.join(posixpath.dirname(address), target))
            assert there in PAGES or (DOCS / there).is_file(), f"{address}: {target}"


def test_links_out_of_the_docs_lead_to_pages_that_show_the_same():
    page = "[`a`](../src/latentloop/task/oracle.py) `[b](c.md)` [d](../benchmarks/records.md) [e](../pyproject.toml) [f](#g)"
    assert HOOKS.with_links(page, "engine.md", "docs/engine.md") == (
        "[`a`](api/task.md#latentloop.task.oracle) `[b](c.md)` [d](records.md) e [f](#g)"
    )
    assert HOOKS.with_links("![a](docs/images/b.png) [c](docs/task.md#d)", "index.md", "README.md") == (
        "![a](images/b.png) [c](task.md#d)"
    )
    assert HOOKS.with_links("[a](../../README.md)", "cards/x.md", "checkpoints/x/README.md") == "[a](../index.md)"


def test_the_page_is_shown_where_it_is_explained():
    text = (DOCS / "explore.md").read_text()
    assert text.count(HOOKS.PAGE) == 1
    shown = HOOKS.with_page(text)
    assert HOOKS.PAGE not in shown
    for target in re.findall(r'<iframe [^>]*src="([^"]+)"', shown):
        assert (DOCS / target).is_file()
    assert '<iframe class="page" src="explore.html"' in shown


def test_the_api_reference_lists_every_module():
    text = "".join(text for address, (_, text) in GENERATED.items() if address.startswith("api/"))
    for path in (ROOT / "src" / "latentloop").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        if not module.startswith("latentloop.commands") and path.stem not in ("__init__", "__main__"):
            assert f"::: {module}\n" in text


def test_nothing_of_the_site_comes_from_elsewhere():
    assert SETTINGS["theme"]["font"] is False
    assert SETTINGS["strict"] is True
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "://" not in settings
    for name in [*SETTINGS["extra_css"], *SETTINGS["extra"]["polyfills"]]:
        assert (DOCS / name).is_file()
        assert not re.search(r"(?:url\(|src=|import )['\"]?https?:", (DOCS / name).read_text())


class _Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.open, self.seen = [], set()
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.open += [] if tag == "img" else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_notebook_is_a_page_with_its_outputs():
    notebook = json.loads((DOCS / "tour.ipynb").read_text())
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in codes)
    page = GENERATED["tour.md"][1]
    assert page.count("```python") == len(codes)
    assert page.count('class="output"') == sum(len(cell["outputs"]) for cell in codes)
    assert str(ROOT) not in page
    tags = _Tags(re.sub(r"^```.*?^```", "", page, flags=re.S | re.M))
    assert not tags.open
    assert "script" not in tags.seen


def test_the_notebook_runs_and_says_what_it_said():
    pytest.importorskip("nbclient", reason="pip install 'latentloop[dev]'")
    import nbformat

    notebook = _load("notebook")
    stored = nbformat.read(notebook.PATH, as_version=4)
    with ThreadPoolExecutor(1) as pool:  # a browser test of this process may keep an event loop running
        executed = pool.submit(notebook.executed).result()
    assert notebook.said(executed) == notebook.said(stored), "run python docs/notebook.py"
