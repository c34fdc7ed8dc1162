"""Pages' subscriptions: one state in flight per page, the latest wins.

The host receives their union.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from torcheer.control.control_records import Every, Wants
from torcheer.control.loop_messages import Moment
from torcheer.network.network_records import Net, PlacedLayer
from torcheer.studio.connections.messages import Look, Seen
from torcheer.studio.server_errors import report_error
from torcheer.studio.sources.layer_frames import LayerPicture, message_of, picture_of
from torcheer.studio.sources.moment_queries import Unit
from torcheer.studio.sources.source import Source

_MOST_IN_FLIGHT: Final = 4  # states: one for the current look, the others for earlier looks
_FEW_LAYERS: Final = 200
_RETRY_SECS: Final = 1.0  # then a page that has not acknowledged an old look is sent the current one


@dataclass(slots=True)
class Subscription:
    """One page's current look, and the states that it was sent."""

    look: Look | None = None
    last: int = -1  # the moment last sent for this look; -1: none yet
    in_flight: list[tuple[int, int, float]] = field(default_factory=list)  # look, moment, time sent
    answered: bool = False  # whether this look was answered at least once

    def begin(self, look: Look) -> None:
        """Replace the look; the one before is dropped."""
        self.look, self.last, self.answered = look, -1, False
        self.in_flight = [state for state in self.in_flight if state[0] != look.look]

    def resend(self) -> None:
        """Answer the same look once more: a new network has cleared the page."""
        self.answered = False

    def cancel(self, look: Look) -> None:
        """Forget a state that was not sent completely: the page will not acknowledge it."""
        self.in_flight = [state for state in self.in_flight if state[0] != look.look]

    def acknowledge(self, seen: Seen) -> None:
        """Note that the page has drawn a state: it and those before it are no longer in flight."""
        for index, (look, moment, _) in enumerate(self.in_flight):
            if (look, moment) == (seen.look, seen.moment):
                del self.in_flight[: index + 1]
                return

    def due(self, moments: list[Moment]) -> int | None:
        """The moment to send now, -1 to report that there is none, or None to send nothing."""
        if self.look is None or not self.look.variable or self._is_throttled():
            return None
        newest = moments[-1].id if moments else -1
        wanted = newest if self.look.moment == -1 else self.look.moment
        if self.answered and (self.look.moment != -1 or wanted == self.last):
            return None
        return wanted

    def mark_sent(self, look: Look, moment: int) -> None:
        """Note that a state was sent."""
        if moment >= 0:  # -1 is not drawn, so never acknowledged
            self.in_flight = [*self.in_flight[1 - _MOST_IN_FLIGHT :], (look.look, moment, time.monotonic())]
        if self.look is look:
            self.last, self.answered = moment, True

    def _is_throttled(self) -> bool:
        assert self.look is not None
        if any(look == self.look.look for look, _, _ in self.in_flight):
            return True  # one state at a time: the page draws slower than states arrive
        full = len(self.in_flight) >= _MOST_IN_FLIGHT
        return full and time.monotonic() - self.in_flight[-1][2] < _RETRY_SECS


def wants_of(looks: Iterable[Look], net: Net | None) -> Wants:
    """The union of all looks, as the host receives it; empty without looks."""
    looks = [look for look in looks if look.variable]
    if not looks:
        return Wants()
    of_weights = _of_weights(net)
    units = dict.fromkeys(look.variable for look in looks if look.variable not in of_weights)
    weights = [look for look in looks if look.variable in of_weights]
    variables = tuple(units) or _first_variable(net)  # an empty tuple would mean no subscription
    clicked = dict.fromkeys((look.layer, look.unit) for look in weights if look.unit >= 0)
    return Wants(
        variables, bool(weights), tuple(clicked)[-64:], looks[-1].item,
        items=tuple(dict.fromkeys(look.item for look in looks))[-16:],
        train=_most_often(look.train for look in looks), test=_most_often(look.test for look in looks),
        layers=_open_layers(looks, net),
    )  # fmt: skip


def _open_layers(looks: list[Look], net: Net | None) -> tuple[str, ...]:
    """The layers that some page has open; empty, for all, where there are few: any can be opened later, with values."""
    if net is None or len(net.layers) <= _FEW_LAYERS or not all(look.layers for look in looks):
        return ()
    return tuple(dict.fromkeys(name for look in looks for name in look.layers))


def _of_weights(net: Net | None) -> set[str]:
    return {variable.name for variable in net.variables if variable.of == "weight"} if net else set()


def _first_variable(net: Net | None) -> tuple[str, ...]:
    return tuple(variable.name for variable in net.variables if variable.of == "unit")[:1] if net else ()


def _most_often(settings: Iterable[Every]) -> Every:
    """The setting that records most often: each trial before "auto", that before each epoch."""
    rank = {"trial": 0, "auto": 1, "epoch": 2, "off": 3}
    return min(settings, key=lambda every: (rank[every.unit], every.count))


class PictureCache:
    """A cache of encoded layers, shared by all pages; the latest 64 MB of them."""

    MOST_BYTES = 64 << 20

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[object, ...], LayerPicture] = OrderedDict()
        self._bytes = 0

    def messages(self, source: Source, net: Net, look: Look, moment: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each layer's name and binary message, None where it has no value."""
        weights = look.variable in _of_weights(net)
        of = (look.layer, look.unit) if look.unit >= 0 else None
        open_layers = set(look.layers)
        for placed in net.layers:
            if open_layers and placed.layer.name not in open_layers:
                continue
            picture = self._picture(source, placed, look, moment, of if weights else None)
            if picture is None or (weights and of is None):
                yield placed.layer.name, None
                continue
            names = {"layer": placed.layer.name, "variable": look.variable, "item": look.item}
            message = message_of(picture, look=look.look, moment=moment, raster=look.raster > 0, **names)
            yield placed.layer.name, message

    def clear(self) -> None:
        """Empty the cache, for another network."""
        self._cached.clear()
        self._bytes = 0

    def _picture(
        self, source: Source, placed: PlacedLayer, look: Look, moment: int, of: Unit | None
    ) -> LayerPicture | None:
        newest = (
            source.moments[-1].id if look.raster and source.moments else -1
        )  # a raster changes with each new moment, as older ones are removed
        key = (moment, placed.layer.name, look.variable, look.item, of, look.raster, newest)
        if key in self._cached:
            self._cached.move_to_end(key)
            return self._cached[key]
        try:
            picture = self._encode(source, placed, look, moment, of)
        except Exception as error:  # the other layers are still shown
            report_error(error)
            return None
        if picture is not None:  # a missing value may still arrive
            self._store(key, picture)
        return picture

    def _encode(
        self, source: Source, placed: PlacedLayer, look: Look, moment: int, of: Unit | None
    ) -> LayerPicture | None:
        name = placed.layer.name
        if look.raster:
            rows = source.raster(name, look.variable, look.item, look.raster, of, moment)
            return None if rows is None or not rows.size else picture_of(rows, (1, 1, *rows.shape), across=False)
        values = source.units(moment, name, look.variable, look.item, of)
        return None if values is None or values.size != placed.units else picture_of(values, placed.grid)

    def _store(self, key: tuple[object, ...], picture: LayerPicture) -> None:
        self._cached[key] = picture
        self._bytes += _size_bytes(picture)
        while self._bytes > self.MOST_BYTES:
            _, old = self._cached.popitem(last=False)
            self._bytes -= _size_bytes(old)


def _size_bytes(picture: LayerPicture) -> int:
    return picture.payload.nbytes + 1024  # with a key and its objects
