"""`Style`: the user's options for the look of a drawing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torcheer.drawing.looks.colours import FAMILIES
from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass
from torcheer.selection import matches_module

THEMES = ("auto", "light", "dark")
COLOUR = re.compile("#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|[a-zA-Z]+")
ALLOWED = {
    "title": re.compile(".*", re.DOTALL),
    "body": re.compile(".*", re.DOTALL),
    "family": re.compile("|".join(FAMILIES)),
    "fill": COLOUR,
    "stroke": COLOUR,
}
HINTS = {
    "title": "use a text",
    "body": "use a text",
    "family": f"use one of {', '.join(FAMILIES)}",
    "fill": "use a colour such as '#ffeecc' or 'gold'",
    "stroke": "use a colour such as '#ffeecc' or 'gold'",
}
CHANGES = tuple(ALLOWED)


@dataclass(frozen=True)
class Style(metaclass=PublicClass):
    """How a drawing looks.

    Args:
        theme: "light", "dark", or "auto" for the reader's own.
        node: called for every item; returns None (no change), False (skip the item and bridge its edges), or a dict
            with any of title, body, family, fill, stroke.
        collapse: modules to fold: patterns on paths or classes ("layer*", "*.attn", "Bottleneck"), module classes
            (nn.Sequential), or a function of (path, class, depth).
        header: write the title and facts above the drawing.
        legend: write the legend below it.
    """

    theme: str = "auto"
    node: Callable[[Any], Any] | None = None
    collapse: str | type | tuple[str | type, ...] | list[str | type] | Callable[[str, str, int], bool] = ()
    header: bool = True
    legend: bool = True

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise BadArgument(f"theme={self.theme!r}: use one of {', '.join(THEMES)}")

    def collapses(self, address: str, kind: str, depth: int) -> bool:
        """True if this module is to be folded."""
        if callable(self.collapse) and not isinstance(self.collapse, type):
            return bool(self.collapse(address, kind, depth))
        patterns = (self.collapse,) if isinstance(self.collapse, str | type) else self.collapse
        return any(matches_module(pattern, address, kind) for pattern in patterns)

    def ask(self, node: Any) -> Any:
        """Call the user's function for one node, and validate its answer."""
        assert self.node is not None
        answer = self.node(node)
        if answer is None or answer is False:
            return answer
        if not isinstance(answer, dict) or not set(answer) <= set(CHANGES):
            raise BadArgument(
                f"style said {answer!r} about {node.address or node.kind!r}: answer None to leave it, "
                f"False to skip it, or a dict with any of {', '.join(CHANGES)}"
            )
        for key, value in answer.items():
            if not isinstance(value, str) or not ALLOWED[key].fullmatch(value):
                raise BadArgument(f"style said {key}={value!r} about {node.address or node.kind!r}: {HINTS[key]}")
        return answer


def style_of(value: Any) -> Style:
    """Return the Style for a value of `draw(style=…)`: a theme, function, dict, Style or None."""
    if value is None:
        return Style()
    if isinstance(value, Style):
        return value
    if isinstance(value, str):
        return Style(theme=value)
    if isinstance(value, dict):
        try:
            return Style(**value)
        except TypeError:
            fields = ", ".join(Style.__dataclass_fields__)
            raise BadArgument(f"style={value!r}: the keys are {fields}") from None
    if callable(value):
        return Style(node=value)
    raise BadArgument(f"style={value!r}: use 'light', 'dark', a function of a node, or tl.Style(…)")
