"""What do head groups copy? The norm amplification of each factor's embeddings by the group's combined OV matrix.

The OV matrix of a group is the sum over its heads of W_V W_O. Inputs are embeddings after the layer's own LayerNorm, without
its bias, as attention sees them; the raw product is kept too. Where the first layer looks values up, as patching tells,
the matrix of the next layer is also multiplied by that of the look-up; no LayerNorm lies between the two, as it would bring
all factors to one norm, where in the model they are scaled together. Where an MLP lies between the two, weights alone do not
tell what of a value that was looked up is copied. Cost: none, weights alone.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from latentloop.interpret.flow import Flow
from latentloop.interpret.groups import Heads
from latentloop.interpret.subject import Subject
from latentloop.model.transformer import Transformer
from latentloop.tokens.vocabulary import FACTORS


@dataclass(frozen=True, kw_only=True)
class GroupCopies:
    """One head group of a layer."""

    layer: int
    group: str
    heads: list[int]
    amplification: dict[str, dict[str, Float[ndarray, "symbol"]]]
    """By input (normed, raw, looked up) and factor: |W x| / |x| for each embedding x."""
    input: str
    """The kind of input that is judged: normed, or looked up where the group reads what a look-up brought."""
    copied: str | None
    """The factor of it that is amplified most; None where weights alone do not tell what the group reads."""
    margin: float
    """Its mean amplification over that of the next factor."""
    unknown: str
    """Why weights do not tell; empty where they do."""


@dataclass(frozen=True, kw_only=True)
class Copies:
    """All groups of all layers."""

    groups: list[GroupCopies]
    factors: list[str]


def ov_matrix(model: Transformer, layer: int, heads: list[int]) -> Float[Tensor, "width width"]:
    """Return the sum of W_O W_V over heads, for column vectors: what is added is this matrix times what is attended to."""
    attention = model.layers[layer].attention
    width = model.config.width
    values = attention.project.weight[2 * width :].unflatten(0, (attention.heads, -1))  # pyrefly: ignore
    outputs = attention.out.weight.unflatten(1, (attention.heads, -1))  # pyrefly: ignore
    return torch.einsum("ohd,hdi->oi", outputs[:, heads], values[heads]).detach()


def norm_amplification(matrix: Float[Tensor, "out in"], x: Float[Tensor, "symbol in"]) -> Float[Tensor, "symbol"]:
    """Return |W x| / |x| for each row x; 0 for a row of zeros."""
    return (x @ matrix.mT).norm(dim=-1) / x.norm(dim=-1).clamp(min=1e-12)


def normed(x: Float[Tensor, "*rows width"], norm: nn.LayerNorm) -> Float[Tensor, "*rows width"]:
    """Apply a LayerNorm without its bias."""
    return F.layer_norm(x, x.shape[-1:], norm.weight, None, norm.eps).detach()


def factor_embeddings(model: Transformer) -> dict[str, Float[Tensor, "symbol width"]]:
    """Return the embeddings of each factor; of names, those that there are."""
    found: dict[str, Tensor] = {}
    for factor in FACTORS:
        table = model.embeddings[factor].weight.detach()  # pyrefly: ignore
        found[factor] = table[:-1] if factor == "variable" else table  # the last one is that of no name
    return found


def looked_up(
    model: Transformer, heads: Heads, x: Float[Tensor, "symbol width"], *, raw: bool
) -> Float[Tensor, "symbol width"]:
    """Return what the first layer's look-up heads make of embeddings, with the layer's LayerNorm or ``raw``, without it."""
    x = x if raw else normed(x, model.layers[0].attention_norm)  # pyrefly: ignore
    return x @ ov_matrix(model, 0, heads.layers[0].lookups).mT


def look_up_unknown(model: Transformer, layer: int) -> str:
    """Return why weights alone do not tell what a layer reads of a value that the first layer looked up, or nothing."""
    if layer > 1:
        return "the model has layers between the look-up and this one"
    return "values that were looked up pass through the first layer's MLP" if len(model.layers[0].mlps) else ""  # pyrefly: ignore


def analyze(subject: Subject, heads: Heads, flow: Flow) -> Copies:
    """Put all embeddings through the OV matrices of all groups."""
    model, embeddings = subject.model, factor_embeddings(subject.model)
    lookups = heads.layers[0].lookups if flow.first_layer == "look-up" else []
    found = []
    for number in range(len(heads.layers)):
        for group, chosen in heads.groups(number).items():
            unknown = look_up_unknown(model, number) if number and lookups and group.startswith("value") else ""
            by_input = {
                kind: {factor: norm_amplification(matrix, x).cpu().numpy() for factor, x in inputs.items()}
                for kind, (matrix, inputs) in _inputs(model, lookups, number, chosen, embeddings).items()
            }
            kind = "looked up" if "looked up" in by_input and group.startswith("value") else "normed"
            means = {factor: x.mean() for factor, x in by_input[kind].items()}
            best, second = sorted(means, key=lambda factor: -means[factor])[:2]
            found.append(
                GroupCopies(
                    layer=number,
                    group=group,
                    heads=chosen,
                    amplification=by_input,
                    input=kind,
                    copied=None if unknown else best,
                    margin=float(means[best] / max(means[second], 1e-12)),
                    unknown=unknown,
                )
            )
    return Copies(groups=found, factors=list(FACTORS))


def _inputs(
    model: Transformer, lookups: list[int], layer: int, chosen: list[int], embeddings: dict[str, Tensor]
) -> dict[str, tuple[Tensor, dict[str, Tensor]]]:
    """Return, by kind of input, the matrix and what it is applied to."""
    matrix = ov_matrix(model, layer, chosen)
    norms = [model.layers[number].attention_norm for number in (layer, 0)]
    own, first = ({f: normed(x, norm) for f, x in embeddings.items()} for norm in norms)  # pyrefly: ignore
    found = {"normed": (matrix, own), "raw": (matrix, embeddings)}
    if layer and lookups and not look_up_unknown(model, layer):  # embeddings as they come through the look-up
        found["looked up"] = matrix @ ov_matrix(model, 0, lookups), first
    return found
