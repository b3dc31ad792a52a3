"""Build the transformer of a run, and move weights in and out of it. Needs torch alone: asking a model loads no trainer."""

import torch
from torch import Tensor, nn

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.methods import method as lookup
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import Vocabulary


def build_model(run: RunConfig) -> Transformer:
    """Return the transformer of a run, with random weights that its seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.train.seed)
        return Transformer(run.model, Vocabulary(task=run.task), flat=not lookup(run.method).latent)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights by name, as they are stored."""
    return {name: value.detach().cpu().contiguous() for name, value in model.named_parameters()}


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model of exactly these parameters."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys() or any(parameters[n].shape != weights[n].shape for n in weights):
        raise UserError("the weights do not fit the configuration beside them: the checkpoint was put together by hand")
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)
