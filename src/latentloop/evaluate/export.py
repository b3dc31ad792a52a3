"""One update as an ONNX graph, for other runtimes: state in, next state out, for any batch and any length.

The state is the four factors of every token, [batch, length] each. A runtime applies the graph until the state repeats.
Attention is written out in plain form here, because fused kernels and loops over blocks do not export with a length that
is known only later; what is exported is then compared with the model itself, state by state.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentloop.config import RunConfig
from latentloop.errors import UserError, needing
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import Advance, default_cap, ignore
from latentloop.files import to_json
from latentloop.methods import METHODS
from latentloop.model.attention import Attention
from latentloop.model.positions import AbsolutePositions, Positions
from latentloop.model.recurrence import Fixed, iterate
from latentloop.model.transformer import Layer, Transformer
from latentloop.provenance import provenance
from latentloop.task.graph import Problems, sample
from latentloop.task.splits import sampled_generator
from latentloop.tokens.state import State, encode_state
from latentloop.tokens.vocabulary import FACTORS, SYNTAX

CHECKED = 100
"""Problems that an exported graph is compared on."""
OPSET = 20


class Update(nn.Module):
    """One update of a discrete state, in operations that export; the weights are the model's own."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        syntax: Int[Tensor, "batch pos"],
        variable: Int[Tensor, "batch pos"],
        operation: Int[Tensor, "batch pos"],
        value: Int[Tensor, "batch pos"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the four factors of the next state."""
        model = self.model
        factors = {"syntax": syntax, "variable": variable, "operation": operation, "value": value}
        places = torch.arange(syntax.shape[1])
        x = model.embed(factors)  # [batch, pos, width]
        if isinstance(model.positions, AbsolutePositions):  # without its check, which needs to know the length
            x = model.positions.norm(x + model.positions.table(places))
        else:
            x = model.positions.enter(x, places)
        for layer in model.layers:
            assert isinstance(layer, Layer)
            x = x + attend(layer.attention, layer.attention_norm(x), model.positions, places)
            for mlp in layer.mlps:
                x = x + mlp(x)
        symbols = {name: logits.argmax(-1) for name, logits in model.read(model.norm(x)).items()}
        if model.method.pin_static:  # only values at right-hand sides change: variables after `=`
            equals = nn.functional.pad(syntax[:, :-1] == SYNTAX.index("="), (1, 0))
            rhs = equals & (syntax == SYNTAX.index("variable"))
            symbols["value"] = torch.where(rhs, symbols["value"], value)
        syntax, variable, operation, value = (symbols.get(name, factors[name]) for name in FACTORS)
        return syntax, variable, operation, value


def attend(
    attention: Attention, x: Float[Tensor, "batch pos width"], positions: Positions, places: Int[Tensor, "pos"]
) -> Float[Tensor, "batch pos width"]:
    """Return what one layer's attention adds, every step written out."""
    queries, keys, values = attention.project(x).unflatten(-1, (3, attention.heads, -1)).permute(2, 0, 3, 1, 4)
    queries, keys = positions.rotate(queries, places), positions.rotate(keys, places)
    scale = (positions.terms * queries.shape[-1]) ** -0.5
    apart = places[:, None] - places  # [query, key]
    hidden = apart < 0
    window = positions.window_of(attention.layer)
    if window is None:
        chosen = places.expand(x.shape[0], -1)
        scores = positions.scores(queries * scale, keys, attention.layer, scale=scale, chosen=chosen)
    else:
        near = window.shape[-1]
        scores = (queries * scale) @ keys.mT + window[:, apart.clamp(0, near - 1)]
        hidden = hidden | (apart >= near)
    sink = positions.self_sink and attention.layer == 0
    if sink:
        scores = scores.masked_fill(apart == 0, 0.0)
    pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)  # [batch, head, query, key]
    if sink:  # it takes attention, and gives nothing
        pattern = pattern.masked_fill(apart == 0, 0.0)
    return attention.out((pattern @ values).transpose(1, 2).flatten(-2))


def check_exportable(run: RunConfig) -> None:
    """Refuse a method whose update is not one of a discrete state, or an environment without ONNX."""
    row = run.method.row
    if row.carries != "state":
        others = ", ".join(name for name, other in METHODS.items() if other.carries == "state")
        what = {"hidden": "carries hidden vectors", "tokens": "writes tokens one by one"}[row.carries]
        raise UserError(
            f"only one update of a discrete state is exported ({others}); this model's method is {run.method.name}, "
            f"which {what}"
        )
    with needing("the export"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401


def export_onnx(trained: LatentLoop) -> bytes:
    """Return one update as an ONNX model; its metadata tell symbols, configuration and where the weights come from."""
    check_exportable(trained.run)
    update = Update(trained.model).eval()
    size = min(8, trained.run.graph.nodes)
    graph = replace(trained.run.graph, nodes=size, min_nodes=None, leaves=None)
    state, _ = encode_state(sample(trained.run.task, graph, 2, sampled_generator(0)), trained.vocabulary)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=2**15)
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            update,
            tuple(state.factors().values()),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(FACTORS),
            output_names=[f"next_{name}" for name in FACTORS],
            dynamic_shapes={name: {0: batch, 1: length} for name in FACTORS},
        )
    assert program is not None
    model = program.model_proto
    symbols = {name: trained.vocabulary.symbols(name) for name in FACTORS}
    about = {"symbols": symbols, "model": trained.describe(), "provenance": provenance()}
    model.doc_string = "One update of a discrete state: apply it until the state repeats."
    for name, value in about.items():
        model.metadata_props.add(key=f"latentloop.{name}", value=to_json(value))
    return model.SerializeToString()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's own progress and warnings, which concern its developers, off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def check_problems(run: RunConfig, count: int = CHECKED) -> Iterator[Problems]:
    """Yield problems to compare on, in batches of four sizes, up to the training size; lengths are mixed within one."""
    for part in range(1, 5):
        nodes = max(2, run.graph.nodes * part // 4)
        graph = replace(run.graph, nodes=nodes, min_nodes=max(1, nodes // 2), leaves=None, depth_limit=None)
        yield sample(run.task, graph, count * part // 4 - count * (part - 1) // 4, sampled_generator(0, part))


@torch.inference_mode()
def differences(
    content: bytes, trained: LatentLoop, count: int = CHECKED, *, advance: Advance = ignore
) -> dict[str, int]:
    """Run an exported graph beside the model; count the problems, and those whose states differ after any iteration."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    found = {"problems": 0, "iterations": 0, "different": 0}
    for problems in check_problems(trained.run, count):
        state, layout = encode_state(problems, trained.vocabulary)
        ours = theirs = _arrays(state)
        different = np.zeros(len(problems), bool)
        for reached, _ in iterate(trained.model, state, layout, Fixed(default_cap(int(problems.sizes.max())))):
            before, ours = ours, _arrays(reached)
            theirs = np.asarray(session.run(None, dict(zip(FACTORS, theirs, strict=True))))
            different |= ((ours != theirs) & layout.mask.numpy()).any((0, 2))
            found["iterations"] += 1
            if (ours == before).all():  # nothing will change any more
                break
        found["problems"] += len(problems)
        found["different"] += int(different.sum())
        advance(len(problems))
    return found


def _arrays(state: State) -> Int[np.ndarray, "factor batch pos"]:
    return np.stack([numbers.numpy() for numbers in state.factors().values()])
