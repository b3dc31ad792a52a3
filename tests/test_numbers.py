"""Every measured number in README, docs and cards is that of a stored result; a digit that differs fails."""

import importlib.util
import re
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
from PIL import Image

from latentloop.files import read_json
from latentloop.interpret.study import read_study
from latentloop.report.card import model_card
from latentloop.report.ladder import FIGURES, fingerprint, missing

ROOT = Path(__file__).parent.parent
NUMBERS = tomllib.loads((ROOT / "docs" / "numbers.toml").read_text())
NOT_PROSE = re.compile(
    r"<!-- built: \w+ -->.*?<!-- end -->"  # built tables, compared whole
    r"|^```.*?^```"  # code, which other tests run
    r"|^    .*?$"
    r"|`[^`\n]+`"  # settings, names and commands
    r"|\]\([^)]*\)"  # where links go
    r"|^#.*?$",
    re.S | re.M,
)
NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*(?:e-?\d+)?")


def _load_build():
    sys.path.append(str(ROOT / "docs"))  # as when the file is run
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = _load_build()
SOURCES = BUILD.sources()


def _words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("page", BUILD.PAGES)
def test_built_tables_are_up_to_date(page):
    text = (ROOT / page).read_text()
    assert BUILD.built(text, SOURCES) == text, f"{page} differs from stored results: run python docs/build.py"


def test_every_study_has_its_page_and_its_column():
    pages = BUILD.study_pages(SOURCES)
    assert pages.keys() == {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/studies/*/verdicts.md")}
    for page, text in pages.items():
        assert (ROOT / page).read_text() == text, f"{page} differs from stored results: run python docs/build.py"
    heads = BUILD.TABLES["statements"](SOURCES).splitlines()[0]
    assert all(f"(studies/{name}/verdicts.md)" in heads for name in SOURCES["studies"])


@pytest.mark.parametrize("name", SOURCES["studies"])
def test_verdicts_are_those_of_the_stored_results(name):
    study = read_study(ROOT / "docs" / "studies" / name)
    stored = SOURCES["studies"][name]
    assert [asdict(claim) for claim in study.claims] == stored["claims"], "run python docs/build.py"
    assert study.circuit == stored["circuit"]


def test_a_table_of_many_models_stays_narrow():
    claims = SOURCES["studies"]["laptop-all"]["claims"]
    changed = [claim | {"name": "another", "statement": "Another"} for claim in claims[:1]]
    studies = {f"model-{number}": {"circuit": "none: so", "claims": claims} for number in range(9)}
    studies["model-9"] = {"circuit": "none: so", "claims": [*claims, *changed]}
    head, _, circuit, *lines = BUILD.TABLES["statements"]({"studies": studies}).splitlines()
    assert [line.count("|") for line in (head, circuit, *lines)] == [13] * (len(claims) + 3)
    cells = [cell.strip() for line in lines for cell in line.split("|")[3:-1]]
    assert max(map(len, cells)) <= 20
    assert {cell.split()[0] for cell in cells} == {"**yes**", "no", "-", "not"}
    assert cells[-10:-1] == ["not judged"] * 9  # a statement that one study alone has


@pytest.mark.parametrize("page", NUMBERS["measured"])
def test_measured_numbers_are_those_of_stored_results(page):
    text = _words((ROOT / page).read_text())
    for phrase in NUMBERS["measured"][page]:
        assert _words(phrase.format(**SOURCES)) in text, f"{page} does not say: {phrase.format(**SOURCES)}"


@pytest.mark.parametrize("page", NUMBERS["measured"])
def test_no_number_comes_from_nowhere(page):
    text = (ROOT / page).read_text()
    prose = _words(NOT_PROSE.sub(lambda code: "`" if code[0].startswith("`") else " ", text))
    for phrase in NUMBERS["measured"][page]:
        spoken = re.sub(r"`[^`]+`", "`", phrase.format(**SOURCES))
        prose = prose.replace(_words(spoken), " * ")
    for constant in NUMBERS["constant"].get(page, []):
        prose, times = re.subn(constant, " * ", prose)
        assert times, f"docs/numbers.toml has a constant that {page} does not: {constant}"
    left = [prose[max(0, found.start() - 40) : found.end() + 30] for found in NUMBER.finditer(prose)]
    assert not left, f"{page} has numbers that are in no stored result and no constant: {left}"


@pytest.mark.parametrize("name", BUILD.MODELS)
def test_cards_are_what_their_results_say(name):
    folder = ROOT / "checkpoints" / name
    stored = [read_json(folder / f"{kind}.json") for kind in ("metrics", "evaluation", "certificate", "stress")]
    card = model_card(name, *stored)
    assert (folder / "README.md").read_text() == card, f"run python checkpoints/ship.py checkpoints/{name}"


@pytest.mark.parametrize("name", BUILD.MODELS)
def test_seed_0_is_what_is_shipped_and_problems_were_fresh(name):
    assert SOURCES[f"{name}-seed0"]["model"]["sha256"] == SOURCES[name]["evaluation"]["model"]["sha256"]
    assert all(run["skip"] >= 4096 for run in BUILD.seeds_of(SOURCES, name))


def test_the_pages_engine_was_compared_on_the_shipped_weights():
    for model in SOURCES["explorer"]["compared"]["models"]:
        assert sum(row["problems"] for row in model["rows"]) >= 1000
        assert all(row["same"] == row["problems"] for row in model["rows"])
        shipped = SOURCES[model["name"]]["evaluation"]["model"]["sha256"]
        assert model["sha256"] == shipped, f"{model['name']} has new weights: run python benchmarks/explorer.py"


def test_the_large_problems_were_solved_by_the_shipped_weights():
    assert SOURCES["large"]["model"]["sha256"] == SOURCES[BUILD.MODELS[-1]]["evaluation"]["model"]["sha256"]


def test_the_picture_of_the_result_renders(tmp_path):
    models = BUILD.pictured(SOURCES)
    figure = BUILD.results_figure(models)
    figure.savefig(tmp_path / "results.png")
    lines = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata()) > 2]
    assert len(figure.axes) == len(BUILD.MODELS)
    assert max(x for line in lines for x in line.get_xdata()) == 4096
    assert BUILD.PICTURE.stat().st_size > 10_000


def test_pictures_are_drawn_from_what_is_stored():
    results = SOURCES["experiments"]
    for name in FIGURES:
        picture = BUILD.IMAGES / f"{name}.png"
        assert picture.is_file() or missing(name, results), f"{name} is not drawn: run python docs/build.py"
        if picture.is_file():
            source = Image.open(picture).info["Description"]
            assert source == fingerprint(name, results), f"{picture.name} is of other results: run python docs/build.py"


def test_a_changed_digit_is_found():
    assert NUMBER.findall("at 1,024 nodes 7.8e-06 and 99.9% of local-L2H8D128") == ["1,024", "7.8e-06", "99.9"]
    changed = {**SOURCES, "engine": {"iteration_cost": {"exponent": 9.87}}}
    (phrase,) = NUMBERS["measured"]["docs/engine.md"]
    assert phrase.format(**changed) not in _words((ROOT / "docs" / "engine.md").read_text())


def test_both_engines_were_compared_on_the_shipped_weights():
    found = SOURCES["engines"]
    assert found["total"]["problems"] >= 10_000
    assert found["total"]["problems_that_differ"] == 0
    for name in BUILD.MODELS:
        shipped = SOURCES[name]["evaluation"]["model"]["sha256"]
        assert found["checkpoints"][name]["sha256"] == shipped, (
            f"{name} has new weights: run python benchmarks/engines.py"
        )
