"""The oracle in a transformer's clothes: a model whose every answer is known, to test what is done with models."""

from dataclasses import replace

import torch

from latentloop.config import TaskConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.model.attention import take
from latentloop.model.build import build_model, weights_of
from latentloop.model.transformer import Output, Transformer
from latentloop.presets import preset
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import Checkpoint


class Clockwork(Transformer):
    """Computes right-hand sides from the tokens it embeds, by plain rules; ``twist`` may spoil what it decides."""

    twist = staticmethod(lambda values, before, kinds: values)
    operations: tuple[str, ...] = ()
    """What it takes the task's operations for, if not for what they are."""

    def forward(self, state, layout, lookups=None):
        self.symbols = state.factors()
        hidden, _ = self.block(torch.zeros(*state.value.shape, self.config.width), iteration=state.iteration)
        logits = self.read(hidden)
        if self.method.pin_static:  # a real model computes only values, and only at right-hand sides
            hidden, logits = take(hidden, layout.rhs), {"value": take(logits["value"], layout.rhs)}
        return Output(logits=logits, hidden=hidden, auxiliary={})

    def block(self, x, places=None, *, iteration=0, **_):
        self.taps.iteration = iteration
        first = self.layers[0].tap
        if first.wants("pattern"):  # one head looks names up, and strays by a fifth; the others attend to themselves
            pattern = torch.eye(x.shape[1]).repeat(len(x), self.config.heads, 1, 1)
            for row, definitions in enumerate(self._definitions()):
                for place, found in definitions.items():
                    pattern[row, 1, place, [place, found]] = torch.tensor([0.2, 0.8])
            first.record("pattern", pattern)
        return x, {}

    def _definitions(self):
        """Give, for each row, where each variable on a left-hand side is defined."""
        for kinds, names in zip(self.symbols["syntax"].tolist(), self.symbols["variable"].tolist(), strict=True):
            known, found = {}, {}
            for place, kind in enumerate(kinds):
                if kind == 3:
                    known[names[place + 1]] = place + 1
                elif kind == 1 and kinds[place - 1] != 3:
                    found[place] = known[names[place]]
            yield found

    def read(self, x):
        symbols, values = self.symbols, self.symbols["value"].clone()
        operations = self.operations or self.vocabulary.task.operations
        for row, definitions in enumerate(self._definitions()):
            total, operation = None, "+"
            for place, kind in enumerate(symbols["syntax"][row].tolist()):
                if kind == 0 or place in definitions:
                    operand = int(symbols["value"][row, definitions.get(place, place)])
                    total = operand if total is None else self._combine(total, operation, operand)
                elif kind == 2:
                    operation = operations[symbols["operation"][row, place]]
                elif kind == 3:
                    values[row, place + 1], total = total, None
        values = self.twist(values, symbols["value"], symbols["syntax"])
        decided = symbols | {"value": values}
        return {
            name: torch.nn.functional.one_hot(numbers, self.vocabulary.size(name)).float()
            for name, numbers in decided.items()
        }

    def _combine(self, left, operation, right):
        if self.vocabulary.empty in (left, right):
            return self.vocabulary.empty
        return {"+": left + right, "-": left - right, "*": left * right}[operation] % self.vocabulary.task.modulus


def clockwork(task: TaskConfig) -> LatentLoop:
    """A loaded model whose transformer is a clockwork."""
    run = replace(preset("tiny-discrete"), task=task)
    trained = LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))
    trained.model = Clockwork(run.model, Vocabulary(task=task), run.method).eval()
    return trained
