"""Problems as factored tokens, all at once, and back to text.

python -m latentloop.tokens.factored
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int16, Int32, Int64, Integer
from numpy import ndarray

from latentloop.operations import OPERATIONS
from latentloop.task.graph import ABSENT, EMPTY, Problems
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

# An equation has room for three operands with two operations between them, `=`, its variable, and `;`.
_OPERANDS, _OPERATIONS, _EQUALS, _TARGET, _SEP, _SLOTS = slice(0, 5, 2), slice(1, 5, 2), 5, 6, 7, 8


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The four factors at every position, as arrays or tensors. The only place where they are declared."""

    syntax: Integer[Any, "batch pos"]
    variable: Integer[Any, "batch pos"]
    operation: Integer[Any, "batch pos"]
    value: Integer[Any, "batch pos"]

    def factors(self) -> dict[str, Any]:
        """Return the factors by name."""
        return {name: getattr(self, name) for name in FACTORS}

    def numbers(self) -> Int64[ndarray, "factor batch pos"]:
        """Return all factors as one array."""
        return np.stack(list(self.factors().values())).astype(np.int64)


assert tuple(Factors.__annotations__) == FACTORS


@dataclass(frozen=True, kw_only=True)
class Tokens(Factors):
    """A batch of problems as factored tokens, right-padded, in the smallest integers that hold them.

    Variables have an ``empty`` value: this is the state before the first iteration.
    """

    lengths: Int16[ndarray, "batch"]
    """Tokens before the padding."""
    rhs: Int16[ndarray, "batch node"]
    """Position of each node's right-hand side; ``ABSENT`` beyond the problem's nodes."""

    @property
    def nbytes(self) -> int:
        """Memory the arrays take."""
        return sum(array.nbytes for array in vars(self).values())


def problem_slots(problems: Problems, vocabulary: Vocabulary) -> tuple[ndarray, ndarray]:
    """Lay problems out as flat symbol numbers with room for everything [batch, node, slot], and say what is used."""
    _check(problems, vocabulary)
    row = np.arange(len(problems))[:, None, None]
    slots = np.empty((*problems.names.shape, _SLOTS), np.int32)
    slots[..., _OPERANDS] = problems.names[row, problems.parents].astype(np.int32) + vocabulary.variables_from
    slots[..., 0] = np.where(problems.parents[..., 0] == ABSENT, problems.constants, slots[..., 0])
    slots[..., _OPERATIONS] = vocabulary.operation_numbers()[problems.operations]
    slots[..., _EQUALS] = vocabulary.equals
    slots[..., _TARGET] = problems.names.astype(np.int32) + vocabulary.variables_from
    slots[..., _SEP] = vocabulary.sep

    used = np.repeat(problems.exists[..., None], _SLOTS, axis=-1)
    used[..., 2:5:2] &= problems.parents[..., 1:] != ABSENT
    used[..., 1:5:2] = used[..., 2:5:2]
    used[np.arange(len(problems)), problems.sizes - 1, _SEP] = False
    return slots, used


def pack(slots: Int32[ndarray, "batch slot"], used: Bool[ndarray, "batch slot"], pad: int) -> tuple[ndarray, ndarray]:
    """Close the gaps: the used slots of each row, right-padded [batch, pos], and the place each slot went to."""
    places = used.cumsum(1, dtype=np.int32) - 1
    packed = np.full((len(slots), int(places[:, -1].max()) + 1), pad, slots.dtype)
    packed[np.arange(packed.shape[1]) <= places[:, -1:]] = slots[used]
    return packed, places


def encode(problems: Problems, vocabulary: Vocabulary) -> Tokens:
    """Write problems as factored tokens, nothing computed yet."""
    slots, used = problem_slots(problems, vocabulary)
    flat, places = pack(slots.reshape(len(slots), -1), used.reshape(len(used), -1), vocabulary.pad)
    rhs = np.where(problems.exists, places.reshape(used.shape)[..., _TARGET], ABSENT)
    return Tokens(
        syntax=vocabulary.factor_table("syntax")[flat],
        variable=vocabulary.factor_table("variable")[flat],
        operation=vocabulary.factor_table("operation")[flat],
        value=vocabulary.factor_table("value")[flat],
        lengths=(places[:, -1] + 1).astype(np.int16),
        rhs=rhs.astype(np.int16),
    )


def fill_in(tokens: Tokens, values: Integer[ndarray, "batch node"], vocabulary: Vocabulary) -> Tokens:
    """Return tokens whose right-hand sides hold the given node values; ``EMPTY`` has a symbol of its own."""
    row, node = np.nonzero(tokens.rhs != ABSENT)
    value = tokens.value.copy()
    value[row, tokens.rhs[row, node]] = np.where(values == EMPTY, vocabulary.empty, values)[row, node]
    return replace(tokens, value=value)


def factor_rows(tokens: Tokens, vocabulary: Vocabulary, row: int = 0) -> list[tuple[str, str, str, str]]:
    """List one problem's tokens for display: the four factors of each, as text."""
    names = [vocabulary.symbols(factor) for factor in FACTORS]
    columns = [getattr(tokens, factor) for factor in FACTORS]
    return [
        tuple(symbols[column[row, place]] for symbols, column in zip(names, columns, strict=True))  # pyrefly: ignore
        for place in range(tokens.lengths[row])
    ]


def decode(tokens: Tokens, vocabulary: Vocabulary, row: int = 0) -> str:
    """Write one problem's tokens as text; a right-hand side shows the value it holds, as in ``x23[22]``."""
    spelling = {"=": "=", "sep": ";", "pad": "<pad>"}
    words = []
    for syntax, variable, operation, value in factor_rows(tokens, vocabulary, row):
        word = {"value": value, "variable": variable, "operation": operation}.get(syntax) or spelling[syntax]
        words.append(f"{word}[{value}]" if syntax == "variable" and value != "empty" else word)
    return " ".join(words)


def _check(problems: Problems, vocabulary: Vocabulary) -> None:
    used = np.bincount(problems.operations.ravel() + 1, minlength=len(OPERATIONS) + 1)[1:]
    vocabulary.check(problems.modulus, int(problems.names.max(initial=0)), used)


if __name__ == "__main__":
    from latentloop.config import TaskConfig
    from latentloop.task.text import parse

    vocabulary = Vocabulary(task=TaskConfig())
    for factors in factor_rows(encode(parse("17 = x42 ; x42 = x7", vocabulary.task), vocabulary), vocabulary):
        print(factors)  # noqa: T201
