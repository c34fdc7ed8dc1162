"""Output of `torcheer archive ls`: a summary and a table that fits the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.value_names import layer_labels
from torcheer.terminal import format_table, human_bytes, human_shape, plural, printable

_DROP_ORDER = ("offset", "segment", "item", "variable", "type", "size", "step")  # in this order, where there is no room


class ValueRow(NamedTuple):
    """One line of the listing: a value and the name of its layer, in a history its label."""

    shard: str
    layer: str
    entry: Entry


def list_values(archive: Archive, shard: str = "") -> list[ValueRow]:
    """List every value of an archive."""
    labels = layer_labels(archive)
    return [ValueRow(shard, labels.get(entry.layer, entry.layer), entry) for entry in archive.entries]


def describe_archive(archive: Archive) -> str:
    """Summarize an archive: "history of AlexNet, sealed: 1 step, 22 values, 5.2 MB"."""
    kind, model = archive.about.get("kind") or "archive", archive.about.get("model")
    title = printable(f"{kind} of {model}" if model else str(kind))
    return f"{title}, {describe_state(archive)}: {describe_counts(archive)}"


def describe_state(archive: Archive) -> str:
    """Describe whether it is sealed or may still grow: "sealed", "open"."""
    torn = f", with {plural(archive.torn_bytes, 'byte')} of an unfinished step" if archive.torn_bytes else ""
    return "sealed" if archive.sealed else f"open{torn}"


def describe_counts(archive: Archive) -> str:
    """Describe its steps, values and size."""
    size = human_bytes(sum(entry.stored for entry in archive.entries))
    return f"{plural(len(archive.frames), 'step')}, {plural(len(archive.entries), 'value')}, {size}"


def short_table(rows: Iterable[ValueRow], width: int) -> list[str]:
    """Format one line per group of values that differ only in step and item."""
    groups: dict[tuple[str, ...], list[ValueRow]] = {}
    for row in rows:
        groups.setdefault(
            (row.layer, row.entry.variable, _format_type(row.entry), human_shape(row.entry.shape)), []
        ).append(row)
    columns: dict[str, list[str]] = {"step": [], "layer": [], "variable": [], "item": [], "type": [], "shape": []}
    columns["size"] = []
    for (layer, variable, kind, shape), group in groups.items():
        cells = (
            format_span([row.entry.step or 0 for row in group]), layer, variable,
            format_span([row.entry.item for row in group]), kind, shape,
            human_bytes(sum(row.entry.stored for row in group)),
        )  # fmt: skip
        for name, cell in zip(columns, cells, strict=True):
            columns[name].append(cell)
    return fit_table(columns, width)


def long_table(rows: Sequence[ValueRow], width: int) -> list[str]:
    """Format one line per value, with its segment and offset."""
    cells: dict[str, Callable[[ValueRow], str]] = {
        "shard": lambda row: row.shard,
        "step": lambda row: str(row.entry.step),
        "layer": lambda row: row.layer,
        "variable": lambda row: row.entry.variable,
        "item": lambda row: format_span([row.entry.item]),
        "type": lambda row: _format_type(row.entry),
        "shape": lambda row: human_shape(row.entry.shape),
        "segment": lambda row: str(row.entry.segment),
        "offset": lambda row: str(row.entry.offset),
        "size": lambda row: human_bytes(row.entry.stored),
    }
    return fit_table({name: [cell(row) for row in rows] for name, cell in cells.items()}, width)


def fit_table(columns: dict[str, list[str]], width: int) -> list[str]:
    """Format columns as lines; on a narrow terminal, shorten names and drop columns."""
    shown = {name: cells for name, cells in columns.items() if any(cells) or name == "layer"}
    rows = [tuple(shown), *zip(*shown.values(), strict=True)]
    return format_table(rows, left=len(shown) - 1, width=width, shorten="layer", drop=_DROP_ORDER)


def _format_type(entry: Entry) -> str:
    codec = getattr(entry, "codec", "raw")
    return entry.type if codec == "raw" else f"{entry.type} as {codec}"


def format_span(numbers: Iterable[int]) -> str:
    """Format steps or items: "7", "0–39", "0–390 (40)"; empty for -1, the whole batch."""
    ordered = sorted(set(numbers) - {-1})
    if len(ordered) < 2:
        return str(ordered[0]) if ordered else ""
    is_contiguous = ordered[-1] - ordered[0] == len(ordered) - 1
    return f"{ordered[0]}–{ordered[-1]}" + ("" if is_contiguous else f" ({len(ordered)})")
