"""Run probes that begin alike: their common prefix goes through the model once, and its keys and values are kept.

Every model here is causal, so what the prefix computes does not depend on what follows. Cost: one pass over the prefix, then
some twenty tokens a probe instead of seven hundred.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from latentloop.interpret.probes import Probes, labels
from latentloop.model.attention import Cache
from latentloop.model.transformer import Transformer
from latentloop.tokens.state import encode_state, with_values
from latentloop.tokens.vocabulary import FACTORS

KEYS_AT_ONCE = 2**24
"""Numbers in the keys of a chunk, all layers together: decides how many probes run side by side."""


class Bench:
    """Probes of one kind, ready to run: all tokens from the first one that differs between them."""

    def __init__(self, model: Transformer, probes: Probes, chunk: int | None = None) -> None:
        self.model, self.probes = model, probes
        self.device = model.norm.weight.device
        first, layout = encode_state(probes.problems[:1], model.vocabulary)
        first = with_values(first, layout, probes.state[:1], model.vocabulary)
        self.length = first.value.shape[1]
        self.labels = labels(probes.operands)
        shared = probes.shared_nodes()
        begin = int(layout.rhs[0, shared - 1]) + 2 if shared else 0  # after the separator
        self.start = min(begin, self.length - len(self.labels))
        room = KEYS_AT_ONCE // (self.length * model.config.width * model.config.layers)
        self.chunk = chunk or max(1, min(256, room, len(probes)))
        self.caches = self._caches({name: x[:, : self.start] for name, x in first.to(self.device).factors().items()})

    @torch.inference_mode()
    def _caches(self, prefix: dict[str, Tensor]) -> list[Cache]:
        """Run the prefix once; return its keys and values, with room for a chunk of samples."""
        model, config = self.model, self.model.config

        def cache(rows: int, layer: int) -> Cache:
            heads = config.heads_of(layer)
            shape = (rows, heads, self.length, config.width // heads)
            zeros = model.norm.weight.new_zeros(shape)
            return Cache(zeros, zeros.clone())

        one = [cache(1, layer) for layer in range(config.layers)]
        listeners, model.taps.listeners = model.taps.listeners, []  # the prefix is nobody's business
        try:
            if self.start:
                model.block(model.embed(prefix), caches=one)
        finally:
            model.taps.listeners = listeners
        many = [cache(self.chunk, layer) for layer in range(config.layers)]
        for kept, copy in zip(one, many, strict=True):
            copy.keys[:], copy.values[:] = kept.keys, kept.values
        return many

    def place(self, label: str) -> int:
        """Return where a token of the probe stands among the tokens that are run; negative, from the end."""
        return self.labels.index(label) - len(self.labels)

    def position(self, label: str) -> int:
        """Return where a token of the probe stands among the tokens that are run."""
        return self.length - self.start + self.place(label)

    def chunks(self) -> Iterator[slice]:
        """Yield the samples in pieces that run side by side."""
        for begin in range(0, len(self.probes), self.chunk):
            yield slice(begin, min(begin + self.chunk, len(self.probes)))

    @torch.inference_mode()
    def run(self, rows: slice | None = None) -> Float[Tensor, "row pos symbol"]:
        """Apply the block once to some samples; return the logits of values at all tokens after the prefix.

        Captures and patches around the call see these tokens only; keys are those of the whole sequence.
        """
        rows = rows or slice(0, len(self.probes))
        probes, vocabulary = self.probes[rows], self.model.vocabulary
        assert len(probes) <= self.chunk, "more samples than there is room for"
        state, layout = encode_state(probes.problems, vocabulary)
        state = with_values(state, layout, probes.state, vocabulary).to(self.device)
        x = self.model.embed({name: state.factors()[name][:, self.start :] for name in FACTORS})
        places = torch.arange(self.start, self.length, device=self.device)
        visible = (torch.arange(self.length, device=self.device) <= places[:, None]).expand(len(probes), 1, -1, -1)
        caches = [Cache(c.keys[: len(probes)], c.values[: len(probes)], self.start) for c in self.caches]
        hidden, _ = self.model.block(x, places, visible=visible, caches=caches)
        return self.model.read(hidden)["value"]

    def answers(self, rows: slice | None = None) -> Tensor:
        """Return the symbol that each sample's right-hand side gets."""
        return self.run(rows)[:, -1].argmax(-1).cpu()
