import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from latentloop import LatentLoop
from latentloop.config.positions import PositionsConfig
from latentloop.errors import UserError
from latentloop.evaluate.export import Update, check_exportable, check_problems, differences
from latentloop.methods import METHODS
from latentloop.model.recurrence import update
from latentloop.model.transformer import Transformer
from latentloop.task.text import parse
from latentloop.tokens.state import encode_state
from latentloop.tokens.vocabulary import FACTORS, Vocabulary
from latentloop.train.checkpoint import Checkpoint
from small_runs import go, quick

EXPORTED = [name for name, row in METHODS.items() if row.carries == "state"]


def _random(name, positions=None, **settings):
    """A model whose weights are large random numbers, so that every part of it matters."""
    run = quick(name, **settings)
    if positions is not None:
        run = replace(run, model=replace(run.model, positions=PositionsConfig.kind(positions)()))
    torch.manual_seed(3)
    model = Transformer(run.model, Vocabulary(task=run.task), run.method).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weights = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    return LatentLoop(Checkpoint(run=run, weights=weights, metrics={}))


@pytest.mark.parametrize("positions", PositionsConfig.kinds)
@pytest.mark.parametrize("name", EXPORTED)
@torch.inference_mode()
def test_the_plain_form_is_the_update(name, positions):
    trained = _random(name, positions)
    changed = 0
    for problems in check_problems(trained.run, 12):
        state, layout = encode_state(problems, trained.vocabulary)
        for _ in range(3):
            found = Update(trained.model)(*state.factors().values())
            before, state = state, update(trained.model, state, layout)[0]
            changed += int((before.value != state.value).sum())
            for numbers, expected in zip(found, state.factors().values(), strict=True):
                assert torch.equal(numbers[layout.mask], expected[layout.mask])
    assert changed > 20


def test_an_exported_graph_gives_the_same_states_elsewhere(run, tmp_path):
    onnx = pytest.importorskip("onnx", reason="pip install 'latentloop[onnx]'")
    import onnxruntime

    trained = _random("stable")
    trained.checkpoint.write(tmp_path / "model")
    path = tmp_path / "model.onnx"
    code, out, error = run("export-onnx", tmp_path / "model", "--output", path)
    assert (code, out) == (0, "")
    assert error.startswith(f"wrote {path}: the same states as the model's after each of ")
    assert error.endswith(" iterations, on 100 problems\n")

    # What another program does with it.
    session = onnxruntime.InferenceSession(path)
    problem = "3 = x1 ; 4 = x2 ; x1 + x2 = x3 ; x3 + x3 + x1 = x4"
    state, layout = encode_state(parse(problem, trained.run.task), trained.vocabulary)
    arrays = {name: numbers.numpy() for name, numbers in state.factors().items()}
    for values in trained.solve(problem, cap=6).trace[1:]:
        arrays = dict(zip(FACTORS, session.run(None, arrays), strict=True))
        symbols = np.take_along_axis(arrays["value"], layout.rhs.numpy(), 1)[0].tolist()
        assert [symbol if symbol < 23 else None for symbol in symbols] == list(values.values())

    # What it says about itself.
    model = onnx.load(path)
    onnx.checker.check_model(model)
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert about["latentloop.symbols"]["value"][-1] == "empty"
    assert about["latentloop.model"]["config"] == json.loads(json.dumps(trained.run.to_dict()))
    shapes = [[place.dim_param for place in one.type.tensor_type.shape.dim] for one in model.graph.input]
    assert shapes == [["batch", "length"]] * len(FACTORS)

    # Other weights, other states: the comparison can fail.
    with torch.no_grad():
        trained.model.readouts["value"].weight.mul_(-1)
    assert differences(path.read_bytes(), trained, 8)["different"] > 0


@pytest.mark.parametrize("name", sorted(METHODS.keys() - EXPORTED))
def test_other_methods_say_why_not(name, run, tmp_path):
    go(quick(name, steps=1), tmp_path / "run")
    code, out, error = run("export-onnx", tmp_path / "run", "--output", tmp_path / "a.onnx")
    assert (code, out) == (2, "")
    assert f"this model's method is {name}, which {'writes tokens' if name == 'cot' else 'carries hidden'}" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "a.onnx").exists()


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(
        UserError, match=r"export needs onnxscript, which is not installed: pip install 'latentloop\[onnx\]'"
    ):
        check_exportable(quick("stable"))


def test_a_wrong_name_is_refused_before_any_work(run, tmp_path):
    assert run("export-onnx", "laptop-add", "--output", tmp_path / "a.bin")[0] == 2
