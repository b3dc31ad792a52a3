"""Checkpoints of strangers, hashes right, and settings that no machine could serve: one line each, before any work."""

import hashlib
import json
import resource
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.presets import PRESETS
from latentloop.schema import changed
from latentloop.train.checkpoint import find_checkpoint, read_checkpoint
from latentloop.train.devices import make_fabric
from latentloop.train.limits import check_limits, check_memory
from small_runs import command, go, quick


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    go(quick(steps=3), folder)
    return folder


@pytest.fixture
def checkpoint(run, tmp_path):
    return shutil.copytree(find_checkpoint(run / "last"), tmp_path / "checkpoint")


def sign(folder, **more):
    """Make all hashes right, as a stranger would."""
    names = ("model.safetensors", "config.json", "metrics.json", "training.safetensors")
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "manifest.json").write_text(json.dumps(hashes | more))


def refused(folder, match):
    with pytest.raises(UserError, match=match) as caught:
        read_checkpoint(folder, training=True)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("name", "value"),
    [("layers", 10**9), ("width", 10**9), ("width", 2**16), ("mlp_depth", 10**9), ("window", 10**12), ("layers", 1000),
     ("mlp_ratio", 1000), ("relative_width", 2**15), ("heads", 10**18),
     ("layers", 10**30), ("x" * 5000, 1), ("dropout", 10**30), ("window", True)],
)  # fmt: skip
def test_a_configuration_of_another_size_builds_nothing(checkpoint, name, value):
    config = json.loads((checkpoint / "config.json").read_text())
    place = config["model"]["positions"] if name in ("window", "relative_width") else config["model"]
    place[name] = value
    (checkpoint / "config.json").write_text(json.dumps(config))
    sign(checkpoint)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(checkpoint, "config|match")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "manifest.json"])
@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"a":' * 50_000, b" " * 2**21, b"[]", b"null", b"{", b'{"step": NaN}', b"\xff", b""],
    ids=["nested list", "nested object", "huge", "list", "null", "cut", "nan", "bytes", "empty"],
)
def test_other_json_is_refused(checkpoint, name, content):
    (checkpoint / name).write_bytes(content)
    if name != "manifest.json":
        sign(checkpoint)
    refused(checkpoint, "cannot read")


@pytest.mark.parametrize("name", ["/etc/passwd", "../../secret", "README.md", "", "x" * 10_000])
def test_a_manifest_names_files_of_a_checkpoint_only(checkpoint, name):
    sign(checkpoint, **{name: "0" * 64})
    refused(checkpoint, "which is no file of a checkpoint")


@pytest.mark.parametrize("digest", [None, 5, [], {}])
def test_a_manifest_holds_hashes(checkpoint, digest):
    sign(checkpoint, **{"config.json": digest})
    refused(checkpoint, "must give a hash")


def test_a_huge_file_is_not_read(checkpoint):
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.truncate(2**40)  # takes no room on the disk
    refused(checkpoint, "it has more than")


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", "3"), ("step", None), ("step", -1), ("step", 2.5), ("step", [3]), ("seconds", "1"), ("seconds", None),
     ("best_loss", "low"), ("best_loss", []), ("validation", 5), ("validation", {"loss": "low"}), ("validation", [1])],
)  # fmt: skip
def test_metrics_of_other_types_are_refused(checkpoint, name, value):
    metrics = json.loads((checkpoint / "metrics.json").read_text())
    (checkpoint / "metrics.json").write_text(json.dumps(metrics | {name: value}))
    sign(checkpoint)
    refused(checkpoint, r"metrics\.json")


def change(name, to):
    return lambda tensors: tensors | {name: to(tensors[name])}


@pytest.mark.parametrize("file", ["model", "training"])
@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda name: lambda tensors: {n: t for n, t in tensors.items() if n != name}, r"missing \["),
        (lambda name: lambda tensors: tensors | {"more": torch.zeros(1)}, r"unexpected \[more\]"),
        (lambda name: change(name, lambda t: t[..., None].clone()), "has the shape"),
        (lambda name: change(name, lambda t: t.double()), "more than|must be of type F32, got F64"),
        (lambda name: change(name, lambda t: t.half()), "must be of type F32, got F16"),
        (lambda name: change(name, lambda t: t.int()), "must be of type F32, got I32"),
    ],
    ids=["missing", "unexpected", "shape", "double", "half", "integer"],
)
def test_tensors_of_other_names_shapes_and_types_are_refused(checkpoint, file, spoil, match):
    path = checkpoint / f"{file}.safetensors"
    tensors = load_file(path)
    save_file(spoil(sorted(tensors)[0])(tensors), path)
    sign(checkpoint)
    refused(checkpoint, match)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(checkpoint, number):
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    tensors["norm.weight"][3] = number
    save_file(tensors, path)
    sign(checkpoint)
    refused(checkpoint, "norm.weight holds numbers that are not finite")
    with pytest.raises(UserError, match="not finite"):
        LatentLoop.from_pretrained(checkpoint)


def test_weights_that_are_not_finite_are_not_saved(tmp_path, monkeypatch):
    from latentloop.train import loop

    real = loop.optimizer_step

    def step(run, number, vocabulary, fabric, learner, optimizer):
        found = real(run, number, vocabulary, fabric, learner, optimizer)
        if number == 8:  # the loss of this step is still finite
            next(learner.parameters()).data.fill_(float("nan"))
        return found

    monkeypatch.setattr(loop, "optimizer_step", step)
    with pytest.raises(UserError, match="weights are not finite after step 9: resume from the last checkpoint"):
        go(quick(), tmp_path / "run")
    assert read_checkpoint(tmp_path / "run" / "last").metrics["step"] == 6


def test_every_preset_is_within_limits():
    for run in PRESETS.values():
        check_limits(run)
        check_memory(run)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 10**9}, "layers must be at most 1,024, got 1,000,000,000"),
        ({"width": 2**40}, "width must be at most"),
        ({"width": 2**16}, "training needs at least"),
        ({"window": 10**15}, "window must be at most"),
        ({"window": 2**20, "relative_width": 2**16}, "training needs at least"),
        ({"batch": 10**12}, "batch must be at most"),
        ({"batch": 2**20, "states": 2**20}, "training needs at least"),
        ({"batch": 2**20, "micro_batch": 2**20}, "training needs at least"),
        ({"validation_problems": 10**10}, "validation_problems must be at most"),
        ({"steps": 10**20}, "steps must be at most"),
    ],
)
def test_settings_too_large_are_refused_before_anything_is_built(settings, message):
    run = quick("stable" if "states" in settings else "discrete")
    with pytest.raises(UserError, match=message):
        make_fabric(changed(run, **settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": -1}, "devices must be at least 1, got -1"),
        ({"devices": 0}, "devices must be at least 1, got 0"),
        ({"machines": -3}, "machines must be at least 1, got -3"),
        ({"accelerator": "cuba"}, "unknown accelerator 'cuba': choose from .*did you mean 'cuda'"),
        ({"strategy": "fsdp"}, "unknown strategy 'fsdp'"),
        ({"devices": 10_000}, "devices must be at most"),
    ],
)
def test_devices_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        make_fabric(quick(batch=20_000), **settings)


@pytest.mark.parametrize(
    ("layers", "message"),
    [(10**9, "layers must be at most 1,024"), ([2], "layers in the model must be of type int"), ("2", "of type int")],
)
def test_a_hostile_checkpoint_is_one_line_on_the_command_line(checkpoint, layers, message):
    config = json.loads((checkpoint / "config.json").read_text())
    config["model"] |= {"layers": layers}
    (checkpoint / "config.json").write_text(json.dumps(config))
    sign(checkpoint)
    done = command("evaluate", checkpoint, cwd=checkpoint)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr
