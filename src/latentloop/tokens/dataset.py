"""Data sets on disk: problems with text, values, depths and tokens, as JSON lines or one compressed NumPy file.

Both formats are written piece by piece, in memory that does not grow with the number of problems.
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy import ndarray

from latentloop.config import GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.files import write_json, writing
from latentloop.provenance import provenance
from latentloop.task.graph import ABSENT, Problems, sample
from latentloop.task.oracle import Solution, solve
from latentloop.task.splits import sampled_generator
from latentloop.task.text import to_text
from latentloop.tokens.factored import Tokens, encode
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

CHUNK = 1024
SUFFIXES = (".jsonl", ".npz")
Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Worked:
    """Problems with everything a data set holds about them."""

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


def sample_pieces(task: TaskConfig, graph: GraphConfig, count: int, seed: int) -> Iterator[Problems]:
    """Sample problems piece by piece; a longer data set begins with the shorter one."""
    for index in range(-(-count // CHUNK)):
        yield sample(task, graph, CHUNK, sampled_generator(seed, index))[: count - index * CHUNK]


def write_dataset(
    task: TaskConfig,
    graph: GraphConfig,
    count: int,
    seed: int,
    path: Path,
    *,
    advance: Advance = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Write a data set and, beside it, the configuration that makes it again; return the number of problems written.

    ``advance`` is called after every piece with its length. When ``stopped`` becomes true, the file is closed after the
    pieces that are finished: the first part of the data set, and itself a whole one.
    """
    check_dataset(task, graph, count, seed, path)
    vocabulary = Vocabulary(task=task)
    written = 0

    def pieces() -> Iterator[Worked]:
        nonlocal written
        for problems in sample_pieces(task, graph, count, seed):
            if stopped() and written:
                return
            yield work_out(problems, vocabulary)
            written += len(problems)
            advance(len(problems))

    with writing(path, "wb") as file:
        if path.suffix == ".jsonl":
            _write_lines(file, pieces())
        else:
            _write_arrays(file, pieces(), vocabulary, path.resolve().parent)
        settings = describe(task, graph, written, seed)
        unfinished = {"interrupted": True} if written < count else {}
        write_json(path.with_name(f"{path.name}.config.json"), settings | unfinished)
    return written


def check_dataset(task: TaskConfig, graph: GraphConfig, count: int, seed: int, path: Path) -> None:
    """Refuse what cannot be sampled, or has no room on the disk, before anything is written."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"cannot write {path.name}: the name must end in {' or '.join(SUFFIXES)}")
    if count < 1:
        raise UserError(f"the number of problems must be at least 1, got {count}")
    few = work_out(sample(task, graph, 16, sampled_generator(seed)), Vocabulary(task=task))
    if path.suffix == ".jsonl":
        each = sum(len(_line(0, few, row)) for row in range(16)) / 16
    else:  # all arrays, uncompressed, are kept on the disk until the last problem is known
        each = sum(column.nbytes for column in _columns(few).values()) / 16
    free = shutil.disk_usage(next(folder for folder in path.absolute().parents if folder.is_dir())).free
    special = path.exists() and not path.is_file()  # a pipe or a device
    if count * each > free and not special:
        raise UserError(
            f"{count} problems need about {count * each / 1e9:,.1f} GB on the disk of {path}, "
            f"and {free / 1e9:,.1f} GB are free: lower the count"
        )


def describe(task: TaskConfig, graph: GraphConfig, count: int, seed: int) -> dict[str, Any]:
    """Return everything needed to sample the same data set, and the vocabulary that its tokens are numbers of."""
    vocabulary = Vocabulary(task=task)
    return {
        "task": task.to_dict(),
        "graph": graph.to_dict(),
        "count": count,
        "seed": seed,
        "vocabulary": {factor: vocabulary.symbols(factor) for factor in FACTORS},
        "provenance": provenance(),
    }


def _write_lines(file: IO[bytes], pieces: Iterable[Worked]) -> None:
    """Write one problem a line."""
    number = 0
    for piece in pieces:
        for row in range(len(piece.problems)):
            file.write(_line(number, piece, row))
            number += 1


def _line(number: int, worked: Worked, row: int) -> bytes:
    return json.dumps({"id": number} | problem_record(worked, row)).encode() + b"\n"


def problem_record(worked: Worked, row: int) -> dict[str, Any]:
    """Describe one problem in plain values: text, values and depths by variable, and tokens by factor."""
    length = worked.tokens.lengths[row]
    return {
        "text": to_text(worked.problems, row),
        "values": worked.problems.by_variable(row, worked.solution.values[row]),
        "depths": worked.problems.by_variable(row, worked.solution.depths[row]),
        "tokens": {factor: getattr(worked.tokens, factor)[row, :length].tolist() for factor in FACTORS},
    }


def _columns(worked: Worked) -> dict[str, ndarray]:
    """Return the arrays of a data set by name; text is UTF-8 bytes."""
    parts = {"": worked.problems, "true_": worked.solution, "token_": worked.tokens}
    texts = [to_text(worked.problems, row).encode() for row in range(len(worked.problems))]
    columns = {"text": np.array(texts)}
    return columns | {
        f"{kind}{slot.name}": np.asarray(getattr(part, slot.name))
        for kind, part in parts.items()
        for slot in fields(part)
    }


def _write_arrays(file: IO[bytes], pieces: Iterable[Worked], vocabulary: Vocabulary, folder: Path) -> None:
    """Write one archive of padded arrays, as ``numpy.savez_compressed`` does.

    Widths are known only after the last piece, so pieces wait in unnamed temporary files of the folder, one for each array.
    """
    fills = {f"token_{factor}": vocabulary.factor_table(factor)[vocabulary.pad] for factor in FACTORS}
    fills |= {"true_depths": 0, "text": b""}
    with ExitStack() as stack:
        columns: dict[str, _Column] = {}
        for piece in pieces:
            for name, array in _columns(piece).items():
                if name not in columns:
                    columns[name] = _Column(stack.enter_context(tempfile.TemporaryFile(dir=folder)))
                columns[name].append(array)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, column in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    column.write(member, fills.get(name, ABSENT))


@dataclass(frozen=True)
class _Column:
    """One array of an archive, in pieces [problem, ...] that may differ in width."""

    spool: IO[bytes]
    kinds: list[tuple[tuple[int, ...], np.dtype]] = field(default_factory=list)
    """Shape and type of each piece."""

    def append(self, piece: ndarray) -> None:
        """Add a piece; a single number, the same for all problems, is kept once."""
        if piece.ndim or not self.kinds:
            self.kinds.append((piece.shape, piece.dtype))
            self.spool.write(np.ascontiguousarray(piece).tobytes())

    def write(self, file: Any, fill: Any) -> None:  # a file of zipfile's is no IO[bytes] to every type checker
        """Write the joined array in NumPy's format, every piece padded to the widest."""
        shapes = [shape for shape, _ in self.kinds]
        kind = max((kind for _, kind in self.kinds), key=lambda kind: kind.itemsize)  # texts differ in length
        widest = tuple(map(max, zip(*(shape[1:] for shape in shapes), strict=True)))
        whole = (sum(shape[0] for shape in shapes), *widest) if shapes[0] else ()
        header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": whole}
        np.lib.format.write_array_header_1_0(file, header)
        self.spool.seek(0)
        for shape, own in self.kinds:
            piece = np.frombuffer(self.spool.read(int(np.prod(shape)) * own.itemsize), own).reshape(shape)
            padded = np.full((*shape[:1], *widest), fill, kind)
            padded[tuple(map(slice, shape))] = piece
            file.write(padded.tobytes())
