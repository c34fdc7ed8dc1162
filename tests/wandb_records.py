"""What W&B's own package has written to an offline run: its records, read with its own messages."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def offline_records(folder: Path) -> list[Any]:
    """The records of W&B's offline file: LevelDB's log format, in blocks of 32 KiB after a head of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, offset, parts, records = file.read_bytes(), 7, [], []
    while offset + 7 <= len(data):
        left = 32768 - offset % 32768
        if left < 7:
            offset += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, offset)
        parts.append(data[offset + 7 : offset + 7 + length])
        offset += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            records.append(record)
            parts = []
    return records


def items_of(items: Any) -> dict[str, Any]:
    """Items of a record by name, nested ones with dots."""
    found: dict[str, Any] = {}
    for item in items:
        name = ".".join(item.nested_key) if item.nested_key else item.key
        found |= flat({name: json.loads(item.value_json)})
    return found


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or "_type" in value:
        return {prefix[:-1]: value}
    return {name: part for key, each in value.items() for name, part in flat(each, f"{prefix}{key}.").items()}


def numbers_by_step(folder: Path) -> dict[int, dict[str, Any]]:
    """The numbers and texts of an offline run, nested ones with dots; pictures and the like are left out."""
    rows: dict[int, dict[str, Any]] = {}
    for record in offline_records(folder):
        if record.WhichOneof("record_type") == "history":
            cells = items_of(record.history.item)
            samples = {name.removesuffix("_type") for name in cells if name.endswith("._type")}
            numbers = {
                name: float("inf") if cell == "Infinity" else cell
                for name, cell in cells.items()
                if not name.startswith(("_", *samples)) and not isinstance(cell, dict)
            }
            if numbers:
                rows[cells["_step"]] = numbers
    return rows
