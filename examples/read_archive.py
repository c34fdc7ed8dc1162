"""A reader of archives that shares no code with torcheer: `python read_archive.py FOLDER`; docs/archive-format.md."""

import json
import math
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

BITS = {"bfloat16": "u2", **dict.fromkeys(("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"), "u1")}


def frames(index: bytes, segment: int):
    """The bodies of the whole frames."""
    if len(index) < 16:
        return
    magic, version, number = struct.unpack_from("<8sII", index)
    if (magic, version, number) != (b"torchidx", 1, segment):
        raise ValueError("not an index of this version and number")
    at, after = 16, 0
    while at + 16 <= len(index):
        mark, length, check, own = struct.unpack_from("<4sIII", index, at)
        body = index[at + 16 : at + 16 + length]
        if mark != b"FRME" or zlib.crc32(index[at : at + 12]) != own or len(body) < length or zlib.crc32(body) != check:
            if any(whole(index, place) for place in range(at + 1, len(index) - 15)):
                raise ValueError("a damaged frame before a whole one")
            return
        found = json.loads(body)
        if found["after"] != after:
            raise ValueError("a frame is missing")
        yield found
        at, after = at + 16 + length, check


def whole(index: bytes, at: int) -> bool:
    """Whether a whole frame begins here."""
    mark, length, check, own = struct.unpack_from("<4sIII", index, at)
    body = index[at + 16 : at + 16 + length]
    return (
        mark == b"FRME" and zlib.crc32(index[at : at + 12]) == own and len(body) == length and zlib.crc32(body) == check
    )


def read(folder: str):
    """Every value: (step, layer, variable, item, array)."""
    for index in sorted(Path(folder).glob("[0-9]*.index")):
        data = index.with_suffix(".data").read_bytes()
        for body in frames(index.read_bytes(), int(index.stem)):
            for entry in body.get("entries", ()):
                part = data[entry["offset"] : entry["offset"] + entry["stored"]]
                if len(part) != entry["stored"] or zlib.crc32(part) != entry["crc32"]:
                    raise ValueError(f"{entry['layer']} of step {body['step']} is damaged")
                kind = np.dtype(BITS.get(entry["type"].removeprefix("float8_"), entry["type"])).newbyteorder("<")
                if math.prod(entry["shape"]) * kind.itemsize != entry["stored"]:
                    raise ValueError(f"{entry['layer']} of step {body['step']} has another size than its shape")
                array = np.frombuffer(part, kind).reshape(entry["shape"])
                yield body["step"], entry["layer"], entry["variable"], entry["item"], array


if __name__ == "__main__":
    for step, layer, variable, item, array in read(sys.argv[1]):
        print(step, layer, variable, item, array.dtype, array.shape)
