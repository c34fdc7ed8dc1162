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


def begins(index: bytes, at: int) -> bool:
    """Whether a frame begins here."""
    own = zlib.crc32(index[at : at + 12]).to_bytes(4, "little")
    return index[at : at + 4] == b"FRME" and index[at + 12 : at + 16] == own


def frames(index: bytes, segment: int):
    """The bodies of the whole frames."""
    if len(index) < 16:
        return
    if struct.unpack_from("<8sII", index) != (b"torchidx", 1, segment):
        raise ValueError("not an index of this version and number")
    at, after = 16, 0
    while begins(index, at):
        length, check = struct.unpack_from("<II", index, at + 4)
        body = index[at + 16 : at + 16 + length]
        if len(body) < length or zlib.crc32(body) != check:
            break
        yield (found := json.loads(body))
        if found["after"] != after:
            raise ValueError("a frame is missing")
        at, after = at + 16 + length, check
    if any(begins(index, mark.start()) for mark in re.finditer(b"FRME", index) if mark.start() > at):
        raise ValueError("a damaged frame before another")


def array(entry: dict, data: bytes):
    """The values of an entry."""
    part = data[entry["offset"] : entry["offset"] + entry["stored"]]
    if len(part) != entry["stored"] or zlib.crc32(part) != entry["crc32"]:
        raise ValueError(f"{entry['layer']} is damaged")
    kind = np.dtype(BITS.get(entry["type"].removeprefix("float8_"), entry["type"])).newbyteorder("<")
    held = np.dtype(entry["as"]["type"]).newbyteorder("<") if "as" in entry else kind
    if "zstd" in entry:
        import zstandard

        part = zstandard.ZstdDecompressor().decompress(part, max_output_size=entry["zstd"])
    if math.prod(entry["shape"]) * held.itemsize != len(part):
        raise ValueError(f"{entry['layer']} has another size than its shape")
    values = np.frombuffer(part, held).reshape(entry["shape"])
    if "scale" in entry.get("as", ()):
        values = values.astype("f8") * entry["as"]["scale"]
    return values.astype(kind)


def read(folder: str):
    """Every value: (step, layer, variable, item, array)."""
    for index in sorted(Path(folder).glob("[0-9]*.index")):
        data = index.with_suffix(".data").read_bytes()
        for body in frames(index.read_bytes(), int(index.stem)):
            for entry in body.get("entries", ()):
                yield body["step"], entry["layer"], entry["variable"], entry["item"], array(entry, data)


if __name__ == "__main__":
    for step, layer, variable, item, values in read(sys.argv[1]):
        print(step, layer, variable, item, values.dtype, values.shape)
