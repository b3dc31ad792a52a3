"""Training runs that take a second, from Python and from the command line."""

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from latentloop.config import RunConfig
from latentloop.presets import preset
from latentloop.schema import changed
from latentloop.train.checkpoint import find_checkpoint
from latentloop.train.devices import make_fabric
from latentloop.train.loop import train

QUICK = ("--steps", "12", "--validate-every", "6", "--checkpoint-every", "3", "--log-every", "2")


def command(*words, cwd, **settings):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "latentloop", *map(str, words)],
        cwd=cwd, capture_output=True, text=True, env=environment, **settings,
    )  # fmt: skip


def quick(name="discrete", **settings) -> RunConfig:
    given = {"steps": 12, "validate_every": 6, "checkpoint_every": 3, "log_every": 2} | settings
    return changed(preset(f"tiny-{name}"), **given)


def go(run, folder, *, resume=False, console=None, **settings):
    console = console or Console(stderr=True, quiet=True)
    return train(run, folder, make_fabric(run), resume=resume, console=console, **settings)


def weights(folder: Path) -> bytes:
    return (find_checkpoint(folder) / "model.safetensors").read_bytes()
