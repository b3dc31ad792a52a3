"""Scores as counts: added over problems, sizes and ranks, and divided once, at the end."""

from collections import Counter
from dataclasses import dataclass, field, fields
from math import sqrt
from typing import Any


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
    """A fixed point, but not the solution."""
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
            "cycles": self.halts["cycle"] / total,
            "caps": self.halts["cap"] / total,
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
