"""The layout of one box, without sizes: rows and columns of nodes, lanes of long edges.

A layout is made once for each distinct module and serves every fold of it: `compose` turns it into coordinates
whenever the sizes of its children change (docs/layout.md specifies how, for implementations in any language).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT

NO_PAIRS: dict[int, int] = {}
LayoutEdge = tuple[int, int, int, int]  # from node, its exit, to node, its entry


@dataclass(slots=True)
class Route:
    """The route of one edge."""

    source: int
    exit: int  # which of the source's exits
    target: int
    entry: int  # which of the target's entries
    net: int  # edges of one net carry the same tensor and may share their path
    lane: int = -1  # the column in which it runs between its rows; -1 between neighbouring rows
    side: str = ""  # "left" or "right" where it enters its target from the side
    back: bool = False  # it runs against the flow: part of a loop


@dataclass(slots=True)
class Layout:
    """The inside of a box: entries, then children, then exits, each in a row and a column."""

    entries: int
    children: int
    exits: int
    rows: list[int]  # of each node
    columns: list[int]
    anchors: list[int]  # the entry through which its column's line enters a node; -1 none
    leads: list[int]  # the exit through which its column's line leaves a node; -1 none
    spans: list[int]  # the last row a tall node may extend to, where no edge is in the way
    row_count: int
    column_count: int
    routes: list[Route]
    cuts: list[int] = field(default_factory=list)  # nets that pass from row r to r + 1; -1 where no cut is allowed


def arrange(
    entries: int, children: int, exits: int, edges: list[LayoutEdge], merges: set[int], flows: Sequence[int] = (),
    pairs: dict[int, int] = NO_PAIRS,
) -> Layout:  # fmt: skip
    """Give every node a row and a column, every long edge a lane.

    Nodes are numbered: entries, children in order of execution, exits. `merges` are children that may be entered from
    the side. `flows` is what each edge carries: values with gradients make the straight lines, saved values make none.
    `pairs` maps a node to the earlier node that it stands beside, never above. An edge to the same or an earlier node
    is a loop.
    """
    flowing = {(edge[0], edge[2]) for edge, flow in zip(edges, flows) if flow == FLOWS}
    count = entries + children + exits
    forward = [edge for edge in edges if edge[0] < edge[2]]
    rows, row_count = _rows(entries, children, exits, forward, pairs)
    saved = {edge for edge, flow in zip(edges, flows) if flow == KEPT}
    lines = [edge for edge in forward if edge not in saved] if saved else forward
    chains, chain_of, next_of, lengths = _chains(entries, count, lines, rows, flowing)
    gradients = {edge for edge, flow in zip(edges, flows) if flow == GRADIENT}
    # Values come last, so that they overwrite gradients.
    anchors, leads = _main_ports(count, sorted(lines, key=lambda edge: edge not in gradients), next_of)
    columns, ends = _columns(count, forward, rows, chains, chain_of, lengths, next_of, anchors, leads, merges, pairs)
    routes, column_count, columns = _routes(edges, rows, columns, next_of, ends, merges)
    return Layout(
        entries, children, exits, rows, columns, anchors, leads, _spans(rows, columns, routes), row_count, column_count,
        routes, _cuts(rows, routes, row_count),
    )  # fmt: skip


def _rows(
    entries: int, children: int, exits: int, forward: list[LayoutEdge], pairs: dict[int, int]
) -> tuple[list[int], int]:
    """Put each node one row below its lowest parent.

    A node without parents is just above its first child.
    """
    count = entries + children + exits
    rows = [0] * entries + [1] * (children + exits)
    parents: list[list[int]] = [[] for _ in range(count)]
    for source, _, target, _ in forward:
        parents[target].append(source)
    for node in range(entries, count):
        if node in pairs:
            rows[node] = rows[pairs[node]]
        for parent in parents[node]:
            if rows[parent] >= rows[node]:
                rows[node] = rows[parent] + 1
    first_child = [count + 1] * count
    for node in range(entries + children - 1, entries - 1, -1):
        if not parents[node] and first_child[node] <= count:
            rows[node] = max(1, first_child[node] - 1)
        for parent in parents[node]:
            first_child[parent] = min(first_child[parent], rows[node])
    last = max(rows[: entries + children], default=0) + 1
    rows[entries + children :] = [last] * exits
    return rows, last + 1


def _chains(
    entries: int, count: int, forward: list[LayoutEdge], rows: list[int], flowing: set[tuple[int, int]]
) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """Find the paths to draw as straight lines, and their lengths.

    Each node continues to the child with the longest path ahead, and a child belongs to the parent with the longest
    path behind it, edges with gradients before all others.
    """
    children: list[list[int]] = [[] for _ in range(count)]
    for source, _, target, _ in forward:
        children[source].append(target)
    height = [0] * count
    favourite = [-1] * count
    for node in range(count - 1, -1, -1):
        if children[node]:
            height[node] = max(height[child] for child in children[node]) + 1
            longest = sorted({child for child in children[node] if height[child] + 1 == height[node]})
            favourite[node] = longest[(len(longest) - 1) // 2]  # of equal branches, the middle one
    length = [
        2 if node < entries else 1 for node in range(count)
    ]  # paths from an entry win over those that start inside
    before = [-1] * count
    for node in range(count):  # parents come before children
        child = favourite[node]
        if child >= 0:
            candidate = length[node] + 1 + (count if (node, child) in flowing else 0)
            if before[child] < 0 or (candidate, rows[node]) > (length[child], rows[before[child]]):
                before[child] = node
                length[child] = candidate
    chain_of = [-1] * count
    chains: list[list[int]] = []
    for node in range(count):
        if before[node] >= 0:
            chain_of[node] = chain_of[before[node]]
            chains[chain_of[node]].append(node)
        else:
            chain_of[node] = len(chains)
            chains.append([node])
    next_of = [-1] * count
    for chain in chains:
        for node, child in pairwise(chain):
            next_of[node] = child
    onward = [child if child >= 0 else -2 - favourite[node] for node, child in enumerate(next_of)]
    return chains, chain_of, onward, [length[chain[-1]] for chain in chains]


class _Track:
    """The occupied ranges of rows in one column or lane."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def take(self, start: int, end: int) -> bool:
        """Reserve a range of rows if it is free; return whether it was."""
        place = bisect_left(self.ends, start)  # the first range that ends at or after start
        if place < len(self.starts) and self.starts[place] <= end:
            return False
        self.starts.insert(place, start)
        self.ends.insert(place, end)
        return True


def _columns(
    count: int,
    forward: list[LayoutEdge],
    rows: list[int],
    chains: list[list[int]],
    chain_of: list[int],
    lengths: list[int],
    next_of: list[int],
    anchors: list[int],
    leads: list[int],
    merges: set[int],
    pairs: dict[int, int],
) -> tuple[list[int], list[int]]:
    """Choose a column for each chain.

    The longest is in the middle, others beside the chain they leave or join, backward rules to the right of their
    operations. A chain keeps its column down to the end of its last edge, so that this edge runs straight. `ends` are
    those rows.
    """
    ends = [rows[chain[-1]] for chain in chains]
    for number, chain in enumerate(chains):
        joined = -2 - next_of[chain[-1]]  # the node in another chain that the last node leads to
        if joined >= 0:
            ends[number] = rows[joined] if joined in merges else max(rows[chain[-1]], rows[joined] - 1)
    near = [-1] * len(chains)  # the chain that this one leaves or joins
    off = [0] * len(chains)  # how many ports right of the main one this chain enters where it joins, or else leaves
    for source, exit, target, entry in forward:
        start, end = chain_of[source], chain_of[target]
        if start != end:
            if target == chains[end][0] and near[end] < 0:
                near[end] = start
                if leads[source] >= 0:
                    off[end] = off[end] or exit - leads[source]
            if source == chains[start][-1]:
                near[start] = end if near[start] < 0 else near[start]
                if target == -2 - next_of[source] and anchors[target] >= 0:
                    off[start] = entry - anchors[target]
    rules = {chain_of[rule]: chain_of[operation] for rule, operation in reversed(pairs.items())}
    near = [rules.get(number, neighbour) for number, neighbour in enumerate(near)]
    order = sorted(range(len(chains)), key=lambda n: (n in rules, rows[chains[n][0]], abs(off[n]), n))
    if chains:
        main = max(order, key=lambda n: lengths[n])
        order.remove(main)
        order.insert(0, main)
    taken: dict[int, _Track] = {}
    place: dict[int, int] = {}
    steps: dict[tuple[int, int, int, int, int], int] = {}
    for number in order:
        start, end, middle = rows[chains[number][0]], ends[number], place.get(near[number], 0)
        side, loyal = (-1 if off[number] < 0 else 1), 3 if off[number] else 0
        if number in rules:
            side, loyal = 1, len(chains)
        request = (middle, side, loyal, start, end)
        step = steps.get(request, 0)  # the columns tried for an equal request are still occupied
        column = _beside(middle, side, loyal, step)
        while not taken.setdefault(column, _Track()).take(start, end):
            step += 1
            column = _beside(middle, side, loyal, step)
        steps[request] = step
        place[number] = column
    return [place[chain_of[node]] for node in range(count)], [ends[chain_of[node]] for node in range(count)]


def _beside(middle: int, side: int, loyal: int, step: int) -> int:
    """Return the column to try at `step`.

    First the middle, then `loyal` columns on that side, then both sides in turn.
    """
    beyond = step - loyal
    return middle + side * (step if beyond <= 0 else loyal + (beyond + 1) // 2 if beyond % 2 else -(beyond // 2))


def _routes(
    edges: list[LayoutEdge], rows: list[int], columns: list[int], next_of: list[int], ends: list[int], merges: set[int]
) -> tuple[list[Route], int, list[int]]:
    """Choose a lane for each net that needs one, in the gutter beside its target's column.

    Renumber columns from 0.
    """
    nets: dict[tuple[int, int], list[LayoutEdge]] = {}
    for edge in edges:
        nets.setdefault((edge[0], edge[1]), []).append(edge)
    _join_nets(nets)
    gutters: dict[tuple[int, str], list[tuple[int, int, int]]] = {}  # column, side -> (first row, last row, request)
    routes: list[Route] = []
    requests: list[list[Route]] = []
    for net, members in enumerate(nets.values()):
        laned: dict[bool, list[Route]] = {}  # routes of the net that need a lane, by whether they run back
        for source, exit, target, entry in members:
            route = Route(source, exit, target, entry, net, back=target <= source)
            routes.append(route)
            if not route.back and rows[target] == rows[source] + 1:
                continue
            if not route.back and next_of[source] < 0 and rows[target] <= ends[source] + 1:
                route.lane = -2  # down the column of its source, which is reserved for it
                beside = abs(columns[target] - columns[source]) == 1
                if target in merges and beside and rows[target] <= ends[source]:
                    route.side = "left" if columns[source] < columns[target] else "right"
            elif not route.back and next_of[source] == target:
                route.lane = -2
            else:
                laned.setdefault(route.back, []).append(route)
        for back, group in laned.items():
            last = max(group, key=lambda route: rows[route.target])
            column = columns[last.target]
            side = "left" if back or columns[last.source] < column else "right"
            low = (
                min(rows[route.target] for route in group) - 1 if back else min(rows[route.source] for route in group)
            )  # a loop enters from above
            high = rows[last.source] if back else rows[last.target]
            gutters.setdefault((column, side), []).append((low, high, len(requests)))
            requests.append(group)
    lanes: dict[int, int] = {}
    widths: dict[tuple[int, str], int] = {}
    for gutter, entries in gutters.items():
        tracks: list[_Track] = []
        for low, high, request in sorted(entries, key=lambda entry: (entry[1] - entry[0], entry)):
            lane = next((n for n, track in enumerate(tracks) if track.take(low, high)), len(tracks))
            if lane == len(tracks):
                tracks.append(_Track())
                tracks[lane].take(low, high)
            lanes[request] = lane
        widths[gutter] = len(tracks)
    position: dict[int, int] = {}
    start = 0
    for column in sorted(set(columns)):
        position[column] = start + widths.get((column, "left"), 0)
        start = position[column] + 1 + widths.get((column, "right"), 0)
    for (column, side), entries in gutters.items():
        for _, _, request in entries:
            offset = lanes[request] + 1
            for route in requests[request]:
                route.lane = position[column] + (offset if side == "right" else -offset)
                if not route.back and route.target in merges and columns[route.target] == column:
                    route.side = side
    _one_per_side(routes)
    new_columns = [position[column] for column in columns]
    for route in routes:
        if route.lane == -2:
            route.lane = new_columns[route.source]
    return routes, start, new_columns


def _join_nets(nets: dict[tuple[int, int], list[LayoutEdge]]) -> None:
    """Let edges from several nodes into one entry share their path, if their nets go nowhere else."""
    into: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for net, members in nets.items():
        if len(members) == 1:
            into.setdefault(members[0][2:], []).append(net)
    for first, *others in into.values():
        for net in others:
            nets[first] += nets.pop(net)


def _one_per_side(routes: list[Route]) -> None:
    """Let only one net enter a node through each side."""
    net_by_side: dict[tuple[int, str], tuple[int, int]] = {}
    for route in routes:
        if route.side and net_by_side.setdefault((route.target, route.side), (route.net, route.entry)) != (
            route.net,
            route.entry,
        ):
            route.side = ""


def _main_ports(count: int, forward: list[LayoutEdge], next_of: list[int]) -> tuple[list[int], list[int]]:
    """Return the entry and the exit of each node through which the line of its column runs."""
    anchors, leads = [-1] * count, [-1] * count
    for source, exit, target, entry in forward:
        if next_of[source] == target:
            anchors[target], leads[source] = entry, exit
    return anchors, leads


def _spans(rows: list[int], columns: list[int], routes: list[Route]) -> list[int]:
    """Return the last row that each box may extend to, if it is tall, beside shorter ones.

    It may while its own edge runs down its column, and no other edge crosses that column.
    """
    spans = list(rows)
    reach: dict[int, int] = {}
    crossing: dict[int, list[tuple[int, int]]] = {}
    for route in routes:
        first, last, start, end = rows[route.source], rows[route.target], columns[route.source], columns[route.target]
        lane = route.lane if route.lane >= 0 else end
        crossing.setdefault(first, []).append((min(start, lane), max(start, lane)))
        crossing.setdefault(last - 1, []).append((min(end, lane), max(end, lane)))
        free = -1 if route.back or route.lane != start else last - 1
        reach[route.source] = min(reach.get(route.source, free), free)
    for node, last in reach.items():
        row, column = rows[node], columns[node]
        while spans[node] < last and all(
            not low <= column <= high or low == high for low, high in crossing.get(row, ())
        ):
            row += 1
            spans[node] = row
    return spans


def _cuts(rows: list[int], routes: list[Route], row_count: int) -> list[int]:
    """Count the nets that pass between each row and the next; -1 where a loop does."""
    change = [0] * (row_count + 1)
    loops = [0] * (row_count + 1)
    reach: dict[int, list[int]] = {}
    for route in routes:
        low, high = sorted((rows[route.source], rows[route.target]))
        if route.back:
            loops[max(0, low - 1)] += 1
            loops[high + 1] -= 1
        else:
            span = reach.setdefault(route.net, [low, high])
            span[0], span[1] = min(span[0], low), max(span[1], high)
    for low, high in reach.values():
        change[low] += 1
        change[high] -= 1
    cuts, open_nets, open_loops = [], 0, 0
    for row in range(row_count - 1):
        open_nets += change[row]
        open_loops += loops[row]
        cuts.append(-1 if open_loops else open_nets)
    return cuts
