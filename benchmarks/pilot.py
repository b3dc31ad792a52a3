"""The timed pilot: how many steps 20 minutes of one core give each point of the experiments.

python benchmarks/pilot.py                    (times points that have no steps yet: src/latentloop/experiments/steps.toml)
python benchmarks/pilot.py NAME ...           (times these anew; not once a run of theirs is stored)

Steps of every point are taken in turn with those of one reference, on one thread, and the median of the ratios counts: what
else the machine does slows both down alike. Every stage of a curriculum is timed, and counts with its share. The
reference is timed on its own first.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from latentloop.config import RunConfig
from latentloop.experiments.jobs import MINUTES, TIMED, Point, pilot
from latentloop.experiments.store import SHIPPED, result_path
from latentloop.experiments.table import POINTS
from latentloop.files import read_json, write_json, writing
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.provenance import provenance
from latentloop.schema import changed
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.devices import make_fabric
from latentloop.train.loop import optimizer_step
from latentloop.train.loss import Learner
from latentloop.train.optimizer import MovingAverage, make_optimizer

ROOT = Path(__file__).parent.parent
STEPS = ROOT / "src" / "latentloop" / "experiments" / "steps.toml"
RESULTS = ROOT / "benchmarks" / "results" / "pilot.json"
REFERENCE = changed(preset("ladder-stable"), curriculum=("16/12:1.0",))
"""Its steps cost the same from the first to the last."""
WARM_UP, ROUNDS = 2, 8
STEPS_TAKEN = 1000
"""Steps of a run that is timed: a curriculum has shares of them."""
ROUNDED = 50
"""Steps are rounded to a multiple of this."""


def stepper(run: RunConfig) -> Callable[[int], float]:
    """Return a function that takes a step of a run, and returns the processor's seconds it took."""
    run = changed(run, steps=STEPS_TAKEN)
    fabric, vocabulary = make_fabric(run), Vocabulary(task=run.task)
    model = build_model(run)
    learner, optimizer = fabric.setup(Learner(model), make_optimizer(model, run.train))
    average = MovingAverage(model, run.train.ema)

    def step(number: int) -> float:
        clock = time.process_time()
        optimizer_step(run, number, vocabulary, fabric, learner, optimizer)
        average.update(model, number)
        return time.process_time() - clock

    return step


def ratio(point: Point) -> float:
    """Return what a step costs on average over the stages of its curriculum, in steps of the reference."""
    run = changed(preset(point.preset), **point.overrides)
    ours, base = stepper(run), stepper(REFERENCE)
    cost, start = 0.0, 0.0
    for share in (one.share for one in run.distributions):
        first = round(start * STEPS_TAKEN)
        ratios = [ours(first + ahead) / median([base(ahead) for _ in range(3)]) for ahead in range(WARM_UP + ROUNDS)]
        cost, start = cost + share * median(ratios[WARM_UP:]), start + share
    return cost


def main() -> None:
    """Time, and write the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--reference", type=float, help="seconds of a reference step on an idle core, where known")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    known = read_json(RESULTS) if RESULTS.exists() else {"ratios": {}}
    if "reference_seconds" not in known or asked.reference:
        base = stepper(REFERENCE)
        known["reference_seconds"] = asked.reference or median([base(number) for number in range(60)][10:])
    timed = {name: point for name, point in POINTS.items() if point.scale in TIMED and not point.like}
    for name in asked.names or [name for name in timed if name not in pilot()]:
        point = timed[name]
        if any(result_path(SHIPPED, job.name).exists() for job in point.jobs):
            parser.error(f"a run of {name} is stored: its steps stay as they are")
        known["ratios"][name] = round(ratio(point), 4)
        print(name, known["ratios"][name], flush=True)
        known["provenance"] = provenance()
        write_json(RESULTS, known)
        seconds = known["reference_seconds"]
        steps = {
            each: max(ROUNDED, round(60 * MINUTES / (cost * seconds) / ROUNDED) * ROUNDED)
            for each, cost in known["ratios"].items()
        }
        with writing(STEPS) as file:
            file.write(
                f"# Steps that {MINUTES} minutes of one core give each point: made by benchmarks/pilot.py.\n[steps]\n"
            )
            file.writelines(f'"{each}" = {number}\n' for each, number in sorted(steps.items()))


if __name__ == "__main__":
    main()
