"""Charts: what has no number stays blank, labels are of one size, peaks and legends have room."""

import itertools

import numpy as np
import plotly.graph_objects as go
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text

from latentloop.report.charts import (
    BLANK,
    COLORS,
    TICK,
    WIDTH,
    Chart,
    Level,
    Line,
    Panel,
    draw,
    legend_columns,
    plotly,
)


def drawn(panel):
    figure = draw(Chart(panels=[panel]))
    FigureCanvasAgg(figure).draw()  # ticks are placed as they are drawn
    return figure.axes[0]


def test_cells_without_a_number_stay_blank():
    z = np.array([[0.25, np.nan], [np.nan, 1.0]])
    panel = Panel(kind="heatmap", x=["a", "b"], y=["c", "d"], z=z, numbers=True)
    axes = drawn(panel)
    assert [text.get_text() for text in axes.texts] == ["0.25", "1.00"]
    (image,) = axes.images
    colors = image.cmap(image.norm(np.ma.masked_invalid(image.get_array())))
    assert to_hex(colors[0, 1]) == to_hex(colors[1, 0]) == BLANK
    blank, cells = plotly(Chart(panels=[panel]))["data"]
    assert cells["z"] == [[0.25, None], [None, 1.0]]
    assert blank["z"] == [[None, 0], [0, None]]
    assert {color for _, color in blank["colorscale"]} == {BLANK}


def test_a_heatmap_without_blanks_is_one_trace():
    assert len(plotly(Chart(panels=[Panel(kind="heatmap", x=["a"], y=["b"], z=[[0.5]])]))["data"]) == 1


@pytest.mark.parametrize(("low", "high"), [(0.3, 1.6), (0.02, 1.0), (1e-4, 1e3)])
def test_a_logarithmic_axis_has_labels_of_one_size(low, high):
    edges = np.geomspace(low, high, 11)
    axes = drawn(Panel(kind="steps", x=edges, lines=[Line(name="", y=np.arange(10))], log_x=True))
    ticks = [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]
    shown = [tick for tick in ticks if tick.label1.get_text() and low <= tick.get_loc() <= high]
    assert len(shown) >= 3
    assert {tick.label1.get_size() for tick in shown} == {TICK}


def test_peaks_stay_below_the_upper_edge():
    axes = drawn(Panel(kind="steps", x=[0, 1, 2], lines=[Line(name="", y=[20_000.0, 0.0])], log_y=True))
    low, high = axes.get_ylim()
    assert low == 0
    top = axes.transAxes.inverted().transform(axes.transData.transform((0, 20_000)))[1]
    assert 0.85 < top < 0.97
    assert high > 20_000


def test_a_legend_leaves_nothing_alone_in_a_row():
    groups = ["(0,0,0)", "(0,0,a)", "(0,a,b)", "(0,a,a)", "(a,b,c)", "(a,a,b)", "(a,a,a)"]
    assert legend_columns(groups, 9.0) == 7
    assert legend_columns(groups, 6.2) == 4
    assert legend_columns(["layer 1, MLP 1", "layer 2, MLP 1", "layer 2, MLP 2"], 4.4) == 3
    assert legend_columns(["a name that takes up a whole row of a small figure"], 2.0) == 1


SHARES = Panel(
    kind="bars", x=["a long name", "b"], y_label="share", top=1.0, numbers=True,
    lines=[Line(name="one", y=[1.0, 0.25])], levels=[Level(name="whole", y=1.0, color=COLORS[0])],
)  # fmt: skip
MAP = Panel(kind="heatmap", title="a title that is long " * 4, x=list(range(50)), y=["c"], z=[[0.5] * 50])


@pytest.mark.parametrize(
    "panel", [SHARES, MAP, Panel(kind="steps", x=[1e-3, 1, 1e3], lines=[], log_x=True, log_y=True)]
)
@pytest.mark.parametrize("count", [1, 4])
def test_letters_are_large_enough_where_docs_show_them(panel, count):
    figure = draw(Chart(panels=[panel] * count, width=9.0))
    FigureCanvasAgg(figure).draw()
    assert figure.get_figwidth() <= WIDTH == 7
    texts = [text for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(text.get_size() for text in texts) >= 7
    assert not any("$" in text.get_text() for text in texts)  # exponents are smaller than their base


def test_long_titles_do_not_run_into_each_other():
    figure = draw(Chart(panels=[MAP] * 3))
    FigureCanvasAgg(figure).draw()
    boxes = [axes.title.get_window_extent() for axes in figure.axes[:3]]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_names_below_a_map_do_not_overlap():
    axes = drawn(MAP)
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))


def test_a_bar_of_a_share_ends_where_the_axis_does():
    axes = drawn(SHARES)
    assert axes.get_ylim() == (0, 1)
    for text in axes.texts:
        place = axes.transData.inverted().transform(text.get_window_extent())
        assert place.max(0)[1] <= 1, "a number leaves the panel"
    assert [line.get_ydata()[0] for line in axes.lines] == [1.0]


def test_bars_lie_beside_their_names():
    names = ["a name that is long", "b"]
    line = Line(name="", y=[0.25, 1.0])
    panel = Panel(kind="sideways", x=names, y_label="share", top=1.0, lines=[line])
    axes = drawn(panel)
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    assert [bar.get_width() for bar in axes.patches] == [0.25, 1.0]
    assert axes.yaxis_inverted()
    assert axes.get_xlabel() == "share"
    page = plotly(Chart(panels=[panel]))
    (trace,) = go.Figure(**page).data
    assert (trace.orientation, list(trace.x), list(trace.y)) == ("h", [0.25, 1.0], names)
    layout = page["layout"]
    assert layout["xaxis"]["range"] == [0, 1.0]
    assert (layout["yaxis"]["type"], layout["yaxis"]["autorange"]) == ("category", "reversed")


def test_the_page_has_a_scale_for_each_row_of_maps_and_the_numbers():
    numbered = Panel(kind="heatmap", x=["a"], y=["b"], z=[[0.5]], numbers=True)
    traces = plotly(Chart(panels=[MAP, MAP, MAP, numbered], columns=2))["data"]
    assert [trace["showscale"] for trace in traces] == [False, True, False, True]
    assert traces[1]["colorbar"]["y"] > traces[3]["colorbar"]["y"]
    assert "texttemplate" in traces[3]
    assert "texttemplate" not in traces[0]
    drawn = plotly(Chart(panels=[SHARES]))
    go.Figure(**drawn)
    go.Figure(**plotly(Chart(panels=[MAP, MAP, MAP, numbered], columns=2)))
    assert drawn["data"][0]["texttemplate"] == "%{y:.2f}"
    assert drawn["layout"]["shapes"][0]["y0"] == 1.0


def test_a_map_may_name_some_of_its_columns():
    panel = Panel(
        kind="heatmap", x=["x1", "x1", "="], y=["a"], z=[[0.1, 0.2, 0.3]], ticks={1: "def."}, ticks_above={2: "="}
    )
    axes = drawn(panel)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["def."]
    axis = plotly(Chart(panels=[panel]))["layout"]["xaxis"]
    go.Figure(**plotly(Chart(panels=[panel])))  # plotly knows all that it is told
    assert axis["ticktext"] == ["def.", "="]
    assert [name.strip("\u200b") for name in axis["tickvals"]] == ["x1", "="]
