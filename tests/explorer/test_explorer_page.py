"""The page as a file: whole, small, and closed to the network."""

import json
import re
from pathlib import Path

from latentloop.explorer.page import ENGINE, STATIC, STYLES, TASK, VIEWS, build_page, policy, sources_hash
from latentloop.train.checkpoint import weights_hash

SHIPPED = Path(__file__).parents[2] / "docs" / "explore.html"
COMMAND = "latentloop explore laptop-all --output docs/explore.html --no-open"


def _data(page: str, name: str):
    (content,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)
    return json.loads(content)


def test_every_source_is_in_the_page_and_short():
    assert {path.name for path in STATIC.iterdir()} == {"index.html", *STYLES, *TASK, *ENGINE, *VIEWS}
    for path in STATIC.iterdir():
        assert len(path.read_text().splitlines()) <= 400, path.name


def test_sizes(laptop_add, laptop_all):
    assert len(build_page([laptop_add])) <= 3_000_000
    assert len(build_page([laptop_all])) <= 6_000_000


def test_nothing_in_a_title_or_problem_becomes_markup(laptop_add):
    evil = "</script><script>alert(1)</script>{{policy}}"
    page = build_page([laptop_add | {"title": evil}], problem=evil)
    assert "<script>alert" not in page
    assert _data(page, "opening") == {"problem": evil}
    assert _data(page, "models")[0]["title"] == evil


def test_the_policy_lets_nothing_in():
    rules = dict(rule.split(" ", 1) for rule in policy("program", "style").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert not any(word in " ".join(rules.values()) for word in ("unsafe", "http", "*", "'self'"))


def test_no_source_names_an_address_to_load():
    for path in STATIC.iterdir():
        for address in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", path.read_text()):
            assert address == "http://www.w3.org/2000/svg", f"{path.name}: {address}"


def test_the_shipped_page_is_up_to_date():
    page = SHIPPED.read_text("utf-8")
    assert len(page) <= 3_000_000
    assert f"sources {sources_hash()}" in page, f"static sources have changed: run {COMMAND}"
    (model,) = _data(page, "models")
    folder = Path(__file__).parents[2] / "checkpoints" / model["title"]
    assert model["sha256"] == weights_hash(folder), f"the weights have changed: run {COMMAND}"
