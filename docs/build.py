"""Write what README and docs quote from stored results: tables between ``<!-- built: NAME -->`` marks, and the picture.

Nothing is measured here. tests/test_numbers.py checks that all of it is up to date, and that every other measured number
in the text is that of a stored result (docs/numbers.toml says which).

python docs/build.py
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentloop.evaluate.metrics import wilson
from latentloop.experiments.scores import load
from latentloop.files import read_json, writing
from latentloop.report.console import rounded_down
from latentloop.report.figures import results_figure
from latentloop.report.graph import save_figure
from latentloop.report.ladder import redraw
from latentloop.report.results import PARTS, table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MODELS = ("laptop-add", "laptop-all", "laptop-all-4096")
OPENED = ("laptop-add", "laptop-all")
"""Models that were interpreted."""
SEEDS = (0, 1, 2)
SIZES = (32, 64, 128)
EXPERIMENTS = ROOT / "experiments"
IMAGES = ROOT / "docs" / "images"
PICTURE = IMAGES / "results.png"


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
    for name in OPENED:
        found[f"{name}-interpret"] = read_json(ROOT / "docs" / "studies" / name / "verdicts.json")
    found["derived"] = _derived(found)
    found["experiments"] = load(EXPERIMENTS)
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


def _derived(found: Mapping[str, Any]) -> dict[str, Any]:
    """Compute what the text sums up."""
    runs = {name: seeds_of(found, name) for name in MODELS}
    large = {(row["family"], row["nodes"]): row for row in found["large"]["rows"]}
    return {
        "seconds": {name: max(run["training"]["seconds"] for run in runs[name]) for name in MODELS},
        "minutes": {name: max(run["training"]["seconds"] for run in runs[name]) / 60 for name in MODELS},
        "large": {f"{family} {nodes}": _counted(row) for (family, nodes), row in large.items()},
        "solve": {row["nodes"]: _spread(row["problems"]) for row in found["solving"]["asked"]},
        "explored": _explored(found["explorer"]),
    }


def _explored(found: Mapping[str, Any]) -> dict[str, Any]:
    """Sum up how the page's engine compares, and what an iteration of its largest problems takes, by model."""
    summed = {
        model["name"]: {key: sum(row[key] for row in model["rows"]) for key in ("same", "problems")}
        for model in found["compared"]["models"]
    }
    for model in found["timed"]["models"]:
        summed[model["name"]]["milliseconds"] = model["rows"][-1]["milliseconds"]
    return summed


def _spread(problems: Sequence[dict[str, Any]]) -> dict[str, float]:
    seconds = [row["seconds"] for row in problems]
    return {"low": min(seconds), "high": max(seconds)}


def seeds_of(found: Mapping[str, Any], name: str) -> list[Any]:
    """Return the results of the seeds of a model that were trained and measured."""
    return [found[f"{name}-seed{seed}"] for seed in SEEDS if f"{name}-seed{seed}" in found]


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"count": round(row["solved"] * row["problems"])}


def solved(runs: Iterable[Mapping[str, Any]], nodes: int) -> str:
    """Say how many problems of a size all seeds solve: once where it is the same."""
    rows = [result["rows"][nodes] for result in runs]
    counts = [f"{row['count']:,}" for row in rows]
    written = counts[0] if len(set(counts)) == 1 else ", ".join(counts)
    return f"{written} of {rows[0]['problems']:,}"


def results_table(found: Mapping[str, Any]) -> str:
    """The front page's: problems fully solved by size, a row a model."""
    lines = []
    large = found["derived"]["large"]
    for name in MODELS:
        runs = seeds_of(found, name)
        about = runs[0]["model"]
        beyond = [large[f"random {nodes}"] for nodes in (1024, 4096)] if name == MODELS[-1] else []
        lines.append(
            [
                f"[`{name}`](checkpoints/{name}/README.md)",
                " ".join(f"`{operation}`" for operation in about["config"]["task"]["operations"]),
                f"{about['parameters']:,}",
                ", ".join(f"{run['training']['seconds']:.0f}" for run in runs),
                *(solved(runs, size) for size in SIZES),
                *([f"{row['count']} of {row['problems']}" for row in beyond] or ["-", "-"]),
            ]
        )
    heads = ["model", "operations", "weights", "seconds to train", *(f"N = {size:,}" for size in (*SIZES, 1024, 4096))]
    return table(heads, lines)


def seeds_table(found: Mapping[str, Any]) -> str:
    """The recipe's: every training, with its certificate."""
    lines = []
    for name in MODELS:
        for seed, run in enumerate(seeds_of(found, name)):
            rows, sizes = list(run["rows"]), list(run["sizes"])
            worst = min(run["stress"], key=lambda row: row["solved"])
            lines.append(
                [
                    f"`{name}`",
                    "0 (shipped)" if seed == 0 else str(seed),
                    f"{run['training']['seconds']:,.0f} s",
                    grouped(rows),
                    str(sum(round(row["false_halts"] * row["problems"]) for row in rows)),
                    str(sum(round(row["cycles"] * row["problems"]) for row in rows)),
                    f"{100 * worst['solved']:.1f} %" + (f" ({worst['scenario']})" if worst["solved"] < 1 else ""),
                    f"{sum(len(size['wrong']) for size in sizes)} of {sum(size['entries'] for size in sizes):,}",
                ]
            )
    heads = ["`latentloop train --preset`", "seed", "training", "fully solved", "false halts", "cycles"]
    return table([*heads, "worst of 14 scenarios, N = 128", "wrong entries of the certificate"], lines)


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


def worst_table(found: Mapping[str, Any]) -> str:
    """The least attention of look-ups in the worst problem and state, worst of three seeds."""
    lines = []
    for name in MODELS:
        bounds = [run["worst_lookups"] for run in seeds_of(found, name)]
        for case, what in (
            ("known", "a definition with a number gets"),
            ("empty", "no number there: what holds none gets"),
        ):
            least = [
                rounded_down(min(bound["attention"][nodes][case] for bound in bounds))
                if nodes in bounds[0]["attention"]
                else "-"
                for nodes in ("32", "128", "1024", "4096")
            ]
            largest = min(bound["largest"][case] for bound in bounds)
            lines.append([f"`{name}`", what, *least, f"{largest:,}"])
    heads = [
        "model, worst of its seeds",
        "case",
        "N = 32",
        "N = 128",
        "N = 1,024",
        "N = 4,096",
        "0.9 or more up to N =",
    ]
    return table(heads, lines)


def factors_table(found: Mapping[str, Any]) -> str:
    """How far beyond training: nodes, depth, tokens and iterations of the largest solved, over the largest trained on."""
    large = found["derived"]["large"]
    config = found[f"{MODELS[-1]}-seed0"]["model"]["config"]["graph"]
    nodes, depth = config["nodes"], config["depth_limit"]
    tokens = 8 * nodes - 1
    random = large["random 4096"]
    solved_chains = [row for key, row in large.items() if key.startswith("chain") and row["count"]]
    chain = max(solved_chains, key=lambda row: row["nodes"])
    lines = [
        ["nodes", f"{nodes}", f"{random['nodes']:,}", f"{random['nodes'] / nodes:.0f}x"],
        ["depth", f"{depth}", f"{chain['depth']['most']:,} (a chain)", f"{chain['depth']['most'] / depth:.0f}x"],
        ["tokens", f"{tokens}", f"{random['tokens']['most']:,}", f"{random['tokens']['most'] / tokens:.0f}x"],
        ["iterations", "1", f"{chain['iterations']['most']:,} (a chain)", f"{chain['iterations']['most']:,}x"],
    ]
    return table(["", "trained on, at most", "solved", "factor"], lines)


def large_table(found: Mapping[str, Any]) -> str:
    """Problems of hundreds and thousands of nodes."""
    lines = [
        [
            f"{row['family']}, N = {row['nodes']:,}",
            f"{row['tokens']['median']:,.0f}",
            f"{row['count']} of {row['problems']}",
            f"{row['depth']['median']:,.0f}",
            f"{row['iterations']['median']:,.0f}",
            f"{row['seconds']['median']:,.1f} (most {row['seconds']['most']:,.1f})",
        ]
        for row in found["derived"]["large"].values()
    ]
    return table([f"`{MODELS[-1]}`", "tokens", "solved", "depth", "iterations", "seconds for one problem"], lines)


def order_table(found: Mapping[str, Any]) -> str:
    """The shipped models on the authors' order of equations."""
    lines = []
    for name in MODELS:
        rows = found[f"{name}-authors-order"]["rows"]
        lines.append([f"`{name}`", *(f"{row['count']} of {row['problems']}" for row in rows)])
    return table(["model", *(f"N = {row['nodes']}" for row in found[f"{MODELS[0]}-authors-order"]["rows"])], lines)


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


def _page_part(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what writes a part of the page of results."""
    return lambda found: PARTS[name](found["experiments"], _drawn)


def _drawn(name: str) -> str | None:
    """Return where the page finds a figure's picture, if there is one."""
    return f"images/{name}.png" if (IMAGES / f"{name}.png").is_file() else None


def reproduce_table(found: Mapping[str, Any]) -> str:
    """What each figure and table comes from: command, stored result, machine, and time where it is stored."""
    lines = []
    for name in MODELS:
        runs = seeds_of(found, name)
        seconds = sum(run["training"]["seconds"] for run in runs)
        where = f"README: table and picture, row `{name}`; the recipe's tables"
        command = f"python benchmarks/record.py {name}"
        time = f"{minutes(seconds)} to train {len(runs)} seed{'' if len(runs) == 1 else 's'}"
        lines.append([where, command, f"{name}-seed*.json", _machine(runs[0]), time])
    large = list(found["large"]["rows"])
    seconds = sum(row["seconds"]["median"] * row["problems"] for row in large)
    lines.append(
        ["README: N = 1,024 and 4,096; the recipe's larger problems", f"python benchmarks/large.py {MODELS[-1]}", "large.json",
         _machine(large[0]), f"{minutes(seconds)} on {large[0]['threads']} thread"]
    )  # fmt: skip
    for name in MODELS:
        stored = f"{name}-authors-order"
        command = re.sub(r" --output \S+", "", found[stored]["provenance"]["command"])
        lines.append(
            [f"Fidelity: order of equations, `{name}`", command, f"{stored}.json", _machine(found[stored]), "-"]
        )
    bench = {
        "engine": "Engine: what it costs",
        "solving": "Recipe: seconds for one problem",
        "generator": "Log: generating problems",
    }
    for stored, where in bench.items():
        lines.append([where, f"python benchmarks/{stored}.py", f"{stored}.json", _machine(found[stored]), "-"])
    faults = [row for row in found["faults"]["scenarios"].values() if "seconds" in row]
    lines.append(
        [
            "Reliability: faults",
            "make faults",
            "faults.json",
            _machine(faults[0]),
            minutes(sum(row["seconds"] for row in faults)),
        ]
    )
    fuzz = found["fuzz"]["sessions"]
    lines.append(
        [
            "Reliability: fuzzing",
            "make fuzz",
            "fuzz.json",
            _machine(fuzz[0]),
            minutes(sum(row["seconds"] for row in fuzz)),
        ]
    )
    cards: dict[tuple[str, str], list[str]] = {}
    for name in MODELS:
        evaluation, certificate, stress = (found[name][kind] for kind in ("evaluation", "certificate", "stress"))
        sizes, skip = " ".join(map(str, evaluation["settings"]["sizes"])), evaluation["settings"]["skip"]
        probed = " ".join(str(size["nodes"]) for size in certificate["sizes"])
        row = next(iter(stress["rows"]))
        asked = {
            "evaluation": f"evaluate MODEL --sizes {sizes} --skip {skip}",
            "certificate": f"certify MODEL --sizes {probed}",
            "stress": f"stress MODEL --nodes {row['nodes']} --instances {row['problems']} --skip {skip}",
        }
        for key in asked.items():
            cards.setdefault(key, []).append(name)
    for (kind, words), names in cards.items():
        where = f"Cards: {kind} ({', '.join(f'`{name}`' for name in names)})"
        machine = _machine(found[names[0]][kind])
        lines.append([where, f"latentloop {words}", f"checkpoints/MODEL/{kind}.json", machine, "-"])
    heads = ["figure or table", "command", "stored as", "machine", "time"]
    return table(heads, [[where, f"`{command}`", f"`{stored}`", *rest] for where, command, stored, *rest in lines])


def _machine(result: Mapping[str, Any]) -> str:
    machine = result["provenance"]["machine"]
    cores = machine["cores"]
    return f"{machine['processor']}, {cores} core{'' if cores == 1 else 's'}, {machine['memory_gib']} GiB"


def minutes(seconds: float) -> str:
    """Write a duration, at two digits."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def statements_table(found: Mapping[str, Any]) -> str:
    """The verdict on every statement about what a model has learned, with the numbers."""
    documents = {name: found[f"{name}-interpret"] for name in OPENED}
    lines = []
    for number, claim in enumerate(documents[OPENED[0]]["claims"]):
        cells = []
        for document in documents.values():
            one = document["claims"][number]
            said = "; ".join(part for part in (one["evidence"], one["check"]) if part)
            cells.append(f"**{one['verdict']}**: {said}")
        lines.append([claim["statement"], *cells])
    return table(["statement", *(f"`{name}`" for name in OPENED)], lines)


def analyses_table(found: Mapping[str, Any]) -> str:
    """How long each analysis took."""
    documents = [found[f"{name}-interpret"] for name in OPENED]
    lines = [[f"`{name}`", *(f"{one['seconds'][name]:.0f}" for one in documents)] for name in documents[0]["seconds"]]
    lines.append(["all", *(f"{sum(one['seconds'].values()):.0f}" for one in documents)])
    return table(["seconds", *(f"`{name}`" for name in OPENED)], lines)


TABLES = {
    "reproduce": reproduce_table,
    "statements": statements_table,
    "analyses": analyses_table,
    "results": results_table,
    "seeds": seeds_table,
    "worst": worst_table,
    "factors": factors_table,
    "large": large_table,
    "order": order_table,
    "costs": costs_table,
    "iteration": iteration_table,
    "faults": faults_table,
    "fuzz": fuzz_table,
    **{name: _page_part(name) for name in PARTS},
}
PAGES = (
    "docs/interpret.md",
    "README.md",
    "docs/recipe.md",
    "docs/engine.md",
    "docs/task.md",
    "docs/fidelity.md",
    "docs/reliability.md",
    "docs/results.md",
    "docs/halting.md",
    "docs/reproduce.md",
)
MARKS = re.compile(r"(<!-- built: (\w+) -->\n).*?(<!-- end -->)", re.S)


def built(text: str, found: Mapping[str, Any]) -> str:
    """Return a page with all tables between marks written anew."""
    return MARKS.sub(lambda match: f"{match[1]}\n{TABLES[match[2]](found)}\n\n{match[3]}", text)


def pictured(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return what the picture shows: of each model all seeds, and of the largest one the problems far beyond training."""
    shown = {name: [{"rows": list(run["rows"])} for run in seeds_of(found, name)] for name in MODELS}
    beyond = [row for row in found["derived"]["large"].values() if row["family"] == "random"]
    for name in MODELS:
        shown[name][0]["model"] = found[f"{name}-seed0"]["model"]
    for row in beyond:
        low, high = wilson(row["count"], row["problems"])
        shown[MODELS[-1]][0]["rows"].append(row | {"solved_low": low, "solved_high": high})
    return shown


def main() -> None:
    """Draw all figures, then write all pages."""
    found = sources()
    list(redraw(None, found["experiments"], IMAGES))
    save_figure(results_figure(pictured(found)), PICTURE)
    for page in PAGES:
        text = (ROOT / page).read_text()
        with writing(ROOT / page) as file:
            file.write(built(text, found))


if __name__ == "__main__":
    main()
