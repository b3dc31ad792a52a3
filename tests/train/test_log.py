"""Metrics and progress: on a full disk, with damaged lines, on narrow terminals."""

import csv
import io
import json
import os

import pytest
from rich.console import Console

from latentloop.errors import UserError
from latentloop.files import parse_json, read_json, write_json
from latentloop.train.log import LiveProgress, RunLog, read_log
from small_runs import go, quick


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")  # noqa: PTH110
def test_a_full_disk_does_not_stop_or_hang_what_is_only_told(tmp_path):
    said = []
    log = RunLog(tmp_path, 0, said.append)
    log.file.close()
    log.file = open("/dev/full", "ab")  # noqa: PTH123, SIM115
    log.events.writer._py_recordio_writer._writer = open("/dev/full", "wb")  # noqa: PTH123, SIM115
    for step in range(200):  # a queue to a thread that has died would be full by now
        log.write("train", step, {"loss": 1.0})
    log.close()
    assert len(said) == 2
    assert all("No space left on device; training goes on" in line for line in said)


def test_a_disk_that_is_full_for_a_while_loses_no_line(tmp_path):
    log = RunLog(tmp_path, 0, lambda line: None)
    raw = log.file.raw
    full = open("/dev/full", "ab", 0)  # noqa: PTH123, SIM115
    kept = os.dup(raw.fileno())
    log.write("train", 1, {"loss": 1.0})
    os.dup2(full.fileno(), raw.fileno())
    log.write("train", 2, {"loss": 1.0})
    os.dup2(kept, raw.fileno())
    log.write("train", 3, {"loss": 1.0})
    log.close()
    os.close(kept)
    full.close()
    assert [row["step"] for row in read_log(tmp_path)] == [1, 2, 3]


def test_a_disk_that_is_full_at_a_checkpoint_stops_in_one_line_and_keeps_the_last(tmp_path, monkeypatch):
    from latentloop.train import checkpoint

    real = checkpoint.writing

    def writing(path, *rest, **more):
        if path.parent.name == ".step-00000009.part" and path.name == "metrics.json":
            raise UserError(f"cannot write {path}: No space left on device")
        return real(path, *rest, **more)

    monkeypatch.setattr(checkpoint, "writing", writing)
    with pytest.raises(UserError, match="No space left on device"):
        go(quick(), tmp_path / "run")
    assert (tmp_path / "run" / "last").read_text() == "step-00000006\n"
    assert not list((tmp_path / "run").rglob("*.part"))
    monkeypatch.undo()
    assert go(quick(), tmp_path / "run", resume=True).step == 12


WRONG = [
    b"[1]", b"5", b'"x"', b"null", b"{}", b'{"step": "2", "kind": "train"}', b'{"step": 2, "kind": 3}',
    b'{"step": 2.5, "kind": "train"}', b'{"step": true, "kind": "train"}', b'{"step": -1, "kind": "train"}',
    b'{"step": 2, "kind": "train", "loss": [1]}', b'{"step": 2, "kind": "train", "loss": NaN}', b"\xff\xfe",
    b"[" * 60_000, b'{"step": ' + b"9" * 5000 + b', "kind": "train"}', b'{"step": 2, "kind": "tr',
]  # fmt: skip


def test_lines_that_are_no_measurements_are_left_out(tmp_path):
    good = b'{"step": 1, "kind": "train", "loss": 0.5}'
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([*WRONG, good, b"x" * 200_000, b""]))
    assert read_log(tmp_path) == [{"step": 1, "kind": "train", "loss": 0.5}]
    said = []
    RunLog(tmp_path, 5, said.append).close()
    assert len(said) == 1
    assert (tmp_path / "metrics.jsonl").read_bytes() == good + b"\n"
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "metrics.csv").read_text())))) == 1


def test_result_files_have_a_line_for_a_row_and_for_a_list_of_numbers(tmp_path):
    rows = [{"kind": "é", "solved": 1.0}, {"kind": "b", "solved": None}]
    document = {"rows": rows, "curve": {8: [1, 2.5], 16: []}, "counts": {1: 2}, "about": {"name": "x", "more": {}}}
    write_json(tmp_path / "x.json", document)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert text.splitlines()[1:9] == [
        '  "rows": [',
        '    {"kind": "é", "solved": 1.0},',
        '    {"kind": "b", "solved": null}',
        "  ],",
        '  "curve": {',
        '    "8": [1, 2.5],',
        '    "16": []',
        "  },",
    ]
    assert '  "counts": {"1": 2},' in text.splitlines()
    assert json.loads(text) == json.loads(json.dumps(document))
    for alone in ({}, [], 1, "a", None, [[]], {"a": [{"b": [{}]}]}):
        write_json(tmp_path / "x.json", alone)
        assert json.loads((tmp_path / "x.json").read_text()) == alone


def test_result_files_are_valid_json(tmp_path):
    document = {"a": float("nan"), "b": [float("inf"), (1.5, {"c": -float("inf")})]}
    write_json(tmp_path / "x.json", document)
    assert read_json(tmp_path / "x.json") == {"a": None, "b": [None, [1.5, {"c": None}]]}
    log = RunLog(tmp_path, 0, print)
    log.write("validation", 1, {"loss": float("nan")})
    log.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)["loss"] is None


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"9" * 21, b"-" + b"9" * 5000, b"\xff"]
)
def test_json_of_strangers_is_refused_with_few_words(content, tmp_path):
    with pytest.raises(ValueError, match=r".") as caught:
        parse_json(content)
    assert len(str(caught.value)) < 200
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(UserError, match="cannot read"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_bytes(b" " * 1001)
    with pytest.raises(UserError, match="more than 1,000 bytes"):
        read_json(tmp_path / "x.json", limit=1000)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("total", [120, 156_250])
def test_progress_shows_step_bar_time_and_loss_at_any_width(width, total):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=width, color_system=None, soft_wrap=True)
    half = total // 2
    progress = LiveProgress(console, total, half - 60)
    for step in range(half - 60, half):
        progress.advance(step)
    figures = {
        "loss": 2.34567,
        "right_leaf": 0.98765,
        "right_one": 0.5,
        "right_two": 0.25,
        "lr": 0.001,
        "seconds": 12.3,
    }
    progress.show(half, figures, line=True)
    text.truncate(0)
    progress.bar.refresh()
    progress.close()
    lines = [line for line in text.getvalue().replace("\r", "\n").splitlines() if "loss" in line]
    line = lines[-1].split("\x1b[2K")[-1]
    assert len(line.rstrip()) <= width
    for part in (f"{half}/{total}", "━", ":", "loss 2.346"):
        assert part in line
    assert ("seconds 12.3" in line) == (width == 200)
    assert ("right_leaf" in line) == (width >= 80)
