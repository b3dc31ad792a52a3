"""The tables that README and docs quote from stored results, each a function of ``page_sources.sources()``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from latentloop.report.console import rounded_down
from latentloop.report.results import table
from page_sources import MODELS, SIZES, seeds_of


def solved(runs: Iterable[Mapping[str, Any]], nodes: int) -> str:
    """Say how many problems of a size all seeds solve: once where it is the same."""
    rows = [result["rows"][nodes] for result in runs]
    return counted([row["count"] for row in rows], rows[0]["problems"])


def counted(counts: Sequence[int], problems: int) -> str:
    """Write how many of some problems the seeds solve: one number where it is the same."""
    written = f"{counts[0]:,}" if len(set(counts)) == 1 else ", ".join(f"{count:,}" for count in counts)
    return f"{written} of {problems:,}"


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
                *([counted(row["counts"], row["problems"]) for row in beyond] or ["-", "-"]),
            ]
        )
    heads = [
        "model",
        "operations",
        "parameters",
        "training time, s, by seed",
        *(f"N = {size:,}" for size in (*SIZES, 1024, 4096)),
    ]
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
            ("known", "definition holds a number: attention on it, at least"),
            ("empty", "definition is empty: attention on tokens without a number, at least"),
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
        "largest N with at least 0.9",
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
            counted(row["counts"], row["problems"]),
            str(len(row["counts"])),
            f"{row['depth']['median']:,.0f}",
            f"{row['iterations']['median']:,.0f}",
            f"{row['seconds']['median']:,.1f} (most {row['seconds']['most']:,.1f})",
        ]
        for row in found["derived"]["large"].values()
    ]
    return table(
        [f"`{MODELS[-1]}`", "tokens", "solved", "seeds", "depth", "iterations", "seconds for one problem"], lines
    )


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


def decoding_table(found: Mapping[str, Any]) -> str:
    """Chain of thought against latent reasoning: what one answer takes."""
    lines = [
        [
            str(row["nodes"]),
            f"{1000 * row['latent_seconds']:.0f}", f"{1000 * row['chain_seconds']:.0f}",
            f"{row['ratio']:.1f} ({' .. '.join(f'{end:.1f}' for end in row['ratio_quartiles'])})",
            f"{row['latent_bytes'] / 1e6:.1f}", f"{row['chain_bytes'] / 1e6:.1f}", f"{row['bytes_ratio']:.2f}",
        ]
        for row in found["decoding"]["rows"]
    ]  # fmt: skip
    heads = ["N", "latent, ms", "chain, ms", "time, chain / latent"]
    heads += ["latent, MB", "chain, MB", "memory, chain / latent"]
    return table(heads, lines)


def reproduce_table(found: Mapping[str, Any]) -> str:
    """What each figure and table comes from: command, stored result, machine, and time where it is stored."""
    lines = []
    for name in MODELS:
        runs = seeds_of(found, name)
        seconds = sum(run["training"]["seconds"] for run in runs)
        where = f"README: table, row `{name}`; the recipe's picture and tables"
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
        "decoding": "Results: an answer's time and memory",
        "formats": "Log: formats of a chain of thought",
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
