"""Methods and encodings are told apart by everybody: by color with each kind of color blindness, and by marker."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from latentloop.experiments.table import ENCODINGS
from latentloop.methods import METHODS
from latentloop.report.palette import ENCODING_LOOKS, FAMILIES, METHOD_LOOKS, OTHERS, shades

SEEN = {  # Machado, Oliveira and Fernandes (2009), severity 1
    "normal": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def _lab(color, kind):
    """Return how light and of what hue a color is seen (CIELAB, D65)."""
    encoded = np.array(to_rgb(color))
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SEEN[kind]) @ linear, 0, 1)
    x, y, z = np.cbrt(XYZ @ seen / [0.9505, 1.0, 1.089])  # the straight part near black does not matter here
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("looks", [METHOD_LOOKS, ENCODING_LOOKS], ids=["methods", "encodings"])
def test_colors_are_told_apart(looks, kind):
    for one, other in combinations(looks, 2):
        distance = np.linalg.norm(_lab(looks[one].color, kind) - _lab(looks[other].color, kind))
        assert distance > 20, f"{one} and {other} look alike with {kind}: {distance:.0f}"


@pytest.mark.parametrize("kind", SEEN)
def test_lines_to_compare_with_look_like_no_method(kind):
    for name, look in METHOD_LOOKS.items():
        distance = np.linalg.norm(_lab(look.color, kind) - _lab(OTHERS.color, kind))
        assert distance > 30, f"{name} looks like other methods with {kind}: {distance:.0f}"


def test_every_method_and_encoding_has_a_look_of_its_own():
    assert METHOD_LOOKS.keys() == METHODS.keys()
    assert ENCODING_LOOKS.keys() == ENCODINGS.keys()
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(METHODS)
    for looks in (METHOD_LOOKS, ENCODING_LOOKS):
        assert len({look.marker for look in looks.values()}) == len(looks)


def test_ordered_values_get_ordered_shades():
    lightness = [_lab(color, "normal")[0] for color in shades([64, 8, 16, 32]).values()]
    assert list(shades([64, 8, 16, 32])) == [8, 16, 32, 64]
    assert lightness == sorted(lightness)
    assert lightness[-1] < 88  # still seen on white
