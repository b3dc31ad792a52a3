"""The whole study: it finds the circuits that were built in, finds none in random weights, and keeps what it has found."""

import inspect
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
from numpy import ndarray

from handmade import HEADS, TASK, handmade
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json, write_json
from latentloop.interpret import attribution, errors, iterations
from latentloop.interpret.claims import STATEMENTS, circuit_of, judge
from latentloop.interpret.groups import OTHERS
from latentloop.interpret.registry import ANALYSES, settings_read
from latentloop.interpret.results import load
from latentloop.interpret.study import analysis_key, interpret, judge_again, model_file, read_study
from latentloop.interpret.subject import SIZE_READS, Settings, Subject, find_size
from latentloop.report.charts import plotly
from latentloop.report.diagram import Diagram
from latentloop.report.page import TRACES
from latentloop.report.study import study_charts, study_page, write_report
from latentloop.task.oracle import solve
from latentloop.task.splits import published_problems

ROOT = Path(__file__).parents[2]
SMALL = Settings(scenes=1, instances=4, rollouts=24, pairs=6, samples=160)
CIRCUIT = ("circuits", "ablation", "errors", "sharpness")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Studies of both handmade circuits, of the paper's with more heads than it needs, and of random weights."""
    found = {}
    crowded = {"crowded": True, "pinned": False}
    for name, made in (("names", {}), ("values", {}), ("random", {"random": True}), ("crowded", crowded)):
        folder = found[name] = tmp_path_factory.mktemp(name)
        trained = handmade("values" if name == "values" else "names", **made)
        model_file(folder, trained.describe() | {"checkpoint": f"handmade {name}"})
        interpret(trained, folder, SMALL, only=CIRCUIT if name == "crowded" else ())
    return found


def verdicts(folder):
    return {claim.name: claim.verdict for claim in read_study(folder).claims}


def test_the_papers_circuit_is_found(folders):
    study = read_study(folders["names"])
    first, last = study.results["heads"].layers
    assert first.groups(looks_up=True) == {
        "name of VAR0": [0],
        "name of VAR1": [1],
        "name of VAR2": [2],
        "literal": [3],
    }
    assert last.groups(looks_up=False) == {
        "value of VAR0": [0],
        "value of VAR1": [1],
        "value of VAR2": [2],
        "others": [3],
    }
    assert study.circuit.startswith("names first")
    copied = {(group.layer, group.group): group.copied for group in study.results["circuits"].groups}
    assert copied[0, "name of VAR1"] == "variable"
    assert copied[0, "literal"] == copied[1, "value of VAR1"] == "value"
    flow = study.results["flow"]
    assert flow.attention["name"][0, :, -1].tolist() == [1, 1, 1]
    assert flow.attention["value"][0].max() == 0  # the first layer brings no value anywhere
    assert flow.attention["value"][1, :, -1].tolist() == [1, 1, 1]
    assert all(group.moved == 1 for group in flow.groups)
    two = next(one for one in study.results["sinks"].maps if one.layer == 0 and one.operands == 2)
    assert two.at_rhs[0] == "; 1.00"  # the head of VAR0 falls back to the separator
    assert study.results["residual"].change[0].max() == 0
    assert study.results["embeddings"].circulant["weights"] == 0  # a direction for each value: no circle
    assert study.results["embeddings"].main.explained > 0.99
    found = study.results["errors"]
    assert sum(found.counts.values()) == sum(found.weights_counts.values()) == 0
    assert found.weights_cosine.sum() == found.cosine.sum()
    assert found.below("weights_cosine") == 0
    held = {name for name, verdict in verdicts(folders["names"]).items() if verdict == "supported"}
    assert held == {
        "names",
        "name groups",
        "value groups",
        "gather",
        "first MLP",
        "orthogonal",
        "empty",
        "sums",
        "alone",
        "groups",
        "sinks",
        "length",
        "correction",
    }


def test_the_papers_circuit_is_found_among_other_heads(folders):
    """Two heads for each operand, one that is louder than all of them, one that mixes operands, names that are not pinned."""
    study = read_study(folders["crowded"])
    first, last = study.results["heads"].layers
    pairs = {"VAR0": [0, 4], "VAR1": [1, 5], "VAR2": [2, 6]}
    assert first.groups(looks_up=True) == {f"name of {place}": heads for place, heads in pairs.items()} | {
        "name of RHS": [7],
        "literal": [3],
    }
    assert first.norm[0, 7] > 50 * first.norm[0, 0]
    assert last.groups(looks_up=False) == {f"value of {place}": heads for place, heads in pairs.items()} | {
        "values, shared": [7],
        "others": [3],
    }
    assert 0.02 < last.shared_by_operand.max() <= 0.1
    assert study.circuit.startswith("names first")
    found = study.results["embeddings"]
    assert found.heads == list(pairs.values())
    assert found.similarity is not None
    assert study.results["errors"].circuit == "names"
    assert study.results["errors"].below("cosine") == 0
    sharp = study.results["sharpness"]
    for link, layer in (("name", 0), ("value", 1)):
        assert max(sharp.links[link][layer]) < 0.01
        assert min(sharp.weights[link][layer]) > 0.99
    # The head that mixes is not needed, nor is the vector of what is empty: a right-hand side that is not pinned stays empty.
    wanted = verdicts(folders["names"]) | {"groups": "not supported", "empty": "not supported"}
    given = {name: verdict for name, verdict in verdicts(folders["crowded"]).items() if verdict != "not computed"}
    assert given.items() <= wanted.items()
    assert given.keys() >= {"names", "name groups", "value groups", "gather", "orthogonal", "groups", "length"}


def test_names_that_heads_mix_are_found_by_what_moves_answers(folders):
    """Heads that bring several names have no group of their own, and the circuit is the paper's all the same."""
    study = read_study(folders["names"])
    heads = study.results["heads"]
    ratio = heads.layers[0].by_name.copy()
    ratio[1, -1] = ratio[0, -1]  # as if every head of VAR0 brought the name of VAR1 too
    groups = heads.layers[0].names_at_rhs | {"VAR0": [], "VAR1": [], OTHERS: [0, 1, 3]}
    variance = heads.layers[0].name_variance.copy()
    variance[1] = variance[0]
    first = replace(heads.layers[0], by_name=ratio, name_variance=variance, names_at_rhs=groups)
    assert first.names_shared == [0]
    mixed = study.results | {"heads": replace(heads, layers=[first, heads.layers[1]])}
    claims = {claim.name: claim.verdict for claim in judge(mixed, {})}
    assert claims["names"] == "supported"
    assert claims["name groups"] == "not supported"
    assert circuit_of(judge(mixed, {})).startswith("names first")
    subject = Subject(trained=handmade("names"), size=study.size, settings=SMALL)
    result = errors.analyze(subject, mixed["heads"], study.results["flow"], study.results["embeddings"])
    assert sum(result.counts.values()) == 0  # the head that attends most counts
    assert result.below("attention") == 0


def test_the_other_circuit_is_found(folders):
    study = read_study(folders["values"])
    first, last = study.results["heads"].layers
    assert first.lookups == [0]
    assert first.lookup_share.tolist() == [1]
    assert all(group.moved == 1 for group in study.results["flow"].groups)
    sharp = study.results["sharpness"]
    assert max(sharp.links["look-up"][0]) < 0.01
    assert min(sharp.weights["look-up"][0]) > 0.99
    assert sharp.links["value"][1] is None  # the last layer's window ends before
    assert [last.values_at_rhs[place] for place in ("VAR0", "VAR1", "VAR2")] == [[0], [1], [2]]
    assert study.circuit.startswith("values first")
    flow = study.results["flow"]
    for which, place in enumerate(("VAR0", "VAR1", "VAR2")):
        moved = flow.attention["value"][0, which]
        assert moved[flow.positions.index(place)] == 1
        assert moved.sum() == 1  # and nowhere else
    found = verdicts(folders["values"])
    held = {name for name, verdict in found.items() if verdict == "supported"}
    assert held == {
        "value groups",
        "lookup",
        "gather",
        "orthogonal",
        "empty",
        "sums",
        "alone",
        "groups",
        "sinks",
        "length",
        "correction",
    }
    assert found["first MLP"] == found["differences"] == found["state"] == "does not apply"


def test_what_right_values_are_computed_from_is_recognized_whatever_the_operations():
    """New-value embeddings are those of an equation's own operations: else differences and products would seem broken."""
    trained = LatentLoop.from_pretrained("laptop-all")
    settings = replace(SMALL, samples=320)
    size = replace(find_size(trained, replace(settings, rollouts=1)), nodes=16)
    subject = Subject(trained=trained, size=size, settings=settings)
    known = {}
    for name in ("heads", "flow", "embeddings"):
        known[name] = ANALYSES[name].run(subject, known)
    values, found = known["embeddings"], ANALYSES["errors"].run(subject, known)
    assert list(values.measured)[:2] == ["+ +", "+ -"]
    assert len(values.measured) == 9 + 3 + 1
    right = found.cosine[
        0, :2, 1
    ]  # VAR2 has equations of one operand too, where the window reaches into the one before
    assert right[:, found.cosine_edges[:-1] >= attribution.COSINE - 1e-9].sum() / right.sum() > 0.95
    assert values.similarity.shape == (75, 75)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_value_patched_between_iterations_keeps_its_name(pinned):
    trained = handmade("values", pinned=pinned)  # where it is not pinned, the vector decides on the name too
    size = find_size(trained, SMALL)
    assert (size.nodes, size.solved) == (12, 1)
    found = iterations.analyze(Subject(trained=trained, size=size, settings=SMALL))
    assert found.patched == SMALL.rollouts
    assert (found.taken, found.follow, found.restored) == (1, 1, 1)
    assert found.unmoved == found.kept == 0


def test_sums_are_on_the_diagonal_and_need_it(folders):
    (pattern,) = read_study(folders["names"]).results["fourier"].patterns
    assert pattern.right == 1
    shares = [site.diagonal for site in pattern.sites]
    assert shares[0] < 0.01
    assert min(shares[-2:]) > 0.99
    assert pattern.without.solved_without.tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert pattern.without.solved_only == pattern.without.solved == 1
    assert pattern.without.triples_strongest[-1] == pattern.without.triples_random[-1] == 1


def test_verdicts_are_given_anew_without_the_model(folders):
    folder = folders["values"]
    assert not judge_again(folder)  # nothing has changed: the file stays as it is
    path = folder / "verdicts.json"
    stored = read_json(path)
    write_json(path, stored | {"claims": stored["claims"][1:]})
    assert judge_again(folder)
    assert read_json(path)["claims"] == stored["claims"]


def test_verdicts_are_on_all_that_is_stored_of_these_weights(folders, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(folders["values"], folder)
    before = verdicts(folder)
    interpret(handmade("values"), folder, SMALL, only=["recompute"])
    assert verdicts(folder) == before
    assert read_json(folder / "verdicts.json")["left_out"] == []
    stored = read_json(folder / "heads.json")
    write_json(folder / "heads.json", stored | {"key": stored["key"] | {"weights": "others"}})
    study = read_study(folder)
    assert study.left_out == ["heads (of other weights)"]
    found = verdicts(folder)
    changed = {name for name in found if found[name] != before[name]}
    assert changed == {name for name, row in STATEMENTS.items() if "heads" in row.needs}
    assert {found[name] for name in changed} == {"not computed"}
    assert "heads (of other weights)" in study_page(study, study_charts(study), {}, {}).intro
    (folder / "verdicts.json").unlink()
    with pytest.raises(UserError, match="results of 2 models"):
        read_study(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda stored: stored | {"key": {}}, "damaged"),
        (lambda stored: stored | {"result": None, "arrays": 3}, "damaged"),
        (lambda stored: [], "damaged"),
        (lambda stored: stored | {"key": stored["key"] | {"version": 1}}, "of another version"),
        (lambda stored: stored | {"key": stored["key"] | {"needs": {"heads": 1}}}, "of another version"),
    ],
)
def test_what_is_damaged_or_outdated_is_not_used_and_is_named(folders, tmp_path, change, why):
    folder = tmp_path / "copy"
    shutil.copytree(folders["values"], folder)
    write_report(folder)
    (folder / "mine.png").write_bytes(b"\x89PNG")  # somebody else's
    write_json(folder / "flow.json", change(read_json(folder / "flow.json")))
    study = read_study(folder)
    assert study.left_out == [f"flow ({why})"]
    assert {claim.verdict for claim in study.claims if "flow" in STATEMENTS[claim.name].needs} == {"not computed"}
    write_report(folder)
    assert f"flow ({why})" in (folder / "report.html").read_text()
    left = {path.name for path in folder.glob("*.png")}
    assert "mine.png" in left
    assert not left & {"flow.png", "flow-groups.png", "circuit.png"}
    assert "heads-names.png" in left


def test_a_result_is_kept_where_the_settings_it_depends_on_are():
    changed = replace(SMALL, instances=5)
    differ = {name for name in ANALYSES if analysis_key(name, "", SMALL) != analysis_key(name, "", changed)}
    assert differ == {"errors"}  # so that --full computes nothing else again
    for name, row in ANALYSES.items():
        module = inspect.getmodule(row.kind)
        assert module is not None
        assert set(re.findall(r"settings\.(\w+)", inspect.getsource(module))) <= settings_read(name)
    assert set(re.findall(r"settings\.(\w+)", inspect.getsource(find_size))) <= set(SIZE_READS)


def test_random_weights_support_nothing(folders):
    found = verdicts(folders["random"])
    assert set(found.values()) <= {"not supported", "does not apply"}
    assert list(found.values()).count("not supported") >= 10
    assert read_study(folders["random"]).circuit == "none of the known circuits"


def test_states_that_repeat_are_counted_at_every_iteration(folders):
    found = read_study(folders["names"]).results["errors"]
    problems = published_problems(TASK, found.nodes, found.instances)
    depths = solve(problems).depths
    assert found.checked == depths[problems.exists].sum()  # a value of depth d is to be computed at iterations 1 to d
    iterations = int(depths.max()) + attribution.BEYOND
    assert found.cosine.sum() == problems.fan_in.sum() * iterations


def test_what_is_stored_is_not_computed_again(folders, tmp_path):
    folder = folders["values"]
    heard = []
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    study = interpret(handmade("values"), folder, SMALL, told=lambda name, how: heard.append((name, how)))
    assert [how for name, how in heard if name != "size"] == ["kept"] * len(ANALYSES)
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert {name for name in before if before[name] != after[name]} == {"verdicts.json"}
    assert {claim.name for claim in study.claims} == set(STATEMENTS)
    # A damaged file, and another settings' result, are not taken for this one.
    heads = folder / "heads.json"
    key = read_json(heads)["key"]
    kind = ANALYSES["heads"].kind
    assert load(folder, "heads", kind, key) is not None
    assert load(folder, "heads", kind, key | {"settings": {}}) is None
    damaged = tmp_path / "heads.json"
    damaged.write_text(heads.read_text()[:-40])
    assert load(tmp_path, "heads", kind) is None


def test_an_analysis_in_parts_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "PART", 2)
    trained, settings = handmade("names"), replace(SMALL, instances=5)
    heard, skipped, analyze = [], [], errors.analyze

    def cut_off(subject, *needed):
        skipped.append(subject.skip)
        if subject.skip == 2 and skipped.count(2) == 1:
            raise KeyboardInterrupt
        return analyze(subject, *needed)

    def study(folder):
        return interpret(
            trained, folder, settings, only=["errors"], told=lambda name, how: heard.append(f"{name}: {how}")
        )

    monkeypatch.setattr(errors, "analyze", cut_off)
    with pytest.raises(KeyboardInterrupt):
        study(tmp_path / "parts")
    assert (tmp_path / "parts" / "errors-0.json").is_file()
    found = study(tmp_path / "parts").results["errors"]
    assert skipped == [0, 2, 2, 4]
    assert heard[-4:] == [
        "errors: running",
        "errors: running, 2 of 3 parts are done",
        "errors: running, 3 of 3 parts are done",
        "errors: done",
    ]
    assert not list((tmp_path / "parts").glob("errors-*"))
    assert found.instances == 5


def test_results_come_back_as_they_were(folders):
    for name, one in read_study(folders["names"]).stored.items():
        assert isinstance(one.result, ANALYSES[name].kind)
        for field in fields(one.result):
            value = getattr(one.result, field.name)
            assert value is None or not isinstance(value, dict) or "shape" not in value
    heads = read_study(folders["names"]).results["heads"]
    assert isinstance(heads.layers[0].by_name, ndarray)
    assert heads.layers[0].by_name.shape == (4, 8, HEADS)


def test_every_figure_and_the_page_come_from_stored_results(folders):
    folder = folders["names"]
    charts = study_charts(read_study(folder))
    assert charts.keys() == ANALYSES.keys() | {"circuit"}
    diagram = charts["circuit"]["circuit"]
    assert isinstance(diagram, Diagram)
    shown = sorted(edge.label for edge in diagram.edges if edge.label)
    assert shown == ["MLP"] + 3 * ["name 100%"] + 3 * ["query"] + 3 * ["value 100%"]
    for figures in charts.values():
        for chart in figures.values():
            drawn = plotly(chart)
            assert {trace["type"] for trace in drawn["data"]} <= set(TRACES)
    page = write_report(folder)
    html = page.read_text()
    assert html.count('class="plot"') == sum(map(len, charts.values()))
    assert "names first" in html.lower()
    for name in (name for figures in charts.values() for name in figures):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
