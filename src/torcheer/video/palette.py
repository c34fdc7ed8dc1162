"""Colours of numbers: two tables that stay readable for colour-blind eyes, and what stands outside of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.video.value_range import along

Colour = tuple[int, int, int]
PAPER: Colour = (255, 255, 255)
INK: Colour = (28, 33, 39)
SOFT: Colour = (91, 100, 112)  # secondary text
LINE: Colour = (195, 202, 211)  # frames, ticks
GAP: Colour = (140, 147, 156)  # between maps: darker than a zero, lighter than the ends
ACCENT: Colour = (46, 104, 170)  # bars of a histogram
NAN: Colour = (255, 0, 190)  # in neither table: pink is not a number,
INFINITE: Colour = (0, 0, 0)  # and neither is black
STEPS = 251  # an odd number, so that zero has a colour of its own
AT_NAN, AT_INFINITE, AT_PAPER, AT_GAP = range(STEPS, STEPS + 4)  # their places in a table, after all others

# Lightness, chroma and hue in OKLCH. Lightness alone tells the order, whatever the eye makes of the hue.
_SEQUENTIAL = ((0.33, 0.11, 285.0), (0.50, 0.12, 250.0), (0.66, 0.11, 200.0), (0.82, 0.13, 140.0), (0.96, 0.12, 105.0))
_COLD = ((0.36, 0.13, 262.0), (0.58, 0.14, 252.0), (0.80, 0.07, 240.0), (0.965, 0.0, 240.0))
_WARM = ((0.965, 0.0, 60.0), (0.83, 0.08, 65.0), (0.63, 0.16, 48.0), (0.38, 0.12, 35.0))


def places(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """Where in the table each number's colour stands; those below `low` and above `high` get its ends."""
    with np.errstate(all="ignore"):
        place = np.rint(along(values, low, high) * (STEPS - 1))
        indices: NDArray[np.uint8] = np.nan_to_num(np.clip(place, 0, STEPS - 1)).astype(np.uint8)
    indices[np.isnan(values)] = AT_NAN
    indices[np.isinf(values)] = AT_INFINITE
    return indices


@cache
def table(signed: bool) -> NDArray[np.uint8]:
    """The colours from low to high, then those that stand for no number."""
    anchors = (*_COLD, *_WARM[1:]) if signed else _SEQUENTIAL
    places = np.linspace(0, len(anchors) - 1, STEPS)
    mixed = _to_rgb(np.stack([np.interp(places, range(len(anchors)), _lab(anchors)[:, axis]) for axis in range(3)], -1))
    return np.concatenate([mixed, np.array([NAN, INFINITE, PAPER, GAP], np.uint8)])


def _lab(anchors: Any) -> NDArray[np.float64]:
    lightness, chroma, hue = np.array(anchors, np.float64).T
    return np.stack([lightness, chroma * np.cos(np.radians(hue)), chroma * np.sin(np.radians(hue))], -1)


def _to_rgb(lab: NDArray[np.float64]) -> NDArray[np.uint8]:
    """OKLab as sRGB; the matrices are those of its definition."""
    cones = lab @ np.array([[1, 1, 1], [0.3963377774, -0.1055613458, -0.0894841775],
                            [0.2158037573, -0.0638541728, -1.2914855480]])  # fmt: skip
    light = cones**3 @ np.array([[4.0767416621, -1.2684380046, -0.0041960863],
                                 [-3.3077115913, 2.6097574011, -0.7034186147],
                                 [0.2309699292, -0.3413193965, 1.7076147010]])  # fmt: skip
    light = np.clip(light, 0, 1)
    shown = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(shown * 255), np.uint8)
