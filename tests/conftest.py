import io
import shutil
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("house")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process; gives its exit code and what it printed."""

    from latentloop import cli

    def call(*words, stdin: str | bytes | None = None):
        monkeypatch.setattr(sys, "argv", ["latentloop", *map(str, words)])
        if stdin is not None:
            monkeypatch.setattr(
                sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
            )
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def ctrl_c():
    """Let this process, and those it starts, hear Ctrl-C, which shells tell jobs in the background to ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def chromium():
    """A real Chromium, one for all tests of a process."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="browser tests need playwright: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
