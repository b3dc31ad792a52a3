import io
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("house")


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
