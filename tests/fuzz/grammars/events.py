"""TensorBoard's event files: records with a length and two checksums, each a protobuf; and settings in YAML."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from functools import cache
from pathlib import Path

from fuzz.dice import EDGES, Dice
from fuzz.grammars.lightning import settings
from fuzz.grammars.protobuf import Double, Fields, Packed, message


def write_folder(dice: Dice, folder: Path) -> Path:
    """Write a folder of one or two event files."""
    path = folder / "run"
    path.mkdir()
    for number in range(dice.one_of(1, 1, 2)):
        records = [message(dice, [(1, Double(1e9)), (3, "brain.Event:2")])]
        tags = sorted({dice.name() for _ in range(dice.randint(1, 4))})
        records += [_event(dice, step, tags) for step in range(dice.randint(0, 8))]
        data = b"".join(_record(dice, record) for record in records)
        (path / f"events.out.tfevents.{1000 + number}.fuzz.0").write_bytes(dice.field(data))
    if dice.random() < 0.2:
        (path / "hparams.yaml").write_bytes(settings(dice))
    return path


def _record(dice: Dice, data: bytes) -> bytes:
    length = struct.pack("<Q", dice.field(len(data)) % 2**64)
    sums = [dice.field(masked_sum(part)) % 2**32 for part in (length, data)]
    return length + struct.pack("<I", sums[0]) + data + struct.pack("<I", sums[1])


def _event(dice: Dice, step: int, tags: list[str]) -> bytes:
    values: Fields = [(1, _value(dice, tag)) for tag in tags if dice.random() < 0.8]
    return message(dice, [(1, Double(1e9 + step)), (2, dice.field(step)), (5, message(dice, values))])


def _value(dice: Dice, tag: str) -> bytes:
    fields: Fields = [(1, tag)]
    kind = dice.one_of("scalar", "scalar", "scalar", "tensor", "histogram", "image", "audio", "text", "hparams")
    if kind == "scalar":
        fields.append((2, dice.uniform(-5, 5)))
    elif kind == "tensor":
        fields += [(8, _tensor(dice)), *_plugin(dice, dice.one_of("scalars", ""))]
    elif kind == "histogram" and dice.random() < 0.5:
        fields.append((5, _histogram(dice)))
    elif kind == "histogram":
        rows = dice.numbers(3 * dice.randint(1, 6), "f8")
        shape = message(dice, [(2, message(dice, [(1, len(rows) // 24)])), (2, message(dice, [(1, 3)]))])
        fields += [(8, message(dice, [(1, 2), (2, shape), (4, rows)])), *_plugin(dice, "histograms")]
    elif kind == "image":
        fields.append((4, message(dice, [(1, 2), (2, 2), (3, 3), (4, _png(dice))])))
    elif kind == "audio":
        fields.append((6, message(dice, [(1, 8000.0), (2, 1), (3, 4), (4, _wav(dice)), (5, "audio/wav")])))
    elif kind == "text":
        fields += [(8, message(dice, [(1, 7), (8, "some text"), (8, "more")])), *_plugin(dice, "text")]
    else:
        setting = message(dice, [(1, "lr"), (2, message(dice, [dice.one_of((2, Double(0.1)), (3, "adam"), (4, 1))]))])
        started = message(dice, [(1, setting), (2, "group")])
        fields = [(1, "_hparams_/session_start_info"), *_plugin(dice, "hparams", message(dice, [(3, started)]))]
    return message(dice, fields)


def _plugin(dice: Dice, name: str, content: bytes = b"") -> Fields:
    return [(9, message(dice, [(1, message(dice, [(1, name), (2, content)]))]))] if name else []


def _tensor(dice: Dice) -> bytes:
    """A tensor of one number."""
    shape: Fields = [] if dice.random() < 0.7 else [(2, b"")]
    number = dice.uniform(-5, 5)
    fields: Fields = dice.one_of(
        [(1, 1), (5, struct.pack("<f", number))], [(1, 1), (4, struct.pack("<f", number))], [(1, 1), (5, number)],
        [(1, 2), (6, struct.pack("<d", number))], [(1, 3), (7, Packed([5]))], [(1, 9), (10, Packed([7]))],
        [(1, 9), (10, 7)], [(1, 3), (7, 5)],
    )  # fmt: skip
    if dice.turns():
        fields += [(2, message(dice, [(2, message(dice, [(1, dice.choice(EDGES))]))]))]
    return message(dice, [*fields, *shape])


def _histogram(dice: Dice) -> bytes:
    count = dice.randint(1, 8)
    limits = sorted(dice.field(dice.uniform(-3, 3)) for _ in range(count))
    counts = [dice.field(float(dice.randint(0, 20))) for _ in range(count)]
    packed = [b"".join(struct.pack("<d", number) for number in numbers) for numbers in (limits, counts)]
    sums: Fields = [(number, Double(1.0)) for number in (1, 2, 3, 4, 5)]
    return message(dice, [*sums, (6, dice.field(packed[0])), (7, dice.field(packed[1]))])


def _png(dice: Dice) -> bytes:
    """A picture whose header may say another size than its data have."""
    width, height = dice.field(2) % 2**32, dice.field(2) % 2**32
    head = struct.pack(">IIBBBBB", width, height, dice.field(8) % 256, dice.field(2) % 256, 0, 0, 0)
    rows = b"".join(b"\0" + dice.randbytes(6) for _ in range(2))
    chunks = [(b"IHDR", head), (b"IDAT", dice.field(zlib.compress(dice.field(rows)))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", dice.field(len(data)) % 2**32) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )  # fmt: skip


def _wav(dice: Dice) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(dice.one_of(1, 2))
        writer.setsampwidth(dice.one_of(1, 2, 4))
        writer.setframerate(8000)
        writer.writeframes(bytes(16))
    return dice.field(file.getvalue())


def masked_sum(data: bytes) -> int:
    """The masked CRC-32C of TFRecord."""
    state = 0xFFFFFFFF
    for byte in data:
        state = _table()[(state ^ byte) & 255] ^ state >> 8
    state ^= 0xFFFFFFFF
    return ((state >> 15 | state << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> list[int]:
    states = list(range(256))
    for _ in range(8):
        states = [state >> 1 ^ (0x82F63B78 if state & 1 else 0) for state in states]
    return states
