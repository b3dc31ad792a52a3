"""Every figure of the registry is drawn from results, whole or in part; letters are large enough, and none overlap."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from experiment_documents import another, documents, everything, with_steps
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.experiments import measure
from latentloop.experiments.claims import decide
from latentloop.experiments.jobs import EVALUATIONS, Evaluation, Job, Point
from latentloop.experiments.store import write_result
from latentloop.experiments.table import EXPERIMENTS
from latentloop.files import read_json
from latentloop.report.ladder import FIGURES, NothingStoredError, caption, draw, fingerprint, missing, names_at, redraw
from latentloop.report.palette import COLUMN, METHOD_LOOKS, PAGE, SMALLEST
from latentloop.train.log import read_log
from small_runs import go, quick


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


@pytest.fixture(scope="module")
def laptop():
    with pytest.MonkeyPatch.context() as patch:
        with_steps(patch)
        return everything()


def _letters(figure) -> list[Text]:
    """Return all text that is seen."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        if not axes.axison:
            continue
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        found += axes.get_legend().get_texts() if axes.get_legend() else []
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            ticks = zip(
                axis.get_ticklocs(), axis.get_ticklabels(), strict=False
            )  # no labels where another panel has them
            found += [label for place, label in ticks if low <= place <= high]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def _check_letters(figure):
    """Check that text is large enough, within the figure, and not on top of other text."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in _letters(figure)]
    assert len(boxes) > 5
    for text in _letters(figure):
        assert text.get_fontsize() >= SMALLEST, text.get_text()
    for words, box in boxes:
        assert box.x0 >= -1, words
        assert box.y0 >= -1, words
        assert box.x1 <= width + 1, words
        assert box.y1 <= height + 1, words
    for legend in [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]:
        box = legend.get_window_extent(canvas.get_renderer())
        assert box.x0 >= -1
        assert box.x1 <= width + 1
    for (one, first), (other, second) in combinations(boxes, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert across <= 1 or up <= 1.5, f"{one!r} and {other!r} overlap"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn(name, laptop):
    figure = draw(name, laptop)
    assert figure.get_figwidth() in (COLUMN, PAGE)
    assert not missing(name, laptop)
    _check_letters(figure)


@pytest.mark.parametrize(
    ("scale", "name"), [(scale, name) for scale in ("paper", "further") for name in names_at(scale)]
)
def test_a_figure_is_drawn_at_another_scale(scale, name):
    _check_letters(draw(name, everything(scale), scale))


@pytest.mark.parametrize("name", [name for name, figure in FIGURES.items() if len(figure.jobs("laptop")) > 1])
def test_a_figure_of_some_results_says_how_many_are_missing(name, laptop):
    half = {run: result for place, (run, result) in enumerate(laptop.items()) if place % 3 != 1}
    figure = draw(name, half)
    left = len(missing(name, half))
    said = [text.get_text() for text in figure.texts]
    assert (f"{left} of the" in " ".join(said)) == bool(left)
    if name in ("methods", "iterations", "halting", "built-in", "learning"):  # those with labels near the note
        _check_letters(figure)


@pytest.mark.parametrize("name", FIGURES)
def test_without_results_it_says_what_to_run(name):
    with pytest.raises(NothingStoredError, match=f"cannot draw {name}: .* `latentloop reproduce"):
        draw(name, {})


def test_experiments_name_figures_that_exist():
    named = {name for experiment in EXPERIMENTS.values() for name in experiment.figures}
    assert named <= FIGURES.keys()
    assert {"methods", "iterations", "compute", "allowed", "correction", "halting", "built-in", "learning"} <= named
    for figure in FIGURES.values():
        assert EXPERIMENTS.keys() >= {*figure.experiments, *figure.also}


def test_an_unknown_figure():
    with pytest.raises(UserError, match="did you mean 'methods'"):
        draw("method", {})


def test_captions_say_what_is_seen_and_at_which_sizes():
    for name in FIGURES:
        assert "N = 8 .. 16, tested up to N = 64" in caption(name)
        assert caption(name).count("seed") or name == "lines-by-encoding"


def test_methods_are_drawn_as_stored():
    results = documents(discrete={8: 1.0, 32: 0.5, 64: 0.25}, stable=1.0, discrete_unaided=0.0)
    panels = draw("methods", results).axes
    assert [axes.get_title().splitlines()[0] for axes in panels] == ["discrete", "stable (ours)"]
    lines = {line.get_color(): line for line in panels[0].lines}
    assert len(lines) == 2  # its own, and the others in gray
    discrete = lines[METHOD_LOOKS["discrete"].color]
    shown = dict(zip(discrete.get_xdata(), discrete.get_ydata(), strict=True))
    assert (shown[8], shown[32], shown[64]) == (100, 50, 25)


def test_of_a_methods_configurations_the_one_with_the_least_validation_loss_is_drawn():
    results = documents(discrete={"solved": 1.0, "loss": 1.0}, **{another("discrete"): {"solved": 0.3, "loss": 0.9}})
    (axes,) = draw("methods", results).axes
    preset, chosen = [line for line in axes.lines if line.get_color() == METHOD_LOOKS["discrete"].color]
    assert (set(preset.get_ydata()), set(chosen.get_ydata())) == ({100.0}, {30.0})
    assert preset.get_linewidth() < chosen.get_linewidth()
    assert "its preset" in [text.get_text() for text in axes.figure.legends[0].texts]


def test_intervals_of_structure_are_of_structure():
    results = documents(cot_4x={"solved": 0.1, "structure_right": 0.5})
    (axes,) = draw("structure", results).axes
    (whisker,) = axes.collections[0].get_segments()
    assert whisker[:, 0].tolist() == pytest.approx([49.2, 50.8], abs=0.05)  # 7,500 of 15,000


def _band(results):
    (axes,) = draw("methods", results).axes
    heights = [point[1] for point in axes.collections[0].get_paths()[0].vertices]
    return pytest.approx((min(heights), max(heights)), abs=0.001)


def test_bands_cover_the_intervals_of_all_seeds():
    three = documents(discrete=0.5)
    for seed, result in enumerate(three.values()):
        for row in result["rows"]:
            row["solved"] = 0.5 + 0.1 * seed
    assert _band(three) == (46.907, 72.759)  # Wilson's, the low end of 500 in 1,000 and the high end of 700
    one = documents(discrete={"solved": 1.0, "loss": 1.0}, **{another("discrete"): {"solved": 0.5, "loss": 0.9}})
    assert _band(one) == (46.907, 53.093)  # Wilson's, of 500 in 1,000


def test_figures_are_drawn_of_real_results(tmp_path, monkeypatch):
    small = Evaluation(sizes=(6, 8, 12), instances=4, entropy=(8, 12), allowed=(8, 12))
    monkeypatch.setitem(EVALUATIONS, "paper", small)  # a scale that needs no pilot
    results = {}
    for method in ("discrete", "cot"):
        go(quick(method), tmp_path / method)
        job = Job(point=Point(name=method, preset=f"tiny-{method}", scale="paper"), seed=0)
        trained = LatentLoop.from_pretrained(tmp_path / method / "last")
        rows = [row for row in read_log(tmp_path / method) if row["kind"] == "train"]
        curve = {name: [float(row[name]) for row in rows] for name in rows[-1] if name != "kind"}
        document = measure.result(job, trained, curve)
        write_result(tmp_path, document)
        results[job.name] = read_json(tmp_path / "results" / f"{job.name}.json")
    drawn = {path.stem for path in redraw(None, results, tmp_path / "images", suffixes=(".svg",))}
    assert drawn == {name for name, figure in FIGURES.items() if figure.select(results, "laptop")}
    assert len(drawn) > 15
    assert decide("cot-errs-in-arithmetic", results).so_far.startswith("of ")


def test_files_are_the_same_when_drawn_again(laptop, tmp_path):
    first, second = (
        list(redraw(["correction"], laptop, tmp_path / place, "laptop", (".png", ".pdf", ".svg"))) for place in "ab"
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert fingerprint("correction", laptop).encode() in one.read_bytes() or one.suffix == ".pdf"
    changed = laptop | documents(corrected=0.123)
    assert fingerprint("correction", changed) != fingerprint("correction", laptop)
    assert fingerprint("encodings-cot", changed) == fingerprint("encodings-cot", laptop)


def test_all_draws_what_can_be_drawn(tmp_path):
    written = list(redraw(None, documents(cot=0.5), tmp_path, suffixes=(".png",)))
    names = {path.stem for path in written}
    assert {"methods", "bars-cot", "structure", "learning"} <= names
    assert not names & {"halting", "correction", "bars-latent", "entropy"}
