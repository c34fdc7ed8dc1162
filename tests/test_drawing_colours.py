"""Colours: families stay apart for colour-blind eyes, and text can be read on all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from seams import DARK, FAMILIES, LIGHT, RAMP, Theme, family_colours, ramp

# How linear red, green and blue are seen (Viénot, Brettel and Mollon 1999).
EYES = {
    "most": np.eye(3),
    "deuteranopia": np.array([[0.29275, 0.70725, -0.02978], [0.29275, 0.70725, -0.02978], [-0.02233, 0.02233, 1]]),
    "protanopia": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def seen(colour: str, eyes: np.ndarray) -> np.ndarray:
    """A colour in CIE Lab, as these eyes see it."""
    xyz = TO_XYZ @ np.clip(eyes @ linear(colour), 0, 1) / (0.9505, 1, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("eyes", EYES)
def test_families_stay_apart(eyes: str) -> None:
    for one, other in combinations(FAMILIES, 2):
        apart = np.linalg.norm(seen(FAMILIES[one], EYES[eyes]) - seen(FAMILIES[other], EYES[eyes]))
        assert apart > 15, f"{one} and {other} look alike"


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_paper_and_on_every_family(theme: Theme) -> None:
    for fill in (theme.paper, theme.card, *(family_colours(family, theme)[0] for family in FAMILIES)):
        assert contrast(theme.ink, fill) >= 7 and contrast(theme.soft, fill) >= 4.4


def test_text_can_be_read_on_the_whole_ramp() -> None:
    assert all(contrast(*ramp(share / 50)) >= 4 for share in range(51))


def test_the_ramp_grows_lighter_all_the_way_in_grey_too() -> None:
    lightness = [float(TO_XYZ[1] @ linear(colour)) for colour in RAMP]
    assert lightness == sorted(lightness)
