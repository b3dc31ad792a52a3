"""Run probes that begin alike: their common prefix goes through the model once, and its keys and values are kept.

Every model here is causal, so what the prefix computes does not depend on what follows. Cost: one pass over the prefix, then
some twenty tokens a probe instead of seven hundred; and where the answer alone is asked for, one in the last layer.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentloop.interpret.probes import RHS, Probes, labels
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
            return Cache(model.norm.weight.new_empty(shape), model.norm.weight.new_empty(shape))

        one = [cache(1, layer) for layer in range(config.layers)]
        listeners, model.taps.listeners = model.taps.listeners, []  # do not record or patch the prefix
        try:
            if self.start:
                # Of the last layer keys and values are all that is wanted: it is computed at one token.
                somewhere = torch.zeros(1, 1, dtype=torch.long, device=self.device)
                model.block(model.embed(prefix), caches=one, chosen=somewhere)
        finally:
            model.taps.listeners = listeners
        many = [cache(self.chunk, layer) for layer in range(config.layers)]
        for layer, (kept, copy) in enumerate(zip(one, many, strict=True)):
            window = model.positions.window_of(layer)
            # Keys beyond the window are never used.
            first = 0 if window is None else max(0, self.start - window.shape[-1])
            used = slice(first, self.start)
            copy.keys[:, :, used] = kept.keys[:, :, used]
            copy.values[:, :, used] = kept.values[:, :, used]
        return many

    def position(self, label: str, layer: int) -> int:
        """Return where ``answers`` computes a token of the probe in a layer, to be patched there."""
        if layer == self.model.config.layers - 1:
            assert label == RHS, "an answer needs nothing else of the last layer"
            return 0
        return self.length - self.start - len(self.labels) + self.labels.index(label)

    def chunks(self) -> Iterator[slice]:
        """Yield the samples in pieces that run side by side."""
        for begin in range(0, len(self.probes), self.chunk):
            yield slice(begin, min(begin + self.chunk, len(self.probes)))

    def run(self, rows: slice | None = None) -> Float[Tensor, "row pos symbol"]:
        """Apply the block once to some samples; return the logits of values at all tokens after the prefix.

        Captures and patches around the call see these tokens only; keys are those of the whole sequence.
        """
        return self._run(rows or slice(0, len(self.probes)), everywhere=True)

    def answers(self, rows: slice | None = None) -> Int[Tensor, "row"]:
        """Return the symbol that each sample's right-hand side gets.

        Captures and patches around the call see one token of the last layer, the right-hand side.
        """
        return self._run(rows or slice(0, len(self.probes)), everywhere=False)[:, -1].argmax(-1).cpu()

    @torch.inference_mode()
    def _run(self, rows: slice, *, everywhere: bool) -> Float[Tensor, "row _pos symbol"]:
        probes, vocabulary = self.probes[rows], self.model.vocabulary
        assert len(probes) <= self.chunk, "more samples than there is room for"
        state, layout = encode_state(probes.problems, vocabulary)
        state = with_values(state, layout, probes.state, vocabulary).to(self.device)
        x = self.model.embed({name: state.factors()[name][:, self.start :] for name in FACTORS})
        places = torch.arange(self.start, self.length, device=self.device)
        visible = (torch.arange(self.length, device=self.device) <= places[:, None]).expand(len(probes), 1, -1, -1)
        caches = [Cache(c.keys[: len(probes)], c.values[: len(probes)], self.start) for c in self.caches]
        chosen = None if everywhere else torch.full((len(probes), 1), len(places) - 1, device=self.device)
        hidden, _ = self.model.block(x, places, visible=visible, caches=caches, chosen=chosen)
        return self.model.read(hidden)["value"]
