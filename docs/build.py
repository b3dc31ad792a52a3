"""Write what README and docs quote from stored results: tables between ``<!-- built: NAME -->`` marks, and the picture.

Nothing is measured here. tests/test_numbers.py checks that all of it is up to date, and that every other measured number
in the text is that of a stored result (docs/numbers.toml says which).

python docs/build.py
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentloop.files import read_json, writing
from latentloop.report.figures import results_figure
from latentloop.report.graph import save_figure

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MODELS = ("laptop-all", "laptop-add", "laptop-add-1024")
SEEDS = (1, 2)
BUSY = {("laptop-all", 1)}
"""Trainings that had other work beside them."""
SIZES = (32, 64, 128, 256, 512, 1024)
PICTURE = ROOT / "docs" / "images" / "results.png"


class Rows(list):
    """Rows of a result, found by their number of nodes: what ``str.format`` writes as ``[rows][128]``."""

    def __getitem__(self, nodes: Any) -> Any:
        return next(row for row in self if row["nodes"] == nodes)


def sources() -> dict[str, Any]:
    """Return every stored result that text may quote, by name, with a few figures derived from them."""
    found: dict[str, Any] = {path.stem: _indexed(read_json(path)) for path in sorted(RESULTS.glob("*.json"))}
    for name in MODELS:
        kinds = ("evaluation", "certificate", "stress", "metrics")
        found[name] = {kind: _indexed(read_json(ROOT / "checkpoints" / name / f"{kind}.json")) for kind in kinds}
    found["ablation"] = _ablation()
    found["derived"] = _derived(found)
    return found


def _indexed(document: dict[str, Any]) -> dict[str, Any]:
    """Make rows easy to point at, and count what is stored as a share."""
    for key in ("rows", "sizes"):
        if key in document:
            for row in document[key]:
                if "solved" in row:
                    row["count"] = round(row["solved"] * row["problems"])
            document[key] = Rows(document[key])
    return document


def _ablation() -> dict[str, dict[str, str]]:
    """Return the cells of the table in docs/ablation.md, which is itself made from stored results."""
    lines = [line for line in (ROOT / "docs" / "ablation.md").read_text().splitlines() if line.startswith("| ")]
    heads, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines)
    return {cells[0]: dict(zip(heads, cells, strict=True)) for cells in rows}


def _derived(found: Mapping[str, Any]) -> dict[str, Any]:
    """Compute what the text sums up."""
    stress = [row for name in MODELS for row in found[name]["stress"]["rows"]]
    at_128 = [row for row in stress if row["nodes"] == 128]
    random = [row["iterations_by_depth"] for row in at_128 if row["scenario"] == "random values"]
    seconds = [row["seconds"] for row in found["solving"]["problems"]]
    chain = next(
        row
        for row in found["laptop-add-1024"]["stress"]["rows"]
        if (row["scenario"], row["nodes"]) == ("family chain", 1024)
    )
    partial = {
        f"{key} {step}": row["right_three"]
        for key, run in found["laptop-all-partial"].items()
        for row in run["validation"]
        if (step := row["step"]) in (1000, 1500, 2000)
    }
    fresh = found["laptop-all-fresh-stress"]["rows"]
    return {
        "minutes": {name: found[name]["metrics"]["seconds"] / 60 for name in MODELS},
        "times_larger": 128 / found["laptop-all"]["evaluation"]["model"]["config"]["graph"]["nodes"],
        "fewest": {name: _fewest(found[name]["evaluation"]["rows"]) for name in MODELS},
        "false_halts": sum(round(row["false_halts"] * row["problems"]) for row in _evaluated(found)),
        "stress_fewest": min(row["count"] / row["problems"] for row in stress),
        "stress_problems": min(row["problems"] for row in at_128),
        "random_low": min(random),
        "random_high": max(random),
        "chain_iterations": round(chain["iterations"]),
        "solve_low": min(seconds),
        "solve_high": max(seconds),
        "partial": partial,
        "blind": {name: min(row["count"] for row in found[f"{name}-fresh"]["rows"]) for name in MODELS},
        "fresh_fewest": min(row["count"] for row in found["laptop-all-fresh"]["rows"]),
        "fresh_problems": min(row["problems"] for row in found["laptop-all-fresh"]["rows"]),
        "fresh_stress_fewest": min(row["count"] for row in fresh),
        "fresh_stress_problems": min(row["problems"] for row in fresh),
    }


def _fewest(rows: Iterable[dict[str, Any]]) -> int:
    """Return the smallest number of problems solved of a size, of the sizes with the full number of problems."""
    return min(row["count"] for row in rows if row["problems"] == 1024)


def _evaluated(found: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name in MODELS:
        yield from found[name]["evaluation"]["rows"]
        for seed in SEEDS:
            yield from seed_rows(found, name, seed)


def seed_rows(found: Mapping[str, Any], name: str, seed: int) -> list[dict[str, Any]]:
    """Return all rows measured of a model with another seed: sizes may be in files of their own."""
    wanted = re.compile(rf"{name}-seed{seed}(-\d+)?")
    rows = [row for stem in found if wanted.fullmatch(stem) for row in found[stem]["rows"]]
    return sorted(rows, key=lambda row: row["nodes"])


def results_table(found: Mapping[str, Any]) -> str:
    """The front page's: problems fully solved by size, a row a model."""
    lines = []
    for name in MODELS:
        about, rows = found[name]["evaluation"]["model"], found[name]["evaluation"]["rows"]
        solved = {row["nodes"]: f"{row['count']:,} / {row['problems']:,}" for row in rows}
        others = [row for seed in SEEDS for row in seed_rows(found, name, seed) if row["nodes"] == 128]
        lines.append(
            [
                f"[`{name}`](checkpoints/{name}/README.md)",
                " ".join(f"`{operation}`" for operation in about["config"]["task"]["operations"]),
                f"{about['parameters']:,}",
                f"{found['derived']['minutes'][name]:.1f}",
                *(solved.get(size, "-") for size in SIZES),
                " and ".join(f"{row['count']:,}" for row in others),
            ]
        )
    heads = ["model", "operations", "weights", "minutes to train", *(f"N = {size:,}" for size in SIZES)]
    return table([*heads, "two other seeds, N = 128"], lines)


def seeds_table(found: Mapping[str, Any]) -> str:
    """The recipe's: every training, with its certificate."""
    lines = []
    for name in MODELS:
        for seed in (0, *SEEDS):
            shipped = found[name]
            rows = shipped["evaluation"]["rows"] if seed == 0 else seed_rows(found, name, seed)
            metrics = shipped["metrics"] if seed == 0 else found[f"{name}-seed{seed}-training"]
            sizes = (shipped if seed == 0 else found[f"{name}-seed{seed}-certificate"])[
                "certificate" if seed == 0 else "sizes"
            ]
            sizes = sizes["sizes"] if seed == 0 else sizes
            entries = sum(size["entries"] for size in list(sizes))
            wrong = sum(len(size["wrong"]) for size in list(sizes))
            lines.append(
                [
                    f"`{name}`",
                    "0 (shipped)" if seed == 0 else str(seed),
                    f"{metrics['seconds']:,.0f} s" + ("*" if (name, seed) in BUSY else ""),
                    grouped(rows),
                    str(sum(round(row["false_halts"] * row["problems"]) for row in rows)),
                    str(sum(round(row["cycles"] * row["problems"]) for row in rows)),
                    f"{wrong} of {entries:,}",
                ]
            )
    heads = ["`latentloop train --preset`", "seed", "training", "fully solved", "false halts", "cycles"]
    return table([*heads, "certificate: wrong entries, all sizes probed"], lines)


def grouped(rows: Sequence[dict[str, Any]]) -> str:
    """Say what was solved, sizes with the same outcome together."""
    outcomes: dict[str, list[int]] = {}
    for row in rows:
        outcomes.setdefault(f"{row['count']:,} of {row['problems']:,}", []).append(row["nodes"])
    parts = []
    for outcome, sizes in outcomes.items():
        names = f"{sizes[0]}, {sizes[1]}, .., {sizes[-1]}" if len(sizes) > 5 else ", ".join(f"{n:,}" for n in sizes)
        parts.append(f"N = {names}: {outcome}" + (" each" if len(sizes) > 1 else ""))
    return "; ".join(parts)


def order_table(found: Mapping[str, Any]) -> str:
    """The shipped models on the authors' order of equations."""
    lines = []
    for name in MODELS:
        rows = found[f"{name}-authors-order"]["rows"]
        lines.append([f"`{name}`", *(f"{row['count']} of {row['problems']}" for row in rows)])
    return table(["model", *(f"N = {row['nodes']}" for row in found[f"{MODELS[0]}-authors-order"]["rows"])], lines)


def builtin_table(found: Mapping[str, Any]) -> str:
    """What the last layer's bias is worth."""
    stored = found["builtin"]
    lines = []
    for name in MODELS:
        row = stored["models"][name]
        counts = [row["solved"], row["solved_without_bias"], row["solved_with_bias_alone"]]
        stayed = sum(head["start"] == head["end"] for head in row["heads"])
        lines.append(
            [
                f"`{name}`",
                *(f"{count} of {stored['problems']}" for count in counts),
                f"{stayed} of {len(row['heads'])}",
            ]
        )
    heads = ["model", "as shipped", "last layer without its bias", "with its bias alone", "heads that stayed"]
    return table(heads, lines)


def costs_table(found: Mapping[str, Any]) -> str:
    """What steps and evaluations cost."""
    engine = found["engine"]
    step, authors, decoding = engine["training_step"], engine["training_step"]["authors"], engine["decoding"]
    evaluation = engine["evaluation"]
    lines = [
        [
            "one step of `deberta-L2H16D256`, 32 problems of 32 nodes, all iterations teacher-forced",
            f"{step['seconds']:.1f} s, {step['gigabytes']:.1f} GB",
            f"{authors['seconds']:.0f} s, {authors['gigabytes']:.1f} GB",
        ],
        [
            f"{evaluation['instances']:,} problems of {evaluation['nodes']} nodes, depth + 1 iterations each, "
            "2 layers of width 128",
            f"{evaluation['seconds']:.0f} s, {evaluation['gigabytes']:.1f} GB",
            "",
        ],
        [
            f"a chain of thought at N = {decoding['nodes']} ({decoding['tokens']} tokens, T = 4), "
            "with the cache against without",
            f"{decoding['cached']:.1f} s against {decoding['again']:.0f} s",
            "",
        ],
    ]
    return table(["what", "here", "authors' code"], lines)


def iteration_table(found: Mapping[str, Any]) -> str:
    """What one iteration costs, by size."""
    cost = found["engine"]["iteration_cost"]
    milliseconds = [f"{1000 * s:.1f}" if s < 0.01 else f"{1000 * s:,.0f}" for s in cost["seconds"]]
    lines = [["tokens", *(f"{n:,}" for n in cost["tokens"])], ["milliseconds", *milliseconds]]
    return table(["N", *(f"{n:,}" for n in cost["nodes"])], lines)


def faults_table(found: Mapping[str, Any]) -> str:
    """Every kind of fault that was injected, and how it ended."""
    stored = found["faults"]
    lines = []
    for row in stored["scenarios"].values():
        if "skipped" in row:
            lines.append([row["what"], "0", "", f"skipped: {row['skipped']}"])
            continue
        ends = "; ".join(f"{outcome}: {count}" for outcome, count in row["outcomes"].items())
        lines.append([row["what"].rstrip("."), str(row["injected"]), str(len(row["lost"])), ends])
    lines.append(["all", str(stored["injected"]), str(stored["lost"]), ""])
    return table(["fault", "injected", "lost", "how it ended"], lines)


def fuzz_table(found: Mapping[str, Any]) -> str:
    """How long each reader was fuzzed."""
    lines = []
    for name in dict.fromkeys(session["target"] for session in found["fuzz"]["sessions"]):
        sessions = [session for session in found["fuzz"]["sessions"] if session["target"] == name]
        inputs, seconds, crashes = (sum(one[key] for one in sessions) for key in ("inputs", "seconds", "crashes"))
        edges = max(session["edges"] for session in sessions)
        lines.append([f"`{name}`", f"{inputs:,}", f"{seconds / 60:.0f}", str(edges), str(crashes)])
    return table(["target", "inputs", "minutes", "branches covered", "crashes"], lines)


TABLES = {
    "results": results_table,
    "seeds": seeds_table,
    "order": order_table,
    "builtin": builtin_table,
    "costs": costs_table,
    "iteration": iteration_table,
    "faults": faults_table,
    "fuzz": fuzz_table,
}
PAGES = ("README.md", "docs/recipe.md", "docs/engine.md", "docs/task.md", "docs/fidelity.md", "docs/reliability.md")
MARKS = re.compile(r"(<!-- built: (\w+) -->\n).*?(<!-- end -->)", re.S)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *lines])


def built(text: str, found: Mapping[str, Any]) -> str:
    """Return a page with all tables between marks written anew."""
    return MARKS.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](found)}\n\n{match[3]}", text)


def pictured(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return what the picture shows: of each model the shipped weights, then the other seeds."""
    return {
        name: [found[name]["evaluation"], *({"rows": seed_rows(found, name, seed)} for seed in SEEDS)]
        for name in MODELS
    }


def main() -> None:
    """Write all pages and the picture."""
    found = sources()
    for page in PAGES:
        text = (ROOT / page).read_text()
        with writing(ROOT / page) as file:
            file.write(built(text, found))
    save_figure(results_figure(pictured(found)), PICTURE)


if __name__ == "__main__":
    main()
