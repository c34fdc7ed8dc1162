"""Places a network's layers in the scene: stacked from the bottom up, branches side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isfinite
from typing import Final, NamedTuple

from torcheer.errors import BadArgument
from torcheer.network.network_records import Layer, Net, Network, PlacedLayer, Projection, Variable
from torcheer.network.unit_grids import grid_of, plane_cells, units_of

Place = tuple[float, float, float]
Size = tuple[float, float]


class LayerRow(NamedTuple):
    """The layers of one level and their extent."""

    places: dict[int, tuple[float, float]]  # layer number -> its x and z relative to the stack's axis
    left: float  # extent from that axis, including layers placed beside these
    right: float


SPACING: Final = 4.0  # from a layer to the next above it
_LARGEST: Final = 10.0  # side of the largest layer, if square
_LONGEST: Final = 16.0
_LARGEST_CELL: Final = 2.0  # upper bound for a single unit
_SHORTEST: Final = 0.6
_APART: Final = 3.0  # between layers side by side
_LEAST_APART: Final = 1.0  # however little is asked for
_MOST_UNITS: Final = 1 << 28
_ONE_STACK: Final = 14  # levels that fit in a single stack
_WIDER: Final = 1.5  # a screen's aspect ratio
_IN_A_ROW: Final = 6  # branches side by side; more go behind
_DIRECTIONS: Final = {
    "right": (1, 0, 0), "left": (-1, 0, 0), "above": (0, 1, 0), "below": (0, -1, 0), "behind": (0, 0, -1),
    "front": (0, 0, 1),
}  # fmt: skip
_DERIVED: Final = (
    Variable("r.Wt", "weight", "weights into the selected unit"),
    Variable("s.Wt", "weight", "weights out of the selected unit"),
    Variable("r.DWt", "weight", "how weights into the selected unit changed since the state before"),
    Variable("s.DWt", "weight", "how weights out of the selected unit changed since the state before"),
)


def net_of(network: Network) -> Net:
    """Place a network: compute the grid, size and place of each layer."""
    layers = _distinct(network.layers)
    for layer in layers:
        if min(layer.shape, default=0) < 0 or units_of(layer) > _MOST_UNITS:
            raise BadArgument(
                f"layer {layer.name[:80]!r} has the shape {layer.shape}; no more than 2^28 units can be shown"
            )
    grids = [grid_of(layer) for layer in layers]
    sizes = sizes_of([plane_cells(layer, grid) for layer, grid in zip(layers, grids)])
    places = places_of(layers, sizes, network.projections)
    placed = tuple(
        PlacedLayer(layer, units_of(layer) if grid[2] else 0, grid, size, place)
        for layer, grid, size, place in zip(layers, grids, sizes, places)
    )
    names = {layer.name for layer in layers}
    projections = tuple(
        projection for projection in network.projections if projection.sender in names and projection.receiver in names
    )
    variables = _variables(network, projections)
    return Net(network.name, placed, projections, variables, network.modules, network.token_names)


def _distinct(layers: Iterable[Layer]) -> list[Layer]:
    """The first layer of each name."""
    return list({layer.name: layer for layer in reversed(list(layers))}.values())[::-1]


def _variables(network: Network, projections: Sequence[Projection]) -> tuple[Variable, ...]:
    """The selectable variables: weights only as those of the selected unit."""
    variables = {variable.name: variable for variable in network.variables if variable.of != "weight"}
    if any(projection.kind for projection in projections):
        variables |= {variable.name: variable for variable in _DERIVED if variable.name not in variables}
    return tuple(variables.values())


# -- sizes -------------------------------------------------------------------------------------------------------------


def sizes_of(shapes: Sequence[Size]) -> list[Size]:
    """Width and depth of each plane, of those in cells.

    Areas grow with the fourth root of the cells, so that all stay legible.
    """
    most = max((wide * deep for wide, deep in shapes), default=1.0)
    return [_size(wide, deep, most) for wide, deep in shapes]


def _size(wide: float, deep: float, most: float) -> Size:
    side = _LARGEST * (wide * deep / most) ** 0.125
    aspect = min(max(wide / deep, 1 / 12), 12.0) ** 0.5
    width, depth = side * aspect, side / aspect
    shrink = min(1.0, _LONGEST / max(width, depth), max(_LARGEST_CELL * wide / width, _LARGEST_CELL * deep / depth))
    return max(width * shrink, _SHORTEST), max(depth * shrink, _SHORTEST)


# -- places ------------------------------------------------------------------------------------------------------------


def places_of(layers: Sequence[Layer], sizes: Sequence[Size], projections: Sequence[Projection]) -> list[Place]:
    """The centre of each layer: its given place, beside the layer it names, or in the stack."""
    numbers = {layer.name: number for number, layer in enumerate(layers)}
    places: dict[int, Place] = {}
    for number, layer in enumerate(layers):
        if (
            layer.place is not None
            and len(layer.place) == 3
            and all(isfinite(coordinate) for coordinate in layer.place)
        ):
            x, y, z = layer.place
            places[number] = (float(x), float(y), float(z))
    related = _related(layers, numbers, places)
    stacked = [number for number in range(len(layers)) if number not in places and number not in related]
    rows = _rows(stacked, layers, sizes, projections, _reach(related, layers, numbers, sizes))
    _stack(rows, sizes, places)
    for number in related:
        neighbour = numbers[layers[number].other]
        places[number] = _beside(number, neighbour, layers, sizes, places)
    return [places[number] for number in range(len(layers))]


def _related(layers: Sequence[Layer], numbers: dict[str, int], placed: dict[int, Place]) -> list[int]:
    """Layers placed beside others, in dependency order; cycles are left out, and so stacked."""
    waiting = {
        number: numbers[layer.other]
        for number, layer in enumerate(layers)
        if number not in placed and layer.relation in _DIRECTIONS and layer.other in numbers
    }
    unresolved, chains = set(waiting), []
    while free := [number for number in waiting if number in unresolved and waiting[number] not in unresolved]:
        chains += free
        unresolved -= set(free)
    return chains


def _beside(
    number: int, neighbour: int, layers: Sequence[Layer], sizes: Sequence[Size], places: dict[int, Place]
) -> Place:
    """The place next to another layer in a direction; farther on where that is occupied."""
    layer, direction = layers[number], _DIRECTIONS[layers[number].relation]
    apart = _gap(layer.space, layers[neighbour], sizes[neighbour])
    across, along = ((theirs + own) / 2 + apart for theirs, own in zip(sizes[neighbour], sizes[number]))
    steps = (across, SPACING, along)
    offsets = _aligned(layer.align, sizes[neighbour], sizes[number])
    x, y, z = (
        at + (way * step if way else offset)
        for at, way, step, offset in zip(places[neighbour], direction, steps, offsets)
    )
    return _free((x, y, z), direction, sizes[number], sizes, places)


def _gap(space: float | None, neighbour: Layer, size: Size) -> float:
    """The distance between two layers: so many of the neighbour's columns, within limits that look well."""
    if space is None or not isfinite(space):
        return _APART
    columns = plane_cells(neighbour, grid_of(neighbour))[0]
    return min(max(space * size[0] / max(columns, 1.0), _LEAST_APART), 2 * _APART)


def _aligned(align: tuple[str, str], neighbour: Size, own: Size) -> Place:
    """How far a layer is shifted so that its edges are in line with the neighbour's."""
    across, along = ((theirs - size) / 2 for theirs, size in zip(neighbour, own))
    return (
        {"left": -across, "right": across}.get(align[0], 0.0),
        0.0,
        {"front": along, "back": -along}.get(align[1], 0.0),
    )


def _free(
    place: Place, direction: tuple[int, int, int], size: Size, sizes: Sequence[Size], places: dict[int, Place]
) -> Place:
    """The first free place in a direction."""
    while (
        hit := next((number for number in places if _touch(place, size, places[number], sizes[number])), None)
    ) is not None:
        axis = next(index for index, way in enumerate(direction) if way)
        reach = ((size[0] + sizes[hit][0]) / 2 + _APART, SPACING, (size[1] + sizes[hit][1]) / 2 + _APART)[axis]
        moved = list(place)
        moved[axis] = places[hit][axis] + direction[axis] * reach
        place = (moved[0], moved[1], moved[2])
    return place


def _touch(first: Place, first_size: Size, second: Place, second_size: Size) -> bool:
    """True if two layers would overlap, or lie too close above each other to be legible."""
    return (
        abs(first[0] - second[0]) < (first_size[0] + second_size[0]) / 2 + 1e-6
        and abs(first[1] - second[1]) < SPACING / 2
        and abs(first[2] - second[2]) < (first_size[1] + second_size[1]) / 2 + 1e-6
    )


def _reach(
    related: Sequence[int], layers: Sequence[Layer], numbers: dict[str, int], sizes: Sequence[Size]
) -> dict[tuple[int, str], float]:
    """The extra room that a layer needs to its left and right for the layers beside it."""
    extra: dict[tuple[int, str], float] = {}
    roots: dict[int, tuple[int, str]] = {}
    for number in related:
        side, neighbour = layers[number].relation, numbers[layers[number].other]
        root, way = roots.get(neighbour, (neighbour, side))
        roots[number] = (root, way)
        if side in ("left", "right") and side == way:
            extra[root, side] = extra.get((root, side), 0.0) + sizes[number][0] + _APART
    return extra


def _rows(
    stacked: Sequence[int], layers: Sequence[Layer], sizes: Sequence[Size], projections: Sequence[Projection],
    reach: dict[tuple[int, str], float],
) -> list[LayerRow]:  # fmt: skip
    """The rows of layers, one per level, from the bottom up."""
    levels = levels_of([layers[number].name for number in stacked], projections)
    rows: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for number, level in zip(stacked, levels):
        rows[level].append(number)
    return [_spread(row, sizes, reach) for row in rows]


def _stack(rows: Sequence[LayerRow], sizes: Sequence[Size], places: dict[int, Place]) -> None:
    """Place the rows from the bottom up; a long stack continues in another one to its right."""
    fixed = dict(places)  # layers of the stack do not touch each other
    axis = 0.0
    columns = _columns(len(rows), max((row.left + row.right for row in rows), default=0.0))
    for position, column in enumerate(columns):
        axis += max(rows[level].left for level in column) if position else 0.0
        for height, level in enumerate(column):
            for number, (x, z) in rows[level].places.items():
                start = (axis + x, height * SPACING, z)
                places[number] = _free(start, (1, 0, 0), sizes[number], sizes, fixed)
        axis += max(rows[level].right for level in column) + _APART


def _columns(levels: int, width: float) -> list[range]:
    """The levels of each stack: one stack, or as many as fit the screen's aspect ratio."""
    stacks = 1
    if levels > _ONE_STACK:
        while ceil(levels / stacks) * SPACING * _WIDER > stacks * (width + _APART):
            stacks += 1
    high = max(ceil(levels / stacks), 1)
    return [range(start, min(start + high, levels)) for start in range(0, levels, high)]


def _spread(row: Sequence[int], sizes: Sequence[Size], reach: dict[tuple[int, str], float]) -> LayerRow:
    """Place the layers of one level side by side; beyond `_IN_A_ROW`, in further rows behind."""
    positions: dict[int, tuple[float, float]] = {}
    z, left, right = 0.0, 0.0, 0.0
    for start in range(0, len(row), _IN_A_ROW):
        part = row[start : start + _IN_A_ROW]
        depth = max(sizes[number][1] for number in part)
        room = [
            (reach.get((number, "left"), 0.0), sizes[number][0], reach.get((number, "right"), 0.0)) for number in part
        ]
        width = sum(map(sum, room)) + _APART * (len(part) - 1)
        x = -width / 2 if len(part) > 1 else -room[0][0] - room[0][1] / 2  # a single layer is centred on the axis
        left, right = max(left, -x), max(right, x + width)
        z -= depth / 2 if start else 0.0
        for number, (before, layer_width, after) in zip(part, room):
            positions[number] = (x + before + layer_width / 2, z)
            x += before + layer_width + after + _APART
        z -= depth / 2 + _APART
    return LayerRow(positions, left, right)


# -- levels ------------------------------------------------------------------------------------------------------------


def levels_of(names: Sequence[str], projections: Sequence[Projection]) -> list[int]:
    """Each layer's level: one more than the highest level of its senders earlier in the list."""
    senders = _senders(names, projections)
    levels: list[int] = []
    for number in range(len(names)):
        levels.append(max((levels[sender] + 1 for sender in senders[number]), default=0))
    receivers: list[list[int]] = [[] for _ in names]
    for number, sender_numbers in enumerate(senders):
        for sender in sender_numbers:
            receivers[sender].append(number)
    for number in range(len(names) - 1, 0, -1):  # a layer without senders stands just below its lowest receiver
        if not senders[number] and receivers[number]:
            levels[number] = min(levels[receiver] for receiver in receivers[number]) - 1
    return levels


def _senders(names: Sequence[str], projections: Sequence[Projection]) -> list[set[int]]:
    """The senders of each layer, upwards only.

    An unconnected layer follows its neighbour in the list.
    """
    numbers = {name: number for number, name in enumerate(names)}
    senders: list[set[int]] = [set() for _ in names]
    mentioned = set()
    for projection in projections:
        sender, receiver = numbers.get(projection.sender, -1), numbers.get(projection.receiver, -1)
        mentioned |= {sender, receiver}
        if 0 <= sender < receiver:
            senders[receiver].add(sender)
    for number in range(1, len(names)):
        if number not in mentioned or number - 1 not in mentioned:
            senders[number].add(number - 1)
    return senders
