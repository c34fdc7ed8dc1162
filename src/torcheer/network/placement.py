"""Where the layers of a network stand: a stack from the bottom up, beside each other where they branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isfinite
from typing import Final, NamedTuple

from torcheer.errors import BadArgument
from torcheer.network.network_records import Layer, Net, Network, PlacedLayer, Projection, Variable
from torcheer.network.unit_grids import Grid, grid_of, units_of

Place = tuple[float, float, float]
Size = tuple[float, float]


class Row(NamedTuple):
    """The layers of one level."""

    places: dict[int, tuple[float, float]]  # a layer -> its x and z around the axis of the stack
    left: float  # how far it reaches from that axis, with what lies beside its layers
    right: float


SPACING: Final = 4.0  # from a layer to the one above it
_LARGEST: Final = 10.0  # the side of the largest layer, if it is square
_LONGEST: Final = 16.0
_LARGEST_CELL: Final = 2.0  # a single unit is not as large as a layer
_SHORTEST: Final = 0.6
_APART: Final = 3.0  # between layers side by side
_MOST_UNITS: Final = 1 << 28
_ONE_STACK: Final = 14  # levels that stand in a single stack
_WIDER: Final = 1.5  # a screen is so much wider than high
_IN_A_ROW: Final = 6  # branches side by side; more go behind
_DIRECTIONS: Final = {
    "right": (1, 0, 0), "left": (-1, 0, 0), "above": (0, 1, 0), "below": (0, -1, 0), "behind": (0, 0, -1),
    "front": (0, 0, 1),
}  # fmt: skip
_MADE: Final = (
    Variable("r.Wt", "weight", "weights into the selected unit"),
    Variable("s.Wt", "weight", "weights out of the selected unit"),
    Variable("r.DWt", "weight", "how weights into the selected unit changed since the state before"),
    Variable("s.DWt", "weight", "how weights out of the selected unit changed since the state before"),
)


def net_of(network: Network) -> Net:
    """A network with all that drawing it takes."""
    layers = _distinct(network.layers)
    for layer in layers:
        if min(layer.shape, default=0) < 0 or units_of(layer) > _MOST_UNITS:
            raise BadArgument(
                f"layer {layer.name[:80]!r} has the shape {layer.shape}; no more than 2^28 units can be shown"
            )
    grids = [grid_of(layer) for layer in layers]
    sizes = sizes_of(grids)
    places = places_of(layers, sizes, network.projections)
    placed = tuple(
        PlacedLayer(layer, units_of(layer) if grid[2] else 0, grid, size, place)
        for layer, grid, size, place in zip(layers, grids, sizes, places)
    )
    known = {layer.name for layer in layers}
    kept = tuple(one for one in network.projections if one.sender in known and one.receiver in known)
    return Net(network.name, placed, kept, _variables(network, kept))


def _distinct(layers: Iterable[Layer]) -> list[Layer]:
    """The first layer of each name."""
    return list({layer.name: layer for layer in reversed(list(layers))}.values())[::-1]


def _variables(network: Network, projections: Sequence[Projection]) -> tuple[Variable, ...]:
    """What can be looked at: weights only as those of the selected unit."""
    found = {one.name: one for one in network.variables if one.of != "weight"}
    if any(one.kind for one in projections):
        found |= {one.name: one for one in _MADE if one.name not in found}
    return tuple(found.values())


# -- sizes -------------------------------------------------------------------------------------------------------------


def sizes_of(grids: Sequence[Grid]) -> list[Size]:
    """Width and depth of each plane: areas grow with the fourth root of their cells, so that all can be read."""
    shapes = [_cells(grid) for grid in grids]
    most = max((wide * deep for wide, deep in shapes), default=1.0)
    return [_size(wide, deep, most) for wide, deep in shapes]


def _cells(grid: Grid) -> Size:
    """How many cells a plane is wide and deep, a cell of space between tiles; at least one."""
    tile_rows, tile_columns, rows, columns = grid
    gap = 1 if tile_rows * tile_columns > 1 else 0
    return (max(tile_columns * (columns + gap) - gap, 1), max(tile_rows * (rows + gap) - gap, 1))


def _size(wide: float, deep: float, most: float) -> Size:
    side = _LARGEST * (wide * deep / most) ** 0.125
    aspect = min(max(wide / deep, 1 / 12), 12.0) ** 0.5
    width, depth = side * aspect, side / aspect
    shrink = min(1.0, _LONGEST / max(width, depth), max(_LARGEST_CELL * wide / width, _LARGEST_CELL * deep / depth))
    return max(width * shrink, _SHORTEST), max(depth * shrink, _SHORTEST)


# -- places ------------------------------------------------------------------------------------------------------------


def places_of(layers: Sequence[Layer], sizes: Sequence[Size], projections: Sequence[Projection]) -> list[Place]:
    """The middle of each layer: where it says, beside the layer it names, or in the stack."""
    numbers = {layer.name: number for number, layer in enumerate(layers)}
    found: dict[int, Place] = {}
    for number, layer in enumerate(layers):
        if layer.place is not None and len(layer.place) == 3 and all(isfinite(one) for one in layer.place):
            x, y, z = layer.place
            found[number] = (float(x), float(y), float(z))
    related = _related(layers, numbers, found)
    stacked = [number for number in range(len(layers)) if number not in found and number not in related]
    rows = _rows(stacked, layers, sizes, projections, _reach(related, layers, numbers, sizes))
    _stack(rows, sizes, found)
    for number in related:
        other = numbers[layers[number].other]
        found[number] = _beside(number, other, layers[number].relation, sizes, found)
    return [found[number] for number in range(len(layers))]


def _related(layers: Sequence[Layer], numbers: dict[str, int], found: dict[int, Place]) -> list[int]:
    """Layers that lie beside others, each after the one it lies beside; those that name each other are stacked."""
    waiting = {
        number: numbers[layer.other]
        for number, layer in enumerate(layers)
        if number not in found and layer.relation in _DIRECTIONS and layer.other in numbers
    }
    rest, chains = set(waiting), []
    while free := [number for number in waiting if number in rest and waiting[number] not in rest]:
        chains += free
        rest -= set(free)
    return chains


def _beside(number: int, other: int, relation: str, sizes: Sequence[Size], found: dict[int, Place]) -> Place:
    """Next to another layer in a direction; farther on where somebody stands already."""
    direction = _DIRECTIONS[relation]
    across = (sizes[other][0] + sizes[number][0]) / 2 + _APART
    along = (sizes[other][1] + sizes[number][1]) / 2 + _APART
    steps = (across, SPACING, along)
    x, y, z = (at + way * step for at, way, step in zip(found[other], direction, steps))
    return _free((x, y, z), direction, sizes[number], sizes, found)


def _free(
    place: Place, direction: tuple[int, int, int], size: Size, sizes: Sequence[Size], found: dict[int, Place]
) -> Place:
    """The first place in a direction where nobody stands."""
    while (hit := next((one for one in found if _touch(place, size, found[one], sizes[one])), None)) is not None:
        axis = next(index for index, way in enumerate(direction) if way)
        reach = ((size[0] + sizes[hit][0]) / 2 + _APART, SPACING, (size[1] + sizes[hit][1]) / 2 + _APART)[axis]
        moved = list(place)
        moved[axis] = found[hit][axis] + direction[axis] * reach
        place = (moved[0], moved[1], moved[2])
    return place


def _touch(first: Place, size: Size, second: Place, other: Size) -> bool:
    """Whether two layers would lie in each other, or so close above each other that neither can be read."""
    return (
        abs(first[0] - second[0]) < (size[0] + other[0]) / 2 + 1e-6
        and abs(first[1] - second[1]) < SPACING / 2
        and abs(first[2] - second[2]) < (size[1] + other[1]) / 2 + 1e-6
    )


def _reach(
    related: Sequence[int], layers: Sequence[Layer], numbers: dict[str, int], sizes: Sequence[Size]
) -> dict[tuple[int, str], float]:
    """How much room a layer needs to its left and right for those that lie beside it."""
    found: dict[tuple[int, str], float] = {}
    roots: dict[int, tuple[int, str]] = {}
    for number in related:
        side, other = layers[number].relation, numbers[layers[number].other]
        root, way = roots.get(other, (other, side))
        roots[number] = (root, way)
        if side in ("left", "right") and side == way:
            found[root, side] = found.get((root, side), 0.0) + sizes[number][0] + _APART
    return found


def _rows(
    stacked: Sequence[int], layers: Sequence[Layer], sizes: Sequence[Size], projections: Sequence[Projection],
    reach: dict[tuple[int, str], float],
) -> list[Row]:  # fmt: skip
    """What stands at each level, from the bottom up."""
    levels = levels_of([layers[number].name for number in stacked], projections)
    rows: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for number, level in zip(stacked, levels):
        rows[level].append(number)
    return [_spread(row, sizes, reach) for row in rows]


def _stack(rows: Sequence[Row], sizes: Sequence[Size], found: dict[int, Place]) -> None:
    """Level by level from the bottom up; a long stack goes on in another one to its right."""
    fixed = dict(found)  # those in the stack do not touch each other
    axis = 0.0
    columns = _columns(len(rows), max((row.left + row.right for row in rows), default=0.0))
    for place, column in enumerate(columns):
        axis += max(rows[level].left for level in column) if place else 0.0
        for height, level in enumerate(column):
            for number, (x, z) in rows[level].places.items():
                start = (axis + x, height * SPACING, z)
                found[number] = _free(start, (1, 0, 0), sizes[number], sizes, fixed)
        axis += max(rows[level].right for level in column) + _APART


def _columns(levels: int, width: float) -> list[range]:
    """Which levels stand in which stack: one, or as many as make the whole fit a screen."""
    stacks = 1
    if levels > _ONE_STACK:
        while ceil(levels / stacks) * SPACING * _WIDER > stacks * (width + _APART):
            stacks += 1
    high = max(ceil(levels / stacks), 1)
    return [range(start, min(start + high, levels)) for start in range(0, levels, high)]


def _spread(row: Sequence[int], sizes: Sequence[Size], reach: dict[tuple[int, str], float]) -> Row:
    """The layers of one level side by side; more than a few go into rows behind each other."""
    found: dict[int, tuple[float, float]] = {}
    z, left, right = 0.0, 0.0, 0.0
    for start in range(0, len(row), _IN_A_ROW):
        part = row[start : start + _IN_A_ROW]
        depth = max(sizes[number][1] for number in part)
        room = [(reach.get((one, "left"), 0.0), sizes[one][0], reach.get((one, "right"), 0.0)) for one in part]
        width = sum(map(sum, room)) + _APART * (len(part) - 1)
        x = -width / 2 if len(part) > 1 else -room[0][0] - room[0][1] / 2  # a layer alone stands on the axis
        left, right = max(left, -x), max(right, x + width)
        z -= depth / 2 if start else 0.0
        for number, (before, own, after) in zip(part, room):
            found[number] = (x + before + own / 2, z)
            x += before + own + after + _APART
        z -= depth / 2 + _APART
    return Row(found, left, right)


# -- levels ------------------------------------------------------------------------------------------------------------


def levels_of(names: Sequence[str], projections: Sequence[Projection]) -> list[int]:
    """How far each layer is from the bottom: one more than the highest of its senders that come before it."""
    senders = _senders(names, projections)
    levels: list[int] = []
    for number in range(len(names)):
        levels.append(max((levels[one] + 1 for one in senders[number]), default=0))
    receivers: list[list[int]] = [[] for _ in names]
    for number, found in enumerate(senders):
        for one in found:
            receivers[one].append(number)
    for number in range(len(names) - 1, 0, -1):  # one that nothing feeds stands just below what it feeds
        if not senders[number] and receivers[number]:
            levels[number] = min(levels[other] for other in receivers[number]) - 1
    return levels


def _senders(names: Sequence[str], projections: Sequence[Projection]) -> list[set[int]]:
    """Who feeds whom, upwards only; a layer that nobody mentions lies between its neighbours in the list."""
    numbers = {name: number for number, name in enumerate(names)}
    senders: list[set[int]] = [set() for _ in names]
    mentioned = set()
    for one in projections:
        sender, receiver = numbers.get(one.sender, -1), numbers.get(one.receiver, -1)
        mentioned |= {sender, receiver}
        if 0 <= sender < receiver:
            senders[receiver].add(sender)
    for number in range(1, len(names)):
        if number not in mentioned or number - 1 not in mentioned:
            senders[number].add(number - 1)
    return senders
