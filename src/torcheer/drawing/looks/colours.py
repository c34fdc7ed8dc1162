"""Colours: one hue per family, distinguishable with colour blindness.

A light and a dark theme.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Theme(NamedTuple):
    """The colours of a theme that do not depend on a family."""

    paper: str
    ink: str  # text
    soft: str  # secondary text
    line: str  # edges
    faint: str  # edges without gradients
    frame: str  # borders of open boxes
    tint: str  # their inside, transparent over what is below
    tint_opacity: float
    card: str  # boxes without a family
    loop: str
    alarm: str
    mix: float  # share of the card colour in a family's fill
    gradient: str  # lines and rules of the backward pass
    kept: str  # lines from values saved for it


LIGHT = Theme(
    "#ffffff",
    "#1c2127",
    "#5b6470",
    "#59626d",
    "#a9b1bb",
    "#c3cad3",
    "#3d5a80",
    0.045,
    "#ffffff",
    "#b3261e",
    "#c62828",
    0.86,
    "#b5127d",
    "#7a6a9e",
)
DARK = Theme(
    "#14171b",
    "#e8eaed",
    "#b0b8c3",
    "#97a1ae",
    "#525b66",
    "#3c444f",
    "#a8c4e8",
    0.05,
    "#1d2126",
    "#ff8a80",
    "#ff6b6b",
    0.8,
    "#ff8fd0",
    "#a79bd1",
)

# Near Okabe and Ito's colours; tests check that they stay distinguishable with colour blindness.
FAMILIES = {
    "conv": "#0072b2",
    "linear": "#d98200",
    "norm": "#009e73",
    "activation": "#f0d021",
    "pool": "#6cc0f0",
    "attention": "#7b2d86",
    "reshape": "#a9b0ba",
    "arithmetic": "#5d6670",
}

# Cividis in nine steps: even in lightness, safe with colour blindness, and in grey print.
RAMP = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")


def mix(first: str, second: str, share: float) -> str:
    """Mix two colours: `share` of the second, the rest of the first."""
    parts = [(int(first[n : n + 2], 16), int(second[n : n + 2], 16)) for n in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def family_colours(family: str, theme: Theme) -> tuple[str, str]:
    """Return the fill and the line colour of a family."""
    strong = FAMILIES.get(family)
    if strong is None:
        return theme.card, theme.frame
    return mix(strong, theme.card, theme.mix), strong if theme is LIGHT else mix(strong, "#ffffff", 0.25)


def gradient_fill(theme: Theme) -> str:
    """Return the fill of the boxes of backward rules."""
    return mix(theme.gradient, theme.card, 0.93 if theme is LIGHT else 0.86)


def ink_on(fill: str) -> str:
    """Return a text colour that is readable on a fill; dark for a fill given by name."""
    if not re.fullmatch("#[0-9a-fA-F]{6}", fill):
        return "#1c2127"
    parts = (int(fill[n : n + 2], 16) / 255 for n in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.211 else "#1c2127"


STRANGE = "#c2187f"  # for NaN and infinity: unlike any colour of the ramp


def ramp(share: float) -> tuple[str, str]:
    """Return the colour of a value between 0 and 1, and the text colour on it."""
    place = max(0.0, min(1.0, share)) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    colour = mix(RAMP[low], RAMP[low + 1], place - low)
    return colour, ink_on(colour)
