"""Scores as counts: added over problems, sizes and ranks, and divided once, at the end."""

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from math import sqrt
from typing import Any

import numpy as np
from jaxtyping import Int

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import Advance, ignore
from latentloop.halting import CHOICES, Limits, Rollout, RuleName, halted
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution

BEYOND = (2, 4)
"""Multiples of the iterations needed at which the state is read again."""


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson score interval of a share, 95 % by default."""
    if total == 0:
        return 0.0, 1.0
    share = right / total
    center = share + z * z / (2 * total)
    spread = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


@dataclass(kw_only=True)
class Counts:
    """What happened on some problems. Counters are keyed by what their name says; empty ones stay out of the results."""

    problems: int = 0
    solved: int = 0
    """All values right when the chosen rule stopped."""
    solved_by_rule: Counter[str] = field(default_factory=Counter)
    """The same under every rule that applies, and at multiples of the iterations needed."""
    nodes: int = 0
    nodes_right: int = 0
    by_depth: Counter[int] = field(default_factory=Counter)
    right_by_depth: Counter[int] = field(default_factory=Counter)
    iterations: int = 0
    iterations_by_depth: float = 0.0
    """Sum over problems of iterations / depth."""
    halts: Counter[str] = field(default_factory=Counter)
    """By reason to stop."""
    false_halts: int = 0
    """Under the fixed-point rule, unless iterations were fixed (then 0): a fixed point, but not the solution ..."""
    cycles: int = 0
    """... an earlier state came back ..."""
    caps: int = 0
    """... neither, up to the cap (of chains of thought: no end)."""
    solved_by_iteration: Counter[int] = field(default_factory=Counter)
    """Problems whose state after so many iterations is the solution."""
    wrong_values: int = 0
    """Values that were wrong numbers after some iteration ..."""
    corrected_values: int = 0
    """... and right after the next."""
    structure_right: int = 0
    """Chains of thought that recall all equations."""
    unsolved_structure_right: int = 0
    """Of these, the ones with a wrong value: errors of arithmetic."""

    def add(self, other: "Counts") -> None:
        """Add other counts to these."""
        for slot in fields(self):
            mine, more = getattr(self, slot.name), getattr(other, slot.name)
            if isinstance(mine, Counter):
                mine.update(more)
            else:
                setattr(self, slot.name, mine + more)

    def figures(self) -> dict[str, Any]:
        """Return scores: counts divided."""
        low, high = wilson(self.solved, self.problems)
        total = max(self.problems, 1)
        figures: dict[str, Any] = {
            "problems": self.problems,
            "solved": self.solved / total,
            "solved_low": low,
            "solved_high": high,
            "nodes_right": self.nodes_right / max(self.nodes, 1),
            "iterations": self.iterations / total,
            "iterations_by_depth": self.iterations_by_depth / total,
            "false_halts": self.false_halts / total,
            "cycles": self.cycles / total,
            "caps": self.caps / total,
        }
        figures |= {f"solved_{rule}": count / total for rule, count in sorted(self.solved_by_rule.items())}
        figures["correction_rate"] = self.corrected_values / self.wrong_values if self.wrong_values else None
        return figures

    def curves(self) -> dict[str, Any]:
        """Divide what is a curve: per-depth accuracy, and the share solved after each iteration."""
        depths, last = sorted(self.by_depth), max(self.solved_by_iteration, default=-1)
        return {
            "right_by_depth": {depth: self.right_by_depth[depth] / self.by_depth[depth] for depth in depths},
            "solved_by_iteration": [self.solved_by_iteration[t] / max(self.problems, 1) for t in range(last + 1)],
            "halts": dict(self.halts),
        }


def count_rollouts(
    trained: LatentLoop,
    problems: Problems,
    solution: Solution,
    caps: Int[np.ndarray, "batch"],
    *,
    rule: RuleName,
    furthest: Int[np.ndarray, "batch"] | None = None,
    start: np.ndarray | None = None,
    advance: Advance = ignore,
) -> Counts:
    """Roll a model out on problems, each to its cap or furthest iteration, and count what happened."""
    limits = caps if furthest is None else furthest
    rollouts = trained.roll_out(problems, limits, halt_at_fixpoint=False, start=start, advance=advance)
    depths = solution.depths.max(1)
    # Beyond its roll-out a problem's state is known only where it repeats: the curve by iterations ends where the first is not.
    exact = trained.method.carries == "state"
    unknown = [one.iterations for one in rollouts if one.cycle is None and not (exact and one.fixpoint is not None)]
    horizon = min(unknown, default=max(rollout.iterations for rollout in rollouts))
    counts = Counts()
    for row, rollout in enumerate(rollouts):
        cap = int(caps[row])
        known = Limits(cap=cap, fixed=cap, depth=int(depths[row]), deepest=int(depths.max()))
        size = rollout.states.shape[1]
        count_rollout(counts, rollout, solution.values[row, :size], solution.depths[row, :size], rule, known, horizon)
    return counts


def count_rollout(
    counts: Counts,
    rollout: Rollout,
    values: np.ndarray,
    depths: np.ndarray,
    rule: RuleName,
    limits: Limits,
    horizon: int,
) -> None:
    """Add one problem's roll-out to the counts, read under the chosen rule and under all others that apply.

    ``horizon`` says how far the curve by iterations goes.
    """
    depth = int(depths.max())
    stopped = halted(rollout, rule, limits)
    assert stopped is not None  # every rule that can be chosen has its number, or a cap
    reason, used = stopped
    right = rollout.at(used) == values  # [node]
    alone = stopped if rule == "fixed" else halted(rollout, "fixpoint", limits)
    assert alone is not None
    counts.add(
        Counts(
            problems=1,
            solved=int(right.all()),
            nodes=len(values),
            nodes_right=int(right.sum()),
            iterations=used,
            iterations_by_depth=used / depth,
            false_halts=int(alone[0] == "fixpoint" and not (rollout.at(alone[1]) == values).all()),
            cycles=int(alone[0] == "cycle"),
            caps=int(alone[0] == "cap"),
        )
    )
    counts.by_depth.update(depths.tolist())
    counts.right_by_depth.update(depths[right].tolist())
    counts.halts[reason] += 1
    if rule != "fixed":
        for name in CHOICES:
            end = halted(rollout, name, replace(limits, fixed=None))
            if end is not None:
                counts.solved_by_rule[name] += int((rollout.at(end[1]) == values).all())
        for times in BEYOND:
            counts.solved_by_rule[f"{times}x"] += int((rollout.at(times * depth) == values).all())
    for iteration in range(horizon + 1):
        counts.solved_by_iteration[iteration] += int((rollout.at(iteration) == values).all())
    states = rollout.states[: used + 1]
    wrong = (states[:-1] != values) & (states[:-1] != EMPTY)
    counts.wrong_values += int(wrong.sum())
    counts.corrected_values += int((wrong & (states[1:] == values)).sum())
