"""The paper's claims and ours, decided from stored results by rules that were written before any run."""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import latentloop
from latentloop.errors import UserError, nearest
from latentloop.experiments.evidence import Evidence, MissingError
from latentloop.experiments.rules import RULES
from latentloop.experiments.store import Result
from latentloop.experiments.table import EXPERIMENTS

PLACES = (
    Path(latentloop.__file__).parent / "experiments" / "claims.toml",
    Path(latentloop.__file__).parents[2] / "docs" / "claims.toml",
)
"""The written rules: in an installed package, in a source checkout."""
Outcome = Literal["reproduced", "not reproduced", "differs", "not measured yet"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence, where it stands, the words of its rule, and what it is read from."""

    name: str
    sentence: str
    where: str
    experiment: str
    reproduced: str
    not_reproduced: str
    command: str
    """What measures it again."""
    results: list[str]
    """The stored results that decide it; the head of the file says how they are named."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim, decided."""

    claim: Claim
    outcome: Outcome
    because: str
    missing: tuple[str, ...] = ()
    """Runs without which it cannot be decided."""
    runs: tuple[str, ...] = ()
    """Runs that it was decided by, or that show how it stands so far."""
    so_far: str = ""
    """Where it cannot be decided for want of seeds: what those that are there show."""
    waiting: tuple[str, ...] = ()
    """Where a best configuration was chosen: runs of others that are not there, and may change the verdict."""


def text() -> str:
    """Return the written rules."""
    return next(path for path in PLACES if path.is_file()).read_text()


@cache
def claims() -> dict[str, Claim]:
    """Return all claims by name, in their order."""
    return {name: Claim(name=name, **row) for name, row in tomllib.loads(text()).items()}


def claim(name: str) -> Claim:
    """Return a claim by name."""
    if name not in claims():
        raise UserError(f"unknown claim {name!r}: {nearest(name, claims())}")
    return claims()[name]


def decide(name: str, results: Mapping[str, Result]) -> Verdict:
    """Decide a claim, by name, from results at a laptop's scale."""
    asked = claim(name)
    experiment, rule = EXPERIMENTS[asked.experiment], RULES[name]
    evidence = Evidence(results, experiment)
    try:
        found = rule(evidence)
    except MissingError as error:
        why = f"{error.why}: " if error.why else ""
        because = f"{why}{listed(error.runs)} {'is' if len(error.runs) == 1 else 'are'} missing"
        so_far, evidence = "", Evidence(results, experiment, any_seeds=True)
        with suppress(MissingError):
            so_far = rule(evidence).because
        return Verdict(
            claim=asked,
            outcome="not measured yet",
            because=because,
            missing=error.runs,
            runs=tuple(sorted(evidence.used)) if so_far else (),
            so_far=so_far,
        )
    outcome: Outcome = "reproduced" if found.met else "not reproduced" if found.opposite else "differs"
    return Verdict(
        claim=asked,
        outcome=outcome,
        because=found.because,
        runs=tuple(sorted(evidence.used)),
        waiting=tuple(sorted(evidence.waiting)),
    )


def decide_all(results: Mapping[str, Result]) -> list[Verdict]:
    """Decide all claims."""
    return [decide(name, results) for name in claims()]


def listed(runs: tuple[str, ...], most: int = 4) -> str:
    """Name runs in a sentence, not too many of them."""
    if len(runs) > most:
        return f"{', '.join(runs[: most - 1])} and {len(runs) - most + 1} more runs"
    return " and ".join([", ".join(runs[:-1]), runs[-1]]) if len(runs) > 1 else runs[0]
