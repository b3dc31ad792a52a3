import itertools
import json

import pytest
import torch
from rich.console import Console

import latentloop
from clockwork import clockwork
from latentloop.commands.models import expand_sizes
from latentloop.config import TaskConfig
from latentloop.config.positions import AbsoluteConfig
from latentloop.errors import UserError
from latentloop.evaluate.generalization import evaluate_sizes, write_evaluation
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.solve import answer_lines
from latentloop.methods import METHODS
from latentloop.presets import preset
from latentloop.schema import changed
from latentloop.train.devices import make_fabric
from latentloop.train.loop import train

SUM = "20 = x7 ; 2 = x42 ; x7 + x42 = x23"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A short run of every method."""
    folder = tmp_path_factory.mktemp("runs")
    for name in METHODS:
        run = changed(preset(f"tiny-{name}"), steps=4)
        train(run, folder / name, make_fabric(run), resume=False, console=Console(quiet=True))
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_every_method_loads_answers_and_is_evaluated(runs, name):
    trained = latentloop.LatentLoop.from_pretrained(runs / name)
    answer = trained.solve(SUM)
    assert set(answer.values) == {"x7", "x42", "x23"}
    row = METHODS[name]
    own = "fixpoint" if row.adaptive else "fixed" if row.latent else "end"
    assert answer.halt in {"fixpoint": ["fixpoint", "cycle", "cap"], "fixed": ["fixed"], "end": ["end", "cap"]}[own]
    assert answer.trace[-1] == answer.values
    assert set(answer.trace[0].values()) == {None}
    document = evaluate_sizes(trained, [8, 12], 5)
    assert [row["nodes"] for row in document["rows"]] == [8, 12]
    assert all(row["problems"] == 5 for row in document["rows"])
    assert ("structure_right" in document["rows"][0]) == (name == "cot")
    assert document["approximate_fixpoint"] == (name == "continuous")
    assert document["settings"]["halt"] == own
    if own != "fixpoint":
        with pytest.raises(UserError, match="has one way to stop"):
            evaluate_sizes(trained, [8], 1, halt="depth")
    assert document["model"]["sha256"] == trained.sha256
    assert document["provenance"]["machine"]["cores"] >= 1


def test_evaluations_are_written_as_json_and_csv(runs, tmp_path):
    document = evaluate_sizes(LatentLoop.from_pretrained(runs / "discrete"), [8], 5)
    write_evaluation(document, tmp_path / "deep" / "v1.2")
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["v1.2.csv", "v1.2.json"]
    write_evaluation(document, tmp_path / "deep" / "evaluation.json")
    assert json.loads((tmp_path / "deep" / "evaluation.json").read_text())["rows"][0]["nodes"] == 8
    head, row = (tmp_path / "deep" / "evaluation.csv").read_text().splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["nodes"] == "8"


def test_hidden_methods_are_charged_only_for_iterations_that_ran(runs):
    trained = LatentLoop.from_pretrained(runs / "continuous")
    row = evaluate_sizes(trained, [16], 6, family="wide")["rows"][0]
    assert row["iterations"] <= 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cap": 0}, "cap must be at least 1, got 0"),
        ({"halt": "fixed", "iterations": -2}, "iterations must be at least 1, got -2"),
        ({"iterations": 3}, "goes with the rule 'fixed'"),
        ({"halt": "fixed"}, "needs a number of iterations"),
    ],
)
def test_settings_of_an_evaluation_that_mean_nothing_are_refused(runs, settings, message):
    with pytest.raises(UserError, match=message):
        evaluate_sizes(LatentLoop.from_pretrained(runs / "discrete"), [8], 1, **settings)


def test_impossible_devices_are_refused(runs):
    with pytest.raises(UserError, match="cannot use the device 'abacus'"):
        LatentLoop.from_pretrained(runs / "discrete", device="abacus")
    with pytest.raises(UserError, match="the cap must be 1 to"):
        LatentLoop.from_pretrained(runs / "discrete").solve(SUM, cap=-5)


def test_what_is_saved_are_the_present_weights(runs, tmp_path):
    trained = LatentLoop.from_pretrained(runs / "discrete")
    with torch.no_grad():
        trained.model.readouts["value"].bias += 1
    trained.save_pretrained(tmp_path / "saved")
    again = LatentLoop.from_pretrained(tmp_path / "saved")
    assert torch.equal(again.model.readouts["value"].bias, trained.model.readouts["value"].bias)


def test_one_problem_too_long_for_absolute_positions_does_not_stop_the_rest(tmp_path):
    run = preset("tiny-discrete")
    run = changed(run, positions=AbsoluteConfig(max_positions=70), steps=1)
    train(run, tmp_path / "run", make_fabric(run), resume=False, console=Console(quiet=True))
    trained = LatentLoop.from_pretrained(tmp_path / "run")
    texts = [SUM, " ; ".join(f"1 = x{i}" for i in range(40)), SUM]
    lines = [json.dumps({"id": i, "text": text}).encode() for i, text in enumerate(texts)]

    def solver(problems):
        return [answer.to_dict() for answer in trained.solve_problems(problems)]

    answers = list(answer_lines(lines, run.task, solver))
    assert ["error" in answer for answer in answers] == [False, True, False]
    assert "absolute positions for 70 tokens" in answers[1]["error"]


def test_saving_and_loading_gives_the_same_model(runs, tmp_path):
    trained = LatentLoop.from_pretrained(runs / "corrected")
    trained.save_pretrained(tmp_path / "saved")
    again = LatentLoop.from_pretrained(tmp_path / "saved")
    assert again.sha256 == trained.sha256
    assert again.run == trained.run
    assert again.solve(SUM) == trained.solve(SUM)
    assert "latentloop" in (tmp_path / "saved" / "README.md").read_text()
    assert not list((tmp_path / "saved").glob("*.bin"))


def test_pushing_uploads_what_was_saved(runs, monkeypatch):
    """The hub's own client up to the network: what it would upload is a checkpoint that loads."""
    from huggingface_hub import HfApi

    uploaded = {}

    def upload(self, *, folder_path, repo_id, **_):
        uploaded[repo_id] = LatentLoop.from_pretrained(folder_path).sha256
        return "done"

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: type("Repo", (), {"repo_id": repo_id}))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    trained = LatentLoop.from_pretrained(runs / "discrete")
    trained.push_to_hub("someone/model")
    assert uploaded == {"someone/model": trained.sha256}


def test_a_hub_id_is_downloaded_once_and_loaded(runs, monkeypatch):
    from latentloop.evaluate import hub
    from latentloop.train.checkpoint import find_checkpoint

    asked = []
    folder = str(find_checkpoint(runs / "discrete"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: asked.append(name) or folder)
    monkeypatch.setattr(hub, "_answers", lambda *_: True)
    assert LatentLoop.from_pretrained("someone/model").sha256 == LatentLoop.from_pretrained(runs / "discrete").sha256
    assert asked == ["someone/model"]


def test_solving_can_start_from_a_state_and_go_on_for_ever():
    trained = clockwork(TaskConfig())
    wrong = {"x7": 3, "x23": 11}
    answer = trained.solve(SUM, state=wrong)
    assert answer.trace[0] == {"x7": 3, "x42": None, "x23": 11}
    assert answer.trace[1] == {"x7": 20, "x42": 2, "x23": None}
    assert answer.correct
    states = list(itertools.islice(trained.iterate(SUM, state=wrong), 6))
    assert states[: answer.iterations] == answer.trace[1:]
    assert states[answer.iterations :] == [answer.values] * (6 - answer.iterations)
    for state, message in (({"x8": 1}, "gives x8, which is no variable"), ({"x7": 23}, "must be 0 to 22, or None")):
        with pytest.raises(UserError, match=message):
            trained.solve(SUM, state=state)


def test_problems_of_another_language_are_refused(runs):
    trained = LatentLoop.from_pretrained(runs / "discrete")
    with pytest.raises(UserError, match=r"unknown operator '\*'"):
        trained.solve("1 = x1 ; x1 * x1 = x2")
    with pytest.raises(UserError, match=r"not one of x0 \.\. x127"):
        trained.solve("1 = x500")
    with pytest.raises(UserError, match="129 nodes need as many distinct names"):
        evaluate_sizes(trained, [129], 1)


@pytest.mark.parametrize(
    ("words", "sizes"),
    [(["8", "16", "..", "40"], [8, 16, 24, 32, 40]), (["8"], [8]), (["4", "6", "...", "9", "20"], [4, 6, 8, 9, 20])],
)
def test_sizes_may_have_dots(words, sizes):
    assert expand_sizes(words) == sizes


@pytest.mark.parametrize("words", [[], ["x"], ["..", "8"], ["8", "16", ".."], ["0"], ["-8"]])
def test_sizes_that_mean_nothing_are_refused(words):
    with pytest.raises(UserError, match="such as 8 16"):
        expand_sizes(words)


def test_an_answer_prints_short_and_as_a_table_in_a_notebook():
    answer = clockwork(TaskConfig()).solve(SUM)
    assert repr(answer) == "Answer(x7=20, x42=2, x23=22; fixpoint after 3 iterations, correct)"
    table = answer._repr_html_()
    assert "<tr><th>x23</th><td></td><td></td><td>22</td><td>22</td></tr>" in table
    many = " ; ".join(f"{i % 23} = x{i}" for i in range(100))
    assert len(repr(clockwork(TaskConfig()).solve(many))) < 200


def test_what_a_chain_of_thought_model_writes_can_be_read_and_not_iterated(runs):
    trained = LatentLoop.from_pretrained(runs / "cot")
    answer = trained.solve(SUM)
    assert answer.tokens is not None
    assert len(answer.tokens.split()) == answer.iterations
    with pytest.raises(UserError, match="cot has no latent state"):
        next(trained.iterate(SUM))


@pytest.mark.parametrize("name", ["cot", "recurrent", "feedforward"])
def test_a_cap_is_for_methods_that_halt_at_a_fixed_point(runs, name):
    with pytest.raises(UserError, match=f"{name} stops by itself"):
        LatentLoop.from_pretrained(runs / name).solve(SUM, cap=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("laptop-al", "did you mean 'laptop-all'"),
        ("rns/discrete", "did you mean 'runs/discrete'"),
        ("runs/discret", "did you mean 'runs/discrete'"),
        ("runs/nothing-like-it", "expected a shipped name, a folder, or a hub id"),
        ("x" * 5000, "at most 1024 characters"),
    ],
)
def test_a_slip_is_never_sent_to_the_hub(name, message, tmp_path, monkeypatch):
    from latentloop.evaluate import hub

    def asked(*_):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(hub, "_answers", asked)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "discrete").mkdir(parents=True)
    with pytest.raises(UserError, match=message):
        LatentLoop.from_pretrained(name)


def test_a_device_that_cannot_compute_is_refused(runs):
    with pytest.raises(UserError, match="cannot use the device 'meta'"):
        LatentLoop.from_pretrained(runs / "discrete", device="meta")
