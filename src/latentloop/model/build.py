"""Build the transformer of a run, and move weights in and out of it. Needs torch alone: asking a model loads no trainer."""

from collections.abc import Mapping
from typing import Any

import torch
from numpy import ndarray
from torch import nn
from torch.overrides import TorchFunctionMode

from latentloop.config import RunConfig
from latentloop.model.shapes import check_shapes
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import Vocabulary


def build_model(run: RunConfig) -> Transformer:
    """Return the transformer of a run, with random weights that its seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.train.seed)
        return Transformer(run.model, Vocabulary(task=run.task), run.method)


def outline(run: RunConfig) -> Transformer:
    """Return the transformer of a run with shapes only: no memory for weights, and nothing drawn."""
    with torch.device("meta"), _Uninitialized():
        return Transformer(run.model, Vocabulary(task=run.task), run.method)


class _Uninitialized(TorchFunctionMode):
    """Skip torch.nn.init, which on the meta device would load torch's compiler to draw numbers that nobody sees."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def weights_of(model: nn.Module) -> dict[str, ndarray]:
    """Return a model's weights by name, as they are stored."""
    return {name: value.detach().cpu().contiguous().numpy() for name, value in model.named_parameters()}


def load_weights(model: nn.Module, weights: Mapping[str, ndarray]) -> None:
    """Copy weights into a model of exactly these parameters."""
    parameters = dict(model.named_parameters())
    check_shapes("the weights", {n: p.shape for n, p in parameters.items()}, {n: w.shape for n, w in weights.items()})
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(torch.from_numpy(value))
