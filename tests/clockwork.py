"""The oracle in a transformer's clothes: a model whose every answer is known, to test what is done with models."""

from dataclasses import replace

import torch

from latentloop.config import TaskConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.model.transformer import Transformer
from latentloop.presets import preset
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import Checkpoint
from latentloop.train.loop import build_model


class Clockwork(Transformer):
    """Computes right-hand sides from the tokens it embeds, by plain rules; ``twist`` may spoil what it decides."""

    twist = staticmethod(lambda values, before, kinds: values)

    def embed(self, symbols, places=None):
        self.symbols = symbols
        return torch.zeros(*symbols["value"].shape, self.config.width)

    def block(self, x, places=None, *, watch=None, **_):
        if watch is not None:  # it attends to everything before
            pattern = torch.ones(x.shape[1], x.shape[1]).tril().softmax(-1)
            watch("0.pattern", pattern.expand(len(x), self.config.heads, -1, -1))
        return x

    def read(self, x):
        symbols, empty = self.symbols, self.vocabulary.empty
        values = symbols["value"].clone()
        for row in range(len(values)):
            known = {}
            kinds, names = symbols["syntax"][row].tolist(), symbols["variable"][row].tolist()
            for place, kind in enumerate(kinds):
                if kind == 3:
                    known[names[place + 1]] = int(symbols["value"][row, place + 1])
            operands = []
            for place, kind in enumerate(kinds):
                if kind == 0:
                    operands = [int(symbols["value"][row, place])]
                elif kind == 1 and kinds[place - 1] != 3:
                    operands.append(known.get(names[place], empty))
                elif kind == 3:
                    total = empty if empty in operands else sum(operands) % self.vocabulary.task.modulus
                    values[row, place + 1] = total
                    operands = []
        values = self.twist(values, symbols["value"], symbols["syntax"])
        decided = symbols | {"value": values}
        return {
            name: torch.nn.functional.one_hot(numbers, self.vocabulary.size(name)).float()
            for name, numbers in decided.items()
        }


def clockwork_loop(task: TaskConfig) -> LatentLoop:
    """A loaded model whose transformer is a clockwork."""
    run = replace(preset("tiny-discrete"), task=task)
    weights = {name: p.detach() for name, p in build_model(run).named_parameters()}
    loop = LatentLoop(Checkpoint(run=run, weights=weights, metrics={}))
    loop.model = Clockwork(run.model, Vocabulary(task=task)).eval()
    return loop
