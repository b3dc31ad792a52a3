"""Faults on purpose: what is lost when a process, a disk or a copy fails in the middle of the work.

python benchmarks/faults.py            (writes benchmarks/results/faults.json; `make faults` is the same)
python benchmarks/faults.py copies     (only the scenarios named, again; the others keep their counts)

Each command is the real one, in a process of its own that is forked from this one, so that torch is imported once. A fault
is *lost* if anything that was finished is gone, a traceback comes out, or what is done again differs by a bit from a run
that was never disturbed.
"""

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fault.damage import copies, damage, damaged_results
from fault.disks import can_mount, full_disk, read_only
from fault.kills import (
    kill_at_files,
    kill_evaluation,
    kill_training,
    kill_while_settling,
    terminate,
    terminate_others,
    two_processes,
)
from fault.process import LostError, Process
from fault.runs import fresh, start
from latentloop.commands import models, problems, training, trust  # noqa: F401  (imported once, before any fork)
from latentloop.evaluate import certify, generalization, pretrained, stress  # noqa: F401
from latentloop.files import read_json, write_json
from latentloop.provenance import provenance
from latentloop.report import console  # noqa: F401
from latentloop.train import devices, loop  # noqa: F401

RESULTS = Path(__file__).parent / "results" / "faults.json"
SCENARIOS = (
    kill_training,
    kill_at_files,
    kill_while_settling,
    kill_evaluation,
    terminate,
    terminate_others,
    full_disk,
    read_only,
    damage,
    damaged_results,
    two_processes,
    copies,
)


def warm_up() -> None:
    """Import here, once, all that training imports on its way."""
    process = Process(start("stable"), fresh("warm"))
    process.wait().check(0)
    for name in (process.log / "modules").read_text().splitlines():
        with suppress(Exception):
            importlib.import_module(name)


def run_scenario(scenario: Callable[[], Iterator[str]], made: dict[str, Any]) -> dict[str, Any]:
    """Inject the faults of one scenario and count how they ended; the first that loses something ends it."""
    outcomes: dict[str, int] = {}
    lost: list[str] = []
    clock = time.monotonic()
    try:
        for outcome in scenario():
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    except (LostError, OSError, ValueError, KeyError) as error:
        lost.append(f"{type(error).__name__}: {error}")
    total = sum(outcomes.values()) + len(lost)
    row = {"injected": total, "lost": lost, "outcomes": outcomes, "seconds": round(time.monotonic() - clock, 1)}
    row["provenance"] = made
    print(
        f"{scenario.__name__:20} {total:4} faults, {len(lost)} lost, {row['seconds']:6.1f} s  {outcomes} {lost}",
        flush=True,
    )
    return row


def inject(names: list[str]) -> int:
    """Run scenarios; return the number that lost something."""
    torch.set_num_threads(1)
    made = provenance()  # of the code that is loaded now, not of what it becomes meanwhile
    found: dict[str, Any] = read_json(RESULTS)["scenarios"] if names and RESULTS.exists() else {}
    with tempfile.TemporaryDirectory(prefix="faults-") as root:
        tempfile.tempdir = root  # scenarios make their folders there
        warm_up()
        mountable = can_mount()
        for scenario in SCENARIOS:
            if names and scenario.__name__ not in names:
                continue
            if scenario in (full_disk, read_only) and not mountable:
                found[scenario.__name__] = {"what": scenario.__doc__, "skipped": "mounting a disk needs root"}
                print(f"{scenario.__name__:20} skipped: mounting a disk needs root")
                continue
            found[scenario.__name__] = {"what": scenario.__doc__} | run_scenario(scenario, made)
    found = {scenario.__name__: found[scenario.__name__] for scenario in SCENARIOS if scenario.__name__ in found}
    rows = [row for row in found.values() if "injected" in row]
    injected = sum(row["injected"] for row in rows)
    lost = sum(len(row["lost"]) for row in rows)
    print(f"{injected} faults, {lost} lost")
    write_json(RESULTS, {"injected": injected, "lost": lost, "scenarios": found})
    return lost


if __name__ == "__main__":
    sys.exit(min(inject(sys.argv[1:]), 1))
