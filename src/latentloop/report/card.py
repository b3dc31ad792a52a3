"""The model card of a shipped checkpoint, written from the results that lie beside its weights."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from latentloop.report.console import worst_lookups_line

HEADER = """---
library_name: latentloop
license: mit
tags: [latent-reasoning, looped-transformer]
---

# {name}

A transformer of {parameters:,} parameters ({model}, method `{method}`) that solves modular arithmetic on computation graphs by
updating a discrete state until it no longer changes.
Operations: {operations}; modulus {modulus}; names x0 .. x{last}.

## How it was trained

    {command}

From scratch, seed {seed}, {steps:,} steps in {minutes:.1f} minutes on a machine with {cores} cores ({processor}), on
graphs of at most {nodes} nodes and depth {depth}. `config.json` has every setting.
SHA-256 of the weights: `{sha256}`.

"""
SCORES = """## Scores

"""
COUNTS = ("false halts", "cycles")
EVALUATED = ("nodes", "problems", "fully solved %", "95 % interval", "values right %", "iterations / depth", *COUNTS)
CERTIFIED = ("nodes", "entries", "wrong", "smallest margin", "smallest look-up margin sampled")
STRESSED = ("scenario", "nodes", "problems", "solved %", "at 4x the depth %", "iterations / depth", *COUNTS)
AUXILIARY = {
    "lookup": "the value of every operand (after the first layer)",
    "partial": "the result of an equation's first operation",
}
LIMITS = """
## Limits

It knows {names} names, at most three operands per equation, and this modulus only. Scores are measured, not proven. The
certificate puts each entry of the arithmetic through the model once, in one random context: it shows no entry to be right in
every context. The smallest look-up margins in the table are sampled from a few problems of each size and are no bounds; the
worst case below it is one, for look-ups alone.

`evaluation.json`, `certificate.json` and `stress.json` beside this card hold all figures with command, commit and machine.
"""


def model_card(
    name: str,
    metrics: dict[str, Any],
    evaluation: dict[str, Any],
    certificate: dict[str, Any],
    stress: dict[str, Any],
) -> str:
    """Say how a checkpoint was made, what is built into it, what it scores, and where its limits are."""
    model, config = evaluation["model"], evaluation["model"]["config"]
    machine = metrics["provenance"]["machine"]
    head = HEADER.format(
        name=name,
        parameters=model["parameters"],
        model=model["name"],
        method=model["method"],
        operations=" ".join(config["task"]["operations"]),
        modulus=config["task"]["modulus"],
        last=config["task"]["names"] - 1,
        command=f"latentloop train --preset {name} --seed {config['train']['seed']}",
        seed=config["train"]["seed"],
        steps=metrics["step"],
        minutes=metrics["seconds"] / 60,
        cores=machine["cores"],
        processor=machine["processor"],
        nodes=config["graph"]["nodes"],
        depth=config["graph"]["depth_limit"],
        sha256=model["sha256"],
    )
    parts = [
        "Published test problems of any depth, halting at the fixed point:\n",
        _table(EVALUATED, map(evaluated, evaluation["rows"])),
        "\nEvery value combination of every equation, each probed once inside a random problem (`latentloop certify`):\n",
        _table(CERTIFIED, map(certified, certificate["sizes"])),
        f"\n{_sentence(worst_lookups_line(certificate['worst_lookups']))}\n",
        "\nWhere it was not trained (`latentloop stress`); iterations after values were flipped are those from there on:\n",
        _table(STRESSED, map(stressed, stress["rows"])),
    ]
    return head + _built_in(config) + SCORES + "\n".join(parts) + "\n" + LIMITS.format(names=config["task"]["names"])


def _built_in(config: dict[str, Any]) -> str:
    """List what was not learned from final answers alone: auxiliary targets, the oracle's updates, the architecture."""
    method, positions = config["method"], config["model"]["positions"]
    items = []
    seen = [AUXILIARY[kind] for kind in AUXILIARY if method.get(f"{kind}_weight")]
    if seen:
        items.append(
            f"*Intermediate values.* In training, auxiliary read-outs see, from the oracle, {' and '.join(seen)}. "
            "They are not used at inference."
        )
    if method["name"] == "stable":
        items.append("*The algorithm.* Targets are the oracle's local update of every state shown, not final answers.")
    if positions["name"] == "local":
        items.append(
            "*Where to look.* No head is told where to look: the first layer sees all tokens and no positions, the last one a "
            f"window of {positions['window']} tokens, with a bias per distance that starts at zero."
        )
    return "## What is built in\n\n" + "\n".join(f"- {item}" for item in items) + "\n\n" if items else ""


def _sentence(lines: str) -> str:
    return (lines[0].upper() + lines[1:]).replace(":\n", ":\n\n")


def evaluated(row: Mapping[str, Any]) -> Sequence[Any]:
    """Return the cells of a size of an evaluation, under ``EVALUATED``."""
    interval = f"{100 * row['solved_low']:.2f} .. {100 * row['solved_high']:.2f}"
    shares = f"{100 * row['solved']:.2f}", interval, f"{100 * row['nodes_right']:.3f}"
    return row["nodes"], row["problems"], *shares, f"{row['iterations_by_depth']:.2f}", *_counts(row)


def _counts(row: Mapping[str, Any]) -> Sequence[int]:
    return [round(row[key] * row["problems"]) for key in ("false_halts", "cycles")]


def certified(size: Mapping[str, Any]) -> Sequence[Any]:
    """Return the cells of a size of a certificate, under ``CERTIFIED``."""
    margin = min(pattern["smallest_margin"] for pattern in size["patterns"].values())
    margins = f"{margin:.2f}", f"{size['lookup']['smallest_margin']:.2f}"
    return size["nodes"], f"{size['entries']:,}", len(size["wrong"]), *margins


def stressed(row: Mapping[str, Any]) -> Sequence[Any]:
    """Return the cells of a scenario of a stress test, under ``STRESSED``."""
    shares = f"{100 * row['solved']:.2f}", f"{100 * row['solved_4x']:.2f}"
    return row["scenario"], row["nodes"], row["problems"], *shares, f"{row['iterations_by_depth']:.2f}", *_counts(row)


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
