"""A plain install answers without torch, Fabric, matplotlib and the hub's client; what needs one of them says so."""

import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from latentloop.commands.training import base_run
from latentloop.config import GraphConfig
from latentloop.errors import EXTRAS, UserError, needing
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.model.build import build_model, weights_of
from latentloop.presets import preset
from latentloop.train.checkpoint import Checkpoint

ROOT = Path(__file__).parent.parent
SUM = "20 = x7 ; 2 = x42 ; x7 + x42 = x23"
BARE = f"""
import importlib.machinery, sys
finder, real = importlib.machinery.PathFinder, importlib.machinery.PathFinder.find_spec
finder.find_spec = lambda name, *more: None if name in {list(EXTRAS)} else real(name, *more)
"""
MAIN = BARE + "from latentloop.cli import main; sys.argv = ['latentloop', *sys.argv[1:]]; main()"


def bare(*words, folder, code=MAIN):
    """Run a command, or other code, where no package of an extra is installed."""
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], cwd=folder, capture_output=True, text=True)


def test_extras_bring_what_is_missing():
    """The table of errors.py is that of pyproject.toml: a package of an extra, and no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {
        re.match(r"[\w-]+", requirement)[0].replace("-", "_"): extra
        for extra, requirements in project["optional-dependencies"].items()
        for requirement in requirements
        if extra not in ("dev", "docs") and not requirement.startswith("latentloop[")
    }
    assert listed == EXTRAS
    for extra in ("sweep", "onnx"):  # both train or export a torch model: one command must install all of it
        assert "latentloop[train]" in project["optional-dependencies"][extra]
    assert f"latentloop[{','.join(sorted(set(EXTRAS.values()), key=list(EXTRAS.values()).index))}]" in (
        requirement for requirement in project["optional-dependencies"]["dev"]
    )
    base = {re.match(r"[\w-]+", requirement)[0] for requirement in project["dependencies"]}
    assert not base & set(EXTRAS)


def test_everything_that_answers_is_imported_without_extras(tmp_path):
    modules = [
        *("latentloop", "latentloop.cli", "latentloop.commands.models", "latentloop.commands.trust"),
        *("latentloop.evaluate.pretrained", "latentloop.evaluate.stress", "latentloop.evaluate.solve"),
        *("latentloop.model.reference", "latentloop.report.console", "latentloop.tokens.dataset"),
    ]
    code = f"import sys, {', '.join(modules)}; print(sorted(set({list(EXTRAS)}) & set(sys.modules)))"
    done = bare(folder=tmp_path, code=code)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_small_answer_does_not_load_torch(tmp_path):
    code = "import sys; from latentloop import LatentLoop as L; a = L.from_pretrained().solve(sys.argv[1]); "
    done = bare(SUM, folder=tmp_path, code=code + "print(a, 'torch' in sys.modules)")
    assert done.stdout == "Answer(x7=20, x42=2, x23=22; fixpoint after 3 iterations, correct) False\n", done.stderr


def test_a_plain_install_answers(tmp_path):
    done = bare("sample", "--nodes", "20", "--seed", "3", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "problem.txt").write_text(done.stdout)
    done = bare("solve", "problem.txt", "--json", "--trace", folder=tmp_path)
    answer = json.loads(done.stdout)
    expected = LatentLoop.from_pretrained()
    assert expected.model  # torch answers
    assert answer.items() >= expected.solve((tmp_path / "problem.txt").read_text()).to_dict(trace=True).items()
    assert answer["correct"]
    done = bare("dataset", "--count", "20", "--output", "some.npz", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.dumps({"id": number, "text": SUM}) for number in range(3)]
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    done = bare("solve", "--input", "many.jsonl", "--checkpoint", "laptop-add", folder=tmp_path)
    assert [json.loads(line)["values"]["x23"] for line in done.stdout.splitlines()] == [22] * 3, done.stderr


def test_a_quick_stress_test_needs_no_torch(tmp_path):
    done = bare("stress", "laptop-add", "--quick", "--nodes", "12", "--instances", "1", "--json", folder=tmp_path)
    document = json.loads(done.stdout)
    assert {row["nodes"] for row in document["rows"]} == {12}  # nothing larger
    assert {row["solved"] for row in document["rows"]} == {1.0}
    assert document["settings"] == {"nodes": 12, "instances": 1, "skip": 0, "quick": True}


@pytest.mark.parametrize(
    ("words", "what", "package", "extra"),
    [
        (["train", "--preset", "quick"], "latentloop train", "torch", "train"),
        (["evaluate"], "latentloop evaluate", "torch", "train"),
        (["draw"], "latentloop draw", "matplotlib", "plot"),
        (["solve", SUM, "--device", "cuda"], "the device 'cuda'", "torch", "train"),
        (
            ["solve", SUM, "--checkpoint", "some/model"],
            "'some/model' is no folder here, and asking the hub for it",
            "huggingface_hub",
            "hub",
        ),
    ],
    ids=["train", "evaluate", "draw", "device", "hub"],
)
def test_what_needs_an_extra_names_it_in_one_line(words, what, package, extra, tmp_path):
    done = bare(*words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    message = f"error: {what} needs {package}, which is not installed: pip install 'latentloop[{extra}]'\n"
    assert done.stderr == message
    assert not list(tmp_path.iterdir())


def test_a_chain_of_thought_needs_torch(tmp_path):
    run = preset("tiny-cot")
    Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={"step": 0}).write(tmp_path / "cot")
    done = bare("solve", SUM, "--checkpoint", "cot", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: a chain-of-thought model needs torch, which is not installed: pip install 'latentloop[train]'\n"
    )


def spoil(folder, name, content):
    path = folder / name
    path.write_bytes(content(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", lambda content: content[:-100], "altered or cut off: model.safetensors"),
        ("model.safetensors", lambda content: b"foreign", "altered or cut off: model.safetensors"),
        ("config.json", lambda content: content.replace(b"128", b"64"), "altered or cut off: config.json"),
        ("manifest.json", lambda content: b"{}", "altered or cut off: config.json"),
        ("manifest.json", lambda content: b"\x80\x02", "it is not JSON"),
    ],
    ids=["truncated", "foreign", "config", "no hashes", "binary"],
)
def test_spoiled_checkpoints_are_one_line(name, content, message, tmp_path, run):
    LatentLoop.from_pretrained("laptop-add").save_pretrained(tmp_path / "copy")
    spoil(tmp_path / "copy", name, content)
    code, out, err = run("solve", SUM, "--checkpoint", tmp_path / "copy")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_a_configuration_of_other_weights_is_refused(tmp_path):
    trained = LatentLoop.from_pretrained("laptop-add")
    other = base_run(["--preset", "laptop-all"])
    with pytest.raises(UserError, match=r"the weights do not match the configuration: missing \[layers"):
        LatentLoop(Checkpoint(run=other, weights=trained.checkpoint.weights, metrics={}))
    Checkpoint(run=other, weights=trained.checkpoint.weights, metrics={"step": 0}).write(tmp_path / "mixed")
    with pytest.raises(UserError, match="do not match the configuration"):
        LatentLoop.from_pretrained(tmp_path / "mixed")


def test_saving_without_torch_gives_the_same_file(tmp_path):
    code = BARE + "from latentloop import LatentLoop; LatentLoop.from_pretrained('laptop-add').save_pretrained('saved')"
    done = bare(folder=tmp_path, code=code)
    assert done.returncode == 0, done.stderr
    saved, shipped = (
        folder / "model.safetensors" for folder in (tmp_path / "saved", ROOT / "checkpoints" / "laptop-add")
    )
    assert saved.read_bytes() == shipped.read_bytes()
    assert load_file(saved).keys() == LatentLoop.from_pretrained(tmp_path / "saved").checkpoint.weights.keys()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_commands_multiply_with_one_thread_and_leave_torch_its_own():
    code = "import os; from latentloop.cli import _load_numpy; _load_numpy(); "
    code += "print(len(os.listdir('/proc/self/task')), 'OPENBLAS_NUM_THREADS' in os.environ)"
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    for given, said in (({}, "1 False\n"), ({"OPENBLAS_NUM_THREADS": "1"}, "1 True\n")):
        done = subprocess.run([sys.executable, "-c", code], env=free | given, capture_output=True, text=True)
        assert done.stdout == said, done.stderr


def test_other_missing_modules_are_no_matter_of_extras():
    with pytest.raises(ModuleNotFoundError), needing("this"):
        import latentloop.nothing  # pyrefly: ignore  # noqa: F401


def test_torch_answers_once_it_pays(monkeypatch):
    from latentloop.evaluate import pretrained
    from latentloop.model.reference import Reference
    from latentloop.task.graph import sample
    from latentloop.task.splits import sampled_generator

    trained = LatentLoop.from_pretrained("laptop-add")
    problems = sample(trained.run.task, GraphConfig(nodes=20), 3, sampled_generator(0))
    first = trained.solve_problems(problems)
    states = list(itertools.islice(trained.iterate(SUM, state={"x7": 3}), 4))
    assert "model" not in vars(trained)
    assert isinstance(trained.engine(1), Reference)
    monkeypatch.setattr(pretrained, "LITTLE", 0)
    assert trained.solve_problems(problems) == first
    assert "model" in vars(trained)
    assert list(itertools.islice(trained.iterate(SUM, state={"x7": 3}), 4)) == states
    monkeypatch.setattr(pretrained, "LITTLE", 10**30)
    assert trained.engine(1) is trained.model  # it may have been changed, so that it answers from then on
    monkeypatch.setattr(pretrained, "LITTLE", 0)
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    assert isinstance(LatentLoop.from_pretrained("laptop-add").engine(10**9), Reference)
