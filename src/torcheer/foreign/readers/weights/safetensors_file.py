"""Tensors of a safetensors file, of all files that an index names, or of all ranks that wrote a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from torcheer.errors import ArchiveDamaged
from torcheer.foreign.readers.reading import Reading, plain_text
from torcheer.safetensors_header import read_header
from torcheer.terminal import short_repr
from torcheer.vocabulary.dtypes import DTYPES

_KINDS: Final = {"model.safetensors": "models", "optim.safetensors": "others"}  # files of a checkpoint
_ITEM_BYTES: Final = 50  # of a header for each tensor, at least


def read(reading: Reading) -> dict[str, Any]:
    """Read a file, or all files of an index."""
    if reading.name.lower().endswith(".json"):
        return _read_index(reading)
    tensors, metadata = _read_file(reading, reading.name)
    joined, count = _joined_ranks(reading, tensors)
    return {
        "format": f"safetensors of {count} ranks" if count > 1 else "safetensors",
        "tensors": list(tensors.values()),
        "metadata": {str(key): plain_text(value) for key, value in metadata.items()},
        "joined": joined,
    }


def _joined_ranks(reading: Reading, tensors: dict[str, list[Any]]) -> tuple[list[Any], int]:
    """The parts of tensors that ranks have each written, and how many ranks did.

    A tensor of several parts is its name, its whole shape, and for each part its file, where it begins, and the part as
    a tensor of its own; it is no longer among `tensors`. state.json beside them says where each part begins, as
    `training.checkpoints.checkpoint_files` writes it.
    """
    stem, suffix = reading.name.rpartition(".")[0], ".safetensors"
    if reading.name not in _KINDS or not _is_there(reading, f"{stem}-1{suffix}"):
        return [], 1
    if not _is_there(reading, "MANIFEST.json"):
        return [], 1
    document = reading.json(reading.read(reading.file("state.json")), "state.json")
    pieces = document.get("pieces", {}).get(_KINDS[reading.name], {})
    ranks = {0: dict(tensors)}
    joined = []
    for name, piece in pieces.items():
        parts = []
        for rank, begin in piece["parts"]:
            file = f"{stem}-{int(rank)}{suffix}" if rank else reading.name
            if rank not in ranks:
                ranks[rank] = _read_file(reading, file)[0]
            parts.append([file, list(begin), ranks[rank][name]])
        joined.append([name, list(piece["shape"]), parts])
    return joined, len(ranks)


def _is_there(reading: Reading, name: str) -> bool:
    try:
        reading.file(name)
    except FileNotFoundError:
        return False
    return True


def _read_file(reading: Reading, name: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The tensors of a file by their names, and its metadata."""
    number = reading.file(name)
    data, place = reading.data(number), 0

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        return reading.read(number, place - count, place)

    length = int.from_bytes(data[:8], "little")
    reading.budget.spend("items", min(length, len(data)) // _ITEM_BYTES, f"the header of {name}")
    entries, metadata = read_header(take, len(data), Path(name))
    return {
        name: [name, type, DTYPES[type].in_numbers(shape), number, place + begin, place + end, 0, None]
        for name, type, shape, begin, end in entries
    }, metadata


def _read_index(reading: Reading) -> dict[str, Any]:
    index = reading.json(reading.read(reading.file(reading.name)), reading.name)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ArchiveDamaged("it has no weight_map from names to files")
    shards = {name: _read_shard(reading, name) for name in dict.fromkeys(places.values())}
    missing = [name for name, shard in places.items() if name not in shards[shard]]
    if missing:
        raise ArchiveDamaged(f"{short_repr(missing[0])} is not in {places[missing[0]]}")
    tensors = [shards[shard][name] for name, shard in places.items()]
    return {"format": f"safetensors in {len(shards)} files", "tensors": tensors, "metadata": {}}


def _read_shard(reading: Reading, name: str) -> dict[str, list[Any]]:
    """The tensors of a file beside the index, and nowhere else."""
    try:
        if Path(name).name != name:
            raise FileNotFoundError
        return _read_file(reading, name)[0]
    except FileNotFoundError:
        raise ArchiveDamaged(f"its shard {short_repr(name)} is not beside it") from None
