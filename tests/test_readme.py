"""Every command, example, recipe and quoted output of the README and the docs is real: it runs, as written."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from latentloop.commands import explore, interpret, models, problems, reports, training, trust
from latentloop.commands.models import Asked
from latentloop.commands.problems import Sampling
from latentloop.config import GraphConfig, ModelConfig, PositionsConfig, RunConfig, TaskConfig, TrainConfig
from latentloop.methods import MethodConfig
from latentloop.model import recurrence

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "latentloop"
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line.startswith("latentloop ")
]
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
RECURSION = next(block for block in BLOCKS if block.startswith("def update"))
WITH_ROW = next(block for block in BLOCKS if block.startswith("# with that row"))
TRAINING = next(block for block in BLOCKS if block.startswith("# with such a run"))
RECIPES = [block for block in BLOCKS if re.search(r"^run = ", block, re.M) and block != WITH_ROW]
SHORTER = {"--count 10000": "--count 100", "--instances 64": "--instances 4", "--instances 8": "--instances 1"}
TWO_STEPS = "run = replace(run, train=replace(run.train, steps=2))\n"
LOADED = "from latentloop import LatentLoop\nprint(LatentLoop.from_pretrained('runs/mine').run == run)\n"


def _environment(**more):
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ}
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"} | kept | more


def _run(code, folder, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=_environment(**environment), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_has_commands():
    assert len(COMMANDS) >= 6


def test_readme_commands_run_in_their_order(tmp_path):
    for command in COMMANDS:
        command += (
            " --steps 2" if "--preset laptop" in command else " --steps 20" if "--preset quick" in command else ""
        )
        for long, short in SHORTER.items():
            command = re.sub(rf"{long}\b", short, command)
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=_environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout or "wrote" in done.stderr or "drew" in done.stderr or "steps in" in done.stderr, command


def test_quoted_output_is_what_the_command_prints(tmp_path):
    (session,) = re.findall(r"```console\n\$ (.*?)```", README, re.S)
    command, _, quoted = session.partition("\n")
    done = subprocess.run(command, shell=True, cwd=tmp_path, env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == quoted.splitlines()


def test_readme_and_docs_examples_run(tmp_path):
    examples = [block for block in BLOCKS if "LatentLoop.from_pretrained" in block]
    for page in sorted((ROOT / "docs").glob("*.md")):
        examples += re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert len(examples) >= 2
    for example in examples:
        printed = _run(example, tmp_path).splitlines()
        for said, expected in zip(printed, re.findall(r"^ *print\(.*\)  # (.*)$", example, re.M), strict=True):
            assert said == expected or said.startswith("torch.Size"), example


def test_the_recursion_is_the_one_that_runs():
    for function in (recurrence.update, recurrence.iterate):
        lines = inspect.getsource(function).splitlines()
        code = "\n".join(line for line in lines if not line.strip().startswith('"""'))
        assert code in RECURSION
    assert len(RECURSION.split("\n\n\n")) == 2


@pytest.mark.parametrize("recipe", RECIPES, ids=["an encoding", "a method"])
def test_a_recipe_trains(recipe, tmp_path):
    assert _run(recipe + TWO_STEPS + TRAINING + LOADED, tmp_path).endswith("True\n")


def test_an_operation_is_one_row_of_one_file(tmp_path):
    (change,) = re.findall(r"```diff\n(.*?)```", README, re.S)
    before, *added = change.splitlines()
    assert all(line.startswith("+") for line in added)
    shutil.copytree(SOURCE, tmp_path / "latentloop", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "latentloop" / "operations.py"
    text = table.read_text()
    assert text.count(before[1:] + "\n") == 1
    table.write_text(text.replace(before[1:] + "\n", "\n".join([before[1:], *(line[1:] for line in added)]) + "\n"))
    printed = _run(WITH_ROW + TWO_STEPS + TRAINING + LOADED, tmp_path, PYTHONPATH=str(tmp_path))
    assert printed.startswith(re.findall(r"# (\[\[.*\]\])", WITH_ROW)[0])
    assert printed.endswith("True\n")


def test_examples_run(tmp_path):
    for example in sorted((ROOT / "examples").glob("*.py")):
        done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_file_map_names_every_file():
    for path in SOURCE.rglob("*.py"):
        name = str(path.relative_to(SOURCE))
        assert path.name == "__init__.py" or f"`{name}`" in README, f"README.md does not say what {name} holds"
    for name in re.findall(r"^\| (`[^|]*\.py`) \|", README.partition("## The map")[2], re.M):
        for file in re.findall(r"`([^`]*)`", name):
            assert (SOURCE / file).is_file(), f"README.md has {file} in its map, and there is none"


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]*?)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_options_that_docs_name_exist():
    configs = [GraphConfig, TaskConfig, ModelConfig, TrainConfig, Asked, Sampling]
    kinds = [*MethodConfig.kinds.values(), *PositionsConfig.kinds.values()]
    known = {field.name for config in [*configs, *kinds] for field in fields(config)}
    commands = (problems.solve, problems.dataset, problems.draw, problems.sample, training.train_from(RunConfig()))
    for command in (
        *commands,
        training.presets,
        models.evaluate,
        trust.certify,
        trust.stress,
        explore.explore,
        interpret.interpret,
        reports.report,
        reports.export_onnx,
    ):
        known |= set(inspect.signature(command).parameters)
    others = {"nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "nodes", "ntasks_per_node", "gpus_per_node"}
    others |= {"help", "constraint", "editable", "extra_index_url"}  # torchrun's, SLURM's, pip's
    for page in (
        "README.md",
        "docs/engine.md",
        "docs/recipe.md",
        "docs/task.md",
        "docs/fidelity.md",
        "docs/explore.md",
        "docs/interpret.md",
    ):
        for option in re.findall(r"(?<![\w-])--([a-z][a-z-]*\w)", (ROOT / page).read_text()):
            name = option.removeprefix("no-").replace("-", "_")
            assert name in known | others, f"{page} names --{option}, and no command has it"


def test_make_and_ci_run_the_same_tests():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "pytest" in (ROOT / "Makefile").read_text()
