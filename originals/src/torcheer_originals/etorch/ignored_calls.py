"""Calls of the desktop toolkit that a page has no use for: accepted, ignored, and named in one remark."""

from __future__ import annotations

from typing import Any

from torcheer.terminal import warn

_MOST_NAMES = 12
_names: dict[str, None] = {}  # what was ignored, in order
_remarked: list[str] = []


class Ignored:
    """Anything of the toolkit: every attribute, call and item is another one of these."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Ignored(f"{self._name}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        note(f"{self._name}.{name} =")
        object.__setattr__(self, name, value)

    def __call__(self, *values: Any, **fields: Any) -> Ignored:
        note(f"{self._name}()")
        return Ignored(self._name)

    def __getitem__(self, key: Any) -> Ignored:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __repr__(self) -> str:
        return f"<{self._name}, which does nothing here>"


# Packages of which nothing is left.
giv, mat32, gi3d, gist, girl, svg = map(Ignored, ("giv", "mat32", "gi3d", "gist", "girl", "svg"))
kit, ki, units, efile = map(Ignored, ("kit", "ki", "units", "efile"))


def note(name: str) -> None:
    """Remember a call that did nothing."""
    _names.setdefault(name)


def remark() -> None:
    """Say, once in a process, what was ignored and where a page has it."""
    if _remarked or not _names:
        return
    names = list(_names)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    calls = ", ".join(names[:_MOST_NAMES]) + more
    _remarked.append(
        f"eTorch's window is a page in the browser here, so these calls do nothing: {calls}. On the page, the tool "
        "bar's buttons are at the top, the simulation's fields on the left, plots and tables on tabs of their own; the "
        "camera and the past states are below the network."
    )
    warn(_remarked[0])
