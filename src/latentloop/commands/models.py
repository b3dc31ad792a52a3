"""Training, evaluating and asking models: presets, train, evaluate, and the model's side of solve."""

import hashlib
import json as json_format
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latentloop.commands.problems import Language, solve_many
from latentloop.commands.terminal import CheckpointName, Json, errors, print_json, problem_text, progress
from latentloop.commands.terminal import output as standard_output
from latentloop.config import FamilyName, RunConfig
from latentloop.errors import UserError
from latentloop.evaluate.generalization import Rule, effective_rule, evaluate_sizes, evaluation_paths, write_evaluation
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import check_writable, read_json
from latentloop.presets import DEFAULT_MODEL, PRESETS, preset
from latentloop.report.console import evaluation_table, presets_table, trace_tables
from latentloop.task.graph import Problems, check_names
from latentloop.task.oracle import solve as solve_problems
from latentloop.task.splits import TEST_INSTANCES, check_range
from latentloop.task.text import parse, to_text
from latentloop.train.checkpoint import MANIFEST
from latentloop.train.cost import estimate


def presets(*, json: Json = False) -> None:
    """List the named runs: method, model, parameters, and what a step and the whole run cost."""
    costs = {name: estimate(run) for name, run in PRESETS.items()}
    if json:
        print_json({name: {"config": PRESETS[name].to_dict(), "cost": asdict(costs[name])} for name in PRESETS})
        return
    standard_output().print(presets_table(PRESETS, costs))


def base_run(words: Sequence[str]) -> RunConfig:
    """Find the run that a command line starts from, so that its settings are the defaults of all options."""
    if (name := _option(words, "--preset")) is not None:
        return preset(name)
    if (path := _option(words, "--config")) is not None:
        return RunConfig.from_dict(read_json(Path(path)))
    if (folder := _option(words, "--resume")) is not None:
        return RunConfig.from_dict(read_json(Path(folder) / "config.json"))
    return RunConfig()


def _option(words: Sequence[str], name: str) -> str | None:
    """Find an option's value; as everywhere, the last one counts."""
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
        config: Path | None = None,
        resume: Path | None = None,
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
            config: A config.json of an earlier run to start from, instead of a preset.
            resume: A run folder to go on with, exactly as if it had never stopped.
            output: The run folder. Default: runs/PRESET-SEED.
            minutes: Stop after so many minutes; schedules still follow --steps.
            accelerator: Fabric's name of the devices: cpu, cuda, mps ...; auto is cuda where there is one, and else cpu.
            devices: Devices on each machine.
            machines: Machines, each with so many devices.
            strategy: Fabric's name of how devices share the work, such as ddp.
        """
        from latentloop.train.devices import make_fabric  # here, since no other command needs Fabric
        from latentloop.train.lock import LOCK
        from latentloop.train.loop import train as run_training

        if [preset, config, resume].count(None) != 2:
            raise UserError(
                "train needs one of --preset NAME, --config FILE or --resume FOLDER; see `latentloop presets`"
            )
        if resume is not None and (run != base or output is not None):
            raise UserError("a resumed run keeps its settings and its folder: leave them out, or start a new run")
        if minutes is not None and not 0 <= minutes < float("inf"):
            raise UserError(f"minutes must not be negative, got {minutes}")
        if resume is not None and (resume / MANIFEST).is_file():
            raise UserError(f"{resume} is a checkpoint: give the run folder it lies in")
        folder = resume or output or Path("runs") / f"{preset or run.method}-{run.train.seed}"
        fabric = make_fabric(run, accelerator=accelerator, devices=devices, machines=machines, strategy=strategy)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"the run folder {folder} is a file: choose another --output")
        if (
            fabric.global_rank == 0
            and resume is None
            and folder.exists()
            and {path.name for path in folder.iterdir()} - {LOCK}
        ):
            raise UserError(f"the run folder {folder} exists: go on with --resume {folder}, or choose another --output")
        outcome = run_training(run, folder, fabric, resume=resume is not None, minutes=minutes, console=errors)
        if fabric.global_rank:
            return
        figures = ", ".join(f"{name} {value:.4g}" for name, value in outcome.figures.items() if "validation" in name)
        errors.print(f"{outcome.step} of {run.train.steps} steps in {folder}: {figures}")
        if outcome.reason != "done":
            errors.print(f"go on with: latentloop train --resume {folder}")
        if outcome.signal is not None and outcome.reason == "interrupted":
            sys.exit(128 + outcome.signal)  # as shells do: 130 after Ctrl-C, 143 after SIGTERM

    return train


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which model to ask, and where it runs."""

    name: CheckpointName = None
    """A shipped name, a checkpoint, a run folder (its best checkpoint) or a hub id. Default: laptop-all."""
    checkpoint: str | None = None
    """The same, as an option."""
    device: str = "cpu"
    """Where to run: cpu, cuda, mps."""
    temperature: float | None = None
    """Divide the scores of look-ups by this. Default: the checkpoint's own."""
    hard: bool = False
    """Let look-ups attend to the best key alone."""

    def load(self) -> LatentLoop:
        """Load it."""
        if None not in (self.name, self.checkpoint):
            raise UserError(f"one model at a time, got {self.name} and --checkpoint {self.checkpoint}")
        name = self.name or self.checkpoint or DEFAULT_MODEL
        return LatentLoop.from_pretrained(
            name, device=self.device, temperature=self.temperature, hard=self.hard or None
        )


DEFAULT = Asked()


def result_path(output: Path | None, loop: LatentLoop, kind: str, settings: Mapping[str, Any]) -> Path:
    """Name a result, if its user has not, after the weights and all that was asked of them: others keep theirs."""
    asked = json_format.dumps([settings, loop.run.to_dict()], sort_keys=True)
    key = hashlib.sha256(asked.encode()).hexdigest()
    return output or Path("results") / f"{loop.run.method}-{loop.sha256[:8]}-{kind}-{key[:6]}.json"


def evaluate(
    model: Asked = DEFAULT,
    *,
    sizes: tuple[str, ...] = ("8", "16", "..", "128"),
    instances: int = TEST_INSTANCES,
    skip: int = 0,
    halt: Rule | None = None,
    iterations: int | None = None,
    cap: int | None = None,
    family: FamilyName = "random",
    output: Path | None = None,
    json: Json = False,
) -> None:
    """Measure how far a model generalizes: the published test problems, size by size.

    Args:
        model: Which model to ask, and where it runs.
        sizes: Numbers of nodes; "8 16 .. 128" goes on in the same steps.
        instances: Problems of each size, the first of the published ones.
        skip: Leave out so many of them first, for figures on problems that nobody has looked at.
        halt: When the model stops: when its state repeats, at the problem's depth, at the deepest problem's depth + 1 (as
            the authors do), or after a fixed number of iterations. Default: fixpoint where iterations adapt.
        iterations: The number for --halt fixed. Default: the model's own.
        cap: Iterations after which a model that has not halted is stopped. Default: nodes + 2.
        family: Shape of the graphs.
        output: Where the tables go, as .json and .csv. Default: in results/, named after weights and settings.
        json: Print one JSON document on standard output, and nothing else there.
    """
    numbers = expand_sizes(sizes)
    check_range(instances, skip)
    loop = model.load()
    check_names(loop.run.task, max(numbers))
    rule = effective_rule(loop, halt, cap, iterations)
    settings: dict[str, Any] = {"halt": halt, "cap": cap, "iterations": iterations, "family": family, "skip": skip}
    path = result_path(output, loop, rule, settings | {"sizes": numbers, "instances": instances})
    for written in evaluation_paths(path):
        check_writable(written)
    with progress("problems", instances * len(numbers)) as advance:
        document = evaluate_sizes(loop, numbers, instances, **settings, advance=advance)
    write_evaluation(document, path)
    if json:
        print_json(document)
    else:
        standard_output().print(evaluation_table(document))
    errors.print("wrote " + " and ".join(map(str, evaluation_paths(path))))


def expand_sizes(words: Sequence[str]) -> list[int]:
    """Read sizes such as ``8 16 .. 128``."""
    sizes: list[int] = []
    pending = False
    for word in words:
        if word in ("..", "...") and len(sizes) >= 2:
            pending = True
            continue
        if not word.isdecimal() or int(word) < 1:
            raise UserError(f"sizes are numbers of nodes such as 8 16 .. 128, got {word!r}")
        if pending:
            sizes += range(2 * sizes[-1] - sizes[-2], int(word), max(sizes[-1] - sizes[-2], 1))
            pending = False
        sizes.append(int(word))
    if not sizes or pending:
        raise UserError(f"sizes are numbers of nodes such as 8 16 .. 128, got {' '.join(words)!r}")
    return sizes


def solve_with_model(
    checkpoint: str | None,
    language: Language,
    problem: str | None,
    *,
    trace: bool,
    json: bool,
    input: Path | None,
    output: Path | None,
    cap: int | None,
    device: str,
) -> None:
    """Ask a model, the default one if none is named, and show what it believes beside what the oracle knows."""
    if cap is not None and cap < 1:
        raise UserError(f"the cap must be at least 1, got {cap}")
    name = DEFAULT_MODEL if checkpoint is None else checkpoint
    loop = LatentLoop.from_pretrained(name, device=device)
    task = language.config(loop.run.task)
    if input is not None:

        def solver(problems: Problems) -> list[dict[str, Any]]:
            return [answer.to_dict() for answer in loop.solve_problems(problems, cap=cap)]

        solve_many(input, output, task, solver, name)
        return
    problems = parse(problem_text(problem), task)
    answer = loop.solve_problems(problems, cap=cap)[0]
    if json:
        head = {"text": to_text(problems), "modulus": problems.modulus, "solver": loop.sha256}
        print_json(head | answer.to_dict(trace=trace))
        return
    out = standard_output()
    states, truth = problems.states(answer.trace), solve_problems(problems).values
    for table in trace_tables(problems, states, truth=truth, width=out.width):
        out.print(table)
    verdict = "all right" if answer.correct else "not all right: wrong values are marked with !"
    unit = "iterations" if loop.method.latent else "tokens"
    out.print(f"{name}: {answer.halt} after {answer.iterations} {unit}, {verdict} (modulo {problems.modulus})")
