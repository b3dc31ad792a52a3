"""How far attention spreads: the entropy of attention weights by size of the problem, as in the paper's appendix A."""

from typing import Any

import torch
from torch import Tensor

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.model.capture import capture
from latentloop.model.recurrence import update
from latentloop.task.splits import published_problems
from latentloop.tokens.state import encode_state

ROWS = 4
"""Problems whose attention weights are held at once."""


@torch.inference_mode()
def attention_entropy(trained: LatentLoop, nodes: int, instances: int) -> dict[str, Any]:
    """Return the entropy of attention in nats, averaged over queries: of every head, and of all.

    It is measured in the first application of the block, where all methods see the same: the problem alone.
    """
    model = trained.model
    problems = published_problems(trained.run.task, nodes, instances)
    sums: list[Tensor] = [torch.zeros(trained.run.model.heads_of(layer)) for layer in range(len(model.layers))]
    queries = [0.0] * len(model.layers)
    for start in range(0, instances, ROWS):
        state, layout = encode_state(problems[start : start + ROWS], trained.vocabulary)
        state, layout = state.to(model.norm.weight.device), layout.to(model.norm.weight.device)
        with capture(model, ["pattern"], iterations=[0]) as seen:
            update(model, state, layout)
        for layer in range(len(model.layers)):
            pattern = seen[0, layer, "pattern"]  # [batch, head, query, key]
            entropy = torch.special.entr(pattern.cpu().double()).sum(-1)  # [batch, head, query]
            mask = (layout.mask if entropy.shape[-1] == layout.mask.shape[1] else layout.exists).cpu()
            sums[layer] += (entropy * mask[:, None]).sum((0, 2))
            queries[layer] += float(mask.sum())
    by_head = [[round(float(x), 5) for x in sums[layer] / queries[layer]] for layer in range(len(sums))]
    everything = [entropy for heads in by_head for entropy in heads]
    return {"mean": sum(everything) / len(everything), "heads": by_head}
