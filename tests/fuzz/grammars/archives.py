"""Our own folders: archives, logs of runs, histories, extractions; their JSON made hostile, their checksums right.

What is changed was written by torcheer, of today (tests/data/fuzz: a run with a watch, a history) and of 0.1.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from fuzz.dice import EDGES, Dice
from fuzz.grammars.json_spelling import spelled

_DATA: Final = Path(__file__).parents[2] / "data"
_FRAME: Final = struct.Struct("<4sIII")
_HEADER_BYTES: Final = 16
_FEW: Final = 2.0  # hostile parts of a file, on average: of many, only the first is ever read


def write_archive(dice: Dice, folder: Path) -> Path:
    """Write a history, a recording or a folder of values."""
    bases = ("fuzz/history", "fuzz/history", "0.1/step", "0.1/recordings/recording", "fuzz/run/log/watch")
    return _write(dice, folder, dice.choice(bases))


def write_run(dice: Dice, folder: Path) -> Path:
    """Write a run with its log, a watch or an extraction."""
    bases = ("fuzz/run", "fuzz/run", "fuzz/run", "fuzz/run", "fuzz/run/log/watch", "0.1/extraction")
    return _write(dice, folder, dice.choice(bases))


def _write(dice: Dice, folder: Path, base: str) -> Path:
    path = folder / "run"
    shutil.copytree(_DATA / base, path)
    for file in sorted(path.rglob("*")):
        change = _CHANGES.get(file.suffix)
        if change is not None and file.is_file():
            file.write_bytes(change(dice, file.read_bytes(), file))
    if dice.turns():
        file = dice.choice(sorted(file for file in path.rglob("*") if file.is_file()))
        dice.choice((lambda: file.unlink(), lambda: file.write_bytes(dice.damaged(file.read_bytes()))))()
    return path


def _with_few(dice: Dice, size: int, change: Callable[[], bytes]) -> bytes:
    """What `change` writes of so many parts, few of them hostile."""
    hostility = dice.hostility
    dice.hostility = min(hostility, _FEW / max(size, 1))
    try:
        return change()
    finally:
        dice.hostility = hostility


def _json(dice: Dice, data: bytes, file: Path) -> bytes:
    """A JSON file; the checksum at the end of one that has it is right."""
    body, mark, _ = data.rpartition(b',"crc32":')
    if not mark:
        value = json.loads(data)
        return _with_few(dice, _parts(value), lambda: spelled(dice, value))
    value = json.loads(body + b"}")
    text = _with_few(dice, _parts(value), lambda: spelled(dice, value)).rstrip()
    return dice.field(text[:-1] + mark + b"%d}" % zlib.crc32(text[:-1]))


def _lines(dice: Dice, data: bytes, file: Path) -> bytes:
    values = [json.loads(line) for line in data.splitlines() if line]
    return b"".join(
        _with_few(dice, _parts(value), lambda value=value: spelled(dice, value)) + b"\n" for value in values
    )


def _index(dice: Dice, data: bytes, file: Path) -> bytes:
    """An index whose frames follow one another; the copy of its seal beside it is that of its seal."""
    bodies = list(_bodies(data))
    if dice.turns() and bodies:
        place = dice.randrange(len(bodies))
        bodies = dice.choice(
            (bodies[:place], bodies[:place] + bodies[place + 1 :], bodies + bodies[place:], bodies[::-1])
        )
    text, after, last = data[:_HEADER_BYTES], 0, 0
    size = sum(_parts(body) for body in bodies)
    for body in bodies:
        body = body | {"after": dice.field(after)}
        written = _with_few(dice, size, lambda body=body: spelled(dice, body))
        after = last = zlib.crc32(written)
        start = struct.pack("<4sII", b"FRME", dice.field(len(written)) % 2**32, dice.field(after) % 2**32)
        text += start + struct.pack("<I", zlib.crc32(start)) + written
    seal = file.with_suffix(".seal")
    if seal.is_file():
        number = int(file.stem)
        body_text = json.dumps(
            {"segment": dice.field(number), "frame": dice.field(last)}, separators=(",", ":")
        ).encode()
        seal.write_bytes(body_text[:-1] + b',"crc32":%d}' % zlib.crc32(body_text[:-1]))
    return dice.field(text)


def _data(dice: Dice, data: bytes, file: Path) -> bytes:
    return dice.field(data)


def _table(dice: Dice, data: bytes, file: Path) -> bytes:
    cells = data.decode().split(",")
    cells = [
        dice.either(cell, lambda: "x", lambda: "", lambda: str(dice.choice(EDGES)), lambda: "nan") for cell in cells
    ]
    return dice.field(",".join(cells).encode())


_CHANGES: Final[dict[str, Callable[[Dice, bytes, Path], bytes]]] = {
    ".json": _json, ".jsonl": _lines, ".index": _index, ".data": _data, ".csv": _table,
}  # fmt: skip


def _parts(value: Any) -> int:
    """How many values there are in a JSON value."""
    if isinstance(value, dict):
        return 1 + sum(_parts(part) for part in value.values())
    return 1 + sum(map(_parts, value)) if isinstance(value, list) else 1


@cache
def _bodies(data: bytes) -> tuple[dict[str, Any], ...]:
    """The bodies of an index's frames."""
    bodies, place = [], _HEADER_BYTES
    while place + _FRAME.size <= len(data):
        length = _FRAME.unpack_from(data, place)[1]
        place += _FRAME.size + length
        bodies.append(json.loads(data[place - length : place]))
    return tuple(bodies)
