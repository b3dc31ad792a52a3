"""Answers to problems that people pose, from a file of JSON lines."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from latentloop.config import TaskConfig
from latentloop.errors import UserError
from latentloop.files import parse_json
from latentloop.task.graph import Problems, concatenate
from latentloop.task.oracle import solve
from latentloop.task.text import parse

Solver = Callable[[Problems], list[dict[str, Any]]]
"""From a batch of problems to the answer to each: ``values`` by variable, and whatever else the solver knows."""

CHUNK = 256


def oracle_solver(problems: Problems) -> list[dict[str, Any]]:
    """Answer with the truth."""
    values = solve(problems).values
    return [{"values": problems.by_variable(row, values[row])} for row in range(len(problems))]


def answer_lines(lines: Iterable[bytes], task: TaskConfig, solver: Solver) -> Iterator[dict[str, Any]]:
    """Answer lines ``{"id": .., "text": ..}`` in their order; a line that cannot be answered says why instead."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while chunk := list(islice(numbered, CHUNK)):
        asked = [_ask(number, line, task) for number, line in chunk]
        answers = iter(_answers([problems for _, problems in asked if isinstance(problems, Problems)], solver))
        for identity, problems in asked:
            yield {"id": identity} | (next(answers) if isinstance(problems, Problems) else {"error": problems})


def _answers(readable: list[Problems], solver: Solver) -> list[dict[str, Any]]:
    """Solve problems together; if that fails, one by one, so that only those that cannot be solved have an error."""
    try:
        return solver(concatenate(readable)) if readable else []
    except UserError as error:
        if len(readable) == 1:
            return [{"error": str(error)}]
        return [answer for problems in readable for answer in _answers([problems], solver)]


def _ask(number: int, line: bytes, task: TaskConfig) -> tuple[Any, Problems | str]:
    """Read one line: its id, and the problem or what is wrong with it."""
    identity = None
    try:
        record = parse_json(line)
        if isinstance(record, dict):
            json.dumps(record.get("id"))  # raises for one so deeply nested that it could be read, but not written
            identity = record.get("id")
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise UserError(
                f'line {number}: expected {{"id": .., "text": ".."}}, got {line.decode(errors="replace").strip()[:60]}'
            )
        return identity, parse(record["text"], task)
    except UserError as error:
        return identity, str(error)
    except (ValueError, RecursionError) as error:
        return identity, f"line {number} is not JSON: {error}"
