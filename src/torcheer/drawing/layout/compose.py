"""Turn a layout and the sizes of its children into coordinates.

Implemented twice, here and in web/src/graph/layout/compose.ts; docs/layout.md is the specification, and both are
tested on the same vectors. "Along" is the direction of the flow (down the page, or right), "across" the other one.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from math import ceil

from torcheer.drawing.layout.box_layout import Layout, Route
from torcheer.drawing.layout.box_sizes import Box, ComposedBox, Metrics, Point, Title


def compose(
    layout: Layout, boxes: list[Box], *, title: Title | None, down: bool, limit: float, metrics: Metrics
) -> ComposedBox:
    """Compute the places of the children and the paths of the edges.

    A box without a title has no border either; one longer than `limit` pixels is wrapped into bands side by side.
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
        self.rows = [0.0] * layout.row_count  # the length of each row
        self.notes = [[0.0, 0.0] for _ in range(layout.row_count)]  # space for text above and below each row
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
        self.leaving: list[dict[int, None]] = [{} for _ in range(self.bands)]  # the nets that continue in a later band
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
        """Place a node's ports.

        A single port stands opposite the main one of the other side: lines stay straight.
        """
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

    # Bands: a long box is wrapped into pieces that stand side by side

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
            candidates = range(max(0, place - m.search), min(len(allowed), place + m.search))
            costs = [abs(reaches[n] - goal) + (layout.cuts[allowed[n]] - 1) * m.cost for n in candidates]
            cuts.add(allowed[candidates[costs.index(min(costs))]])
        least, ends = m.least * total / max(wanted, 1), [0.0]
        for row in sorted(cuts):
            if reach[row] - ends[-1] < least or total - reach[row] < least:
                cuts.remove(row)  # the band would be too short
            else:
                ends.append(reach[row])
        if max(end - start for start, end in pairwise([*ends, total])) > m.worth * total:
            cuts = set()  # the box would stay nearly as long, and become wider
        band_of, band = [], 0
        for row in range(layout.row_count):
            band_of.append(band)
            band += row in cuts
        return band_of

    def _columns(self) -> None:
        """Place the columns from the main one outwards, as near as the rows they share allow."""
        layout, m = self.layout, self.m
        extents = self._extents()
        nodes_in = [0] * layout.column_count
        for column in layout.columns:
            nodes_in[column] += 1
        main = nodes_in.index(max(nodes_in)) if nodes_in else 0
        self.middle = [[0.0] * layout.column_count for _ in range(self.bands)]
        self.gutters: list[dict[int, float]] = []
        across = 0.0
        for band in range(self.bands):
            middle = self.middle[band]
            right = [0.0] * layout.row_count  # how far each row extends from the main column's middle
            left = [0.0] * layout.row_count
            for column in [*range(main, layout.column_count), *range(main - 1, -1, -1)]:
                outward, behind = (right, 1) if column >= main else (left, 0)
                place = 0.0
                if column != main:
                    for extent in extents[band][column]:
                        place = max(place, max(outward[extent[0] : extent[1] + 1]) + extent[3 - behind])
                for first, last, before, after in extents[band][column]:
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

    def _extents(self) -> list[list[list[tuple[int, int, float, float]]]]:
        """Return, by band and column, first row, last row, extent before and after the middle."""
        layout, m = self.layout, self.m
        extents: list[list[list[tuple[int, int, float, float]]]] = [
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
            extents[band][layout.columns[node]].append((row, last, anchor + pad, room + pad))
        for route in layout.routes:
            if route.lane >= 0:
                low, high = sorted((layout.rows[route.source], layout.rows[route.target]))
                for band in range(self.band_of[low], self.band_of[high] + 1):
                    first = max(low, self.last[band - 1] + 1 if band else 0)
                    in_own_column = route.lane == layout.columns[route.source]
                    at_start = in_own_column and band == self.band_of[low] and not route.back
                    off = self.exits[route.source][route.exit] - self.anchors[route.source] if at_start else 0.0
                    last = min(high, self.last[band])
                    extents[band][route.lane].append((first, last, m.lane / 2 - off, m.lane / 2 + off))
        return extents

    # Edges: each is a list of runs across, in the channels between rows

    def _x(self, node: int, place: float) -> float:
        row, column = self.layout.rows[node], self.layout.columns[node]
        return self.middle[self.band_of[row]][column] - self.anchors[node] + place

    def _runs(self) -> None:
        """Find the channels in which each edge runs across, with start and end.

        The channel below row r is r; the one above all bands but the first is the number of rows.
        """
        self.runs = [self._runs_of(route) for route in self.layout.routes]

    def _runs_of(self, route: Route) -> list[tuple[int, float, float]]:
        rows, top = self.layout.rows, self.layout.row_count
        first, last = rows[route.source], rows[route.target]
        start, end = self._x(route.source, self.exits[route.source][route.exit]), self._target_x(route)
        band, target_band = self.band_of[first], self.band_of[last]
        if route.back:
            lane = self.middle[band][route.lane]
            return [(first, start, lane), (last - 1, lane, end)]
        in_own_column = route.lane == self.layout.columns[route.source]
        if band == target_band:
            if route.lane < 0:
                return [(first, start, end)]
            lane = start if in_own_column else self.middle[band][route.lane]
            if route.side:
                return [(first, start, lane)]
            return [(first, start, lane), (last - 1, lane, end)]
        gutter, bottom = self.gutters[band][route.net], self.last[band]
        runs = []
        lane = start
        if first < bottom and not in_own_column:
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
        """Put runs that would touch in a channel on different tracks."""
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
            order = _order_nets(nets, above[channel], below[channel])
            tracks, count = _assign(order, nets, self.m.lane / 2)
            self.track_of.append(tracks)
            self.track_count.append(count)

    def _channel(self, row: int) -> float:
        """Return the length of the channel below a row."""
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
        tall_nodes: dict[int, list[int]] = {}  # row -> tall nodes that must end in it at the latest
        for node, span in enumerate(layout.spans):
            if span > layout.rows[node]:
                tall_nodes.setdefault(min(span, self.last[self.band_of[layout.rows[node]]]), []).append(node)
        self.row_start: list[float] = []
        length = 0.0
        along = 0.0
        head = self.track_count[layout.row_count] * m.track + m.arrow + m.gap
        for row in range(layout.row_count):
            if row and self.band_of[row] != self.band_of[row - 1]:
                along = head + self.notes[row][0]
            self.row_start.append(along)
            for node in tall_nodes.get(row, ()):
                start = self.row_start[layout.rows[node]]
                self.rows[row] = max(self.rows[row], start + self.along[node] - along)
            along += self.rows[row]
            length = max(length, along)
            if row < layout.row_count - 1:
                along += self._channel(row)
                length = max(length, along)
        self.total_along = length

    # Coordinates

    def finish(self, title: Title | None) -> ComposedBox:
        """Add the border, and convert along and across to x and y."""
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
        return ComposedBox(
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
    """Extend these rows to at least `reach`."""
    if max(rows[first : last + 1]) <= reach:
        rows[first : last + 1] = [reach] * (last + 1 - first)
    else:
        rows[first : last + 1] = [max(old, reach) for old in rows[first : last + 1]]


def _spread(count: int, across: float, gap: float) -> list[float]:
    """Spread ports around the middle of a side."""
    step = min(gap, (across - 8) / max(count - 1, 1))
    return [across / 2 + (n - (count - 1) / 2) * step for n in range(count)]


def _order_nets(nets: dict[int, list[float]], above: dict[float, int], below: dict[float, list[int]]) -> list[int]:
    """Order nets: one that comes down at some x is above those that continue down from there."""
    first: dict[int, list[int]] = {}
    for at, net in above.items():
        for lower_net in below.get(at, ()):
            if lower_net != net:
                first.setdefault(lower_net, []).append(net)
    order: dict[int, None] = {}
    for net in sorted(nets, key=lambda net: (nets[net][0], net)):
        stack = [net]
        waiting: set[int] = set()
        while stack:
            top = stack[-1]
            pending = [n for n in first.get(top, ()) if n not in order and n not in waiting]
            waiting.add(top)
            if pending:
                stack.append(pending[0])
            else:
                order.setdefault(stack.pop())
    return list(order)


def _assign(order: list[int], nets: dict[int, list[float]], apart: float) -> tuple[dict[int, int], int]:
    """Assign each net to the first track it reaches from the last without touching another."""
    tracks: list[list[tuple[float, float]]] = []
    track_of: dict[int, int] = {}
    for net in order:
        low, high = nets[net]
        track = len(tracks)
        while track > 0 and all(end + apart <= low or high + apart <= start for start, end in tracks[track - 1]):
            track -= 1
        if track == len(tracks):
            tracks.append([])
        tracks[track].append((low, high))
        track_of[net] = track
    return track_of, len(tracks)


def _points(path: list[Point], down: bool) -> tuple[Point, ...]:
    """Drop repeated points and points on a straight line; return (x, y) pairs."""
    corners: list[Point] = []
    for point in path:
        if corners and corners[-1] == point:
            continue
        while len(corners) > 1 and (
            corners[-2][0] == corners[-1][0] == point[0] or corners[-2][1] == corners[-1][1] == point[1]
        ):
            corners.pop()
        corners.append(point)
    return tuple(corners if down else ((y, x) for x, y in corners))
