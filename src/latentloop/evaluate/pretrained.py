"""A trained model in one object: load it by folder or hub id, and ask it."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

import latentloop
from latentloop.errors import UserError
from latentloop.evaluate.rollout import default_cap, roll_out
from latentloop.evaluate.trajectories import write_trajectories
from latentloop.halting import Limits, Rollout, halted
from latentloop.methods import ChainOfThought
from latentloop.model.build import load_weights, weights_of
from latentloop.model.transformer import Transformer
from latentloop.presets import DEFAULT_MODEL
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import solve
from latentloop.task.text import parse
from latentloop.tokens.trajectory import read_values
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import MANIFEST, Checkpoint, find_checkpoint, read_checkpoint, weights_hash

PACKAGE = Path(latentloop.__file__).parent
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


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

    def to_dict(self, *, trace: bool = False) -> dict[str, Any]:
        """Return plain values, with or without the trace."""
        plain = {"values": self.values, "iterations": self.iterations, "halt": self.halt, "correct": self.correct}
        return plain | ({"trace": self.trace} if trace else {})


def shipped(name: str) -> Path | None:
    """Find a checkpoint that comes with the package, in an installed one or in a source checkout."""
    for root in (PACKAGE / "checkpoints", PACKAGE.parent.parent / "checkpoints"):
        if name.replace("-", "").isalnum() and (root / name / MANIFEST).is_file():
            return root / name
    return None


class LatentLoop(
    ModelHubMixin, library_name="latentloop", tags=["latent-reasoning", "looped-transformer"], license="mit"
):
    """A trained model with its configuration.

    ``LatentLoop.from_pretrained(folder or hub id)`` loads one; ``save_pretrained`` and ``push_to_hub`` give it away.
    """

    def __init__(self, checkpoint: Checkpoint, sha256: str = "", device: str = "cpu") -> None:
        self.checkpoint, self.sha256 = checkpoint, sha256
        self.run, self.method = checkpoint.run, checkpoint.run.method.row
        self.vocabulary = Vocabulary(task=self.run.task)
        self.model = Transformer(self.run.model, self.vocabulary, self.run.method)
        load_weights(self.model, checkpoint.weights)
        try:
            self.model.eval().to(device)
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"cannot use the device {device!r}: {str(error).splitlines()[0]}") from error

    @classmethod
    def from_pretrained(  # pyrefly: ignore
        cls,
        name: str | Path = DEFAULT_MODEL,
        *,
        device: str = "cpu",
        temperature: float | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
    ) -> "LatentLoop":
        """Load a shipped checkpoint by name, a checkpoint folder, the best of a run folder, or a repository of the hub.

        ``temperature`` replaces the checkpoint's own, at inference; the last five go to the hub.
        """
        own = {"device": device, "temperature": temperature}
        hub = {"revision": revision, "cache_dir": cache_dir, "force_download": force_download, "token": token}
        folder = shipped(str(name)) or Path(name)
        if folder.exists():
            return cls._load(find_checkpoint(folder), **own)
        if not _HUB_ID.fullmatch(str(name)) or Path(name).parent.is_dir():  # a path with a slip is no hub id
            raise UserError(
                f"no checkpoint {str(name)!r}: expected a shipped name, a folder, or a hub id such as owner/name"
            )
        try:
            return super().from_pretrained(name, **hub, local_files_only=local_files_only, **own)
        except (HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
            raise UserError(f"no checkpoint {str(name)!r}: it is no folder, and the hub does not give it") from error

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        device: str = "cpu",
        temperature: float | None = None,
        **_: Any,
    ) -> "LatentLoop":
        folder = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
        )
        return cls._load(Path(folder), device=device, temperature=temperature)

    @classmethod
    def _load(cls, folder: Path, *, device: str, **inference: float | None) -> "LatentLoop":
        checkpoint = read_checkpoint(folder)
        chosen: dict[str, Any] = {name: value for name, value in inference.items() if value is not None}
        run = replace(checkpoint.run, model=replace(checkpoint.run.model, **chosen))
        return cls(replace(checkpoint, run=run), weights_hash(folder), device)

    def _save_pretrained(self, save_directory: Path) -> None:
        replace(self.checkpoint, weights=weights_of(self.model)).write_files(save_directory)

    def describe(self) -> dict[str, Any]:
        """Return which model this is."""
        return {
            "method": self.run.method.name,
            "name": self.run.name,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "sha256": self.sha256,
            "step": self.checkpoint.metrics.get("step"),
            "config": self.run.to_dict(),
        }

    def solve(self, problem: str, *, cap: int | None = None) -> Answer:
        """Solve one problem written as text, such as ``20 = x7 ; 2 = x42 ; x7 + x42 = x23``."""
        return self.solve_problems(parse(problem, self.run.task), cap=cap)[0]

    def solve_problems(self, problems: Problems, *, cap: int | None = None) -> list[Answer]:
        """Solve many problems at once."""
        if cap is not None and cap < 1:
            raise UserError(f"the cap must be at least 1, got {cap}")
        if not self.method.latent:
            return self._write(problems)
        fixed = self.run.method.iterations
        caps = [fixed or cap or default_cap(int(size)) for size in problems.sizes]
        rollouts = roll_out(self.model, problems, np.array(caps), leave=fixed is None)
        truth = solve(problems).values
        return [self._answer(problems, row, rollout, caps[row], truth[row]) for row, rollout in enumerate(rollouts)]

    def _write(self, problems: Problems) -> list[Answer]:
        """Answer by chain of thought: the iterations are the tokens written."""
        assert isinstance(self.run.method, ChainOfThought)
        solution, answers = solve(problems), []
        written, _ = write_trajectories(self.model, problems, solution, self.run.method.trajectory)
        for row, size in enumerate(problems.sizes):
            given = read_values(written[row], self.vocabulary)
            values = np.array([given.get(int(name), EMPTY) for name in problems.names[row, :size]], np.int8)
            named = problems.by_variable(row, values)
            answers.append(
                Answer(
                    values=named,
                    iterations=int((written[row] != self.vocabulary.pad).sum()),
                    halt="end" if (written[row] == self.vocabulary.end).any() else "cap",
                    trace=[dict.fromkeys(named), named],
                    correct=bool((values == solution.values[row, :size]).all()),
                )
            )
        return answers

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
