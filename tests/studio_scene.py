"""The Network tab's picture, for tests: where a unit is drawn, in which colour, and which one it should have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from seams import Layer, Network, Projection, Variable, net_of
from studio_pages import Pages, pixels
from studio_stage import Stage
from waiting import wait_until

COLD_HOT = ("00ffff", "0a3cff", "7f7f7f", "ff2010", "ffff00")
VIRIDIS = ("440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725")
GREEN = {"light": (15, 174, 94), "dark": (47, 224, 138)}
MAPS = {
    "ColdHot": COLD_HOT, "Viridis": VIRIDIS,
    "BlueOrange": ("0a3f73", "2f7fc0", "9cc8e6", "e9e9e6", "f5b566", "d9741a", "7f3500"),
    "Cividis": ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"),
    "Magma": ("0a0722", "221150", "5f187f", "982d80", "d3436e", "f8765c", "febb81", "fcfdbf"),
    "Grey": ("161616", "f4f4f4"),
}  # fmt: skip
FRAMES = (
    "(count) => new Promise((done) => { const next = () => count-- ? requestAnimationFrame(next) : done(); next(); })"
)


class View:
    """The Network tab of a page."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def ask(self, what: str, *given: Any) -> Any:
        """One of the page's harmless questions."""
        return self.page.evaluate(f"(given) => window.__studio.{what}(...given)", list(given))

    @property
    def moment(self) -> int:
        """The moment that is on the screen; -1 for none."""
        return int(self.ask("seen")["moment"])

    @property
    def box(self) -> dict[str, float]:
        """Where the picture is on the page."""
        return dict(self.page.locator(".network-stage").bounding_box())

    def spot(self, layer: str, unit: int) -> tuple[float, float]:
        """Where a unit is on the page."""
        found, box = self.ask("project", layer, unit), self.box
        assert found is not None, (layer, unit)
        return box["x"] + found["x"], box["y"] + found["y"]

    def point(self, layer: str, unit: int) -> str:
        """Put the pointer on a unit; the tooltip's words, once the exact value came."""
        self.page.mouse.move(*self.spot(layer, unit))
        tip = self.page.locator(".network-tip")
        wait_until(lambda: tip.count() and layer in tip.inner_text() and "≈" not in tip.inner_text().split("cell:")[0]
              and "…" not in tip.inner_text(), f"the value of {layer} {unit}", page=self.page)  # fmt: skip
        return str(tip.inner_text())

    def click(self, layer: str, unit: int) -> None:
        """Select a unit, once the camera stands still: a panel that has just opened moves it."""
        wait_until(self._still, "a camera that stands still", page=self.page)
        self.page.mouse.click(*self.spot(layer, unit))
        self.page.mouse.move(2, 2)

    def colour(self, layer: str, unit: int) -> tuple[int, ...]:
        """The colour in the middle of a unit."""
        x, y = self.spot(layer, unit)
        clip = {"x": round(x) - 1, "y": round(y) - 1, "width": 3, "height": 3}
        return tuple(int(part) for part in pixels(self.page.screenshot(clip=clip))[4])

    def until_colour(self, layer: str, unit: int, wanted: tuple[int, ...], near: int = 10) -> None:
        """Wait for a unit to be drawn in a colour."""
        seen: list[tuple[int, ...]] = []

        def fits() -> bool:
            seen.append(self.colour(layer, unit))
            return max(abs(one - other) for one, other in zip(seen[-1], wanted)) <= near

        wait_until(fits, f"{layer} {unit} to be {wanted}", page=self.page, seen=lambda: seen[-1])

    def picture(self) -> bytes:
        """A PNG of the stage."""
        return bytes(self.page.locator(".network-picture").screenshot())

    def changed(self, before: bytes) -> int:
        """How many pixels below the buttons look other than in an earlier picture; a shade of the ground is nothing."""
        wide = round(self.box["width"]) * 50
        apart = pixels(self.picture())[wide:] - pixels(before)[wide:]
        return int((np.abs(apart).max(1) >= 8).sum())

    @property
    def pose(self) -> dict[str, float]:
        """Where the camera stands."""
        return dict(self.ask("pose"))

    def button(self, name: str) -> Any:
        """A button, by its whole name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def at(self, moment: int) -> bool:
        """Wait for a moment to be on the screen."""
        return bool(wait_until(lambda: self.moment == moment, f"moment {moment}", page=self.page))

    def _still(self) -> bool:
        before = self.pose
        self.page.evaluate(FRAMES, 2)
        return self.pose == before

    def settle(self) -> None:
        """Let the browser draw what it has to."""
        self.page.evaluate(FRAMES, 3)


def look_at(open_page: Pages, source: Stage | None = None, **options: Any) -> tuple[View, Stage]:
    """A page on a stage that stands still, unless told otherwise, with a state on the screen."""
    page_options = {
        name: options.pop(name)
        for name in ("viewport", "color_scheme", "device_scale_factor", "has_touch", "reduced_motion")
        if name in options
    }
    source = source or Stage(**{"paused": True, "states": 78, **options})
    url, source = open_page.stage(source)
    view = View(open_page(url, **page_options))
    wait_until(lambda: view.page.evaluate("!!window.__studio") and view.moment >= 0, "a state", page=view.page)
    view.page.mouse.move(2, 2)
    return view, source


def ramp(stops: tuple[str, ...], share: float) -> tuple[int, ...]:
    """The colour of a share of a colour map."""
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    one, other = (tuple(bytes.fromhex(stops[at])) for at in (low, low + 1))
    return tuple(round(a + (b - a) * (place - low)) for a, b in zip(one, other))


def strong(values: Any, units: Any, least: float = 0.3) -> list[int]:
    """Units whose values are far enough from zero to be drawn opaque."""
    return [int(unit) for unit in units if abs(values[unit]) >= least]


class Made(Stage):
    """A stage with layers of one's own; values by a formula of the unit and the moment."""

    def __init__(
        self, *layers: Layer, projections: tuple[Projection, ...] = (), variables: tuple[str, ...] = ("Act",),
        formula: Callable[..., Any] | None = None, name: str = "Made", **options: Any,
    ) -> None:  # fmt: skip
        made = net_of(Network(name, layers, projections, tuple(map(Variable, variables))))
        self.variables = variables
        super().__init__(**{"paused": True, "states": 3, **options})
        self.net = made
        self.formula = formula or (lambda moment, units: np.sin(np.arange(units) * 0.37 + moment))

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Any = None) -> Any:
        """The formula's numbers."""
        assert self.net is not None
        counts = {placed.layer.name: placed.units for placed in self.net.layers}
        if variable not in self.variables or layer not in counts or not any(one.id == moment for one in self.moments):
            return None
        return np.asarray(self.formula(moment, counts[layer]), np.float32)
