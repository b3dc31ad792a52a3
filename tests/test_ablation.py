"""The ablation runs a row in the time asked for, knows what it has measured, and draws what there is."""

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from latentloop.errors import UserError
from latentloop.presets import preset
from latentloop.schema import changed

PATH = Path(__file__).parent.parent / "benchmarks" / "ablation.py"


def load():
    spec = importlib.util.spec_from_file_location("ablation", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ablation(tmp_path, monkeypatch):
    module = load()
    (tmp_path / "docs").mkdir()
    settings = {
        "ROOT": tmp_path,
        "RESULTS": tmp_path / "ablation.jsonl",
        "SIZES": (16,),
        "INSTANCES": 1,
        "VALIDATION": 2,
        "WARM_UP": 1,
        "ROUNDS": 3,
        "TASKS": {"add": ("laptop-add", 0.004), "all": ("laptop-all", 0.002)},
        "PAGE": "{tables}{pictures}",
    }
    for name, value in settings.items():
        monkeypatch.setattr(module, name, value)
    return module


def row_of(ablation, seed=0, **more):
    return {"task": "add", "choice": ablation.BASE, "changed": {}, "seed": seed} | more


def test_every_row_is_a_run_of_its_own(ablation):
    runs = [ablation.run_of(task, name, 0) for task, name in ablation.ROWS if name not in ablation.GONE]
    assert len(set(runs)) == len(runs)
    for name in ablation.GONE:
        with pytest.raises(UserError, match="unknown setting"):
            ablation.run_of("add", name, 0)


def test_a_row_is_measured_once_and_drawn(ablation, tmp_path):
    with pytest.raises(SystemExit, match="no result of 'the recipe'"):
        ablation.draw()
    jobs = [("add", ablation.BASE), ("add", "no curriculum"), ("all", ablation.BASE)]
    for task, name in jobs:
        ablation.add_row(ablation.measure(task, name, 0))
        assert ablation.read_rows()[task, name, 0]["steps"] >= 2
    gone = ablation.read_rows()["add", "no curriculum", 0] | {"choice": ablation.GONE[0]}
    ablation.add_row(gone)
    lines = [json.loads(line) for line in ablation.RESULTS.read_text().splitlines()]
    assert [line.get("choice") for line in lines] == [
        None,
        *[name for _, name in jobs[:2]],
        ablation.GONE[0],
        ablation.BASE,
    ]
    ablation.draw()
    page = (tmp_path / "docs" / "ablation.md").read_text().splitlines()
    rows = [line.split(" | ")[0][2:] for line in page if ", 1 of 3 seeds" in line]
    assert rows == [ablation.BASE, "no curriculum", ablation.BASE, ablation.BASE, ablation.GONE[0]]
    assert [line[3:] for line in page if line.startswith("## ")] == list(ablation.GROUPS)
    assert sum(line.startswith("![Learning curves") for line in page) == 2
    assert (tmp_path / "docs" / "ablation-add.png").stat().st_size > 10_000


def test_rows_of_many_processes_are_all_kept(ablation):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: ablation.add_row(row_of(ablation, seed)), range(24)))
    assert [seed for *_, seed in ablation.read_rows()] == list(range(24))
    assert [path.name for path in ablation.RESULTS.parent.iterdir() if path.is_file()] == [ablation.RESULTS.name]


def test_results_of_another_recipe_are_refused(ablation, monkeypatch):
    ablation.add_row(row_of(ablation))
    recipes, *rows = ablation.RESULTS.read_text().splitlines()
    older = json.loads(recipes)
    older["add"]["model"]["a setting that is gone"] = "as it was"
    ablation.RESULTS.write_text("\n".join([json.dumps(older), *rows]) + "\n")
    assert len(ablation.read_rows()) == 1
    monkeypatch.setattr(ablation, "preset", lambda name: changed(preset(name), lr=0.5))
    with pytest.raises(SystemExit, match="results of another recipe"):
        ablation.read_rows()


measured = pytest.mark.skipif(not load().RESULTS.exists(), reason="this recipe's ablation is not measured yet")


@measured
def test_the_stored_results_are_whole():
    """A seed that was begun for a task is there with all rows that can still be run."""
    module = load()
    rows = module.read_rows()
    assert rows
    for task, seed in {(task, seed) for task, _, seed in rows}:
        found = {name for t, name, s in rows if (t, s) == (task, seed)}
        assert found - set(module.GONE) == {name for t, name in module.ROWS if t == task} - set(module.GONE)
    for row in rows.values():
        assert len({len(column) for column in row["curve"].values()}) == 1
        assert row["provenance"]["commit"]


@measured
def test_the_page_is_that_of_the_stored_results(tmp_path):
    module = load()
    (tmp_path / "docs").mkdir()
    module.ROOT = tmp_path
    module.draw()
    assert (tmp_path / "docs" / "ablation.md").read_text() == (PATH.parent.parent / "docs" / "ablation.md").read_text()


def test_a_curve_comes_back_from_its_columns(ablation):
    curve = [{"step": 25, "loss": 2.0}, {"step": 50, "loss": 1.23456, "right_three": 0.98765}]
    columns = ablation.columns(curve)
    assert columns == {"step": [25, 50], "loss": [2.0, 1.2346], "right_three": [None, 0.9877]}
    assert ablation.points_of(columns) == [curve[0], {"step": 50, "loss": 1.2346, "right_three": 0.9877}]


def test_time_to_wants_four_points_in_a_row(ablation):
    shares = [None, 0.2, 0.999, 0.5, 0.99, 0.995, 0.999, 1.0]
    curve = {"step": list(range(8)), "right_three": shares}
    assert ablation.steps_to({"curve": curve, "steps": 8}) == 50.0
    shorter = {name: column[:-1] for name, column in curve.items()}
    assert ablation.steps_to({"curve": shorter, "steps": 8}) is None
    assert ablation.spread([2.0, None, 1.0], "{:.0f}") == "2 (1 .. -)"
    assert ablation.spread([1.0, 1.01, 0.99], "{:.0f}") == "1"
