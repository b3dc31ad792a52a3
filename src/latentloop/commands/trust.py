"""How far a checkpoint can be trusted: certify, stress."""

import sys
from pathlib import Path
from typing import Any

from latentloop.commands.models import DEFAULT, Asked, result_path
from latentloop.commands.terminal import Json, errors, print_json, progress
from latentloop.commands.terminal import output as standard_output
from latentloop.evaluate.certify import certify as certify_size
from latentloop.evaluate.certify import check_probes, patterns
from latentloop.evaluate.stress import scenarios
from latentloop.evaluate.stress import stress as stress_model
from latentloop.files import check_writable, write_json
from latentloop.provenance import provenance
from latentloop.report.console import certificate_table, stress_table, verdict


def certify(
    model: Asked = DEFAULT,
    *,
    sizes: tuple[int, ...] = (32, 128),
    output: Path | None = None,
    json: Json = False,
) -> None:
    """Check the arithmetic exhaustively: every value combination of every equation, inside real problems.

    Exits with 1 if any entry is wrong.

    Args:
        model: Which model to ask, and where it runs.
        sizes: Nodes of the problems that the probed equations stand in.
        output: Where the certificate goes, as .json. Default: in results/, named after weights and settings.
        json: Print one JSON document on standard output, and nothing else there.
    """
    loop = model.load()
    check_probes(loop, sizes)
    path = result_path(output, loop, "certificate", {"sizes": sizes})
    check_writable(path)
    total = len(sizes) * sum(len(probe.values) for probe in patterns(loop.run.task))
    with progress("entries", total) as advance:
        found = [certify_size(loop, nodes, advance=advance) for nodes in sizes]
    document = {"sizes": found, "model": loop.describe(), "provenance": provenance()}
    _keep(document, path)
    if json:
        print_json(document)
    else:
        out = standard_output()
        out.print(certificate_table(document))
        out.print(verdict(document))
    if any(size["wrong"] for size in found):
        sys.exit(1)


def stress(
    model: Asked = DEFAULT,
    *,
    nodes: int = 128,
    instances: int = 64,
    skip: int = 0,
    output: Path | None = None,
    json: Json = False,
) -> None:
    """Try a model where it was not trained: wrong states, other shapes, larger graphs, four times the time it needs.

    Args:
        model: Which model to ask, and where it runs.
        nodes: Nodes of the problems.
        instances: Problems of each kind, the first of the published ones; fewer of the larger ones.
        skip: Leave out so many of them first, for figures on problems that nobody has looked at.
        output: Where the table goes, as .json. Default: in results/, named after weights and settings.
        json: Print one JSON document on standard output, and nothing else there.
    """
    loop = model.load()
    settings = {"nodes": nodes, "instances": instances, "skip": skip}
    path = result_path(output, loop, "stress", settings)
    check_writable(path)
    total = sum(scenario.instances for scenario in scenarios(loop, nodes, instances))
    with progress("problems", total) as advance:
        rows = list(stress_model(loop, nodes, instances, skip=skip, advance=advance))
    document = {"rows": rows, "settings": settings, "model": loop.describe(), "provenance": provenance()}
    _keep(document, path)
    if json:
        print_json(document)
    else:
        standard_output().print(stress_table(document))


def _keep(document: dict[str, Any], path: Path) -> None:
    write_json(path, document)
    errors.print(f"wrote {path}")
