"""How far a checkpoint can be trusted: certify, stress."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from latentloop.commands.models import (
    DEFAULT,
    Asked,
    check_instances,
    expand_sizes,
    interrupted,
    result_path,
    stop,
    unfinished,
)
from latentloop.commands.terminal import Json, finished, print_json, progress, stderr
from latentloop.commands.terminal import output as standard_output
from latentloop.config import MAX_NODES
from latentloop.errors import UserError
from latentloop.files import check_writable, write_json
from latentloop.provenance import provenance

USUAL = (128, 64)
"""Nodes and problems of each scenario of a stress test ..."""
QUICK = (32, 2)
"""... and of a short one."""


def certify(
    model: Asked = DEFAULT,
    *,
    sizes: tuple[str, ...] = ("32", "128"),
    output: Path | None = None,
    json: Json = False,
) -> None:
    """Check the arithmetic exhaustively: every value combination of every equation, inside real problems.

    Where the first layer knows no positions, it also bounds look-ups: the least attention that the right definition can get,
    over every problem and every state. Exits with 1 if any entry is wrong. Every size is written when it is finished: after
    Ctrl-C, or a crash, the same command goes on with the others.

    Args:
        model: Which model to ask, and where it runs.
        sizes: Numbers of nodes of the problems that the probed equations stand in; "32 64 .. 128" goes on in equal steps.
        output: File for the certificate, .json. Default: in results/, named after model and settings.
        json: Print one JSON document on standard output, and nothing else there.
    """
    numbers = expand_sizes(sizes)
    from latentloop.evaluate.certify import certify as certify_size
    from latentloop.evaluate.certify import check_probes, patterns, worst_lookups
    from latentloop.report.console import certificate_table, verdict

    trained = model.load()
    check_probes(trained, numbers)
    settings = {"sizes": numbers}
    path = result_path(output, model, trained, "certificate", settings)
    model.refuse_overwriting([path])
    check_writable(path)
    earlier = unfinished(path, trained, settings)
    found = earlier["sizes"] if earlier else []
    description = {
        "worst_lookups": worst_lookups(trained),
        "settings": settings,
        "model": model.describe(trained),
        "provenance": provenance(),
    }

    def certified(advance: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        for nodes in numbers[len(found) :]:
            found.append(certify_size(trained, nodes, advance=advance))
            document = {"sizes": list(found)} | description
            if len(found) < len(numbers):
                document = interrupted(document)
            write_json(path, document)
            yield document

    entries = sum(len(probe.values) for probe in patterns(trained.run.task))
    with progress("entries", len(numbers) * entries) as advance:
        advance(len(found) * entries)
        documents, code = finished(certified(advance), [earlier] if earlier else [])
    document = documents[-1]
    stderr.print(f"wrote {path}")
    if json:
        print_json(document)
    else:
        out = standard_output()
        out.print(certificate_table(document))
        out.print(verdict(document))
    if code:
        stop(code, len(document["sizes"]), len(numbers), "sizes", "the same command goes on with the others")
    if any(size["wrong"] for size in document["sizes"]):
        sys.exit(1)


def stress(
    model: Asked = DEFAULT,
    *,
    quick: bool = False,
    nodes: int | None = None,
    instances: int | None = None,
    skip: int = 0,
    output: Path | None = None,
    json: Json = False,
) -> None:
    """Try a model where it was not trained: wrong states, other shapes, larger graphs, four times the iterations it needs.

    Ctrl-C and SIGTERM keep the scenarios that are finished.

    Args:
        model: Which model to ask, and where it runs.
        quick: A short test, of a few seconds without torch: 2 problems of 32 nodes of each kind, and no larger graphs.
        nodes: Number of nodes of the problems. Default: 128.
        instances: Problems of each kind: the first ones of the published list; fewer of larger graphs. Default: 64.
        skip: Leave out this many at the beginning of that list, to test on problems nobody has looked at.
        output: File for the results, .json. Default: in results/, named after model and settings.
        json: Print one JSON document on standard output, and nothing else there.
    """
    usual_nodes, usual_instances = QUICK if quick else USUAL
    nodes = usual_nodes if nodes is None else nodes
    instances = usual_instances if instances is None else instances
    if not 1 <= nodes <= MAX_NODES:
        raise UserError(f"--nodes must be 1 to {MAX_NODES}, got {nodes}")
    check_instances(instances, skip, nodes)
    from latentloop.evaluate.stress import scenarios
    from latentloop.evaluate.stress import stress as stress_model
    from latentloop.report.console import stress_table

    trained = model.load()
    settings = {"nodes": nodes, "instances": instances, "skip": skip} | ({"quick": True} if quick else {})
    path = result_path(output, model, trained, "stress", settings)
    model.refuse_overwriting([path])
    check_writable(path)
    all_scenarios = scenarios(trained, nodes, instances, larger=not quick)
    with progress("problems", sum(scenario.instances for scenario in all_scenarios)) as advance:
        tried = stress_model(trained, nodes, instances, skip=skip, larger=not quick, advance=advance)
        rows, code = finished(tried)
    document: dict[str, Any] = {
        "rows": rows,
        "settings": settings,
        "model": model.describe(trained),
        "provenance": provenance(),
    }
    if code:
        document["interrupted"] = True
    write_json(path, document)
    stderr.print(f"wrote {path}")
    if json:
        print_json(document)
    else:
        standard_output().print(stress_table(document))
    if code:
        stop(code, len(rows), len(all_scenarios), "scenarios", "the same command tries all of them")
