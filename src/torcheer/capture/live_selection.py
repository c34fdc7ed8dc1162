"""Which layers a key means, while the model still runs.

A layer's number is only certain when the run is over (a loop may turn out to be one layer with many passes), so while
it runs a name is a range: saving keeps what may be meant and prunes at the end, edits use the likeliest number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.history.layers.layer_names import layer_name

_LABEL = re.compile(r"([a-z0-9]+)_(\d+)(?:_(\d+))?(?::(\d+))?$")


@dataclass(frozen=True, slots=True)
class Selector:
    """A key of `layers_to_save` or `edits`, understood."""

    key: Any
    kind: str  # "position", "label", "module", "pattern" or "test"
    name: str = ""  # of a label: "conv2d"; of a module: its address; or the pattern
    number: int = 0
    index: int = -1
    call: int = 0  # the pass, 0 for all
    test: Callable[[Any], Any] | None = None

    @property
    def for_modules(self) -> bool:
        """Whether it can mean what a module returns."""
        return self.kind in ("module", "pattern")

    @property
    def for_ops(self) -> bool:
        """Whether it can mean an operation."""
        return self.kind != "module"


def parse(key: Any, addresses: Iterable[str]) -> Selector:
    """Understand one key; addresses are those of the model's modules."""
    if isinstance(key, bool) or not (isinstance(key, (int, str)) or callable(key)):
        raise BadArgument(f"{key!r} names no layer: give a name, a module path, a position, a pattern or a function")
    if isinstance(key, int):
        return Selector(key, "position", index=key)
    if not isinstance(key, str):
        return Selector(key, "test", test=key)
    address, _, call = key.partition(":")
    known = list(addresses)
    if address in known and (not call or call.isdigit()):
        return Selector(key, "module", address, call=int(call or 0))
    label = _LABEL.match(key)
    if label:
        name, number, index, passes = label.groups()
        return Selector(key, "label", name, int(number), int(index) if index else -1, int(passes or 0))
    if any(mark in key for mark in "*?["):
        return Selector(key, "pattern", key)
    near = get_close_matches(address, known, n=3, cutoff=0.4)
    hint = (
        f" Did you mean {', '.join(map(repr, near))}?" if near else " Layers are named like 'conv2d_3' or 'features.6'."
    )
    raise UnknownLayer(f"no module named {key!r} among {len(known)}.{hint}")


@dataclass(slots=True)
class Running:
    """An operation's name as far as it is known while the model runs."""

    index: int
    name: str
    number: int  # the likeliest
    first: int  # index of the first pass
    passed: int  # which pass this is
    low: int  # the number lies between these
    high: int
    most: int = 1  # it may be any pass up to this
    is_sure: bool = True  # about the pass: what reads parameters is told apart by them

    @property
    def label(self) -> str:
        """Its likeliest name, with the pass."""
        return f"{self.name}_{self.number}:{self.passed}"

    def is_likely(self, selector: Selector) -> bool:
        """Whether a selector means this operation, as far as can be said."""
        if selector.kind == "position":
            return selector.index == self.index
        if selector.kind == "label":
            return (
                selector.name == self.name
                and selector.number == self.number
                and selector.index in (-1, self.first)
                and selector.call in (0, self.passed)
            )
        short, full = f"{self.name}_{self.number}", f"{self.name}_{self.number}_{self.first}"
        names = (short, full, f"{short}:{self.passed}", f"{full}:{self.passed}")
        return selector.kind == "pattern" and any(fnmatchcase(name, selector.name) for name in names)

    def may_be(self, selector: Selector) -> bool:
        """Whether a selector could turn out to mean this operation."""
        if selector.kind == "label":
            passes = selector.call in (0, self.passed) if self.is_sure else selector.call <= self.most
            return selector.name == self.name and self.low <= selector.number <= self.high and passes
        if selector.kind == "pattern":
            numbers = range(self.low, min(self.high, self.low + 1000) + 1)
            stems = (f"{self.name}_{number}" for number in numbers)
            layer = selector.name.partition(":")[0]
            wild = layer.replace("_", "*")
            return any(fnmatchcase(stem, layer) or fnmatchcase(f"{stem}_{self.index}", wild) for stem in stems)
        return self.is_likely(selector)


class RunningNames:
    """Numbers operations as they run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[str, list[int]] = {}  # name -> [layers likely, distinct places, all operations]
        self._repeats: dict[
            Any, tuple[int, int, int, Any]
        ] = {}  # place -> (number, first, passes so far, last parents)
        self._layers: dict[int, tuple[str, int]] = {}  # node -> its likeliest layer
        self._lows: dict[Any, int] = {}  # place -> the least number it can have
        self._seen: dict[Any, int] = {}  # place -> operations there so far

    def name(self, node: int) -> Running:
        """What to call the operation that just ran."""
        row = self._recorder.row(node)
        name = layer_name(row.call.name)
        counts = self._counts.setdefault(name, [0, 0, 0])
        counts[2] += 1
        stored = tuple(ref for ref in row.refs if ref < 0)
        place = (name, id(row.code), row.lasti, self._modules(row.scope), stored)
        if place not in self._lows:
            counts[1] += 1
            self._lows[place] = counts[1]
        # What reads parameters is told apart by them; the rest repeats when it follows new passes of the same layers.
        parents = tuple(ref for ref in row.refs if ref >= 0)
        likely = place if stored else (place, tuple(self._layers.get(ref >> SLOT_BITS) for ref in parents))
        number, first, passes, read = self._repeats.get(likely, (0, node, 0, ()))
        if not passes or (not stored and (not parents or parents == read)):
            counts[0] += 1
            number, first, passes = counts[0], node, 0
        self._repeats[likely] = (number, first, passes + 1, parents)
        self._layers[node] = (name, number)
        most = self._seen[place] = self._seen.get(place, 0) + 1
        return Running(node, name, number, first, passes + 1, self._lows[place], counts[2], most, bool(stored))

    def _modules(self, scope: int) -> tuple[int, ...]:
        chain = []
        while scope >= 0:
            scope, module = self._recorder.scopes[4 * scope : 4 * scope + 2]
            chain.append(id(module))
        return tuple(chain)
