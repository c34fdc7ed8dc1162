"""The rule that turns a layout and the sizes of its children into coordinates.

It is written twice, here and in web/src/graph/layout/compose.ts, specified in docs/layout.md, and both are tested on
the same vectors. "Along" is the way data flows (down the page, or right), "across" is the other way.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from math import ceil

from torcheer.drawing.layout.box_layout import Layout, Route
from torcheer.drawing.layout.box_sizes import Box, Composed, Metrics, Point, Title


def compose(
    layout: Layout, boxes: list[Box], *, title: Title | None, down: bool, limit: float, metrics: Metrics
) -> Composed:
    """Put the children in place and draw the edges between them.

    A box without a title has no border either; one longer than `limit` is wrapped into bands side by side.
    """
    return _Composition(layout, boxes, down, limit, metrics).finish(title)


class _Composition:
    def __init__(self, layout: Layout, boxes: list[Box], down: bool, limit: float, metrics: Metrics) -> None:
        self.layout, self.down, self.m = layout, down, metrics
        port = Box(0, 0, (0.0,), (0.0,))
        self.boxes = [port] * layout.entries + boxes + [port] * layout.exits
        self.along = [box.height if down else box.width for box in self.boxes]
        self.across = [box.width if down else box.height for box in self.boxes]
        self.sides = {(route.target, route.entry): route.side for route in layout.routes if route.side}
        ports = [self._ports(node) for node in range(len(self.boxes))]
        self.entries = [entries for entries, _ in ports]
        self.exits = [exits for _, exits in ports]
        self.anchors = [self._anchor(node) for node in range(len(self.boxes))]
        self.rows = [0.0] * layout.row_count  # how long each is
        self.notes = [[0.0, 0.0] for _ in range(layout.row_count)]  # room for text above and below each row
        for node, row in enumerate(layout.rows):
            if layout.spans[node] == row:
                self.rows[row] = max(self.rows[row], self.along[node])
            for end, width in enumerate((self.boxes[node].entry_note, self.boxes[node].exit_note)):
                if width:
                    self.notes[row][end] = max(self.notes[row][end], metrics.note if down else width + 6)
        self.band_of = self._bands(limit)
        self.bands = self.band_of[-1] + 1
        self.last = [0] * self.bands  # the last row of each band
        for row, band in enumerate(self.band_of):
            self.last[band] = row
        self.leaving: list[dict[int, None]] = [{} for _ in range(self.bands)]  # the nets that go on in a later band
        for route in layout.routes:
            band = self.band_of[layout.rows[route.source]]
            if not route.back and self.band_of[layout.rows[route.target]] > band:
                self.leaving[band][route.net] = None
        self._columns()
        self._runs()
        self._tracks()
        self._place_rows()

    # Ports

    def _ports(self, node: int) -> tuple[list[float], list[float]]:
        """Where edges enter and leave. A single port stands opposite the main one of the other side, so lines go on."""
        box, across = self.boxes[node], self.across[node]
        if not isinstance(box.entries, int) or not isinstance(box.exits, int):
            assert not isinstance(box.entries, int) and not isinstance(box.exits, int)
            return list(box.entries), list(box.exits)
        anchor, lead = self.layout.anchors[node], self.layout.leads[node]
        top = [entry for entry in range(box.entries) if (node, entry) not in self.sides]
        places = _spread(len(top), across, box.entry_gap)
        exits = _spread(box.exits, across, box.exit_gap)
        if len(top) == 1 and box.exits > 1 and lead >= 0:
            places = [exits[lead]]
        entries = [-1.0] * box.entries
        for entry, place in zip(top, places):
            entries[entry] = place
        if box.exits == 1 and anchor >= 0 and entries[anchor] >= 0:
            exits = [entries[anchor]]
        return entries, exits

    def _anchor(self, node: int) -> float:
        entry, exit = self.layout.anchors[node], max(0, self.layout.leads[node])
        if entry >= 0 and self.entries[node][entry] >= 0:
            return self.entries[node][entry]
        return self.exits[node][exit] if self.exits[node] else self.across[node] / 2

    # Bands: a long box is cut into pieces that stand side by side

    def _bands(self, limit: float) -> list[int]:
        layout, m = self.layout, self.m
        reach, total = [], 0.0
        for row, length in enumerate(self.rows):
            total += length + m.gap + m.arrow + self.notes[row][0] + self.notes[row][1]
            reach.append(total)
        wanted = ceil(total / limit)
        allowed = [row for row in range(1, layout.row_count - 2) if 0 <= layout.cuts[row] <= m.cut]
        reaches = [reach[row] for row in allowed]
        cuts: set[int] = set()
        for number in range(1, wanted if allowed else 1):
            goal = total * number / wanted
            place = bisect_left(reaches, goal)
            near = range(max(0, place - m.search), min(len(allowed), place + m.search))
            costs = [abs(reaches[n] - goal) + (layout.cuts[allowed[n]] - 1) * m.cost for n in near]
            cuts.add(allowed[near[costs.index(min(costs))]])
        least, kept = m.least * total / max(wanted, 1), [0.0]
        for row in sorted(cuts):
            if reach[row] - kept[-1] < least or total - reach[row] < least:
                cuts.remove(row)  # a scrap
            else:
                kept.append(reach[row])
        if max(end - start for start, end in pairwise([*kept, total])) > m.worth * total:
            cuts = set()  # it would stay nearly as long, and become wider
        band_of, band = [], 0
        for row in range(layout.row_count):
            band_of.append(band)
            band += row in cuts
        return band_of

    def _columns(self) -> None:
        """Across: from the main column outwards, each as near as the rows it shares with those before it allow."""
        layout, m = self.layout, self.m
        stretches = self._stretches()
        nodes_in = [0] * layout.column_count
        for column in layout.columns:
            nodes_in[column] += 1
        main = nodes_in.index(max(nodes_in)) if nodes_in else 0
        self.middle = [[0.0] * layout.column_count for _ in range(self.bands)]
        self.gutters: list[dict[int, float]] = []
        across = 0.0
        for band in range(self.bands):
            middle = self.middle[band]
            right = [0.0] * layout.row_count  # how far each row reaches from the main column's middle
            left = [0.0] * layout.row_count
            for column in [*range(main, layout.column_count), *range(main - 1, -1, -1)]:
                outward, behind = (right, 1) if column >= main else (left, 0)
                place = 0.0
                if column != main:
                    for stretch in stretches[band][column]:
                        place = max(place, max(outward[stretch[0] : stretch[1] + 1]) + stretch[3 - behind])
                for first, last, before, after in stretches[band][column]:
                    _raise(outward, first, last, place + (after if behind else before))
                    if column == main:
                        _raise(left, first, last, before)
                middle[column] = place if behind else -place
            start = across + max(left)
            for column in range(layout.column_count):
                middle[column] += start
            across = start + max(right)
            gutter = {}
            if self.leaving[band]:
                across += m.gutter
                for net in self.leaving[band]:
                    gutter[net] = across
                    across += m.lane
                across += m.gutter - m.lane
            self.gutters.append(gutter)
        self.total_across = across

    def _stretches(self) -> list[list[list[tuple[int, int, float, float]]]]:
        """For each band and column, the rows that something takes, how far it reaches before and after the middle."""
        layout, m = self.layout, self.m
        found: list[list[list[tuple[int, int, float, float]]]] = [
            [[] for _ in range(layout.column_count)] for _ in range(self.bands)
        ]
        for node, row in enumerate(layout.rows):
            band, box, anchor = self.band_of[row], self.boxes[node], self.anchors[node]
            inside = layout.entries <= node < layout.entries + layout.children
            pad = m.column / 2 if inside else m.lane / 2
            room = self.across[node] - anchor
            if self.down and box.exit_note:
                room = max(room, max(self.exits[node], default=0.0) - anchor + 5 + box.exit_note)
            last = min(layout.spans[node], self.last[band])
            found[band][layout.columns[node]].append((row, last, anchor + pad, room + pad))
        for route in layout.routes:
            if route.lane >= 0:
                low, high = sorted((layout.rows[route.source], layout.rows[route.target]))
                for band in range(self.band_of[low], self.band_of[high] + 1):
                    first = max(low, self.last[band - 1] + 1 if band else 0)
                    own = route.lane == layout.columns[route.source] and band == self.band_of[low] and not route.back
                    off = self.exits[route.source][route.exit] - self.anchors[route.source] if own else 0.0
                    last = min(high, self.last[band])
                    found[band][route.lane].append((first, last, m.lane / 2 - off, m.lane / 2 + off))
        return found

    # Edges: each is a list of runs across, in the channels between rows

    def _x(self, node: int, place: float) -> float:
        row, column = self.layout.rows[node], self.layout.columns[node]
        return self.middle[self.band_of[row]][column] - self.anchors[node] + place

    def _runs(self) -> None:
        """Which channel each edge crosses over in, and from where to where. The channel below row r is r; the one above
        all bands but the first is the number of rows."""
        self.runs = [self._runs_of(route) for route in self.layout.routes]

    def _runs_of(self, route: Route) -> list[tuple[int, float, float]]:
        rows, top = self.layout.rows, self.layout.row_count
        first, last = rows[route.source], rows[route.target]
        start, end = self._x(route.source, self.exits[route.source][route.exit]), self._target_x(route)
        band, target_band = self.band_of[first], self.band_of[last]
        if route.back:
            lane = self.middle[band][route.lane]
            return [(first, start, lane), (last - 1, lane, end)]
        own = route.lane == self.layout.columns[route.source]
        if band == target_band:
            if route.lane < 0:
                return [(first, start, end)]
            lane = start if own else self.middle[band][route.lane]
            if route.side:
                return [(first, start, lane)]
            return [(first, start, lane), (last - 1, lane, end)]
        gutter, bottom = self.gutters[band][route.net], self.last[band]
        runs = []
        lane = start
        if first < bottom and not own:
            lane = self.middle[band][route.lane]
            runs.append((first, start, lane))
        runs.append((bottom, lane, gutter))
        if self.band_of[last - 1] < target_band and not route.side:
            return [*runs, (top, gutter, end)]
        lane = self.middle[target_band][route.lane]
        runs.append((top, gutter, lane))
        return runs if route.side else [*runs, (last - 1, lane, end)]

    def _target_x(self, route: Route) -> float:
        if route.side == "left":
            return self._x(route.target, 0.0)
        if route.side == "right":
            return self._x(route.target, self.across[route.target])
        return self._x(route.target, self.entries[route.target][route.entry])

    def _tracks(self) -> None:
        """Along: in a channel, runs that would touch lie on different tracks."""
        spans: list[dict[int, list[float]]] = [{} for _ in range(self.layout.row_count + 1)]
        above: list[dict[float, int]] = [{} for _ in spans]
        below: list[dict[float, list[int]]] = [{} for _ in spans]
        for route, runs in zip(self.layout.routes, self.runs):
            for channel, start, end in runs:
                if start != end:
                    span = spans[channel].setdefault(route.net, [start, start])
                    span[0], span[1] = min(span[0], start, end), max(span[1], start, end)
                    above[channel][start] = route.net
                    below[channel].setdefault(end, []).append(route.net)
        self.track_of: list[dict[int, int]] = []
        self.track_count: list[int] = []
        for channel, nets in enumerate(spans):
            order = _settle(nets, above[channel], below[channel])
            tracks, count = _assign(order, nets, self.m.lane / 2)
            self.track_of.append(tracks)
            self.track_count.append(count)

    def _channel(self, row: int) -> float:
        """How long the channel below a row is."""
        m = self.m
        below = self.notes[row + 1][0] if row + 1 < self.layout.row_count else 0.0
        tracks = self.track_count[row] * m.track
        if row == 0 and not tracks:
            return below
        if row == self.layout.row_count - 2:
            return m.gap + self.notes[row][1] + tracks
        return m.gap + self.notes[row][1] + tracks + below + m.arrow

    def _place_rows(self) -> None:
        layout, m = self.layout, self.m
        reaching: dict[int, list[int]] = {}  # row -> tall nodes that must end in it at the latest
        for node, span in enumerate(layout.spans):
            if span > layout.rows[node]:
                reaching.setdefault(min(span, self.last[self.band_of[layout.rows[node]]]), []).append(node)
        self.row_start: list[float] = []
        length = 0.0
        along = 0.0
        head = self.track_count[layout.row_count] * m.track + m.arrow + m.gap
        for row in range(layout.row_count):
            if row and self.band_of[row] != self.band_of[row - 1]:
                along = head + self.notes[row][0]
            self.row_start.append(along)
            for node in reaching.get(row, ()):
                start = self.row_start[layout.rows[node]]
                self.rows[row] = max(self.rows[row], start + self.along[node] - along)
            along += self.rows[row]
            length = max(length, along)
            if row < layout.row_count - 1:
                along += self._channel(row)
                length = max(length, along)
        self.total_along = length

    # Coordinates

    def finish(self, title: Title | None) -> Composed:
        """Add the border and turn along and across into x and y."""
        layout, m, down = self.layout, self.m, self.down
        nodes = range(len(self.boxes))
        across_before = along_before = across_after = along_after = 0.0
        if title:
            strip = m.title + (title.lines - 1) * m.line
            across_before, across_after = (m.pad, m.pad) if down else (strip, m.pad)
            along_before, along_after = (strip, m.pad) if down else (m.pad, m.pad)
        if title and down:
            ports = [self._x(node, 0.0) for node in range(layout.entries)]
            across_before = max([across_before, *(title.width + 2 * m.pad - port for port in ports)])
        across = across_before + self.total_across + across_after
        along = along_before + self.total_along + along_after
        if title and down:
            across = max(across, title.width + 2 * m.pad)
        elif title:
            along = max(along, title.width + 2 * m.pad)
        lefts = [self._x(node, 0.0) + across_before for node in nodes]
        tops = []
        for node in nodes:
            row = layout.rows[node]
            slack = self.rows[row] - self.along[node] if layout.spans[node] == row else 0.0
            tops.append(along_before + self.row_start[row] + max(0.0, slack) / 2)
        for node in range(layout.entries):
            tops[node] = 0.0
        for node in range(layout.entries + layout.children, len(self.boxes)):
            tops[node] = along
        paths = [
            _points(self._path(route, runs, tops, across_before, along_before), down)
            for route, runs in zip(layout.routes, self.runs)
        ]
        inside = range(layout.entries, layout.entries + layout.children)
        box = Box(
            across if down else along,
            along if down else across,
            tuple(lefts[: layout.entries]),
            tuple(lefts[layout.entries + layout.children :]),
        )
        return Composed(
            box,
            tuple((lefts[node], tops[node]) if down else (tops[node], lefts[node]) for node in inside),
            tuple(paths),
            tuple(tuple(self.entries[node]) for node in inside),
            tuple(tuple(self.exits[node]) for node in inside),
            self.bands,
        )

    def _path(
        self, route: Route, runs: list[tuple[int, float, float]], tops: list[float], across: float, along: float
    ) -> list[Point]:
        source, target = route.source, route.target
        points = [(self._x(source, self.exits[source][route.exit]) + across, tops[source] + self.along[source])]
        for channel, start, end in runs:
            if start != end:
                at = along + self._track_at(channel, route.net)
                points += [(start + across, at), (end + across, at)]
        end = self._target_x(route) + across
        if route.side:
            middle = tops[target] + self.along[target] / 2
            points += [(points[-1][0], middle), (end, middle)]
        else:
            points.append((end, tops[target]))
        return points

    def _track_at(self, channel: int, net: int) -> float:
        m, track = self.m, self.track_of[channel][net]
        if channel == self.layout.row_count:
            return m.gap + track * m.track
        return self.row_start[channel] + self.rows[channel] + self.notes[channel][1] + m.gap + track * m.track


def _raise(rows: list[float], first: int, last: int, reach: float) -> None:
    """Let these rows reach at least so far."""
    if max(rows[first : last + 1]) <= reach:
        rows[first : last + 1] = [reach] * (last + 1 - first)
    else:
        rows[first : last + 1] = [max(old, reach) for old in rows[first : last + 1]]


def _spread(count: int, across: float, gap: float) -> list[float]:
    """Places for ports, around the middle of a side."""
    step = min(gap, (across - 8) / max(count - 1, 1))
    return [across / 2 + (n - (count - 1) / 2) * step for n in range(count)]


def _settle(nets: dict[int, list[float]], above: dict[float, int], below: dict[float, list[int]]) -> list[int]:
    """An order in which a net that comes down at some place lies above those that go on down from there."""
    first: dict[int, list[int]] = {}
    for at, net in above.items():
        for other in below.get(at, ()):
            if other != net:
                first.setdefault(other, []).append(net)
    order: dict[int, None] = {}
    for net in sorted(nets, key=lambda net: (nets[net][0], net)):
        stack = [net]
        waiting: set[int] = set()
        while stack:
            top = stack[-1]
            open_ones = [n for n in first.get(top, ()) if n not in order and n not in waiting]
            waiting.add(top)
            if open_ones:
                stack.append(open_ones[0])
            else:
                order.setdefault(stack.pop())
    return list(order)


def _assign(order: list[int], nets: dict[int, list[float]], apart: float) -> tuple[dict[int, int], int]:
    """Nets in order onto the first track below which nothing of them is in the way."""
    tracks: list[list[tuple[float, float]]] = []
    found: dict[int, int] = {}
    for net in order:
        low, high = nets[net]
        track = len(tracks)
        while track > 0 and all(end + apart <= low or high + apart <= start for start, end in tracks[track - 1]):
            track -= 1
        if track == len(tracks):
            tracks.append([])
        tracks[track].append((low, high))
        found[net] = track
    return found, len(tracks)


def _points(path: list[Point], down: bool) -> tuple[Point, ...]:
    """Without repeats and points on a straight line, as (x, y)."""
    kept: list[Point] = []
    for point in path:
        if kept and kept[-1] == point:
            continue
        while len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept.pop()
        kept.append(point)
    return tuple(kept if down else ((y, x) for x, y in kept))
