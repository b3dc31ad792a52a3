"""Problems as people write them: ``20 = x7 ; 2 = x42 ; x7 + x42 = x23``.

Equations are separated by ``;`` or new lines and come in any order; ``=`` may be ``->``, ``*`` may be ``×``, and ``#``
starts a comment.

    python -m latentloop.task.text
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from latentloop.config import MAX_FAN_IN, MAX_NODES, TaskConfig
from latentloop.errors import UserError
from latentloop.operations import OPERATIONS
from latentloop.task.graph import ABSENT, EMPTY, Problems

MAX_CHARACTERS = 64 * MAX_NODES
_SYMBOLS = {operation: code for code, operation in enumerate(OPERATIONS)} | {"×": OPERATIONS.index("*")}
_ARROW = re.compile(r"->|=")
_WORD = re.compile(r"\w+|[^\w\s]+", re.ASCII)
_NAME = re.compile(r"x(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?[0-9]+")


class ProblemError(UserError):
    """A problem that cannot be read; the message names the equation and says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Equation:
    """One equation as read: its place in the text, and either a value or operands with operations between them."""

    number: int
    source: str
    target: int
    value: int = EMPTY
    operands: tuple[int, ...] = ()
    operations: tuple[int, ...] = ()

    def error(self, message: str) -> ProblemError:
        """Make the error that names this equation."""
        return _error(self.number, self.source, message)


def equation_text(problems: Problems, row: int, node: int) -> str:
    """Write one equation."""
    target = f"x{problems.names[row, node]}"
    if problems.parents[row, node, 0] == ABSENT:
        return f"{problems.constants[row, node]} = {target}"
    words = [f"x{problems.names[row, problems.parents[row, node, 0]]}"]
    for parent, code in zip(problems.parents[row, node, 1:], problems.operations[row, node], strict=True):
        if parent != ABSENT:
            words += [OPERATIONS[code], f"x{problems.names[row, parent]}"]
    return f"{' '.join(words)} = {target}"


def to_text(problems: Problems, row: int = 0) -> str:
    """Write one problem of a batch in a line."""
    return " ; ".join(equation_text(problems, row, node) for node in range(problems.sizes[row]))


def parse(text: str, task: TaskConfig) -> Problems:
    """Read one problem; the result is a batch of one, its equations sorted into generations."""
    if len(text) > MAX_CHARACTERS:
        raise ProblemError(f"the text has {len(text)} characters, more than the {MAX_CHARACTERS} a problem may have")
    sources = [s for line in text.splitlines() for s in line.partition("#")[0].split(";") if s.strip()]
    if not sources:
        raise ProblemError("the problem is empty: write equations such as '20 = x7 ; 2 = x42 ; x7 + x42 = x23'")
    if len(sources) > MAX_NODES:
        raise ProblemError(f"the problem has {len(sources)} equations, and {MAX_NODES} is the limit")
    return _arrange([_read(number, s.strip(), task) for number, s in enumerate(sources, 1)], task)


def _error(number: int, source: str, message: str) -> ProblemError:
    return ProblemError(f"equation {number} ({_quoted(source, 60)}): {message}")


def _quoted(text: str, most: int = 20) -> str:
    """Quote what was typed, in so many characters at most: escapes of characters that cannot be printed are long, too."""
    quoted = repr(text)
    return quoted if len(quoted) <= most + 2 else f"{quoted[: most - 3]}...{quoted[0]}"


def _read(number: int, source: str, task: TaskConfig) -> Equation:
    """Read one equation on its own."""
    sides = _ARROW.split(source)
    if len(sides) != 2:
        raise _error(
            number, source, f"expected one '=' or '->' between expression and variable, found {len(sides) - 1}"
        )
    left, right = (_WORD.findall(side) for side in sides)
    if not left or not right:
        raise _error(number, source, f"nothing stands on the {'right' if left else 'left'} of the '='")
    if _NUMBER.fullmatch("".join(right)) or (len(right) > 1 and len(left) == 1 and _NAME.fullmatch(left[0])):
        raise _error(number, source, "the variable stands on the right: write '20 = x7', not 'x7 = 20'")
    if set("()[]{}") & set(source):
        raise _error(number, source, "there are no brackets: operations apply from left to right")
    if len(right) != 1:
        raise _error(number, source, f"expected one variable on the right, got {_quoted(' '.join(right))}")
    target = _name(number, source, right[0], task)

    literal = "".join(left)
    if _NUMBER.fullmatch(left[-1]) and left[:-1] in ([], ["-"]):
        if len(literal) > 9 or not 0 <= int(literal) < task.modulus:
            raise _error(number, source, f"the value must be 0 to {task.modulus - 1}, got {literal[:20]}")
        return Equation(number=number, source=source, target=target, value=int(literal))
    operands, operations = left[::2], left[1::2]
    if operands[0] in _SYMBOLS:
        raise _error(number, source, f"the expression begins with {_quoted(operands[0])}: expected a variable")
    for operation in operations:
        if operation not in _SYMBOLS or OPERATIONS[_SYMBOLS[operation]] not in task.operations:
            expected = f"use one of {' '.join(task.operations)}"
            wrong = "an operator is missing before" if re.match(r"\w", operation) else "unknown operator"
            raise _error(number, source, f"{wrong} {_quoted(operation)}: {expected}")
    if len(operands) == len(operations):
        raise _error(number, source, f"nothing stands after the last {_quoted(operations[-1])}")
    if len(operands) > MAX_FAN_IN:
        raise _error(number, source, f"at most {MAX_FAN_IN} operands are allowed, got {len(operands)}")
    return Equation(
        number=number,
        source=source,
        target=target,
        operands=tuple(_name(number, source, word, task) for word in operands),
        operations=tuple(_SYMBOLS[operation] for operation in operations),
    )


def _name(number: int, source: str, word: str, task: TaskConfig) -> int:
    match = _NAME.fullmatch(word)
    if match and len(word) < 9 and int(match[1]) < task.names:
        return int(match[1])
    if word in _SYMBOLS:
        raise _error(number, source, f"expected a variable, got the operator {word!r}")
    if _NUMBER.fullmatch(word):
        raise _error(
            number, source, f"a number stands alone on its left-hand side: give {word[:20]} a variable of its own"
        )
    raise _error(number, source, f"the name {_quoted(word)} is not one of x0 .. x{task.names - 1}")


def _arrange(equations: Sequence[Equation], task: TaskConfig) -> Problems:
    """Check equations against each other and sort them into generations."""
    defined: dict[int, Equation] = {}
    for equation in equations:
        if equation.target in defined:
            earlier = defined[equation.target].number
            raise equation.error(f"x{equation.target} is defined twice, first by equation {earlier}")
        defined[equation.target] = equation
    for equation in equations:
        for operand in equation.operands:
            if operand not in defined:
                raise equation.error(f"x{operand} is not defined: add an equation with 'x{operand}' on its right")
    depths = _depths(defined)
    ordered = sorted(equations, key=lambda equation: depths[equation.target])
    place = {equation.target: node for node, equation in enumerate(ordered)}

    def column(rows: Iterable[Sequence[int]], width: int, kind: type) -> np.ndarray:
        return np.array([[*row, *[ABSENT] * (width - len(row))] for row in rows], kind)[None]

    return Problems(
        modulus=task.modulus,
        sizes=np.array([len(ordered)], np.int16),
        names=np.array([[equation.target for equation in ordered]], np.int16),
        parents=column(([place[name] for name in e.operands] for e in ordered), MAX_FAN_IN, np.int16),
        operations=column((e.operations for e in ordered), MAX_FAN_IN - 1, np.int8),
        constants=np.array([[equation.value for equation in ordered]], np.int8),
    )


def _depths(defined: dict[int, Equation]) -> dict[int, int]:
    """Compute depths by peeling off what depends on nothing left; what cannot be peeled holds a cycle."""
    waiting = {name: len(set(equation.operands)) for name, equation in defined.items()}
    users: dict[int, list[int]] = {name: [] for name in defined}
    for name, equation in defined.items():
        for operand in set(equation.operands):
            users[operand].append(name)
    depths: dict[int, int] = {}
    layer = [name for name, count in waiting.items() if count == 0]
    depth = 0
    while layer:
        depth += 1
        depths |= dict.fromkeys(layer, depth)
        following = []
        for name in layer:
            for user in users[name]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    following.append(user)
        layer = following
    if len(depths) < len(defined):
        raise _cycle(defined, known=depths)
    return depths


def _cycle(defined: dict[int, Equation], known: dict[int, int]) -> ProblemError:
    """Find a cycle by walking from an unsolved node to unsolved parents until one comes back."""
    path = [next(name for name in defined if name not in known)]
    while path.count(path[-1]) == 1:
        path.append(next(operand for operand in defined[path[-1]].operands if operand not in known))
    loop = [f"x{name}" for name in path[path.index(path[-1]) :][::-1]]
    shown = loop if len(loop) <= 12 else [*loop[:6], f"... {len(loop) - 11} more ...", *loop[-5:]]
    return defined[path[-1]].error(f"the equations form a cycle: {' -> '.join(shown)}")


if __name__ == "__main__":
    print(to_text(parse("x7 + x42 -> x23 ; 20 = x7 ; 2 = x42", TaskConfig())))  # noqa: T201
