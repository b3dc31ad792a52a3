"""What a figure shows can be told apart and read: looks, labels, axes that end where the data do, intervals."""

from collections import Counter
from itertools import accumulate

import pytest

from experiment_documents import document, documents, everything, with_steps
from latentloop.experiments import measure
from latentloop.experiments.jobs import Job
from latentloop.experiments.table import POINTS
from latentloop.report import ladder_methods
from latentloop.report.ladder import caption, draw
from latentloop.report.ladder_methods import problems_seen
from latentloop.report.palette import METHOD_LOOKS


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


@pytest.fixture(scope="module")
def laptop():
    with pytest.MonkeyPatch.context() as patch:
        with_steps(patch)
        return everything()


def _labels(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


@pytest.mark.parametrize("scale", ["laptop", "paper"])
@pytest.mark.parametrize("family", ["end-to-end", "cot", "latent"])
def test_architectures_are_told_apart(family, scale):
    (axes,) = draw(f"architectures-{family}", everything(scale), scale).axes
    looks = [
        (line.get_color(), line.get_marker(), line.get_linestyle(), line.get_markerfacecolor()) for line in axes.lines
    ]
    assert len(looks) > 3
    assert max(Counter(looks).values()) == 1


@pytest.mark.parametrize("name", ["bars-end-to-end", "bars-cot", "bars-latent"])
def test_every_bar_has_a_name_of_its_own(name, laptop):
    names = _labels(draw(name, laptop))
    assert len(names) > 10
    assert max(Counter(names).values()) == 1


def test_an_axis_ends_where_the_data_do():
    small = documents(feedforward=0.001, recurrent=0.002)
    (axes,) = draw("bars-end-to-end", small).axes
    assert axes.get_xlim()[1] < 1
    assert "(axis ends at 0.5)" in axes.get_xlabel()  # where the interval of 0.2 % ends
    assert "0.10" in {text.get_text() for text in axes.texts}
    (axes,) = draw("bars-end-to-end", documents(feedforward=0.001, recurrent=0.9)).axes
    assert axes.get_xlim()[1] > 100
    assert "ends" not in axes.get_xlabel()


def test_small_numbers_are_seen_beside_large_ones():
    results = documents(feedforward=0.001, recurrent_few_names=0.002, discrete=1.0)
    feedforward, recurrent, discrete = draw("best-per-encoding", results).axes
    assert feedforward.get_ylim()[1] < recurrent.get_ylim()[1] < 1
    assert discrete.get_ylim()[1] > 100
    for name in ("encodings-feedforward", "architectures-end-to-end"):
        (axes,) = draw(name, results).axes
        assert axes.get_ylim()[1] < 2
    end_to_end, latent = draw("lines-by-encoding", results).axes
    assert end_to_end.get_ylim()[1] < 1
    assert latent.get_ylim()[1] > 100


@pytest.mark.parametrize("name", ["curricula", "built-in"])
def test_markers_of_a_row_do_not_hide_each_other(name):
    axes = draw(name, documents(discrete=1.0, discrete_unaided=1.0, corrected=0.0, continuous=0.0)).axes[0]
    places = [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert len(places) > 2
    assert max(Counter(places).values()) == 1


def test_chains_without_equations_are_not_said_to_have_them_right():
    figure = draw("structure", documents(cot_value=0.0))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["all but numbers right", "all values right"]
    assert "Val writes none" in caption("structure")


def _bands(axes):
    """Return the height of every band."""
    return [
        (min(ys), max(ys))
        for band in axes.collections
        if (ys := [y for path in band.get_paths() for y in path.vertices[:, 1]])
    ]


def test_more_than_the_usual_budget_is_shown_where_iterations_are():
    results = documents(corrected=0.0, corrected_4x=1.0)
    axes = draw("allowed", results).axes[0]
    heights = {y for line in axes.lines for y in line.get_ydata()[:1]}
    assert heights == {0, 100}
    for name in ("halting", "iterations"):
        titles = [axes.get_title() for axes in draw(name, results).axes]
        assert [title.split("\n")[0] for title in titles[:2]] == ["corrected", "corrected, 4x"]


def test_figures_name_the_configuration_that_they_draw():
    results = documents(discrete={"solved": 0.9, "loss": 2.0}, discrete_rope={"solved": 0.1, "loss": 1.0})
    words = {text.get_text() for text in draw("compute", results).legends[0].get_texts()}
    assert {"discrete, RoPE", "its preset"} <= words
    assert draw("iterations", results).axes[0].get_title() == "discrete\nRoPE"
    assert draw("halting", results).axes[0].get_title() == "discrete\nlocal (ours)"
    assert "lowest validation loss" in {text.get_text() for text in draw("learning", results).legends[0].get_texts()}
    alone = draw("compute", documents(discrete={"solved": 0.9, "loss": 1.0}, stable=1.0))
    assert [text.get_text() for text in alone.legends[0].get_texts()] == ["discrete", "stable (ours)"]


def test_halting_rules_look_unlike_any_method():
    looks = {(look.color, look.marker) for look in ladder_methods.RULES.values()}
    assert len(looks) == len(ladder_methods.RULES)
    methods = METHOD_LOOKS.values()
    assert not {color for color, _ in looks} & {look.color for look in methods}
    assert not {marker for _, marker in looks} & {look.marker for look in methods}


def test_bands_are_intervals_of_problems():
    one = documents(corrected=0.0, corrected_4x=0.5)
    bands = _bands(draw("allowed", one).axes[0])
    assert bands[0] == pytest.approx((0, 5.7), abs=0.1)  # Wilson's, of 0 in 64: three equal seeds
    assert bands[1] == pytest.approx((36.6, 61.9), abs=0.1)  # the low end of 31 in 64, the high end of 32
    assert f"{measure.ALLOWED_PROBLEMS} problems of each size" in caption("allowed")
    for name in ("halting", "iterations"):
        three, longer = (_bands(axes) for axes in draw(name, one).axes[:2])
        assert 0 < three[0][1] < 2
        assert longer[0][0] < 49
        assert longer[0][1] > 51


def test_the_axis_of_problems_counts_larger_batches():
    run = POINTS["discrete-plain-long"].run
    batches = [run.distribution_at(step).batch for step in range(run.train.steps)]
    seen = list(accumulate(batches))
    steps = [1, 40, 48, 200, 500, run.train.steps]
    training = {"steps": run.train.steps, "problems": run.problems, "curve": {"step": steps}}
    assert problems_seen(run.train.curriculum, training) == pytest.approx([seen[step - 1] for step in steps])
    assert seen[len(seen) // 2] > 0.7 * run.problems  # where steps are half of all
    assert problems_seen((), training)[3] == 200 / run.train.steps * run.problems


def test_a_learning_curve_is_drawn_against_problems():
    job = Job(point=POINTS["discrete-plain-long"], seed=0)
    result = document(job, 0.5)
    (axes,) = draw("plain", {job.name: result}).axes
    expected = problems_seen(result["labels"]["curriculum"], result["training"])
    assert list(axes.lines[0].get_xdata()) == [problems / 1000 for problems in expected]


def test_learning_curves_of_the_papers_scale_are_of_its_models():
    panels = draw("learning", everything("paper"), "paper").axes
    assert [len(axes.lines) for axes in panels[:7]] == [3] * 7  # a line for each seed, not the whole grid


def test_learning_curves_tell_curricula_apart(laptop):
    panel = next(axes for axes in draw("learning", laptop).axes if axes.get_title() == "discrete")
    assert len(panel.lines) == 3 + 1 + 1  # as in the comparison, without read-outs, plain
    assert "few names first" in {text.get_text() for text in draw("learning", laptop).legends[0].get_texts()}
