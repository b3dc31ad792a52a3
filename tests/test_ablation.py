"""The ablation runs a row in the time asked for, knows what it has measured, and draws what there is."""

import importlib.util
from pathlib import Path

import pytest

from latentloop.files import write_json

PATH = Path(__file__).parent.parent / "benchmarks" / "ablation.py"


@pytest.fixture
def ablation(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("ablation", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs").mkdir()
    settings = {"ROOT": tmp_path, "RESULTS": tmp_path / "results", "SIZES": (16,), "INSTANCES": 1}
    for name, value in settings.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "PAGE", "{rows}")
    return module


def test_every_row_is_a_run_of_its_own(ablation):
    runs = {name: ablation.run_of(name, 0) for name in ablation.CHOICES}
    assert len({str(run) for run in runs.values()}) == len(runs)
    assert len({ablation.path_of(name, seed) for name in runs for seed in ablation.SEEDS}) == 3 * len(runs)


def test_a_row_is_measured_once_and_drawn(ablation, tmp_path):
    with pytest.raises(SystemExit, match="no result of 'everything on'"):
        ablation.draw(4)
    for name in (ablation.BASE, "fan-in 1 and 2 first"):
        assert ablation.stored(name, 0, 4) is None
        for result in ablation.measure(name, 0, 4):
            write_json(ablation.path_of(result["choice"], 0), result)
        assert ablation.stored(name, 0, 4)["steps"] >= 2
        assert ablation.stored(name, 0, 5) is None
    ablation.draw(4)
    rows = [line.split(" | ")[:2] for line in (tmp_path / "docs" / "ablation.md").read_text().splitlines()]
    names = [ablation.BASE, "fan-in 1 and 2 first", "temperature 1", "hard attention"]
    assert rows == [[f"| {name}", "1"] for name in names]
    assert (tmp_path / "docs" / "ablation.png").stat().st_size > 10_000


def test_time_to_wants_four_points_in_a_row(ablation):
    shares = [0.2, 0.999, 0.5, 0.99, 0.995, 0.999, 1.0]
    curve = [{"minutes": -1.0}] + [{"minutes": float(s), "right_three": share} for s, share in enumerate(shares)]
    assert ablation.time_to(curve) == 3.0
    assert ablation.time_to(curve[:-1]) is None
    assert ablation.spread([2.0, None, 1.0], "{:.0f}") == "2 (1 .. -)"
    assert ablation.spread([1.0, 1.01, 0.99], "{:.0f}") == "1"
