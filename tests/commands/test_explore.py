"""latentloop explore, and the full trace of solve."""

import json
import shutil

import pytest

from latentloop.evaluate.hub import shipped
from latentloop.explorer.runs import check_run


def test_a_page_is_written(run, tmp_path):
    output = tmp_path / "page.html"
    code, said, told = run(
        "explore", "laptop-add", "--problem", "3 = x1 ; x1 + x1 = x2", "--output", output, "--no-open"
    )
    assert (code, said) == (0, "")
    assert told.startswith(f"wrote {output} (1.")
    page = output.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert r'{"problem":"3 = x1\nx1 + x1 = x2"}' in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "page.txt"], "error: --output must end in .html, got 'page.txt'"),
        (["--output", "file/page.html"], "error: cannot write file/page.html: "),
        (
            ["--problem", "3 = x1 ; x1 * x1 = x2"],
            "error: equation 2 ('x1 * x1 = x2'): unknown operator '*': use one of +",
        ),
        (["--problem", "nothing"], "error: 'nothing' is neither an equation such as '20 = x7' nor a file"),
        (["--compare", "laptop-ad"], "error: no checkpoint 'laptop-ad'"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, said, told = run("explore", "laptop-add", *words, "--no-open")
    assert (code, said) == (2, "")
    assert told.startswith(message)
    assert told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_truncated_checkpoint_is_refused(run, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(shipped("laptop-add"), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    output = tmp_path / "page.html"
    code, _, told = run("explore", folder, "--output", output, "--no-open")
    assert code == 2
    assert "was altered or cut off" in told
    assert not output.exists()


def test_the_full_trace_is_a_run(run):
    code, said, _ = run("solve", "--checkpoint", "laptop-add", "--json", "--trace", "full", "3 = x1 ; x1 + x1 = x2")
    assert code == 0
    assert check_run(json.loads(said))["states"][-1] == [3, 6]


def test_the_full_trace_needs_json_and_a_model(run):
    for words in (["--trace", "full"], ["--trace", "full", "--json", "--oracle"]):
        code, _, told = run("solve", *words, "3 = x1")
        assert code == 2
        assert told.startswith("error: --trace full is a JSON document of a model's run")
