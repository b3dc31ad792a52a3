"""One look for all figures of experiments: a color and a marker for each method and encoding, told apart by everybody."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex

COLUMN, PAGE = 3.3, 7.0
"""Inches: the width of a column, and of a page."""
SMALLEST = 7.0
"""Points of the smallest letters."""
STYLE: dict[str, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
    "legend.fontsize": SMALLEST,
    "legend.title_fontsize": SMALLEST,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "latentloop",
}
"""Settings of matplotlib; text stays text, so that it can be searched and edited."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """How something is drawn, in every figure."""

    label: str
    color: str
    marker: str


METHOD_LOOKS: dict[str, Look] = {
    "feedforward": Look(label="feedforward", color="#aa4499", marker="v"),
    "recurrent": Look(label="recurrent", color="#222222", marker="^"),
    "cot": Look(label="chain of thought", color="#e69f00", marker="s"),
    "continuous": Look(label="continuous", color="#56b4e9", marker="D"),
    "discrete": Look(label="discrete", color="#2a52be", marker="o"),
    "corrected": Look(label="corrected", color="#00876c", marker="P"),
    "stable": Look(label="stable (ours)", color="#c8352b", marker="*"),
}
"""By method, in the order of the ladder."""
OTHERS = Look(label="other methods", color="#d0d0d0", marker="")
"""Lines that are there to compare with."""
ENCODING_LOOKS: dict[str, Look] = {
    "abpe": Look(label="AbPE", color="#ccbb44", marker="s"),
    "rope": Look(label="RoPE", color="#cc4455", marker="^"),
    "nope": Look(label="NoPE", color="#332288", marker="v"),
    "deberta": Look(label="DeBERTa", color="#4477aa", marker="o"),
    "local": Look(label="local (ours)", color="#55c8b0", marker="*"),
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "end-to-end": ("feedforward", "recurrent"),
    "chain of thought": ("cot",),
    "latent": ("continuous", "discrete", "corrected", "stable"),
}
TRAINED = "#e6edf5"
"""Shade of the sizes trained on."""


def shades(values: Sequence[int]) -> dict[int, str]:
    """Return a color for each of some ordered values, from dark to light, never too light to be seen."""
    ordered = sorted(set(values))
    last = max(len(ordered) - 1, 1)
    return {value: to_hex(colormaps["viridis"](0.88 * place / last)) for place, value in enumerate(ordered)}
