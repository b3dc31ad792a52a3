"""What the docs site adds to the files of docs/: the front page, the notebook, model cards, records and the API reference.

mkdocs calls these functions. The front page is README.md, and the tour is docs/tour.ipynb with its stored outputs: nothing is
written twice, and nothing runs. Links that lead out of docs/ lead to the page that shows the same file.
"""

import base64
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests look at links where mkdocs is not installed
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "latentloop"
PAGE = "<!-- the page -->"
"""Where docs/explore.md shows the page itself: on the site, since Markdown elsewhere has no frames."""
LATER = ("results.md", "interpret.md", "explore.md")
"""Pages that appear in the navigation as soon as they are there."""
MARKS = re.compile(
    r"^```.*?^```"  # code is left alone
    r"|(?P<image>!?)\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)"
    r"|`[^`\n]*`",
    re.S | re.M,
)


def packages() -> dict[str, list[str]]:
    """Return the modules of every package, and of the package itself under ``latentloop``."""
    found: dict[str, list[str]] = {"latentloop": []}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("latentloop", *path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] in ("__init__", "__main__") or parts[1] == "commands":
            continue
        found.setdefault(parts[1] if len(parts) > 2 else "latentloop", []).append(".".join(parts))
    return found


def generated() -> dict[str, tuple[str, str]]:
    """Return the pages that are not files of docs/: by address, the file they show, and their text."""
    pages = {"index.md": "README.md", "records.md": "benchmarks/records.md", "tour.md": "docs/tour.ipynb"}
    pages |= {
        f"cards/{path.parent.name}.md": str(path.relative_to(ROOT)) for path in ROOT.glob("checkpoints/*/README.md")
    }
    texts = {address: (source, (ROOT / source).read_text()) for address, source in pages.items()}
    texts["tour.md"] = (pages["tour.md"], notebook_text(json.loads(texts["tour.md"][1])))
    for name, modules in packages().items():
        head = f"# {name}\n\n{_summary(name)}\n\n" if modules else ""
        texts[f"api/{name}.md"] = ("src", head + "\n\n".join(f"::: {module}" for module in modules) + "\n")
    return texts


def _summary(name: str) -> str:
    """Return the first line of a package's documentation."""
    file = PACKAGE / ("" if name == "latentloop" else name) / "__init__.py"
    found = re.match(r'"""(.*?)(?:"""|\n)', file.read_text(), re.S)
    return found[1].strip() if found else ""


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Leave out pages that are still to come, and list those of the API."""
    nav = []
    for entry in config.nav or []:
        ((title, target),) = entry.items()
        if title == "API":
            target = [{name: f"api/{name}.md"} for name in packages()]
        if target not in LATER or (Path(config.docs_dir) / target).is_file():
            nav.append({title: target})
    config.nav = nav
    return config


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the generated pages; where a page and a standalone file have one address, the page moves."""
    from mkdocs.structure.files import File, InclusionLevel

    for address, (_, text) in generated().items():
        files.append(File.generated(config, address, content=text))
    for path in Path(config.docs_dir).glob(
        "*.html"
    ):  # excluded in mkdocs.yml, or a page of the same name would replace it
        if page := files.get_file_from_path(f"{path.stem}.md"):  # explore.md tells about explore.html
            page.dest_uri = f"{path.stem}-page.html"
        if excluded := files.get_file_from_path(path.name):
            files.remove(excluded)
        whole = File.generated(config, path.name, abs_src_path=str(path), inclusion=InclusionLevel.INCLUDED)
        files.append(whole)
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Let links lead to pages of the site, and show the page itself where it is explained."""
    source = {address: source for address, (source, _) in generated().items()}
    address = page.file.src_uri
    return with_page(with_links(markdown, address, source.get(address, f"docs/{address}")))


def with_page(markdown: str) -> str:
    """Return a page with docs/explore.html in a frame where it is marked; its own policy keeps it offline there, too."""
    frame = '<iframe class="page" src="explore.html" title="The page, with laptop-all in it" loading="lazy"></iframe>'
    return markdown.replace(PAGE, f"{frame}\n\n[Open it full size](explore.html){{ target=_blank }}")


def with_links(markdown: str, address: str, source: str) -> str:
    """Return a page with its links rewritten; those to files that the site does not show become plain text."""

    def rewritten(match: re.Match[str]) -> str:
        place, _, anchor = (match["target"] or "").partition("#")
        if not place or "://" in place:
            return match[0]
        found = shown_at(posixpath.normpath(posixpath.join(posixpath.dirname(source), place)))
        if found is None:
            return match["label"]
        page, _, module = found.partition("#")
        there = posixpath.relpath(page, posixpath.dirname(address) or ".")
        part = f"#{anchor or module}" if anchor or module else ""
        return f"{match['image']}[{match['label']}]({there}{part})"

    return MARKS.sub(rewritten, markdown)


def shown_at(path: str) -> str | None:
    """Return the address of the page that shows a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path == "benchmarks/records.md":
        return "records.md"
    if path == "docs/tour.ipynb":
        return "tour.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if card := re.fullmatch(r"checkpoints/([\w-]+)/README\.md", path):
        return f"cards/{card[1]}.md"
    if module := re.fullmatch(r"src/(latentloop/.+)\.py", path):
        name = module[1].replace("/", ".")
        package = next((package for package, modules in packages().items() if name in modules), None)
        return None if package is None else f"api/{package}.md#{name}"
    return None


def notebook_text(notebook: Mapping[str, Any]) -> str:
    """Return a notebook as Markdown, with the outputs that are stored in it."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif text.strip():
            parts.append(f"```python\n{text}\n```")
            parts += [output for one in cell["outputs"] for output in _output(one)]
    return "\n\n".join(parts) + "\n"


def _output(output: Mapping[str, Any]) -> Iterator[str]:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        content = re.sub(r"\s", "", "".join(data["image/png"]))
        base64.b64decode(content, validate=True)
        yield f'<img class="output" alt="Output of the cell above" src="data:image/png;base64,{content}">'
    elif "text/html" in data:
        html = "".join(data["text/html"])
        yield f'<div class="output">{html}</div>'
    elif text := "".join(data.get("text/plain", "")).rstrip():
        yield f'<pre class="output">{escape(text)}</pre>'
