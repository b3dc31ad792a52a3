"""Pages in a real Chromium that are watched: no error, and no request to anywhere."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from latentloop.explorer.models import pack_model
from latentloop.explorer.page import ENGINE, STATIC, TASK, build_page

PROBLEM = "6 = x8\n12 = x7\n18 = x5\nx5 + x8 = x2\nx7 + x8 - x5 = x9\nx7 * x2 = x1\nx1 - x9 * x2 = x4"
FINISHED = "Boolean(globalThis.latentloop?.problem && !latentloop.computing && latentloop.wanted === undefined)"


@pytest.fixture(scope="session")
def program(chromium):
    """The task and the engine in an empty page: call their functions with ``evaluate``."""
    page = chromium.new_page()
    page.add_script_tag(content="\n".join((STATIC / name).read_text() for name in (*TASK, *ENGINE)))
    yield page
    page.close()


@pytest.fixture(scope="session")
def laptop_all():
    return pack_model("laptop-all")


@pytest.fixture(scope="session")
def laptop_add():
    return pack_model("laptop-add")


@pytest.fixture(scope="session")
def page_file(tmp_path_factory, laptop_all) -> Path:
    path = tmp_path_factory.mktemp("page") / "explore.html"
    path.write_text(build_page([laptop_all], problem=PROBLEM), "utf-8")
    return path


class Watched:
    """A page from disk, with everything it complained about or asked for."""

    def __init__(self, page):
        self.page, self.complaints, self.requests = page, [], []
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def __getattr__(self, name):
        return getattr(self.page, name)

    def open(self, path: Path, link: str = "") -> "Watched":
        self.page.goto(path.as_uri() + link)
        return self.settled()

    def settled(self) -> "Watched":
        """Wait until everything is computed; the page's policy forbids what Playwright would wait with."""
        self.until(FINISHED)
        return self

    def until(self, condition: str, seconds: float = 60) -> None:
        for _ in range(int(seconds * 20)):
            if self.page.evaluate(condition):
                self.page.evaluate(
                    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
                )  # drawn
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {condition}")

    def saved(self, button: str, folder: Path) -> Path:
        """Save by a button of the menu; return the file."""
        self.page.click("#save-button")
        with self.page.expect_download() as download:
            self.page.click(button)
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def moment(self) -> dict:
        return self.page.evaluate(
            "({iteration: latentloop.iteration, last: latentloop.last, halt: latentloop.panes[0].halt,"
            " values: Array.from(latentloop.panes[0].at(latentloop.iteration)), truth: Array.from(latentloop.truth)})"
        )


@pytest.fixture
def visit(chromium):
    """Open pages in a context of their own; afterwards none of them may have complained, or asked anybody for anything."""

    @contextmanager
    def opened(*, complains=False, **settings):
        context = chromium.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", "accept_downloads": True}
            | settings
        )
        watched = Watched(context.new_page())
        try:
            yield watched
            if not complains:
                assert watched.complaints == []
            assert [url for url in watched.requests if not url.startswith(("file:", "blob:", "data:"))] == []
        finally:
            context.close()

    return opened
