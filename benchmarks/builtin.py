"""How much of a shipped model is built in: its last layer without the bias per distance, and with nothing but it.

Six heads of the last layer start with a bias toward keys 1, 2, .. 6 tokens back (``offset_heads``). Two interventions on the
last layer's attention scores say what that is worth: setting the learned bias to zero, and setting the queries to zero, which
leaves the bias alone.

python benchmarks/builtin.py            (writes benchmarks/results/builtin.json; two minutes)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from latentloop import LatentLoop
from latentloop.config.positions import BiasConfig
from latentloop.files import write_json
from latentloop.interpret import patch
from latentloop.model.positions import BiasPositions
from latentloop.provenance import provenance
from latentloop.task.splits import published_problems

MODELS, NODES, COUNT = ("laptop-add", "laptop-all", "laptop-add-1024"), 64, 24


def main() -> None:
    """Solve published problems with each intervention, and read off where the biases ended."""
    models = {}
    for name in MODELS:
        models[name] = measure(LatentLoop.from_pretrained(name))
        print(name, {key: value for key, value in models[name].items() if key.startswith("solved")})
    result = {"nodes": NODES, "problems": COUNT, "models": models, "provenance": provenance()}
    write_json(Path(__file__).parent / "results" / "builtin.json", result)


def measure(trained: LatentLoop) -> dict[str, Any]:
    """Count problems solved as shipped, without the last layer's bias, and with that bias alone."""
    model, settings = trained.model, trained.run.model.positions
    assert isinstance(settings, BiasConfig)
    problems = published_problems(trained.run.task, NODES, COUNT)
    last = trained.run.model.layers - 1

    def solved() -> int:
        return sum(answer.correct for answer in trained.solve_problems(problems))

    whole = solved()
    with without_bias(model.positions, last):
        without = solved()
    with patch(model, "q", 0.0, layer=last):
        alone = solved()
    return {
        "solved": whole,
        "solved_without_bias": without,
        "solved_with_bias_alone": alone,
        "heads": heads(model.positions, last, settings.offset_heads),
        "sha256": trained.sha256,
    }


@contextmanager
def without_bias(positions: torch.nn.Module, layer: int) -> Iterator[None]:
    """Set a layer's learned bias to zero, and put it back."""
    assert isinstance(positions, BiasPositions)
    table = positions.tables[layer]
    kept = table.detach().clone()
    try:
        table.data.zero_()
        yield
    finally:
        table.data.copy_(kept)


def heads(positions: torch.nn.Module, layer: int, count: int) -> list[dict[str, Any]]:
    """Say of each head that was given a distance where its largest bias is now, and how far it is ahead of all others."""
    assert isinstance(positions, BiasPositions)
    found = []
    for head, biases in enumerate(positions.tables[layer].detach()[:count]):
        best, second = biases.topk(2).values.tolist()
        where = {"start": head + 1, "end": int(biases.argmax()), "bias": round(best, 3)}
        found.append(where | {"ahead": round(best - second, 3)})
    return found


if __name__ == "__main__":
    main()
