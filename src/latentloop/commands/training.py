"""Presets and training. Signatures and docstrings are what --help shows, so torch is imported inside the functions only."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from latentloop.commands.terminal import Json, print_json, stderr
from latentloop.commands.terminal import output as standard_output
from latentloop.config import RunConfig
from latentloop.config.positions import PositionsName
from latentloop.errors import UserError
from latentloop.files import read_json
from latentloop.methods import MethodName
from latentloop.presets import PRESETS, preset
from latentloop.schema import Variant, changed

REACHED = 64
"""Validation problems that a finished run is tried on."""


def presets(*, json: Json = False) -> None:
    """List the presets, the named runs of `latentloop train`: method, model, parameters, and what they cost.

    Args:
        json: Print one JSON document on standard output, and nothing else there.
    """
    from latentloop.report.console import presets_table
    from latentloop.train.cost import estimate

    costs = {name: estimate(run) for name, run in PRESETS.items()}
    if json:
        print_json({name: {"config": PRESETS[name].to_dict(), "cost": asdict(costs[name])} for name in PRESETS})
        return
    standard_output().print(presets_table(PRESETS, costs))


def base_run(words: Sequence[str]) -> RunConfig:
    """Return the run that a command line starts from: its settings are the options, and their defaults.

    A method or an encoding brings its own settings, so ``--method`` and ``--positions`` are read before all others.
    """
    run = RunConfig()
    if (name := _option(words, "--preset")) is not None:
        run = preset(name)
    elif (path := _option(words, "--config")) is not None:
        run = RunConfig.from_dict(read_json(Path(path)))
    elif (folder := _option(words, "--resume")) is not None:
        run = RunConfig.from_dict(read_json(Path(folder) / "config.json"))
    method, positions = run.method, run.model.positions
    if (name := _option(words, "--method")) is not None:
        method = method.become(name)
    if (name := _option(words, "--positions")) is not None:
        positions = positions.become(name)
    _refuse_foreign(words, method, "--method")
    _refuse_foreign(words, positions, "--positions")
    if (method, positions) == (run.method, run.model.positions):
        return run
    return replace(run, method=method, model=replace(run.model, positions=positions))


def _refuse_foreign(words: Sequence[str], chosen: Variant, option: str) -> None:
    """Raise a UserError for an option that belongs to another method or encoding than the chosen one."""
    own = {field.name for field in fields(chosen)}
    for word in words:
        name = word.removeprefix("--").removeprefix("no-").partition("=")[0].replace("-", "_")
        owners = [kind.name for kind in chosen.kinds.values() if name in {field.name for field in fields(kind)}]
        if word.startswith("--") and owners and name not in own:
            raise UserError(
                f"{word.partition('=')[0]} is a setting of {' and '.join(owners)}, and this run's {chosen.title} is "
                f"{chosen.name}: leave it out, or choose {option} {owners[0]}"
            )


def _option(words: Sequence[str], name: str) -> str | None:
    """Return an option's value; as everywhere, the last one counts."""
    found = None
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            found = words[place + 1]
        if word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def train_from(base: RunConfig) -> Callable[..., None]:
    """Make the train command whose options have the settings of a run as their defaults."""

    def train(
        run: RunConfig = base,
        *,
        preset: str | None = None,
        method: MethodName | None = None,
        positions: PositionsName | None = None,
        config: Path | None = None,
        resume: Path | None = None,
        weights: str | None = None,
        output: Path | None = None,
        minutes: float | None = None,
        accelerator: str = "auto",
        devices: int = 1,
        machines: int = 1,
        strategy: str = "auto",
    ) -> None:
        """Train a model, or go on with a run that was interrupted. Ctrl-C saves and says how to go on.

        Args:
            run: Settings of the run; those of the preset are the defaults.
            preset: A named run to start from; see `latentloop presets`.
            method: Replace the preset's method; its own settings are then options.
            positions: Replace the preset's positional encoding; its own settings are then options.
            config: A config.json of an earlier run to start from, instead of a preset.
            resume: A run folder to go on with, exactly as if it had never stopped.
            weights: A checkpoint whose weights the run begins with, in place of random ones.
            output: The run folder. Default: runs/PRESET-SEED.
            minutes: Stop after so many minutes; schedules still follow --steps.
            accelerator: Fabric's name of the devices: cpu, cuda, mps ...; auto is cuda where there is one, and else cpu.
            devices: Devices on each machine.
            machines: Machines, each with so many devices.
            strategy: Fabric's name of how devices share the work, such as ddp.
        """
        from latentloop.evaluate.hub import find_weights
        from latentloop.train.checkpoint import MANIFEST, weights_hash
        from latentloop.train.devices import make_fabric  # here, since no other command needs Fabric
        from latentloop.train.folder import is_free
        from latentloop.train.loop import train as run_training

        if [preset, config, resume].count(None) != 2:
            raise UserError(
                "train needs one of --preset NAME, --config FILE or --resume FOLDER; see `latentloop presets`"
            )
        if resume is not None and (run != base or output or method or positions):
            raise UserError("a resumed run keeps its settings and its folder: leave them out, or start a new run")
        if minutes is not None and not 0 <= minutes < float("inf"):
            raise UserError(f"minutes must not be negative, got {minutes}")
        if resume is not None and (resume / MANIFEST).is_file():
            raise UserError(f"{resume} is a checkpoint: give the run folder it lies in")
        begin = None if weights is None else find_weights(weights)
        if begin is not None and resume is None and run.train.start is None:
            run = changed(run, start=weights_hash(begin))
        if begin is not None and run.train.start is None:
            raise UserError(f"the run in {resume} began with random weights: leave out --weights")
        folder = resume or output or Path("runs") / f"{preset or run.method.name}-{run.train.seed}"
        fabric = make_fabric(run, accelerator=accelerator, devices=devices, machines=machines, strategy=strategy)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"the run folder {folder} is a file: choose another --output")
        if fabric.global_rank == 0 and resume is None and not is_free(folder):
            raise UserError(f"the run folder {folder} exists: go on with --resume {folder}, or choose another --output")
        going_on = resume is not None
        outcome = run_training(run, folder, fabric, resume=going_on, weights=begin, minutes=minutes, console=stderr)
        if fabric.global_rank:
            return
        figures = ", ".join(f"{name} {value:.4g}" for name, value in outcome.figures.items() if "validation" in name)
        stderr.print(f"{outcome.step} of {run.train.steps} steps in {folder}{': ' if figures else ''}{figures}")
        if outcome.reason == "done":
            stderr.print(_reached(folder))
        else:
            stderr.print(f"go on with: latentloop train --resume {folder}")
        if outcome.signal is not None and outcome.reason == "interrupted":
            sys.exit(128 + outcome.signal)  # as shells do: 130 after Ctrl-C, 143 after SIGTERM

    return train


def _reached(folder: Path) -> str:
    """Return in a line what a finished run can do: validation problems fully solved, halting by itself."""
    from latentloop.evaluate.pretrained import LatentLoop
    from latentloop.task.splits import validation_problems

    trained = LatentLoop.from_pretrained(folder)
    answers = trained.solve_problems(validation_problems(trained.run.task, trained.run.graph, REACHED))
    solved = sum(answer.correct for answer in answers)
    nodes = trained.run.graph.nodes
    return (
        f"the best checkpoint solves {solved} of {REACHED} validation problems of {nodes} nodes; "
        f"how far it goes: latentloop evaluate {folder} --sizes {nodes} {2 * nodes}"
    )
