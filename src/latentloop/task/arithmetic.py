"""Arithmetic modulo a prime, as a table that knows empty values and absent operands."""

from functools import lru_cache

import numpy as np
from jaxtyping import Int8
from numpy import ndarray

from latentloop.operations import OPERATIONS, RESULTS


@lru_cache
def table(modulus: int) -> Int8[ndarray, "operation left right"]:
    """Return the result of every operation on every two values.

    Indices of -1 work as in any array: an ``EMPTY`` operand makes the result empty, and an ``ABSENT`` operation leaves
    the left value as it is.
    """
    value = np.arange(modulus)
    left, right = value[:, None], value[None, :]
    entries = np.full((len(OPERATIONS) + 1, modulus + 1, modulus + 1), -1, np.int8)
    for code, operation in enumerate(OPERATIONS):
        entries[code, :-1, :-1] = RESULTS[operation](left, right) % modulus
    entries[-1, :-1, :] = left
    entries.setflags(write=False)
    return entries
