"""A reader of archives that shares no code with torcheer: `python read_archive.py FOLDER`; docs/archive-format.md."""

import json
import math
import re
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

BITS = {"bfloat16": "u2", **dict.fromkeys(("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"), "u1")}


def need(good, otherwise: str) -> None:
    if not good:
        raise ValueError(otherwise)


def begins(index: bytes, at: int) -> bool:
    return (
        index[at : at + 4] == b"FRME" and struct.pack("<I", zlib.crc32(index[at : at + 12])) == index[at + 12 : at + 16]
    )


def frames(index: bytes, segment: int):
    """The bodies of the whole frames; what is cut off at the end was never committed."""
    at, after = 16, 0
    need(
        len(index) < at or struct.unpack_from("<8sII", index) == (b"torchidx", 1, segment), "not an index of version 1"
    )
    while begins(index, at):
        length, check = struct.unpack_from("<II", index, at + 4)
        body = index[at + 16 : at + 16 + length]
        if len(body) < length or zlib.crc32(body) != check:
            break
        found = json.loads(body)
        need(found["after"] == after, "a frame is missing")
        yield found
        at, after = at + 16 + length, check
    later = (mark.start() for mark in re.finditer(b"FRME", index) if mark.start() > at)
    need(not any(begins(index, place) for place in later), "a damaged frame stands before another")


def array(entry: dict, data: bytes):
    """The values of an entry."""
    part = data[entry["offset"] : entry["offset"] + entry["stored"]]
    need(len(part) == entry["stored"] and zlib.crc32(part) == entry["crc32"], f"{entry['layer']} is damaged")
    kind = np.dtype(BITS.get(entry["type"].removeprefix("float8_"), entry["type"])).newbyteorder("<")
    held = np.dtype(entry["as"]["type"]).newbyteorder("<") if "as" in entry else kind
    if "zlib" in entry:
        part = zlib.decompress(part)
    if "zstd" in entry:
        import zstandard

        part = zstandard.ZstdDecompressor().decompress(part, max_output_size=entry["zstd"])
    need(math.prod(entry["shape"]) * held.itemsize == len(part), f"{entry['layer']} has another size than its shape")
    values = np.frombuffer(part, held).reshape(entry["shape"])
    return (values.astype("f8") * entry["as"]["scale"] if "scale" in entry.get("as", ()) else values).astype(kind)


def read(folder: str):
    """Every value: (step, layer, variable, item, array)."""
    more = True  # whether another segment may follow
    for number, index in enumerate(sorted(Path(folder).glob("[0-9]*.index"), key=lambda file: int(file.stem))):
        need(more and int(index.stem) == number, "a segment is missing")
        more, data = False, index.with_suffix(".data").read_bytes()
        for body in frames(index.read_bytes(), number):
            more = body.get("seal", {}).get("more", False)
            for entry in body.get("entries", ()):
                yield body["step"], entry["layer"], entry["variable"], entry["item"], array(entry, data)


if __name__ == "__main__":
    for step, layer, variable, item, values in read(sys.argv[1]):
        print(step, layer, variable, item, values.dtype, values.shape)
