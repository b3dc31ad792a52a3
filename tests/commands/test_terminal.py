"""What a stranger's terminal does to the commands: odd files, odd numbers, narrow windows, Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from latentloop.commands import terminal
from latentloop.config import GraphConfig, TaskConfig
from latentloop.report.console import answer_table, plain_table, trace_tables
from latentloop.task.graph import sample
from latentloop.task.oracle import solve, trace
from latentloop.task.text import parse
from latentloop.tokens import dataset
from typing_user import one_line_error

QUESTION = '{"id": 1, "text": "1 = x5"}\n'


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(QUESTION)
    return path


@pytest.mark.parametrize("link", ["itself", "symlink", "hard link", "dotted"])
def test_answers_never_take_the_place_of_their_questions(run, questions, link):
    target = questions.with_name("other.jsonl")
    if link == "symlink":
        target.symlink_to(questions)
    elif link == "hard link":
        os.link(questions, target)
    else:
        target = questions if link == "itself" else questions.parent / "." / "x" / ".." / questions.name
        (questions.parent / "x").mkdir()
    assert one_line_error(run("solve", "--oracle", "--input", questions, "--output", target), "the same file as")
    assert questions.read_text() == QUESTION


def test_redirected_streams_are_files_too(questions):
    command = [sys.executable, "-m", "latentloop", "solve", "--oracle", "--input"]
    with questions.open("rb") as stdin:
        done = subprocess.run([*command, "-", "--output", str(questions)], stdin=stdin, capture_output=True, text=True)
    assert (done.returncode, "the same file as -" in done.stderr) == (2, True)
    with questions.open("ab") as stdout:
        done = subprocess.run([*command, str(questions)], stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "cannot write standard output: it is the same file" in done.stderr) == (2, True)
    assert questions.read_text() == QUESTION


def test_pictures_never_take_the_place_of_their_problem(run, tmp_path):
    problem = tmp_path / "problem.svg"
    problem.write_text("1 = x5")
    assert one_line_error(run("draw", problem, "--output", problem), "the same file as")
    assert problem.read_text() == "1 = x5"


@pytest.mark.parametrize("seed", range(3))
def test_problems_of_varying_size_can_be_sampled(run, seed):
    code, text, _ = run("sample", "--min-nodes", 8, "--seed", seed)
    assert code == 0
    assert 8 <= sum(line.count(" = ") for line in text.splitlines()) <= 32


def test_the_authors_order_can_be_sampled(run):
    (_, drawn, _), (_, ordered, _) = (run("sample", "--order", order) for order in ("drawn", "topological"))
    assert drawn != ordered
    assert sorted(drawn.replace(" ; ", "\n").split("\n")) == sorted(ordered.replace(" ; ", "\n").split("\n"))


@pytest.mark.parametrize("text", [b"1 = x1 \xff", b"\xfe\xff", bytes(range(128, 256))])
def test_bytes_that_are_no_text_are_one_line(run, text):
    assert one_line_error(run("solve", "--oracle", stdin=text), "standard input: it is not UTF-8 text")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_that_are_no_text_are_one_line_in_every_locale(locale):
    command = [sys.executable, "-m", "latentloop", "solve", "--oracle"]
    settings = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, input=b"1 = x1 \xff", capture_output=True, env=settings)
    assert done.returncode == 2
    assert done.stderr == b"error: cannot read standard input: it is not UTF-8 text\n"


def test_pipes_with_a_name_are_read(run):
    reader, writer = os.pipe()
    os.write(writer, b"20 = x7")
    os.close(writer)
    code, out, _ = run("solve", f"/dev/fd/{reader}", "--oracle", "--json")
    os.close(reader)
    assert (code, json.loads(out)["values"]) == (0, {"x7": 20})


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["evaluate", "--sizes", "8", "9", "..", "9999999999"], ["1 to 4096", "'9999999999'"]),
        (["evaluate", "--sizes", "9" * 5000], ["1 to 4096"]),
        (["certify", "--sizes", "8", "9", "..", "9999999999"], ["1 to 4096"]),
        (["evaluate", "--instances", "99999999999999"], ["--instances must be at most", "--skip"]),
        (["stress", "--instances", "99999999999999"], ["--instances must be at most"]),
        (["evaluate", "--cap", str(2**63)], ["--cap must be 1 to 100000"]),
        (["evaluate", "--iterations", str(2**70)], ["--iterations must be 1 to 100000"]),
        (["solve", "1 = x1", "--cap", str(2**63)], ["--cap must be 1 to 100000 iterations, got 9223372036854775808"]),
        (["solve", "1 = x1", "--cap", "0"], ["--cap must be 1 to 100000"]),
        (["dataset", "--count", "99999999999999", "--output", "x.npz"], ["need about", "GB are free"]),
        (["dataset", "--count", "99999999999999", "--output", "x.jsonl"], ["need about", "GB are free"]),
    ],
)
def test_numbers_too_large_are_refused_before_any_work(run, tmp_path, monkeypatch, words, messages):
    monkeypatch.chdir(tmp_path)
    assert one_line_error(run(*words), *messages)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_answered_end_with_1(run, tmp_path):
    file = tmp_path / "questions.jsonl"
    for text, code in (("", 1), ("no json\n", 1), ("no json\n" + QUESTION, 0)):
        file.write_text(text)
        assert run("solve", "--oracle", "--input", file)[0] == code


def test_long_files_show_progress(run, questions, monkeypatch):
    seen = []

    class Bars:
        def __init__(self, *columns, **settings): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def add_task(self, label, total):
            seen.append(total)

        def advance(self, bar, done):
            seen.append(done)

    monkeypatch.setattr("rich.progress.Progress", Bars)
    monkeypatch.setattr(terminal, "stderr", Console(stderr=True, force_terminal=True))
    questions.write_text(QUESTION * 3)
    assert run("solve", "--oracle", "--input", questions)[0] == 0
    assert seen == [3, 1, 1, 1]


def test_an_interrupted_data_set_keeps_what_is_finished(run, tmp_path, monkeypatch):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    work_out, calls = dataset.work_out, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 4:  # the first call is the check of the disk
            signal.raise_signal(signal.SIGINT)
        return work_out(*arguments)

    try:
        for name in ("some.jsonl", "some.npz"):
            calls.clear()
            monkeypatch.setattr(dataset, "work_out", interrupted)
            code, _, err = run("dataset", "--nodes", 4, "--count", 5000, "--output", tmp_path / name)
            monkeypatch.setattr(dataset, "work_out", work_out)
            kept = int(err.partition("kept the first ")[2].partition(" ")[0])
            assert (code, kept) == (130, 2048)
            assert "the same command writes all of them" in err
            settings = json.loads((tmp_path / f"{name}.config.json").read_text())
            assert (settings["count"], settings["interrupted"]) == (kept, True)
            assert run("dataset", "--nodes", 4, "--count", kept, "--output", tmp_path / f"whole-{name}")[0] == 0
            assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert len(list(tmp_path.iterdir())) == 8


def test_arrays_of_pieces_are_those_of_one_piece(run, tmp_path, monkeypatch):
    words = ("--count", 50, "--nodes", 30, "--min-nodes", 1, "--output")
    assert run("dataset", *words, tmp_path / "x.jsonl")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert run("dataset", *words, tmp_path / "whole.npz")[0] == 0
    sample_pieces = dataset.sample_pieces

    def split(*arguments):
        for piece in sample_pieces(*arguments):
            yield from (piece[start : start + 7] for start in range(0, len(piece), 7))

    monkeypatch.setattr(dataset, "sample_pieces", split)
    assert run("dataset", *words, tmp_path / "pieces.npz")[0] == 0
    assert (tmp_path / "pieces.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    with np.load(tmp_path / "pieces.npz", allow_pickle=False) as whole:
        assert [text.decode() for text in whole["text"]] == [line["text"] for line in lines]
        assert whole["modulus"] == 23


@pytest.mark.parametrize("width", [40, 80, 160])
def test_tables_fit_any_width_and_split_no_number(width):
    problems = sample(TaskConfig.named("all"), GraphConfig(nodes=128), 1, np.random.default_rng(0))
    console = Console(width=width, file=io.StringIO())
    solution = solve(problems)
    console.print(answer_table(problems, solution, solution.values[0]))
    for table in trace_tables(problems, trace(problems), truth=solution.values, width=width):
        console.print(table)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("equation")]
    assert len(lines) == 129 * len(rows)  # no row takes two lines
    assert "value" in rows[0]
    assert "true" in rows[-1]


def test_tables_leave_out_columns_and_say_which():
    table = plain_table("scenario", "solved %", "problems", "cycles")
    table.add_row("10% flipped in the middle", "100.00", "12,345,678", "0")
    table.add_row("paper-feedforward", "5.00", "1", "0")
    for width in (27, 48, 80):
        console = Console(width=width, file=io.StringIO())
        console.print(table)
        text = console.file.getvalue()
        assert max(map(len, text.splitlines())) <= width
        assert "100.00" in text
        assert "paper-feedforward" in text
        assert ("12,345,678" in text) == (width >= 48)
        assert ("no room for:" in text) == (width < 48)


def test_wrong_values_are_marked_and_the_true_ones_shown():
    problems = parse("20 = x7 ; 2 = x42 ; x7 + x42 = x23", TaskConfig())
    console = Console(width=40, file=io.StringIO())
    console.print(answer_table(problems, solve(problems), np.array([20, 2, 9], np.int8)))
    assert [line.split()[-3:] for line in console.file.getvalue().splitlines()] == [
        ["value", "true", "depth"],
        ["20", "20", "1"],
        ["2", "2", "1"],
        ["9!", "22", "2"],
    ]


def test_long_traces_are_written_in_runs_and_not_cell_by_cell():
    chain = sample(TaskConfig(names=600), GraphConfig(nodes=600, family="chain"), 1, np.random.default_rng(0))
    console = Console(width=160, file=io.StringIO())
    for table in trace_tables(chain, trace(chain), width=160):
        assert len(list(table.__rich_console__(console, console.options))) <= 600 * 5 + 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "recurrent", "--iterations", "3", "--pin-static"], "--pin-static is a setting of discrete"),
        (["--lookup-noise", "-1"], "--lookup-noise must be at least 0"),
        (["--method", "corrected", "--corruption-share", "7"], "--corruption-share must be"),
        (["--method", "stable", "--partial-weight", "1"], "--partial-weight needs an --mlp-depth of at least 2"),
    ],
)
def test_errors_name_options_as_they_are_typed(run, words, message):
    assert one_line_error(run("train", "--preset", "tiny-discrete", *words), message)


def test_help_and_sampling_load_no_torch():
    names = ("sample", "solve", "draw", "dataset", "presets", "train", "evaluate", "certify", "stress")
    code = f"""
import sys
from latentloop import cli
for words in (["--help"], ["sample"], *([name, "--help"] for name in {names}), ["train", "--preset", "laptop-add", "--help"]):
    try:
        cli.run(words)
    except SystemExit as stop:
        assert not stop.code
heavy = {{"torch", "matplotlib", "lightning_fabric", "huggingface_hub", "rich.progress"}} & set(sys.modules)
sys.exit(str(heavy) if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in names:
        assert f"\n  {name} " in done.stdout
    assert "--instances" in done.stdout


def test_guards_that_were_hit_show_where_their_columns_do_not_fit():
    table = plain_table("nodes", "cycles %", "caps %", "a column that is much too long for the terminal")
    table.add_row("8", "0.00", "0.00", "x")
    table.add_row("16", "0.10", "0.00", "x")
    console = Console(width=12, file=io.StringIO())
    console.print(table)
    text = "".join(console.file.getvalue().split())
    assert "cycles%(upto0.1),caps%(all0),acolumnthat" in text
