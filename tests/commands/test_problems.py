"""Problems on the command line, as a user types it."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from latentloop.config import GraphConfig, TaskConfig
from latentloop.families import FAMILIES
from latentloop.task.graph import sample
from latentloop.task.splits import sampled_generator
from latentloop.task.text import to_text
from paper import NINE_NODES
from typing_user import one_line_error

SUM = "20 = x7 ; 2 = x42 ; x7 + x42 = x23"


def test_sample_prints_what_solve_reads(run):
    _, text, _ = run("sample", "--nodes", 20, "--seed", 4)
    code, answer, _ = run("solve", "-", "--oracle", "--json", stdin=text)
    assert code == 0
    _, record, _ = run("sample", "--nodes", 20, "--seed", 4, "--json")
    assert json.loads(answer)["values"] == json.loads(record)["values"]
    assert json.loads(answer)["text"] == json.loads(record)["text"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_sampled(run, family):
    code, out, _ = run("sample", "--family", family, "--nodes", 24, "--task", "all", "--modulus", 31, "--json")
    record = json.loads(out)
    assert code == 0
    assert len(record["values"]) == 24
    assert record["task"]["modulus"] == 31
    assert len(record["tokens"]["syntax"]) == len(record["tokens"]["value"])


def test_solve_takes_text_a_file_or_standard_input(run, tmp_path):
    file = tmp_path / "problem.txt"
    file.write_text(SUM)
    answers = [
        run("solve", SUM, "--oracle", "--json"),
        run("solve", file, "--oracle", "--json"),
        run("solve", "--oracle", "--json", stdin=SUM),
    ]
    for code, out, err in answers:
        assert code == 0
        assert json.loads(out)["values"] == {"x7": 20, "x42": 2, "x23": 22}
        assert err == ""


def test_solve_shows_values_by_layer_and_by_iteration(run):
    _, layers, _ = run("solve", NINE_NODES, "--oracle")
    assert [line.split()[-2] for line in layers.splitlines()[1:-1]] == [
        "20",
        "2",
        "6",
        "14",
        "22",
        "8",
        "15",
        "15",
        "17",
    ]
    _, table, _ = run("solve", NINE_NODES, "--oracle", "--trace")
    last = table.splitlines()[-2].split()
    assert last[-4:] == ["·", "·", "·", "17"]
    _, trace, _ = run("solve", NINE_NODES, "--oracle", "--trace", "--json")
    states = json.loads(trace)["trace"]
    assert [sum(v is not None for v in state.values()) for state in states] == [0, 4, 7, 9]


def test_batches_answer_in_order_and_one_bad_line_does_not_stop_the_rest(run, tmp_path):
    questions, answers = tmp_path / "problems.jsonl", tmp_path / "answers.jsonl"
    lines = [
        json.dumps({"id": "a", "text": SUM}),
        json.dumps({"id": 2, "text": "x1 = x2"}),
        "not json",
        json.dumps(["a", "list"]),
        json.dumps({"id": 3}),
        "",
        '{"id": 4, "text": "1 = x5", "more": [1]}',
    ]
    questions.write_text("\n".join(lines))
    code, out, err = run("solve", "--oracle", "--input", questions, "--output", answers)
    assert (code, out) == (0, "")
    assert "the oracle answered 2 of 6" in err
    given = [json.loads(line) for line in answers.read_text().splitlines()]
    assert given[0] == {"id": "a", "values": {"x7": 20, "x42": 2, "x23": 22}}
    assert given[-1] == {"id": 4, "values": {"x5": 1}}
    assert [answer["id"] for answer in given] == ["a", 2, None, None, 3, 4]
    assert [sorted(answer) for answer in given[1:5]] == [["error", "id"]] * 4
    assert "x1 is not defined" in given[1]["error"]
    assert "line 3" in given[2]["error"]


def test_batches_of_many_sizes_match_single_answers(run, tmp_path):
    graphs = [GraphConfig(nodes=3 + number % 40) for number in range(300)]
    texts = [to_text(sample(TaskConfig(), graph, 1, sampled_generator(s))) for s, graph in enumerate(graphs)]
    questions = tmp_path / "problems.jsonl"
    questions.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)))
    _, out, _ = run("solve", "--oracle", "--input", questions)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [a["id"] for a in answers] == list(range(300))
    for index in (0, 7, 255, 256, 299):
        assert answers[index]["values"] == json.loads(run("solve", texts[index], "--oracle", "--json")[1])["values"]


def test_datasets_come_with_their_settings_and_reproduce(run, tmp_path):
    for name in ("a.jsonl", "b.jsonl", "c.npz"):
        arguments = ("--count", 1100, "--nodes", 16, "--min-nodes", 8, "--seed", 3, "--task", "add")
        assert run("dataset", "--output", tmp_path / name, *arguments)[0] == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    settings = json.loads((tmp_path / "a.jsonl.config.json").read_text())
    assert (settings["seed"], settings["count"], settings["graph"]["nodes"]) == (3, 1100, 16)
    assert settings["vocabulary"]["syntax"][0] == "value"
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(lines) == 1100
    with np.load(tmp_path / "c.npz", allow_pickle=False) as arrays:
        for row in (0, 1023, 1024, 1099):
            size, length = arrays["sizes"][row], arrays["token_lengths"][row]
            assert lines[row]["id"] == row
            assert arrays["text"][row].decode() == lines[row]["text"]
            assert arrays["true_values"][row, :size].tolist() == list(lines[row]["values"].values())
            assert arrays["true_depths"][row, :size].tolist() == list(lines[row]["depths"].values())
            assert arrays["token_variable"][row, :length].tolist() == lines[row]["tokens"]["variable"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{name}{end}" for name in ("a.jsonl", "b.jsonl", "c.npz") for end in ("", ".config.json")
    )


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_draw_writes_a_picture(run, tmp_path, suffix):
    picture = tmp_path / f"graph.{suffix}"
    assert run("draw", NINE_NODES, "--output", picture)[0] == 0
    assert picture.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    if suffix == "svg":
        assert "depth 3" in picture.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "--nodes", "129"], "129 nodes need as many distinct names"),
        (["sample", "--nodes", "-3"], "got -3"),
        (["sample", "--leaves", "0"], "got 0"),
        (["sample", "--modulus", "24"], "prime from 2 to 97, got 24"),
        (["sample", "--seed", "-1"], "got -1"),
        (["sample", "--seed", str(2**64)], "less than 2^64"),
        (["dataset", "--nodes", "129", "--output", "new/folder/data.npz"], "129 nodes need as many"),
        (["sample", "--family", "chain", "--depth-limit", "5"], "leave the depth limit out"),
        (["solve", "--oracle", ""], "the problem is empty"),
        (["solve", "--oracle", "x1 = x2 ; x2 = x1"], "form a cycle: x2 -> x1 -> x2"),
        (["solve", "--oracle", "missing.txt"], "neither an equation such as '20 = x7' nor a file"),
        (["solve", "--oracle", "--input", "missing.jsonl"], "cannot read missing.jsonl: No such file"),
        (["solve", "--oracle", "1 = x0", "--output", "x.json"], "--output goes with --input"),
        (["solve", "--oracle", "1 = x0", "--input", "x.json"], "leave out the problem"),
        (["dataset", "--output", "data.csv"], "must end in .jsonl or .npz"),
        (["dataset", "--output", "data.npz", "--count", "0"], "at least 1, got 0"),
        (["draw", "--output", "graph.gif"], "must end in .png, .svg, .pdf"),
    ],
)
def test_mistakes_end_in_one_line_and_code_2(run, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert one_line_error(run(*words), message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ([], ["a command is missing: choose from", "sample", "stress"]),
        (["smaple"], ["unknown command 'smaple'", "did you mean 'sample'?"]),
        (["sample", "--nods", "3"], ["unrecognized options: --nods", "did you mean --nodes?", "sample --help"]),
        (["sample", "--nodes", "many"], ["--nodes", "'many'"]),
        (["sample", "--nodes"], ["missing value", "--nodes"]),
        (["sample", "--task", "divide"], ["'divide'", "--task", "'add'", "'all'"]),
        (["dataset"], ["missing", "--output"]),
        (["evaluate", "laptop-add", "laptop-all"], ["laptop-all", "evaluate --help"]),
        (["evaluate", "laptop-add", "--checkpoint", "laptop-all"], ["one model at a time"]),
    ],
)
def test_words_that_mean_nothing_end_in_one_line_and_code_2(run, words, messages):
    assert one_line_error(run(*words), *messages)


def test_help_is_asked_for(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert all(command in out for command in ("sample", "train", "certify"))
    code, out, err = run("evaluate", "--help")
    assert (code, err) == (0, "")
    assert "--checkpoint" in out


def test_a_folder_or_a_closed_folder_cannot_be_written(run, tmp_path):
    (tmp_path / "folder.npz").mkdir()
    assert one_line_error(run("dataset", "--count", 1, "--output", tmp_path / "folder.npz"), "it is a folder")
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "below"
    assert one_line_error(run("dataset", "--count", 1, "--output", below / "x.npz"), "cannot write")
    assert one_line_error(run("draw", "--output", below / "x.png"), "cannot write")
    assert one_line_error(
        run("solve", "--oracle", "--input", tmp_path / "file", "--output", below / "x"), "cannot write"
    )


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    from latentloop.errors import UserError
    from latentloop.files import writing

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device"), writing(tmp_path / "x") as file:
        file.write("something")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_stops_early_is_no_error():
    command = f"{sys.executable} -m latentloop sample --nodes 4096 --names 4096 | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True)
    assert done.returncode == 0
    assert done.stderr == b""


def shell(line, cwd, **settings):
    command = line.replace("latentloop", f"{sys.executable} -m latentloop")
    return subprocess.run(command, shell=True, cwd=cwd, capture_output=True, text=True, **settings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("latentloop solve --oracle <&-", "standard input is closed"),
        ("latentloop solve --oracle --input - <&-", "standard input is closed"),
        ("latentloop sample >&-", "standard output is closed"),
        ("latentloop sample > /dev/full", "cannot write standard output: No space left"),
        ("latentloop solve --oracle --trace '1 = x1' > /dev/full", "cannot write standard output: No space left"),
        ("yes '1 = x1' | latentloop solve --oracle", "more than the"),
        ("head -c 3000 /dev/urandom | latentloop solve --oracle", "error"),
        ("latentloop solve --oracle \"$(printf 'é%.0s' $(seq 200))\"", "is neither an equation"),
    ],
)
def test_odd_streams_end_in_one_line_and_code_2(line, message, tmp_path):
    done = shell(line, tmp_path, timeout=60)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_odd_names_and_encodings_work(tmp_path):
    (tmp_path / "lr=3.txt").write_bytes(b"\xef\xbb\xbf20 = x7\r\n")
    assert '"x7": 20' in shell("latentloop solve --oracle lr=3.txt --json", tmp_path).stdout
    assert (
        shell("latentloop draw '1 = x1' --output 'x[train].png'", tmp_path).stderr == "drew 1 nodes to x[train].png\n"
    )
    done = shell("PYTHONIOENCODING=ascii latentloop solve --oracle --trace '1 = x1'", tmp_path)
    assert done.returncode == 0, done.stderr


def test_outputs_go_through_links_and_into_pipes(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "1 = x5"}\n{"id": NaN, "text": "1 = x5"}\n')
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert shell("latentloop solve --oracle --input in.jsonl --output link", tmp_path).returncode == 0
    assert (tmp_path / "link").is_symlink()
    answers = [json.loads(line) for line in (tmp_path / "real").read_text().splitlines()]
    assert answers[0] == {"id": 1, "values": {"x5": 1}}
    assert "NaN" in answers[1]["error"]
    done = shell("mkfifo pipe; cat pipe & latentloop solve --oracle --input - --output pipe < in.jsonl; wait", tmp_path)
    assert '"x5": 1' in done.stdout


def test_sigterm_leaves_nothing_half_written(tmp_path):
    command = [sys.executable, "-m", "latentloop", "dataset", "--count", "10000000", "--output", "big.jsonl"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    deadline = time.time() + 60
    while not list(tmp_path.glob(".big*")) and time.time() < deadline:
        time.sleep(0.05)
    process.terminate()
    try:
        assert process.wait(60) == 143
    finally:
        process.kill()
    assert not list(tmp_path.glob(".*"))
    if list(tmp_path.iterdir()):  # what was finished is kept
        settings = json.loads((tmp_path / "big.jsonl.config.json").read_text())
        assert settings["interrupted"]
        assert (tmp_path / "big.jsonl").read_bytes().count(b"\n") == settings["count"]


def test_a_modulus_is_told_to_whoever_solves(run):
    _, text, _ = run("sample", "--modulus", 5, "--nodes", 9)
    assert text.splitlines()[0] == "# solve with --oracle --modulus 5 --names 128"
    assert "modulo 5" in run("solve", "-", "--oracle", "--modulus", 5, stdin=text)[1]


def test_a_very_deep_trace_is_shortened(run):
    _, text, _ = run("sample", "--family", "chain", "--nodes", 600, "--names", 600)
    code, table, _ = run("solve", "-", "--oracle", "--trace", "--names", 600, stdin=text)
    assert code == 0
    assert len(table.splitlines()) < 600 * 20


def test_version(run):
    assert run("--version")[1].startswith("latentloop 0.")
