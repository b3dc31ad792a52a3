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
        "WARM_UP": 1,
        "ROUNDS": 3,
    }
    for name, value in settings.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "PAGE", "{rows}")
    return module


def test_every_row_is_a_run_of_its_own(ablation):
    runs = [ablation.run_of(name, 0) for name in ablation.CHOICES if name not in ablation.GONE]
    assert len(set(runs)) == len(runs)
    for name in ablation.GONE:
        with pytest.raises(UserError, match="unknown setting"):
            ablation.run_of(name, 0)


def test_a_row_is_measured_once_and_drawn(ablation, tmp_path):
    with pytest.raises(SystemExit, match="no result of 'everything on'"):
        ablation.draw(4)
    for name in (ablation.BASE, "fan-in 1 and 2 first"):
        assert (name, 0) not in ablation.stored(4)
        ablation.add_rows(ablation.measure(name, 0, 4))
        assert ablation.stored(4)[name, 0]["steps"] >= 2
        assert ablation.stored(5) == {}
    gone = ablation.stored(4)["temperature 1", 0] | {"choice": "hard attention", "changed": {"hard": True}}
    ablation.add_rows([gone])
    names = [ablation.BASE, "fan-in 1 and 2 first", "temperature 1", "hard attention"]
    lines = ablation.RESULTS.read_text().splitlines()
    assert [json.loads(line).get("choice") for line in lines] == [None, *names]
    ablation.draw(4)
    rows = [line.split(" | ")[:2] for line in (tmp_path / "docs" / "ablation.md").read_text().splitlines()]
    assert rows == [[f"| {name}", "1"] for name in (*names[:3], "hard attention †")]
    assert (tmp_path / "docs" / "ablation.png").stat().st_size > 10_000


def test_rows_of_many_processes_are_all_kept(ablation):
    def add(seed):
        ablation.add_rows([{"choice": ablation.BASE, "changed": {}, "seed": seed, "budget": 4}])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert [seed for _, seed in ablation.stored(4)] == list(range(24))
    assert [path.name for path in ablation.RESULTS.parent.iterdir() if path.is_file()] == [ablation.RESULTS.name]


def test_results_of_another_recipe_are_refused(ablation, monkeypatch):
    ablation.add_rows([{"choice": ablation.BASE, "changed": {}, "seed": 0, "budget": 4}])
    monkeypatch.setattr(ablation, "preset", lambda name: changed(preset(name), lr=0.5))
    with pytest.raises(SystemExit, match="results of another recipe"):
        ablation.stored(4)


def test_the_stored_results_are_whole(ablation, monkeypatch):
    monkeypatch.setattr(ablation, "RESULTS", PATH.parent / "results" / "ablation.jsonl")
    rows = ablation.stored(ablation.BUDGET)
    assert rows.keys() == {(name, seed) for name in ablation.CHOICES for seed in ablation.SEEDS}
    for (name, seed), row in rows.items():
        assert ("curve" in row) == (name not in ablation.AFTERWARDS)
        learned = row if "curve" in row else rows[row["weights"], seed]
        assert len({len(column) for column in learned["curve"].values()}) == 1
        assert row["provenance"]["commit"]


def test_the_page_is_that_of_the_stored_results(tmp_path):
    module = load()
    (tmp_path / "docs").mkdir()
    module.ROOT = tmp_path
    module.draw(module.BUDGET)
    assert (tmp_path / "docs" / "ablation.md").read_text() == (PATH.parent.parent / "docs" / "ablation.md").read_text()


def test_a_curve_comes_back_from_its_columns(ablation):
    curve = [{"minutes": 0.1, "loss": 2.0}, {"minutes": 0.2, "loss": 1.23456, "right_three": 0.98765}]
    columns = ablation.columns(curve)
    assert columns == {"minutes": [0.1, 0.2], "loss": [2.0, 1.2346], "right_three": [None, 0.9877]}
    assert ablation.points_of(columns) == [curve[0], {"minutes": 0.2, "loss": 1.2346, "right_three": 0.9877}]


def test_time_to_wants_four_points_in_a_row(ablation):
    shares = [0.2, 0.999, 0.5, 0.99, 0.995, 0.999, 1.0]
    curve = [{"minutes": -1.0}] + [{"minutes": float(s), "right_three": share} for s, share in enumerate(shares)]
    assert ablation.time_to(curve) == 3.0
    assert ablation.time_to(curve[:-1]) is None
    assert ablation.spread([2.0, None, 1.0], "{:.0f}") == "2 (1 .. -)"
    assert ablation.spread([1.0, 1.01, 0.99], "{:.0f}") == "1"
