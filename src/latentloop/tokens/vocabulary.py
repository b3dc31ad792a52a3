"""Symbols and their numbers: one flat list of symbols, and the four factors that each of them splits into.

Chain of thought reads and writes the flat numbers. All other methods see a symbol as its factors (appendix B of the
paper), of which only the value changes as the model computes.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy import ndarray

from latentloop.config import TaskConfig
from latentloop.errors import UserError
from latentloop.operations import OPERATIONS

Factor = Literal["syntax", "variable", "operation", "value"]
FACTORS: tuple[Factor, ...] = get_args(Factor)
SYNTAX = ("value", "variable", "operation", "=", "sep", "pad")
NOT_APPLICABLE = "N/A"
EMPTY_VALUE = "empty"
SPECIAL = ("=", ";", "<pad>", "<CoT>", "<end>")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """All symbols of a task.

    Flat numbers run through values, variables, operations and special symbols, in this order. In each factor its own
    symbols come first, then ``N/A``; the value factor ends with ``empty``.
    """

    task: TaskConfig

    def __len__(self) -> int:
        return self.end + 1

    @property
    def variables_from(self) -> int:
        """Flat number of x0."""
        return self.task.modulus

    @property
    def operations_from(self) -> int:
        """Flat number of the first operation."""
        return self.variables_from + self.task.names

    @property
    def equals(self) -> int:
        """Flat number of ``=``."""
        return self.operations_from + len(self.task.operations)

    @property
    def sep(self) -> int:
        """Flat number of ``;``."""
        return self.equals + 1

    @property
    def pad(self) -> int:
        """Flat number of the padding."""
        return self.equals + 2

    @property
    def cot(self) -> int:
        """Flat number of the token that opens a chain of thought."""
        return self.equals + 3

    @property
    def end(self) -> int:
        """Flat number of the token that closes a chain of thought."""
        return self.equals + 4

    @property
    def empty(self) -> int:
        """Number of ``empty`` in the value factor."""
        return self.task.modulus + 1

    def symbols(self, factor: Factor) -> tuple[str, ...]:
        """List the symbols of one factor, in the order of their numbers."""
        match factor:
            case "syntax":
                return SYNTAX
            case "variable":
                return (*(f"x{name}" for name in range(self.task.names)), NOT_APPLICABLE)
            case "operation":
                return (*self.task.operations, NOT_APPLICABLE)
            case "value":
                return (*map(str, range(self.task.modulus)), NOT_APPLICABLE, EMPTY_VALUE)

    def size(self, factor: Factor) -> int:
        """Count the symbols of one factor."""
        return len(self.symbols(factor))

    def flat_symbols(self) -> tuple[str, ...]:
        """List all symbols as text, in the order of their flat numbers."""
        factors = [self.symbols("value")[:-2], self.symbols("variable")[:-1], self.task.operations]
        return (*(symbol for symbols in factors for symbol in symbols), *SPECIAL)

    def operation_numbers(self) -> ndarray:
        """Map each of ``OPERATIONS`` to its flat number, or to -1 where the task has it not."""
        return np.array(
            [
                self.operations_from + self.task.operations.index(op) if op in self.task.operations else -1
                for op in OPERATIONS
            ]
        )

    def factor_table(self, factor: Factor) -> ndarray:
        """Map flat numbers to the numbers of one factor, for the symbols a problem is written in."""
        kinds = np.repeat(
            np.arange(len(SYNTAX)), [self.task.modulus, self.task.names, len(self.task.operations), 1, 1, 1]
        )
        if factor == "syntax":
            return kinds.astype(np.uint8)
        start = {"value": 0, "variable": self.variables_from, "operation": self.operations_from}[factor]
        own = kinds == SYNTAX.index(factor)
        numbers = np.where(own, np.arange(len(kinds)) - start, own.sum())
        if factor == "value":
            numbers[kinds == SYNTAX.index("variable")] = self.empty
        return numbers.astype(np.int16 if factor == "variable" else np.uint8)

    def check(self, modulus: int, largest_name: int, operations_used: ndarray) -> None:
        """Refuse problems that this vocabulary has no symbols for."""
        if modulus != self.task.modulus:
            raise UserError(f"the vocabulary is for modulus {self.task.modulus}, the problem has modulus {modulus}")
        if largest_name >= self.task.names:
            raise UserError(
                f"the vocabulary has the names x0 .. x{self.task.names - 1}, the problem uses x{largest_name}"
            )
        missing = [op for code, op in enumerate(OPERATIONS) if operations_used[code] and op not in self.task.operations]
        if missing:
            known = " ".join(self.task.operations)
            raise UserError(f"the vocabulary has the operations {known}, the problem uses {' '.join(missing)}")
