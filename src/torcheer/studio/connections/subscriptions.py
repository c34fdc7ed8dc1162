"""What pages look at: one state in flight for each of them, the latest wins, and the host is told the union."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from torcheer.control.control_records import Every, Wants
from torcheer.network.network_records import Net, PlacedLayer
from torcheer.studio.connections.messages import Look, Moment, Seen
from torcheer.studio.server_errors import report_error
from torcheer.studio.sources.layer_frames import Picture, message_of, picture_of
from torcheer.studio.sources.source import Source, Unit

_MOST_UNSEEN: Final = 4  # states on their way: one for this look, the others for looks that came before
_PATIENCE_SECS: Final = 1.0  # then a page that says nothing of an old look is sent what it looks at now


@dataclass(slots=True)
class Looking:
    """One page's look, and which states it has been sent."""

    look: Look | None = None
    last: int = -1  # the moment last sent for this look; -1: none yet
    unseen: list[tuple[int, int, float]] = field(default_factory=list)  # look, moment, when it was sent
    answered: bool = False  # whether this look has been answered at all

    def begin(self, look: Look) -> None:
        """Look at something else; what was asked before is forgotten."""
        self.look, self.last, self.answered = look, -1, False
        self.unseen = [one for one in self.unseen if one[0] != look.look]

    def again(self) -> None:
        """Answer the same look once more: another network has emptied the page."""
        self.answered = False

    def broken_off(self, look: Look) -> None:
        """A state that the page waits for no more has not been sent whole: nobody will say that it was seen."""
        self.unseen = [one for one in self.unseen if one[0] != look.look]

    def seen(self, seen: Seen) -> None:
        """The page has drawn a state: it and those before it are no longer in flight."""
        for index, (look, moment, _) in enumerate(self.unseen):
            if (look, moment) == (seen.look, seen.moment):
                del self.unseen[: index + 1]
                return

    def due(self, moments: list[Moment]) -> int | None:
        """The moment to send now, -1 to say that there is nothing to show, or None to send nothing."""
        if self.look is None or not self.look.variable or self._waiting():
            return None
        newest = moments[-1].id if moments else -1
        wanted = newest if self.look.moment == -1 else self.look.moment
        if self.answered and (self.look.moment != -1 or wanted == self.last):
            return None
        return wanted

    def sent(self, look: Look, moment: int) -> None:
        """A state is on its way."""
        if moment >= 0:  # "nothing to show" is not drawn
            self.unseen = [*self.unseen[1 - _MOST_UNSEEN :], (look.look, moment, time.monotonic())]
        if self.look is look:
            self.last, self.answered = moment, True

    def _waiting(self) -> bool:
        assert self.look is not None
        if any(look == self.look.look for look, _, _ in self.unseen):
            return True  # one state at a time: the page is slower than the network
        full = len(self.unseen) >= _MOST_UNSEEN
        return full and time.monotonic() - self.unseen[-1][2] < _PATIENCE_SECS


def wants_of(looks: Iterable[Look], net: Net | None) -> Wants:
    """What all looks together ask of the host; where nobody looks, nothing."""
    looks = [look for look in looks if look.variable]
    if not looks:
        return Wants()
    of_weights = _of_weights(net)
    units = dict.fromkeys(look.variable for look in looks if look.variable not in of_weights)
    weights = [look for look in looks if look.variable in of_weights]
    variables = tuple(units) or _some_variable(net)  # without one, the host would think that nobody looks
    clicked = dict.fromkeys((look.layer, look.unit) for look in weights if look.unit >= 0)
    return Wants(
        variables, bool(weights), tuple(clicked)[-64:], looks[-1].item,
        items=tuple(dict.fromkeys(look.item for look in looks))[-16:],
        train=_most_often(look.train for look in looks), test=_most_often(look.test for look in looks),
    )  # fmt: skip


def _of_weights(net: Net | None) -> set[str]:
    return {variable.name for variable in net.variables if variable.of == "weight"} if net else set()


def _some_variable(net: Net | None) -> tuple[str, ...]:
    return tuple(variable.name for variable in net.variables if variable.of == "unit")[:1] if net else ()


def _most_often(all_of_them: Iterable[Every]) -> Every:
    """The one that records most: each trial before "auto", that before each epoch."""
    rank = {"trial": 0, "auto": 1, "epoch": 2, "off": 3}
    return min(all_of_them, key=lambda every: (rank[every.unit], every.count))


class Pictures:
    """Pictures that several pages look at, made once; the latest 64 MB of them."""

    MOST_BYTES = 64 << 20

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], Picture] = OrderedDict()
        self._bytes = 0

    def messages(self, source: Source, net: Net, look: Look, moment: int) -> Iterator[tuple[str, bytes | None]]:
        """For each layer its name and its binary message, None where there is no value."""
        weights = look.variable in _of_weights(net)
        of = (look.layer, look.unit) if look.unit >= 0 else None
        for placed in net.layers:
            picture = self._picture(source, placed, look, moment, of if weights else None)
            if picture is None or (weights and of is None):
                yield placed.layer.name, None
                continue
            names = {"layer": placed.layer.name, "variable": look.variable, "item": look.item}
            message = message_of(picture, look=look.look, moment=moment, raster=look.raster > 0, **names)
            yield placed.layer.name, message

    def clear(self) -> None:
        """Forget them all: another network."""
        self._kept.clear()
        self._bytes = 0

    def _picture(self, source: Source, placed: PlacedLayer, look: Look, moment: int, of: Unit | None) -> Picture | None:
        newest = source.moments[-1].id if look.raster and source.moments else -1  # with it, older ones may have gone
        key = (moment, placed.layer.name, look.variable, look.item, of, look.raster, newest)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        try:
            picture = self._made(source, placed, look, moment, of)
        except Exception as error:  # this layer has no picture; the others may have one
            report_error(error)
            return None
        if picture is not None:  # a value that is not there may still come
            self._keep(key, picture)
        return picture

    def _made(self, source: Source, placed: PlacedLayer, look: Look, moment: int, of: Unit | None) -> Picture | None:
        name = placed.layer.name
        if look.raster:
            rows = source.raster(name, look.variable, look.item, look.raster, of, moment)
            return None if rows is None or not rows.size else picture_of(rows, (1, 1, *rows.shape), across=False)
        values = source.units(moment, name, look.variable, look.item, of)
        return None if values is None or values.size != placed.units else picture_of(values, placed.grid)

    def _keep(self, key: tuple[object, ...], picture: Picture) -> None:
        self._kept[key] = picture
        self._bytes += _cost(picture)
        while self._bytes > self.MOST_BYTES:
            _, old = self._kept.popitem(last=False)
            self._bytes -= _cost(old)


def _cost(picture: Picture) -> int:
    return picture.payload.nbytes + 1024  # a key and its objects
