"""How a layer's units lie on its plane: tiles, and rows and columns of each."""

from __future__ import annotations

from math import ceil, isqrt, log, prod

from torcheer.network.network_records import Layer

Grid = tuple[int, int, int, int]  # tile rows, tile columns, rows, columns of a tile

_IN_A_ROW = 11  # units that stand in a single line
_WIDEST = 4  # columns to rows of a plane of units, if their number can be factored so


def units_of(layer: Layer) -> int:
    """How many units a layer has; a single number is one."""
    return prod(layer.shape)


def grid_of(layer: Layer) -> Grid:
    """Where unit u lies: in tile u // (rows*columns), there at row and column; the last cells may be empty."""
    shape = tuple(max(int(length), 0) for length in layer.shape)
    if prod(shape) == 0:
        return (1, 1, 0, 0)
    view = layer.view if layer.view in _VIEWS else "auto"
    return _VIEWS[view](shape)


def view_of(shape: tuple[int, ...]) -> str:
    """How a shape reads where nobody says so."""
    return {0: "units", 1: "units", 2: "plane", 4: "pools"}.get(len(shape), "maps")


def _auto(shape: tuple[int, ...]) -> Grid:
    return _VIEWS[view_of(shape)](shape)


def _units(shape: tuple[int, ...]) -> Grid:
    """One tile, a little wider than high."""
    return (1, 1, *_rectangle(prod(shape), widest=_WIDEST))


def _plane(shape: tuple[int, ...]) -> Grid:
    """Rows and columns as they are; what comes before them goes into the rows."""
    if len(shape) < 2:
        return (1, 1, 1, prod(shape))
    return (1, 1, prod(shape[:-1]), shape[-1])


def _maps(shape: tuple[int, ...]) -> Grid:
    """A tile for each map; maps of a single cell read as units, those of a line are rows of a plane."""
    if len(shape) < 3:
        return _plane(shape)
    tiles, rows, columns = prod(shape[:-2]), shape[-2], shape[-1]
    if rows * columns == 1:
        return _units((tiles,))
    return (*_tiling(tiles, rows, columns), rows, columns)


def _pools(shape: tuple[int, ...]) -> Grid:
    """eTorch's: rows and columns of pools, rows and columns of units in each."""
    if len(shape) != 4:
        return _maps(shape)
    return (shape[0], shape[1], shape[2], shape[3])


_VIEWS = {"auto": _auto, "units": _units, "plane": _plane, "maps": _maps, "heads": _maps, "pools": _pools}


def _rectangle(count: int, *, widest: int) -> tuple[int, int]:
    """Rows and columns for so many cells: as square as its factors allow, not wider than `widest` times its height."""
    if count <= _IN_A_ROW:  # ten classes read as a line
        return 1, count
    for rows in range(isqrt(count), 0, -1):
        if count % rows == 0 and count // rows <= widest * rows:
            return rows, count // rows
    columns = ceil(count**0.5)
    return ceil(count / columns), columns


def _tiling(tiles: int, rows: int, columns: int) -> tuple[int, int]:
    """Tile rows and tile columns such that the whole is a little wider than high; no empty tiles if that can be."""
    square = (tiles * rows / columns) ** 0.5  # tile columns of a square
    near = range(max(ceil(0.7 * square), 1), min(int(1.75 * square), tiles) + 1)
    full = [width for width in near if tiles % width == 0]
    width = min(full, key=lambda one: abs(log(one / (1.2 * square)))) if full else min(ceil(square), tiles)
    return ceil(tiles / width), width
