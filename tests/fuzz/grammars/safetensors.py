"""safetensors: a header of JSON with the types, shapes and places of tensors; and an index of several files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from fuzz.dice import Dice, product
from fuzz.grammars.json_spelling import spelled

_WIDTHS: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4,
    "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
_UNKNOWN: Final = ("F4", "F6_E2M3", "F128", "f32", "", "U128", "F8_E8M0")


def write_file(dice: Dice, folder: Path) -> Path:
    """Write a file of a few tensors."""
    path = folder / "model.safetensors"
    path.write_bytes(dice.field(file_of(dice, {dice.name() for _ in range(dice.randint(0, 5))})))
    return path


def file_of(dice: Dice, names: set[str]) -> bytes:
    """A file with tensors of these names."""
    header: dict[str, Any] = {}
    body = b""
    for name in sorted(names):
        type = dice.choice(list(_WIDTHS))
        shape = dice.shape()
        data = bytes(dice.choice((0, 1)) for _ in range(product(shape))) if type == "BOOL" else dice.randbytes(
            product(shape) * _WIDTHS[type]
        )  # fmt: skip
        place = [len(body), len(body) + len(data)]
        body += data
        entry = {
            "dtype": dice.either(type, lambda: dice.choice(_UNKNOWN), lambda: dice.choice(list(_WIDTHS))),
            "shape": dice.field(shape), "data_offsets": dice.field(place),
        }  # fmt: skip
        if dice.turns():
            entry |= {"extra": 1}
        header[name] = dict(dice.sample(list(entry.items()), len(entry)))
    header = dict(dice.sample(list(header.items()), len(header)))
    if dice.random() < 0.5:
        header["__metadata__"] = dice.either({"format": "pt", "note": "ä"}, lambda: {"a": 1}, lambda: {"a": {"b": []}})
    body = dice.either(body, lambda: body + b"\0" * dice.choice((1, 8)), lambda: body[:-1])
    text = spelled(dice, header)
    text += b" " * (-len(text) % 8)
    return (dice.field(len(text)) % 2**64).to_bytes(8, "little") + text + body


def write_index(dice: Dice, folder: Path) -> Path:
    """Write an index, and the files that it names."""
    names = sorted({f"layer{number}.{dice.name()}" for number in range(dice.randint(1, 5))})
    shards = [f"model-{number}.safetensors" for number in range(dice.randint(1, 3))]
    places = {name: dice.choice(shards) for name in names}
    for shard in shards:
        held = {name for name in names if places[name] == shard}
        (folder / shard).write_bytes(dice.field(file_of(dice, held)))
    if dice.turns():
        (folder / "link.safetensors").symlink_to("/etc/passwd")
        places |= {names[0]: dice.choice(("link.safetensors", "../x.safetensors", "/etc/passwd", "", ".", "a\0b"))}
    path = folder / "model.safetensors.index.json"
    index: Any = {"metadata": {"total_size": 1}, "weight_map": dice.either(places, list, lambda: {"a": 1})}
    path.write_bytes(spelled(dice, index) if dice.hostility else json.dumps(index).encode())
    return path
