"""A trained model in one object: load it by folder or hub id, and ask it.

Two engines give the same answers: NumPy at first, and wherever torch is not installed; and the torch model, which is quicker
and takes seconds to load, once so much was asked that this pays.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentloop.errors import UserError, nearest, needing
from latentloop.evaluate.hub import find_weights, upload
from latentloop.evaluate.rollout import Advance, Engine, default_cap, encode_start, ignore, roll_out, states
from latentloop.files import writing
from latentloop.halting import MAX_ITERATIONS, Limits, Rollout, halted
from latentloop.methods import ChainOfThought
from latentloop.model.reference import ENCODINGS, Reference
from latentloop.model.shapes import check_shapes, parameter_shapes
from latentloop.presets import DEFAULT_MODEL
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution, solve
from latentloop.task.text import parse
from latentloop.tokens.trajectory import read_values, spell
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import Checkpoint, read_checkpoint, weights_hash

if TYPE_CHECKING:
    from latentloop.model.transformer import Transformer

SHOWN = 8
"""Values that an answer prints, the last ones."""
LITTLE = 2**30
"""Nodes asked about, times weights of the layers, up to which NumPy is at its answers before torch would be loaded."""
CARD = """\
---
library_name: latentloop
license: mit
tags: [latent-reasoning, looped-transformer]
---

A model of latentloop, {method} {name}. To ask it:

    from latentloop import LatentLoop
    LatentLoop.from_pretrained("this folder, or its name on the hub").solve("20 = x7 ; 2 = x42 ; x7 + x42 = x23")
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model says about one problem."""

    values: dict[str, int | None]
    """By variable; None where the model says no number."""
    iterations: int
    """Iterations it took."""
    halt: str
    """Why it stopped: a row of ``latentloop.halting.RULES``, or ``end``, the token that ends a chain of thought."""
    trace: list[dict[str, int | None]]
    """The values after 0, 1, 2, ... iterations."""
    correct: bool
    """Whether all values are those of the oracle."""
    tokens: str | None = None
    """What a chain-of-thought model wrote."""

    def __repr__(self) -> str:
        shown = [f"{name}={value}" for name, value in list(self.values.items())[-SHOWN:]]
        more = ["..."] if len(self.values) > SHOWN else []
        verdict = "correct" if self.correct else "wrong"
        return f"Answer({', '.join(more + shown)}; {self.halt} after {self.iterations} iterations, {verdict})"

    def _repr_html_(self) -> str:
        """Return the trace as a table, for notebooks: a row for each variable, a column for each iteration."""
        cells = ["<tr><th></th>" + "".join(f"<th>{t}</th>" for t in range(len(self.trace))) + "</tr>"]
        for name in self.values:
            row = ("" if state[name] is None else str(state[name]) for state in self.trace)
            cells.append(f"<tr><th>{name}</th>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>")
        return f"<table>{''.join(cells)}</table><p>{self.halt} after {self.iterations} iterations</p>"

    def to_dict(self, *, trace: bool = False) -> dict[str, Any]:
        """Return plain values, with or without the trace."""
        plain = {"values": self.values, "iterations": self.iterations, "halt": self.halt, "correct": self.correct}
        plain |= {} if self.tokens is None else {"tokens": self.tokens}
        return plain | ({"trace": self.trace} if trace else {})


def check_device(device: str) -> None:
    """Raise a UserError for a device that cannot compute."""
    if device == "cpu":
        return
    with needing(f"the device {device!r}"):
        import torch
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # unknown, not on this machine, or without numbers as 'meta' is
        raise UserError(f"cannot use the device {device!r}: expected cpu, or cuda or mps where there is one") from error


class LatentLoop:
    """A trained model with its configuration.

    ``LatentLoop.from_pretrained(folder or hub id)`` loads one; ``save_pretrained`` and ``push_to_hub`` give it away.
    """

    def __init__(self, checkpoint: Checkpoint, sha256: str = "", device: str = "cpu") -> None:
        found = {name: weight.shape for name, weight in checkpoint.weights.items()}
        check_shapes("the weights", parameter_shapes(checkpoint.run), found)
        check_device(device)
        self.checkpoint, self.sha256, self.device = checkpoint, sha256, device
        self.run, self.method = checkpoint.run, checkpoint.run.method.row
        self.vocabulary = Vocabulary(task=self.run.task)
        self.nodes_so_far = 0  # that states were computed of

    @cached_property
    def model(self) -> "Transformer":
        """The torch model, built when it is first asked for. From then on it gives all answers: it may be changed."""
        with needing("a chain-of-thought model" if not self.method.latent else "the torch model"):
            import torch

            from latentloop.model.build import load_weights
            from latentloop.model.transformer import Transformer

        with torch.inference_mode(False):  # whoever asks first, it can still be trained
            model = Transformer(self.run.model, self.vocabulary, self.run.method)
            load_weights(model, self.checkpoint.weights)
            return model.eval().to(self.device)

    def engine(self, nodes: int) -> Engine:
        """Return what computes the states of the next problems, with so many nodes together: NumPy, or the torch model."""
        self.nodes_so_far += nodes
        weights = self.checkpoint.weights
        size = sum(weight.size for name, weight in weights.items() if name.startswith("layers."))
        little = self.nodes_so_far * size <= LITTLE or find_spec("torch") is None
        known = self.method.latent and self.run.model.positions.name in ENCODINGS
        if "model" in vars(self) or self.device != "cpu" or not (known and little):
            return self.model
        return Reference(self.run, weights)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = DEFAULT_MODEL,
        *,
        device: str = "cpu",
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
    ) -> "LatentLoop":
        """Load a shipped checkpoint by name, a checkpoint folder, the best of a run folder, or a repository of the hub.

        Arguments after ``device`` are passed to the hub, and matter for its repositories only.
        """
        hub = {"revision": revision, "cache_dir": cache_dir, "token": token}
        folder = find_weights(str(name), **hub, force_download=force_download, local_files_only=local_files_only)
        return cls(read_checkpoint(folder), weights_hash(folder), device)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint folder, and a short README.md where there is none."""
        checkpoint = self.checkpoint
        if "model" in vars(self):  # it may have been changed
            from latentloop.model.build import weights_of

            checkpoint = replace(checkpoint, weights=weights_of(self.model))
        folder = Path(folder)
        checkpoint.write_files(folder)
        if not (folder / "README.md").exists():
            with writing(folder / "README.md") as file:
                file.write(CARD.format(method=self.run.method.name, name=self.run.name))

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload a latentloop model",
    ) -> str:
        """Upload the model to a repository of the hub, made where there is none; return where it is."""
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return upload(Path(folder), repository, private=private, token=token, message=commit_message)

    def describe(self) -> dict[str, Any]:
        """Return which model this is."""
        return {
            "method": self.run.method.name,
            "name": self.run.name,
            "parameters": sum(weight.size for weight in self.checkpoint.weights.values()),
            "sha256": self.sha256,
            "step": self.checkpoint.metrics.get("step"),
            "config": self.run.to_dict(),
        }

    def solve(self, problem: str, *, cap: int | None = None, state: Mapping[str, int | None] | None = None) -> Answer:
        """Solve one problem written as text, such as ``20 = x7 ; 2 = x42 ; x7 + x42 = x23``.

        ``state`` gives values by variable to start from, right or wrong; those left out are empty.
        """
        problems = parse(problem, self.run.task)
        start = None if state is None else self._start(problems, state)
        return self.solve_problems(problems, cap=cap, start=start)[0]

    def iterate(
        self, problem: str, *, state: Mapping[str, int | None] | None = None
    ) -> Iterator[dict[str, int | None]]:
        """Yield the values after 1, 2, 3, ... iterations, for as long as they are asked for.

        The problem's values stay the same from the fixed point on, where the method comes to one.
        """
        self._check_latent("iterated")
        problems = parse(problem, self.run.task)
        engine = self.engine(problems.width)
        tokens = encode_start(engine, problems, None if state is None else self._start(problems, state))
        for reached in states(engine, problems, tokens):
            symbols = reached.numbers()[-1, 0, tokens.rhs[0]]  # the value factor
            values = np.where(symbols < problems.modulus, symbols, EMPTY)
            yield problems.by_variable(0, values)

    def _start(self, problems: Problems, state: Mapping[str, int | None]) -> np.ndarray:
        """Return node values [1, node] from values by variable."""
        self._check_latent("started from a state")
        names = [f"x{name}" for name in problems.names[0, : problems.sizes[0]]]
        for name, value in state.items():
            if name not in names:
                raise UserError(f"the state gives {name}, which is no variable of the problem: {nearest(name, names)}")
            if value is not None and not (isinstance(value, int | np.integer) and 0 <= value < problems.modulus):
                raise UserError(f"the state's {name} must be 0 to {problems.modulus - 1}, or None, got {value!r}")
        values = [state.get(name) for name in names]
        return np.array([[EMPTY if value is None else value for value in values]], np.int8)

    def _check_latent(self, done: str) -> None:
        if not self.method.latent:
            raise UserError(f"{self.run.method.name} has no latent state, and cannot be {done}")

    def solve_problems(
        self,
        problems: Problems,
        *,
        cap: int | None = None,
        start: np.ndarray | None = None,
        solution: Solution | None = None,
    ) -> list[Answer]:
        """Solve many problems at once, from nothing or from the given node values [batch, node].

        ``solution`` is the truth that answers are compared with, where the caller has it already.
        """
        if cap is not None and not 1 <= cap <= MAX_ITERATIONS:
            raise UserError(f"the cap must be 1 to {MAX_ITERATIONS:,} iterations, got {cap}")
        if cap is not None and not self.method.adaptive:
            raise UserError(f"{self.run.method.name} stops by itself, not at a fixed point: leave the cap out")
        if not self.method.latent:
            return self._write(problems, solution or solve(problems))
        fixed = self.run.method.iterations
        caps = [fixed or cap or default_cap(int(size)) for size in problems.sizes]
        rollouts = self.roll_out(problems, np.array(caps), halt_at_fixpoint=fixed is None, start=start)
        truth = (solution or solve(problems)).values
        return [self._answer(problems, row, rollout, caps[row], truth[row]) for row, rollout in enumerate(rollouts)]

    def roll_out(
        self,
        problems: Problems,
        limits: np.ndarray,
        *,
        halt_at_fixpoint: bool = True,
        start: np.ndarray | None = None,
        advance: Advance = ignore,
    ) -> list[Rollout]:
        """Iterate on each problem until its state repeats, or to its limit; see ``latentloop.evaluate.rollout``."""
        engine = self.engine(int(problems.sizes.sum()))
        return roll_out(engine, problems, limits, halt_at_fixpoint=halt_at_fixpoint, start=start, advance=advance)

    def _write(self, problems: Problems, solution: Solution) -> list[Answer]:
        """Answer by chain of thought: the iterations are the tokens written."""
        assert isinstance(self.run.method, ChainOfThought)
        model = self.model
        from latentloop.evaluate.trajectories import write_in_parts

        answers = {}
        for rows, written, _ in write_in_parts(model, problems, solution, self.run.method.trajectory):
            for row, tokens in zip(rows.tolist(), written, strict=True):
                size = problems.sizes[row]
                given = read_values(tokens, self.vocabulary)
                values = np.array([given.get(int(name), EMPTY) for name in problems.names[row, :size]], np.int8)
                named = problems.by_variable(row, values)
                answers[row] = Answer(
                    values=named,
                    iterations=int((tokens != self.vocabulary.pad).sum()),
                    halt="end" if (tokens == self.vocabulary.end).any() else "cap",
                    trace=[dict.fromkeys(named), named],
                    tokens=spell(tokens, self.vocabulary),
                    correct=bool((values == solution.values[row, :size]).all()),
                )
        return [answers[row] for row in range(len(problems))]

    def _answer(self, problems: Problems, row: int, rollout: Rollout, cap: int, truth: np.ndarray) -> Answer:
        fixed = self.run.method.iterations
        stopped = halted(rollout, "fixpoint" if fixed is None else "fixed", Limits(cap=cap, fixed=fixed))
        assert stopped is not None
        values = rollout.states[-1]
        return Answer(
            values=problems.by_variable(row, values),
            iterations=rollout.iterations,
            halt=stopped[0],
            trace=[problems.by_variable(row, state) for state in rollout.states],
            correct=bool((values == truth[: len(values)]).all()),
        )
