"""How far a model generalizes: the published test sets, size by size, with where every number comes from."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from latentloop.config import FamilyName, OrderName
from latentloop.errors import UserError, nearest
from latentloop.evaluate.metrics import BEYOND, Counts, count_rollouts
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import Advance, default_cap, ignore
from latentloop.evaluate.trajectories import write_in_parts
from latentloop.files import write_json, writing
from latentloop.halting import CHOICES, RuleName
from latentloop.methods import ChainOfThought
from latentloop.provenance import provenance
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution, solve
from latentloop.task.splits import PUBLISHED_SEED, published_problems
from latentloop.tokens.trajectory import read_values, same_structure
from latentloop.train.loss import Learner
from latentloop.train.validate import validate, validation_batch


def evaluate_size(
    trained: LatentLoop,
    nodes: int,
    instances: int,
    *,
    halt: RuleName | None = None,
    cap: int | None = None,
    iterations: int | None = None,
    family: FamilyName = "random",
    order: OrderName = "drawn",
    skip: int = 0,
    advance: Advance = ignore,
) -> Counts:
    """Solve published problems of one size, after the first ``skip`` of them, and count what happened."""
    rule = effective_rule(trained, halt, cap, iterations)
    problems = published_problems(trained.run.task, nodes, instances, family=family, order=order, skip=skip)
    solution = solve(problems)
    if rule == "end":
        return count_trajectories(trained, problems, solution, advance)
    depths = solution.depths.max(1).astype(np.int64)
    fixed = iterations or trained.run.method.iterations
    if rule == "fixed":
        assert fixed is not None
        return count_rollouts(trained, problems, solution, np.full(len(problems), fixed), rule=rule, advance=advance)
    furthest = np.maximum(max(BEYOND) * depths, int(depths.max()) + 1)
    if trained.method.carries == "state" or cap is not None:
        caps = np.full(len(problems), cap or default_cap(nodes))
    else:  # hidden vectors never come to rest for certain: go no further than is read
        caps = furthest
    return count_rollouts(
        trained, problems, solution, caps, rule=rule, furthest=np.maximum(furthest, caps), advance=advance
    )


def effective_rule(
    trained: LatentLoop, halt: RuleName | None, cap: int | None, iterations: int | None
) -> RuleName | Literal["end"]:
    """Return the rule that a method halts by; raise a UserError for one that means nothing for it."""
    own = "fixpoint" if trained.method.adaptive else "fixed" if trained.method.latent else "end"
    for name, number in (("cap", cap), ("iterations", iterations)):
        if number is not None and number < 1:
            raise UserError(f"{name} must be at least 1, got {number}")
    if halt is not None and halt not in CHOICES:
        raise UserError(f"unknown halting rule {halt!r}: {nearest(halt, CHOICES)}")
    if not trained.method.adaptive and halt not in (None, own):
        raise UserError(f"{trained.run.method.name} has one way to stop, {own!r}: leave the rule {halt!r} out")
    rule: Any = halt or own
    if cap is not None and rule != "fixpoint":
        raise UserError(f"a cap goes with the rule 'fixpoint', not with {rule!r}")
    if iterations is not None and rule != "fixed":
        raise UserError(f"a number of iterations goes with the rule 'fixed', not with {rule!r}")
    if rule == "fixed" and iterations is None and trained.run.method.iterations is None:
        raise UserError("the rule 'fixed' needs a number of iterations: give --iterations")
    return rule


def count_trajectories(
    trained: LatentLoop, problems: Problems, solution: Solution, advance: Advance = ignore
) -> Counts:
    """Let a chain-of-thought model write, and read what it wrote."""
    assert isinstance(trained.run.method, ChainOfThought)
    counts = Counts()
    for rows, written, reference in write_in_parts(trained.model, problems, solution, trained.run.method.trajectory):
        same = same_structure(written, reference, trained.vocabulary)
        for row, problem in enumerate(rows):
            size = problems.sizes[problem]
            given = read_values(written[row], trained.vocabulary)
            values, depths = solution.values[problem, :size], solution.depths[problem, :size]
            found = np.array([given.get(int(name), EMPTY) for name in problems.names[problem, :size]])
            right = found == values
            ended = bool((written[row] == trained.vocabulary.end).any())
            length = int((written[row] != trained.vocabulary.pad).sum())
            counts.add(
                Counts(
                    problems=1,
                    solved=int(right.all()),
                    nodes=int(size),
                    nodes_right=int(right.sum()),
                    iterations=length,
                    iterations_by_depth=length / int(depths.max()),
                    caps=int(not ended),
                    structure_right=int(same[row]),
                    unsolved_structure_right=int(same[row] and not right.all()),
                )
            )
            counts.by_depth.update(depths.tolist())
            counts.right_by_depth.update(depths[right].tolist())
            counts.halts["end" if ended else "cap"] += 1
        advance(len(rows))
    return counts


def validation_figures(trained: LatentLoop) -> dict[str, float]:
    """Return the loss on validation problems, which all choices are made by, also those of inference."""
    return validate(Learner(trained.model), validation_batch(trained.run), trained.model.norm.weight.device)


def evaluate_sizes(
    trained: LatentLoop,
    sizes: Sequence[int],
    instances: int,
    *,
    halt: RuleName | None = None,
    cap: int | None = None,
    iterations: int | None = None,
    family: FamilyName = "random",
    order: OrderName = "drawn",
    skip: int = 0,
    advance: Advance = ignore,
) -> dict[str, Any]:
    """Evaluate size by size: a document with a row and curves for each, and everything needed to get them again."""
    settings: dict[str, Any] = {
        "halt": halt,
        "cap": cap,
        "iterations": iterations,
        "family": family,
        "order": order,
        "skip": skip,
    }
    rule = effective_rule(trained, halt, cap, iterations)
    if not sizes:
        raise UserError("an evaluation needs sizes such as 8, 16 and 32, got none")
    rows, curves = [], {}
    for nodes in sizes:
        counts = evaluate_size(trained, nodes, instances, **settings, advance=advance)
        kinds = () if trained.method.latent else ("structure_right", "unsolved_structure_right")
        structure = {kind: getattr(counts, kind) / counts.problems for kind in kinds}
        rows.append({"nodes": nodes} | counts.figures() | structure)
        curves[nodes] = counts.curves()
    return {
        "rows": rows,
        "curves": curves,
        "validation": validation_figures(trained),
        "average": float(np.mean([row["solved"] for row in rows])),
        "model": trained.describe(),
        "settings": settings | {"halt": rule, "sizes": list(sizes), "instances": instances, "seed": PUBLISHED_SEED},
        "approximate_fixpoint": trained.method.carries == "hidden" and rule == "fixpoint",
        "provenance": provenance(),
    }


def evaluation_paths(path: Path) -> tuple[Path, Path]:
    """Return the names of the two files of an evaluation, from a name with or without a suffix."""
    stem = path.name.removesuffix(".json").removesuffix(".csv")
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.csv")


def write_evaluation(document: dict[str, Any], path: Path) -> None:
    """Write the document as JSON, and its rows as CSV beside it."""
    as_json, as_csv = evaluation_paths(path)
    write_json(as_json, document)
    text = io.StringIO()
    rows = [{"model": document["model"]["sha256"][:12]} | row for row in document["rows"]]
    table = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    table.writeheader()
    table.writerows(rows)
    with writing(as_csv) as file:
        file.write(text.getvalue())
