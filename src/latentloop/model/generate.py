"""Chain of thought, the honest exception: token by token, greedily, with every key and value cached.

A recurrent model caches them for every iteration and layer.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentloop.model.attention import Cache
from latentloop.model.transformer import Transformer


def forward_trajectories(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos symbol"]:
    """Return the logits of every next token."""
    x = model.embed({"token": tokens})
    for iteration in range(model.method.iterations or 1):
        x, _ = model.block(x, iteration=iteration)
    return model.read(x)["token"]


@dataclass
class Decoding:
    """Rows being decoded. Prompts are padded on the left, so that all rows write their next token at the same place."""

    model: Transformer
    caches: list[list[Cache]]
    """For every iteration, for every layer."""
    padding: Int[Tensor, "batch"]
    """Columns before each row's prompt."""
    length: int = 0

    def advance(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch symbol"]:
        """Take in new tokens and return the logits of the next."""
        columns = torch.arange(self.length, self.length + tokens.shape[1], device=tokens.device)
        self.length += tokens.shape[1]
        places = (columns - self.padding[:, None]).clamp(min=0)
        visible = self._visible(columns)
        x = self.model.embed({"token": tokens})
        for iteration, caches in enumerate(self.caches):
            x, _ = self.model.block(x, places, iteration=iteration, visible=visible, caches=caches)
        return self.model.read(x[:, -1])["token"]

    def _visible(self, columns: Int[Tensor, "new"]) -> Bool[Tensor, "batch 1 new key"]:
        """A column sees itself and all earlier ones that are not padding."""
        keys = torch.arange(self.length, device=columns.device)
        real = keys >= self.padding[:, None]
        earlier = keys < columns[:, None]
        return ((real[:, None, :] & earlier) | (keys == columns[:, None]))[:, None]

    def select(self, rows: Tensor) -> None:
        """Keep some rows."""
        self.padding = self.padding[rows]
        for cache in (cache for caches in self.caches for cache in caches):
            cache.select(rows)


@torch.inference_mode()
def generate(
    model: Transformer,
    prompts: Int[Tensor, "batch pos"],
    lengths: Int[Tensor, "batch"],
    *,
    limit: int,
    cached: bool = True,
) -> Int[Tensor, "batch new"]:
    """Continue right-padded prompts greedily until ``end``, or for ``limit`` tokens; rows that have ended are padded.

    Rows leave the batch when they end. Without the cache everything is computed again for every token.
    """
    vocabulary, device = model.vocabulary, prompts.device
    padding = prompts.shape[1] - lengths
    shifted = torch.arange(prompts.shape[1], device=device) - padding[:, None]
    tokens = torch.where(shifted >= 0, prompts.gather(1, shifted.clamp(min=0)), vocabulary.pad)
    written = torch.full((len(prompts), limit), vocabulary.pad, device=device)
    active = torch.arange(len(prompts), device=device)
    decoding = begin(model, padding, prompts.shape[1] + limit)
    new = tokens
    for place in range(limit):
        if not cached:
            decoding, new = begin(model, padding[active], tokens.shape[1]), tokens
        choice = decoding.advance(new).argmax(-1)
        written[active, place] = choice
        going = choice != vocabulary.end
        if not going.all():
            active, choice, tokens = active[going], choice[going], tokens[going]
            decoding.select(going)
            if not len(active):
                break
        new = choice[:, None]
        tokens = torch.cat([tokens, new], dim=1) if not cached else tokens
    return written


def begin(model: Transformer, padding: Int[Tensor, "batch"], room: int) -> Decoding:
    """Return a decoding of rows with so many columns before their prompts, and room for so many tokens in all."""
    config, weight = model.config, model.norm.weight

    def cache(heads: int) -> Cache:
        shape = (len(padding), heads, room, config.width // heads)
        return Cache(weight.new_empty(shape), weight.new_empty(shape))

    heads = [layer.attention.heads for layer in model.layers]  # pyrefly: ignore
    return Decoding(model, [[cache(number) for number in heads] for _ in range(model.method.iterations or 1)], padding)
