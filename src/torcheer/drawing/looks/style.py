"""What a user may ask of a drawing's looks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torcheer.drawing.looks.colours import FAMILIES
from torcheer.errors import BadArgument

THEMES = ("auto", "light", "dark")
COLOUR = re.compile("#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|[a-zA-Z]+")
ALLOWED = {
    "title": re.compile(".*", re.DOTALL),
    "body": re.compile(".*", re.DOTALL),
    "family": re.compile("|".join(FAMILIES)),
    "fill": COLOUR,
    "stroke": COLOUR,
}
WANTED = {
    "title": "use a text",
    "body": "use a text",
    "family": f"use one of {', '.join(FAMILIES)}",
    "fill": "use a colour such as '#ffeecc' or 'gold'",
    "stroke": "use a colour such as '#ffeecc' or 'gold'",
}
CHANGES = tuple(ALLOWED)


@dataclass(frozen=True)
class Style:
    """How a drawing looks.

    `node` is asked about every item: it answers None (leave it), False (skip it; its edges are bridged), or a dict with
    any of title, body, family, fill, stroke. `collapse` folds modules: patterns on addresses or classes ("layer*",
    "*.attn", "Bottleneck"), or a function of (address, class, depth).
    """

    theme: str = "auto"
    node: Callable[[Any], Any] | None = None
    collapse: str | tuple[str, ...] | list[str] | Callable[[str, str, int], bool] = ()
    header: bool = True
    legend: bool = True

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise BadArgument(f"theme={self.theme!r}: use one of {', '.join(THEMES)}")

    def collapses(self, address: str, kind: str, depth: int) -> bool:
        """Whether the user wants this module folded."""
        if callable(self.collapse):
            return bool(self.collapse(address, kind, depth))
        patterns = (self.collapse,) if isinstance(self.collapse, str) else self.collapse
        return any(fnmatchcase(address, pattern) or fnmatchcase(kind, pattern) for pattern in patterns)

    def ask(self, node: Any) -> Any:
        """The user's answer about one node, checked."""
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
                raise BadArgument(f"style said {key}={value!r} about {node.address or node.kind!r}: {WANTED[key]}")
        return answer


def style_of(asked: Any) -> Style:
    """A style from what `draw(style=…)` takes: nothing, a theme, a function, a dict, or a Style."""
    if asked is None:
        return Style()
    if isinstance(asked, Style):
        return asked
    if isinstance(asked, str):
        return Style(theme=asked)
    if isinstance(asked, dict):
        try:
            return Style(**asked)
        except TypeError:
            known = ", ".join(Style.__dataclass_fields__)
            raise BadArgument(f"style={asked!r}: the keys are {known}") from None
    if callable(asked):
        return Style(node=asked)
    raise BadArgument(f"style={asked!r}: use 'light', 'dark', a function of a node, or tl.Style(…)")
