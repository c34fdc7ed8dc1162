"""What `torcheer archive ls` prints: what an archive is, and a table of its values that fits the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.value_names import layer_labels
from torcheer.terminal import align, human_bytes, plural, printable, shortened

_LEAST_LAYER = 12
_DROPPED = ("offset", "segment", "item", "variable", "type", "size", "step")  # in this order, where there is no room


class Row(NamedTuple):
    """A value, and how it is shown: under its label in a history."""

    shard: str
    layer: str
    entry: Entry


def rows_of(archive: Archive, shard: str = "") -> list[Row]:
    """Every value of an archive."""
    labels = layer_labels(archive)
    return [Row(shard, labels.get(one.layer, one.layer), one) for one in archive.entries]


def described(archive: Archive) -> str:
    """One line: "history of AlexNet, sealed: 1 step, 22 values, 5.2 MB"."""
    kind, model = archive.about.get("kind") or "archive", archive.about.get("model")
    what = printable(f"{kind} of {model}" if model else str(kind))
    return f"{what}, {state(archive)}: {counted(archive)}"


def state(archive: Archive) -> str:
    """Whether it may still grow."""
    torn = f", with {plural(archive.torn_bytes, 'byte')} of an unfinished step" if archive.torn_bytes else ""
    return "sealed" if archive.sealed else f"open{torn}"


def counted(archive: Archive) -> str:
    """How much there is."""
    size = human_bytes(sum(entry.stored for entry in archive.entries))
    return f"{plural(len(archive.frames), 'step')}, {plural(len(archive.entries), 'value')}, {size}"


def short_table(rows: Iterable[Row], width: int) -> list[str]:
    """A line for all values that differ only in their step and item."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.layer, row.entry.variable, _type(row.entry), _shape(row.entry)), []).append(row)
    columns: dict[str, list[str]] = {"step": [], "layer": [], "variable": [], "item": [], "type": [], "shape": []}
    columns["size"] = []
    for (layer, variable, kind, shape), group in groups.items():
        cells = (
            span([row.entry.step or 0 for row in group]), layer, variable, span([row.entry.item for row in group]),
            kind, shape, human_bytes(sum(row.entry.stored for row in group)),
        )  # fmt: skip
        for name, cell in zip(columns, cells, strict=True):
            columns[name].append(cell)
    return fitted(columns, width)


def long_table(rows: Sequence[Row], width: int) -> list[str]:
    """A line for each value, and where it lies."""
    read: dict[str, Callable[[Row], str]] = {
        "shard": lambda row: row.shard,
        "step": lambda row: str(row.entry.step),
        "layer": lambda row: row.layer,
        "variable": lambda row: row.entry.variable,
        "item": lambda row: span([row.entry.item]),
        "type": lambda row: _type(row.entry),
        "shape": lambda row: _shape(row.entry),
        "segment": lambda row: str(row.entry.segment),
        "offset": lambda row: str(row.entry.offset),
        "size": lambda row: human_bytes(row.entry.stored),
    }
    return fitted({name: [cell(row) for row in rows] for name, cell in read.items()}, width)


def fitted(columns: dict[str, list[str]], width: int) -> list[str]:
    """Columns as lines; on a narrow terminal names are shortened and columns left out."""
    shown = {
        name: [printable(cell) for cell in cells] for name, cells in columns.items() if any(cells) or name == "layer"
    }
    for name in _DROPPED:
        if _width(shown) - _widest("layer", shown) + _LEAST_LAYER <= width:
            break
        shown.pop(name, None)
    room = max(_LEAST_LAYER, width - _width(shown) + _widest("layer", shown))
    shown["layer"] = [shortened(cell, room) for cell in shown["layer"]]
    return align([tuple(shown), *zip(*shown.values(), strict=True)], left=len(shown) - 1)


def _width(columns: dict[str, list[str]]) -> int:
    return sum(_widest(name, columns) + 2 for name in columns) - 2


def _widest(name: str, columns: dict[str, list[str]]) -> int:
    return max(map(len, [name, *columns[name]]))


def _type(entry: Entry) -> str:
    codec = getattr(entry, "codec", "raw")
    return entry.type if codec == "raw" else f"{entry.type} as {codec}"


def _shape(entry: Entry) -> str:
    return "×".join(map(str, entry.shape)) or "one number"


def span(numbers: Iterable[int]) -> str:
    """Steps or items in a few characters: "7", "0–39", "0–390 (40)"; nothing for the whole batch."""
    found = sorted(set(numbers) - {-1})
    if len(found) < 2:
        return str(found[0]) if found else ""
    whole = found[-1] - found[0] == len(found) - 1
    return f"{found[0]}–{found[-1]}" + ("" if whole else f" ({len(found)})")
