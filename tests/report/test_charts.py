"""Charts: what has no number stays blank, labels are of one size, peaks and legends have room."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from latentloop.report.charts import BLANK, Chart, Line, Panel, draw, legend_columns, plotly


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
    assert {tick.label1.get_size() for tick in shown} == {8}


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
