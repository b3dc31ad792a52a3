"""Turn seed 0 of a record into a shipped checkpoint: weights, measured scores, and the card that tells them.

python checkpoints/ship.py laptop-add                     (after `python benchmarks/record.py laptop-add`)
python checkpoints/ship.py checkpoints/laptop-add         (the card alone, from the results beside it)
"""

import argparse
import shutil
from pathlib import Path

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json, write_json, writing
from latentloop.report.card import model_card
from latentloop.train.checkpoint import METRICS

ROOT = Path(__file__).parent.parent
RESULTS = ("evaluation", "certificate", "stress")


def main() -> None:
    """Ship a model, or write the card alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", type=Path)
    asked = parser.parse_args()
    if asked.name.is_dir():
        write_card(asked.name, asked.name.name)
        return
    name = asked.name.name
    final = Path(__file__).parent / name
    folder = final.with_name(f".{name}.part")
    shutil.rmtree(folder, ignore_errors=True)
    found = read_json(ROOT / "benchmarks" / "results" / f"{name}-seed0.json")
    trained = LatentLoop.from_pretrained(ROOT / "runs" / f"record-{name}-0" / "last")
    trained.checkpoint.metrics.update(found["training"])
    trained.save_pretrained(folder)
    about = {"model": found["model"], "provenance": found["provenance"]}
    settings = {"sizes": [row["nodes"] for row in found["rows"]], "skip": found["skip"]}
    write_json(folder / "evaluation.json", {"rows": found["rows"], "settings": settings} | about)
    write_json(folder / "certificate.json", {"sizes": found["sizes"], "worst_lookups": found["worst_lookups"]} | about)
    write_json(folder / "stress.json", {"rows": found["stress"]} | about)
    write_card(folder, name)
    shutil.rmtree(final, ignore_errors=True)
    folder.rename(final)


def write_card(folder: Path, name: str) -> None:
    """Write the card from the results in a folder."""
    evaluation, certificate, trouble = (read_json(folder / f"{kind}.json") for kind in RESULTS)
    with writing(folder / "README.md") as file:
        file.write(model_card(name, read_json(folder / METRICS), evaluation, certificate, trouble))


if __name__ == "__main__":
    main()
