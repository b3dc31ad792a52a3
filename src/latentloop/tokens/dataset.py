"""Data sets on disk: problems with text, values, depths and tokens, as JSON lines or one compressed NumPy file."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from latentloop.config import GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.files import write_json, writing
from latentloop.provenance import provenance
from latentloop.task.graph import Problems, concatenate, sample
from latentloop.task.oracle import Solution, solve
from latentloop.task.splits import drawn_generator
from latentloop.task.text import to_text
from latentloop.tokens.factored import Tokens, encode
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

CHUNK = 1024
SUFFIXES = (".jsonl", ".npz")


@dataclass(frozen=True, kw_only=True)
class Worked:
    """Problems with all that a data set tells about them."""

    problems: Problems
    solution: Solution
    tokens: Tokens

    @property
    def nbytes(self) -> int:
        """Memory the arrays take."""
        return self.problems.nbytes + self.solution.nbytes + self.tokens.nbytes


def work_out(problems: Problems, vocabulary: Vocabulary) -> Worked:
    """Solve and encode problems."""
    return Worked(problems=problems, solution=solve(problems), tokens=encode(problems, vocabulary))


def draw_pieces(task: TaskConfig, graph: GraphConfig, count: int, seed: int) -> Iterator[Problems]:
    """Draw problems piece by piece; a longer data set begins with the shorter one."""
    for index in range(-(-count // CHUNK)):
        yield sample(task, graph, CHUNK, drawn_generator(seed, index))[: count - index * CHUNK]


def write_dataset(
    task: TaskConfig, graph: GraphConfig, count: int, seed: int, path: Path, *, advance: Callable[[int], None]
) -> None:
    """Write a data set and, beside it, the configuration that makes it again; ``advance`` hears of every piece."""
    check_dataset(task, graph, count, seed, path)
    write = _write_lines if path.suffix == ".jsonl" else _write_arrays
    with writing(path, "wb") as file:
        write(file, _heard(draw_pieces(task, graph, count, seed), advance), Vocabulary(task=task))
        write_json(path.with_name(f"{path.name}.config.json"), describe(task, graph, count, seed))


def check_dataset(task: TaskConfig, graph: GraphConfig, count: int, seed: int, path: Path) -> None:
    """Refuse what cannot be drawn or written before anything is touched."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"cannot write {path.name}: the name must end in {' or '.join(SUFFIXES)}")
    if count < 1:
        raise UserError(f"the number of problems must be at least 1, got {count}")
    sample(task, graph, 1, drawn_generator(seed))


def _heard(data: Iterator[Problems], advance: Callable[[int], None]) -> Iterator[Problems]:
    for problems in data:
        yield problems
        advance(len(problems))


def describe(task: TaskConfig, graph: GraphConfig, count: int, seed: int) -> dict[str, Any]:
    """Give everything needed to draw the same data set, and the vocabulary that its tokens are numbers of."""
    vocabulary = Vocabulary(task=task)
    return {
        "task": task.to_dict(),
        "graph": graph.to_dict(),
        "count": count,
        "seed": seed,
        "vocabulary": {factor: vocabulary.symbols(factor) for factor in FACTORS},
        "provenance": provenance(),
    }


def _write_lines(file: IO[bytes], data: Iterator[Problems], vocabulary: Vocabulary) -> None:
    number = 0
    for problems in data:
        worked = work_out(problems, vocabulary)
        for row in range(len(problems)):
            file.write(json.dumps({"id": number} | problem_record(worked, row)).encode() + b"\n")
            number += 1


def problem_record(worked: Worked, row: int) -> dict[str, Any]:
    """Describe one problem in plain values: text, values and depths by variable, and tokens by factor."""
    length = worked.tokens.lengths[row]
    return {
        "text": to_text(worked.problems, row),
        "values": worked.problems.by_variable(row, worked.solution.values[row]),
        "depths": worked.problems.by_variable(row, worked.solution.depths[row]),
        "tokens": {factor: getattr(worked.tokens, factor)[row, :length].tolist() for factor in FACTORS},
    }


def _write_arrays(file: IO[bytes], data: Iterator[Problems], vocabulary: Vocabulary) -> None:
    """Gather all problems, then write them as one archive of padded arrays; text is UTF-8 bytes."""
    whole = work_out(concatenate(list(data)), vocabulary)
    parts = {"": whole.problems, "true_": whole.solution, "token_": whole.tokens}
    columns = {f"{kind}{slot.name}": getattr(part, slot.name) for kind, part in parts.items() for slot in fields(part)}
    texts = [to_text(whole.problems, row).encode() for row in range(len(whole.problems))]
    np.savez_compressed(file, text=np.array(texts), **columns)
