"""Chains of thought: problems with their worked solutions as flat tokens, in the paper's three formats, and back.

python -m latentloop.tokens.trajectory
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int32
from numpy import ndarray

from latentloop.methods import TRAJECTORIES
from latentloop.methods import TrajectoryFormat as Format
from latentloop.task.graph import ABSENT, Problems
from latentloop.task.oracle import Solution
from latentloop.tokens.factored import pack, problem_slots
from latentloop.tokens.vocabulary import Vocabulary

FORMATS = tuple(TRAJECTORIES)

# A step has room for `x22 =`, the equation `x23 + x3 * x5 =`, its operands' values `8 + 2 * 9 =`, the result, and `;`.
_TARGET, _RESULT, _SEP, _SLOTS = 0, 14, 15, 16
_EQUATION, _OPERANDS = slice(2, 8), slice(8, 14)


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Prompt, ``CoT``, the steps of the solution and ``end``, right-padded."""

    tokens: Int32[ndarray, "batch pos"]
    prompt_lengths: Int[ndarray, "batch"]
    """Tokens up to and including ``CoT``."""
    lengths: Int[ndarray, "batch"]
    """Tokens up to and including ``end``."""


def encode_trajectories(
    problems: Problems, solution: Solution, vocabulary: Vocabulary, trajectory: Format = "equation-value"
) -> Trajectories:
    """Write problems with their solutions, every node in the order of its equation."""
    prompt, prompt_used = (a.reshape(len(problems), -1) for a in problem_slots(problems, vocabulary))
    steps, steps_used = _steps(problems, solution, vocabulary, trajectory)
    column = np.ones((len(problems), 1), np.int32)
    slots = np.concatenate([prompt, column * vocabulary.cot, steps, column * vocabulary.end], axis=1)
    used = np.concatenate([prompt_used, column > 0, steps_used, column > 0], axis=1)
    tokens, places = pack(slots, used, vocabulary.pad)
    return Trajectories(tokens=tokens, prompt_lengths=places[:, prompt.shape[1]] + 1, lengths=places[:, -1] + 1)


def _steps(
    problems: Problems, solution: Solution, vocabulary: Vocabulary, trajectory: Format
) -> tuple[ndarray, ndarray]:
    row = np.arange(len(problems))[:, None, None]
    operations = vocabulary.operation_numbers()[problems.operations]
    slots = np.full((*problems.names.shape, _SLOTS), vocabulary.equals, np.int32)
    slots[..., _TARGET] = problems.names.astype(np.int32) + vocabulary.variables_from
    slots[..., 2:7:2] = problems.names[row, problems.parents].astype(np.int32) + vocabulary.variables_from
    slots[..., 8:13:2] = solution.values[row, problems.parents]
    slots[..., 3:7:2] = slots[..., 9:13:2] = operations
    slots[..., _RESULT] = solution.values
    slots[..., _SEP] = vocabulary.sep

    used = np.repeat(problems.exists[..., None], _SLOTS, axis=-1)
    present = problems.parents != ABSENT
    expression = np.stack([present[..., 0], *[present[..., 1]] * 2, *[present[..., 2]] * 2, present[..., 0]], axis=-1)
    used[..., _EQUATION] = expression & (trajectory != "value")
    used[..., _OPERANDS] = expression & (trajectory == "equation-operands-value")
    used[np.arange(len(problems)), problems.sizes - 1, _SEP] = False
    return slots.reshape(len(problems), -1), used.reshape(len(problems), -1)


def read_values(steps: Int[ndarray, "pos"], vocabulary: Vocabulary) -> dict[int, int]:
    """Read the value given to each variable by what follows ``CoT``; the last one counts. A step counts if it begins with a
    variable and ``=`` and ends with ``=`` and a number, whatever stands between.
    """
    ended = np.flatnonzero((steps == vocabulary.end) | (steps == vocabulary.pad))
    steps = steps[: ended[0]] if len(ended) else steps
    values = {}
    for step in np.split(steps, np.flatnonzero(steps == vocabulary.sep)):
        words = step[step != vocabulary.sep]
        if len(words) >= 3 and words[1] == words[-2] == vocabulary.equals and words[-1] < vocabulary.task.modulus:
            name = int(words[0]) - vocabulary.variables_from
            if 0 <= name < vocabulary.task.names:
                values[name] = int(words[-1])
    return values


def same_structure(
    tokens: Int[ndarray, "batch pos"], reference: Int[ndarray, "batch other"], vocabulary: Vocabulary
) -> Bool[ndarray, "batch"]:
    """Compare trajectories up to ``end`` with all numbers masked: were the right equations recalled?"""
    width = max(tokens.shape[1], reference.shape[1])

    def masked(flat: ndarray) -> ndarray:
        flat = np.pad(flat, [(0, 0), (0, width - flat.shape[1])], constant_values=vocabulary.pad)
        after_end = (flat == vocabulary.end).cumsum(1) > (flat == vocabulary.end)
        return np.where(after_end, vocabulary.pad, np.where(flat < vocabulary.task.modulus, 0, flat))

    return (masked(tokens) == masked(reference)).all(1)


def spell(tokens: Int[ndarray, "pos"], vocabulary: Vocabulary) -> str:
    """Write flat tokens as text, without padding."""
    symbols = vocabulary.flat_symbols()
    return " ".join(symbols[token] for token in tokens if token != vocabulary.pad)


if __name__ == "__main__":
    from latentloop.config import TaskConfig
    from latentloop.task.oracle import solve
    from latentloop.task.text import parse

    vocabulary = Vocabulary(task=TaskConfig())
    problems = parse("20 = x7 ; 2 = x42 ; x7 + x42 = x23", vocabulary.task)
    for trajectory in FORMATS:
        print(spell(encode_trajectories(problems, solve(problems), vocabulary, trajectory).tokens[0], vocabulary))  # noqa: T201
