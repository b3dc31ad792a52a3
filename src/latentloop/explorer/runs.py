"""The one JSON form of a run of a loop: its schema, its validator, and the run of a model in that form."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentloop.errors import UserError, shown
from latentloop.task.graph import ABSENT, Problems
from latentloop.task.oracle import Solution
from latentloop.task.text import to_text

if TYPE_CHECKING:
    from latentloop.evaluate.pretrained import Answer, LatentLoop
    from latentloop.model.capture import Seen

SCHEMA = Path(__file__).parent / "run.schema.json"
FORMAT, VERSION = "latentloop-run", 1
STRONGEST = 2
"""Keys that are kept of each query: the one that was found, and the next."""
DIGITS = 5
"""Significant digits of margins and weights."""
_KINDS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


@lru_cache
def run_schema() -> dict[str, Any]:
    """Return the schema, in JSON Schema's words."""
    return json.loads(SCHEMA.read_text("utf-8"))


def check_run(document: Any) -> dict[str, Any]:
    """Return a document that is a run; raise a UserError that names the place where it is none."""
    _check(document, run_schema(), "run")
    nodes = len(document["nodes"])
    for name in ("states", "margins"):
        for number, row in enumerate(document.get(name, [])):
            if len(row) != nodes:
                raise UserError(f"run.{name}[{number}] must have {nodes} items, one for each node, got {len(row)}")
    for number, state in enumerate(document["states"]):
        for value in state:
            if value is not None and value >= document["modulus"]:
                raise UserError(f"run.states[{number}] has {value}, and values are below {document['modulus']}")
    if len(document.get("truth", document["nodes"])) != nodes:
        raise UserError(f"run.truth must have {nodes} items, one for each node, got {len(document['truth'])}")
    for number, node in enumerate(document["nodes"]):
        for parent in node.get("parents", []):
            if parent >= number:
                raise UserError(f"run.nodes[{number}] has the parent {parent}, which does not come before it")
    return document


def _check(value: Any, schema: Mapping[str, Any], path: str) -> None:
    """Check a value against the few words of JSON Schema that the schema uses."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_KINDS[kind](value) for kind in kinds):
        raise UserError(f"{path} must be of type {' or '.join(kinds)}, got {shown(value)}")
    if "const" in schema and value != schema["const"]:
        raise UserError(f"{path} must be {schema['const']!r}, got {shown(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise UserError(f"{path} must be one of {', '.join(schema['enum'])}, got {shown(value)}")
    if _KINDS["number"](value):
        _check_range(value, schema.get("minimum"), schema.get("maximum"), path)
    if isinstance(value, str):
        _check_range(len(value), None, schema.get("maxLength"), f"the length of {path}")
    if isinstance(value, list):
        _check_range(len(value), schema.get("minItems"), schema.get("maxItems"), f"the length of {path}")
        for number, item in enumerate(value):
            _check(item, schema.get("items", {}), f"{path}[{number}]")
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                raise UserError(f"{path} lacks {name}")
        for name, part in schema.get("properties", {}).items():
            if name in value:
                _check(value[name], part, f"{path}.{name}")


def _check_range(number: int | float, lowest: int | float | None, highest: int | float | None, what: str) -> None:
    if lowest is not None and number < lowest:
        raise UserError(f"{what} must be at least {lowest}, got {number}")
    if highest is not None and number > highest:
        raise UserError(f"{what} must be at most {highest}, got {number}")


# ---- writing


def record_run(
    trained: "LatentLoop", name: str, problems: Problems, solution: Solution, answer: "Answer"
) -> dict[str, Any]:
    """Return the run in which a model found its answer to a single problem. The model is run again, to be looked into."""
    size = int(problems.sizes[0])
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "model": {"name": name, "method": trained.run.method.name, "sha256": trained.sha256},
        "text": to_text(problems),
        "modulus": problems.modulus,
        "truth": solution.values[0, :size].tolist(),
        "halt": {"reason": answer.halt, "at": answer.iterations},
    }
    return head | (_latent(trained, problems, answer) if trained.method.latent else _written(trained, problems, answer))


def _written(trained: "LatentLoop", problems: Problems, answer: "Answer") -> dict[str, Any]:
    """Record a chain of thought: every token is an iteration."""
    from latentloop.tokens.trajectory import encode_trajectories, read_values, spell

    assert answer.tokens is not None
    vocabulary = trained.vocabulary
    number = {symbol: place for place, symbol in enumerate(vocabulary.flat_symbols())}
    words = answer.tokens.split()
    flat = np.array([number[word] for word in words], np.int64)
    names = problems.names[0, : problems.sizes[0]].tolist()
    parents = [[parent for parent in row if parent != ABSENT] for row in problems.parents[0].tolist()]
    given = [read_values(flat[:count], vocabulary) for count in range(len(flat) + 1)]
    unsolved = Solution(values=np.zeros_like(problems.constants), depths=np.zeros_like(problems.names))
    prompt = encode_trajectories(problems, unsolved, vocabulary)
    return {
        "tokens": spell(prompt.tokens[0, : prompt.prompt_lengths[0]], vocabulary).split(),
        "written": words,
        "nodes": [{"name": f"x{each}", "parents": parents[node]} for node, each in enumerate(names)],
        "states": [[state.get(each) for each in names] for state in given],
    }


def _latent(trained: "LatentLoop", problems: Problems, answer: "Answer") -> dict[str, Any]:
    """Record states, the margins of decisions, and what the look-up head attends to from every operand."""
    model = trained.model
    import torch

    from latentloop.model.capture import capture
    from latentloop.model.recurrence import update
    from latentloop.tokens.factored import encode, factor_rows
    from latentloop.tokens.state import encode_state

    state, layout = encode_state(problems, trained.vocabulary)
    device = model.norm.weight.device
    state, layout = state.to(device), layout.to(device)
    rhs = layout.rhs[0].tolist()
    fan_in = layout.fan_in[0].tolist()
    operands = [layout.operand[0, node, :count].tolist() for node, count in enumerate(fan_in)]
    parents = [layout.parent[0, node, :count].tolist() for node, count in enumerate(fan_in)]
    pairs = [
        (place, rhs[parent])
        for where, named in zip(operands, parents, strict=True)
        for place, parent in zip(where, named, strict=True)
    ]
    last = model.config.layers - 1
    open_layers = [
        layer
        for layer in range(model.config.layers)
        if model.positions.window_of(layer) is None and not (model.method.pin_static and layer == last)
    ]
    margins = []
    attention: list[dict[str, Any]] = []
    for iteration in range(answer.iterations):
        with torch.inference_mode(), capture(model, ["pattern"], layers=open_layers) as seen:
            state, output = update(model, state, layout)
        scores = output.logits["value"][0]
        at_nodes = scores if model.method.pin_static else scores[layout.rhs[0]]
        top = at_nodes.topk(2).values
        margins.append([_rounded(margin) for margin in (top[:, 0] - top[:, 1]).tolist()])
        if pairs and open_layers:
            if not attention:
                layer, chosen = _lookup_head(seen, iteration, open_layers, pairs[:24])
                attention.append({"layer": layer, "head": chosen, "queries": [place for place, _ in pairs], "top": []})
            pattern = seen[iteration, attention[0]["layer"], "pattern"][0, attention[0]["head"]]
            attention[0]["top"].append([_strongest(pattern[place, : place + 1]) for place, _ in pairs])
    rows = factor_rows(encode(problems, trained.vocabulary), trained.vocabulary)
    return {
        "tokens": [_label(row) for row in rows],
        "nodes": [
            {"name": name, "position": rhs[node], "operands": operands[node], "parents": parents[node]}
            for node, name in enumerate(answer.values)
        ],
        "states": [list(values.values()) for values in answer.trace],
        "margins": margins,
        "attention": attention,
    }


def _lookup_head(
    seen: "Seen", iteration: int, layers: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Return the layer and head whose weight on the right definitions is largest on average."""
    best, found = -1.0, (0, 0)
    for layer in layers:
        pattern = seen[iteration, layer, "pattern"][0]  # [head, query, key]
        for head in range(len(pattern)):
            mean = float(np.mean([pattern[head, place, definition].item() for place, definition in pairs]))
            if mean > best:
                best, found = mean, (layer, head)
    return found


def _strongest(weights: Any) -> list[list[int | float]]:
    top = weights.topk(min(STRONGEST, len(weights)))
    return [[key, _rounded(weight)] for key, weight in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


def _rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _label(factors: tuple[str, str, str, str]) -> str:
    """Return a token as it is written."""
    syntax, variable, operation, value = factors
    return {"value": value, "variable": variable, "operation": operation, "=": "=", "sep": ";"}[syntax]
