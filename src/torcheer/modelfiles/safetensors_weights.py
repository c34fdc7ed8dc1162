"""Tensors of a safetensors file, of all files that an index names, or of all ranks that wrote a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.disk import strict_json
from torcheer.errors import ArchiveDamaged
from torcheer.modelfiles.file_tensor import FileTensor, ShardedTensor, plain_coding
from torcheer.modelfiles.model_file import ModelFile, text_of
from torcheer.safetensors_header import read_header
from torcheer.terminal import short_repr

_MOST_INDEX_BYTES: Final = 256 << 20
_MOST_SHARDS: Final = 10_000
_KINDS: Final = {"model.safetensors": "models", "optim.safetensors": "others"}  # files of a checkpoint


def read_file(path: Path) -> ModelFile:
    """Open a file, or all files of an index."""
    if path.name.lower().endswith(".json"):
        return _read_shards(path)
    tensors, metadata = _read_shard(path)
    count = _join_ranks(path, tensors)
    kind = f"safetensors of {count} ranks" if count > 1 else "safetensors"
    return ModelFile(path, kind, tensors, {str(key): text_of(value) for key, value in metadata.items()})


def _join_ranks(path: Path, tensors: dict[str, FileTensor]) -> int:
    """Put the parts that ranks have of a checkpoint's tensors in place of those of the first; return how many ranks.

    state.json beside them says where each part begins, as `training.checkpoints.checkpoint_files` writes it.
    """
    if path.name not in _KINDS or not (path.parent / "MANIFEST.json").is_file():
        return 1
    if not path.with_name(f"{path.stem}-1{path.suffix}").is_file():
        return 1
    document = strict_json((path.parent / "state.json").read_bytes(), f"{path.parent}/state.json")
    pieces = document.get("pieces", {}).get(_KINDS[path.name], {})
    ranks = {0: dict(tensors)}
    for name, piece in pieces.items():
        parts = []
        for rank, begin in piece["parts"]:
            file = path.with_name(f"{path.stem}-{int(rank)}{path.suffix}" if rank else path.name)
            if rank not in ranks:
                ranks[rank] = _read_shard(file)[0]
            parts.append((file.name, tuple(begin), ranks[rank][name]))
        tensors[name] = ShardedTensor(tuple(piece["shape"]), parts)
    return len(ranks)


def _read_shard(path: Path) -> tuple[dict[str, FileTensor], dict[str, Any]]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        entries, metadata = read_header(file.read, size, path)
        start = file.tell()
    data = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    tensors = {
        name: FileTensor(name, shape, type, data[start + begin : start + end], plain_coding(type))
        for name, type, shape, begin, end in entries
    }
    return tensors, metadata


def _read_shards(path: Path) -> ModelFile:
    if path.stat().st_size > _MOST_INDEX_BYTES:
        raise ArchiveDamaged(f"{path} is too large for an index")
    index = strict_json(path.read_bytes(), str(path))
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ArchiveDamaged(f"{path} has no weight_map from names to files")
    shards = {name: _shard_path(path, name) for name in dict.fromkeys(places.values())}
    if len(shards) > _MOST_SHARDS:
        raise ArchiveDamaged(f"{path} names {len(shards):,} files")
    read = {name: _read_shard(shard)[0] for name, shard in shards.items()}
    missing = [name for name, shard in places.items() if name not in read[shard]]
    if missing:
        raise ArchiveDamaged(f"{path}: {short_repr(missing[0])} is not in {places[missing[0]]}")
    tensors = {name: read[shard][name] for name, shard in places.items()}
    return ModelFile(path, f"safetensors in {len(shards)} files", tensors, {})


def _shard_path(index: Path, name: str) -> Path:
    """A file beside the index, and nowhere else."""
    shard = index.parent / name
    if Path(name).name != name or not shard.is_file():
        raise ArchiveDamaged(f"{index}: its shard {short_repr(name)} is not beside it")
    return shard
