"""Turn a finished run into a shipped checkpoint: weights, measured scores, and the card that tells them.

python checkpoints/ship.py runs/laptop-add-0 laptop-add [--sizes 8 16 32] [--instances 1024] [--stress 64]
python checkpoints/ship.py checkpoints/laptop-add                      (the card alone, from the results beside it)
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentloop.evaluate.certify import certify, worst_lookups
from latentloop.evaluate.generalization import evaluate_sizes
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.stress import stress
from latentloop.files import read_json, write_json, writing
from latentloop.provenance import provenance
from latentloop.report.card import model_card
from latentloop.task.splits import TEST_INSTANCES, TEST_SIZES
from latentloop.train.checkpoint import METRICS

RESULTS = ("evaluation", "certificate", "stress")
LARGE = {256: 128, 512: 64, 1024: 32}
"""Problems of each larger size, for models that know enough names; the average is of the sizes up to 128."""


def main() -> None:
    """Measure and write, or write the card alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--sizes", type=int, nargs="+", default=TEST_SIZES)
    parser.add_argument("--instances", type=int, default=TEST_INSTANCES)
    parser.add_argument("--stress", type=int, default=64)
    asked = parser.parse_args()
    if asked.name is None:
        write_card(asked.run, asked.run.name)
        return
    final = Path(__file__).parent / asked.name
    folder = final.with_name(f".{asked.name}.part")
    shutil.rmtree(folder, ignore_errors=True)
    trained = LatentLoop.from_pretrained(asked.run / "last")
    trained.save_pretrained(folder)
    measure(trained, folder, asked.sizes, asked.instances, asked.stress)
    write_card(folder, asked.name)
    shutil.rmtree(final, ignore_errors=True)
    folder.rename(final)


def measure(trained: LatentLoop, folder: Path, sizes: Sequence[int], instances: int, stressed: int) -> None:
    """Evaluate, certify and stress a model; each result is written as soon as it is there."""
    evaluation = evaluate_sizes(trained, sizes, instances)
    large = {nodes: min(count, instances) for nodes, count in LARGE.items() if nodes <= trained.run.task.names}
    for nodes, count in large.items():
        more = evaluate_sizes(trained, [nodes], count)
        evaluation["rows"] += more["rows"]
        evaluation["curves"] |= more["curves"]
    evaluation["settings"]["larger_sizes"] = large
    write_json(folder / "evaluation.json", evaluation)
    print(json.dumps([(row["nodes"], row["solved"]) for row in evaluation["rows"]]), flush=True)
    about: dict[str, Any] = {"model": trained.describe(), "provenance": provenance()}
    sizes = [certify(trained, nodes) for nodes in (32, 128, *large) if nodes <= 1024]
    certificate = {"sizes": sizes, "worst_lookups": worst_lookups(trained)} | about
    write_json(folder / "certificate.json", certificate)
    print([(size["entries"], len(size["wrong"])) for size in certificate["sizes"]], flush=True)
    trouble = {"rows": list(stress(trained, 128, stressed))} | about
    write_json(folder / "stress.json", trouble)
    print([(row["scenario"], row["solved"]) for row in trouble["rows"]], flush=True)


def write_card(folder: Path, name: str) -> None:
    """Write the card from the results in a folder."""
    evaluation, certificate, trouble = (read_json(folder / f"{kind}.json") for kind in RESULTS)
    with writing(folder / "README.md") as file:
        file.write(model_card(name, read_json(folder / METRICS), evaluation, certificate, trouble))


if __name__ == "__main__":
    main()
