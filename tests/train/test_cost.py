"""Estimates of what a run costs."""

from pathlib import Path

from latentloop.files import read_json
from latentloop.presets import PRESETS, preset
from latentloop.train.cost import STARTUP, estimate


def test_a_tiny_run_takes_seconds_to_start_and_a_laptop_run_minutes():
    tiny = {name: 3600 * estimate(run).hours_on_two_cores for name, run in PRESETS.items() if name.startswith("tiny")}
    assert all(STARTUP < seconds < 30 for seconds in tiny.values()), tiny
    recorded = read_json(Path(__file__).parents[2] / "checkpoints" / "laptop-all" / "metrics.json")["seconds"]
    assert 0.7 * recorded < 3600 * estimate(preset("laptop-all")).hours_on_two_cores < 1.5 * recorded
