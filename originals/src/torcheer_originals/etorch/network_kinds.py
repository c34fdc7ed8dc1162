"""`emer`, `prjn`: the types of layers and projections, and the patterns of connections."""

from __future__ import annotations

from typing import Any

from torcheer_originals.etorch.go_values import GoClass
from torcheer_originals.etorch.met_differences import meet

Hidden, Input, Target, Compare = "Hidden", "Input", "Target", "Compare"  # types of layers
Forward, Back, Lateral, Inhib = "Forward", "Back", "Lateral", "Inhib"  # types of projections


class Pattern(GoClass):
    """A pattern of connections. Only weights say what is connected here: every pattern is drawn as a full one."""

    def __init__(self, kind: str = "Full", **fields: Any) -> None:
        super().__init__(**fields)
        self.kind = kind

    def Name(self) -> str:
        """The pattern's type."""
        return self.kind


def __getattr__(name: str) -> Any:
    """`NewFull()`, `OneToOne()`, …: a pattern of that name."""
    if name.startswith("_") or not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda *values, **fields: _pattern(name.removeprefix("New"), fields)


def _pattern(kind: str, fields: dict[str, Any]) -> Pattern:
    if kind != "Full":
        meet("pattern")
    made: Pattern = Pattern(kind, **fields)
    return made
