"""Files of a checkpoint: tensors and strict JSON, listed in a manifest."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torcheer.disk import patiently, read_json, strict_json, sync_folder, write_file
from torcheer.errors import ArchiveDamaged, CannotWrite
from torcheer.training.checkpoints.checkpoint_manifest import read_manifest, write_manifest
from torcheer.training.checkpoints.state_codec import Pieces, pack_shards, unpack
from torcheer.training.checkpoints.tensor_files import ChecksumFile, has_nan, read_tensors, write_tensors

MODEL, OPTIM, STATE = "model.safetensors", "optim.safetensors", "state.json"
_FACTS = "rank-{}.json"  # of a rank's part, until the manifest has them
_PATIENCE_SECS, _POLL_SECS = 600.0, 0.01
_GRACE_SECS = 10.0  # for another rank to write its part, once this one has failed: it may have been killed


class PartMissing(CannotWrite):
    """Another rank has not written its part of a checkpoint."""


@dataclass(frozen=True)
class Packed:
    """What one rank has of a checkpoint, ready to be written."""

    tensors: dict[str, dict[str, Tensor]]  # "models" and "others" -> tensors by name
    encoded: dict[str, Any]  # the same -> strict JSON for the remainder
    pieces: dict[str, Pieces]  # the same -> which parts of sharded tensors these are
    place: dict[str, Any]
    row: dict[str, float]

    @property
    def is_sharded(self) -> bool:
        """Whether other ranks have parts of its tensors."""
        return any(self.pieces.values())


def pack_checkpoint(state: dict[str, Any]) -> Packed:
    """Turn a session's state into tensors and JSON; of its rows, which the log has, their counts."""
    counted = {**state, "rows": [len(rows) for rows in state["rows"]]}
    parts = {"models": state["models"], "others": {key: part for key, part in counted.items() if key != "models"}}
    packed = Packed({}, {}, {}, state["place"], _row(state))
    for name, part in parts.items():
        packed.tensors[name], packed.encoded[name], packed.pieces[name] = pack_shards(part)
    return packed


def write_checkpoint(
    folder: Path, packed: Packed, others: int = 0, *, has_failed: Callable[[], bool] = lambda: False
) -> None:
    """Write the files of a checkpoint, the manifest last.

    others: how many ranks write parts of it into the same folder; they are waited for.
    has_failed: whether training has failed meanwhile, after which they are waited for no longer than 10 s.
    """
    own = {name: _write(folder / name, packed.tensors[part]) for name, part in ((MODEL, "models"), (OPTIM, "others"))}
    parts = [_wait_for(folder, rank, has_failed) for rank in range(1, others + 1)]
    ranks = [{"pieces": packed.pieces}, *parts]
    document = packed.encoded | ({"pieces": _join_pieces(ranks)} if packed.is_sharded else {})
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    files = {**own, STATE: _write(folder / STATE, text.encode())}
    for part in parts:
        files |= part["files"]
    is_bad = has_nan(packed.tensors["models"]) or any(part["has_nan"] for part in parts)
    write_manifest(folder, {"place": packed.place, "row": packed.row, "files": files, "has_nan": is_bad})
    sync_folder(folder)


def leave_part(folder: Path, packed: Packed, rank: int) -> None:
    """Write what a rank other than the first has of sharded tensors, then what the first needs to know of it."""
    files = {}
    for name, part in ((MODEL, "models"), (OPTIM, "others")):
        pieces = packed.pieces[part]
        tensors = {key: packed.tensors[part][key] for key, piece in pieces.items() if piece["is_saved"]}
        file = folder / _part_name(name, rank)
        files[file.name] = patiently(partial(_write, file, tensors), folder)  # NFS may remember none there
    facts = {"files": files, "pieces": packed.pieces, "has_nan": has_nan(packed.tensors["models"])}
    write_file(folder / _FACTS.format(rank), json.dumps(facts).encode())


def _wait_for(folder: Path, rank: int, has_failed: Callable[[], bool]) -> dict[str, Any]:
    """What another rank has left, once it has written its part; the file is removed."""
    path, began, failed_at = folder / _FACTS.format(rank), time.monotonic(), math.inf
    while (facts := read_json(path)) is None:
        now = time.monotonic()
        if has_failed():
            failed_at = min(failed_at, now)
        if now > min(began + _PATIENCE_SECS, failed_at + _GRACE_SECS):
            raise PartMissing(f"{folder}: rank {rank} has not written its part within {now - began:.0f} s")
        time.sleep(_POLL_SECS)
    path.unlink()
    return dict(facts)


def _write(path: Path, content: dict[str, Tensor] | bytes) -> dict[str, int]:
    with open(path, "wb", buffering=0) as file:
        checked_file = ChecksumFile(file)
        write_tensors(checked_file, content) if isinstance(content, dict) else checked_file.write(content)
        os.fsync(file.fileno())
    return {"bytes": checked_file.bytes, "crc32": checked_file.crc32}


def _part_name(name: str, rank: int) -> str:
    """The file of a rank: `model-2.safetensors`; the first one has the names of a checkpoint of one process."""
    stem, _, ending = name.partition(".")
    return f"{stem}-{rank}.{ending}" if rank else name


def _join_pieces(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the parts of each sharded tensor are: by rank, and where each begins."""
    return {
        kind: {
            name: {"shape": piece["shape"], "parts": [
                [rank, other["pieces"][kind][name]["begin"]]
                for rank, other in enumerate(ranks)
                if other["pieces"][kind].get(name, {}).get("is_saved")
            ]}
            for name, piece in pieces.items()
        }
        for kind, pieces in ranks[0]["pieces"].items()
    }  # fmt: skip


def _row(state: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of this checkpoint's weights: those of an epoch that has just ended."""
    place = state["place"]
    for row in (row for rows in state["rows"] for row in rows):
        if row["epoch"] == place["epoch"] and not place["round"]:
            return {key: value for key, value in row.items() if key != "epoch" and math.isfinite(value)}
    return {}


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read the state in a checkpoint and verify every byte against its manifest."""
    files = read_manifest(path)["files"]
    models, others, text = (_read_verified(path / name, files[name]) for name in (MODEL, OPTIM, STATE))
    document = strict_json(text, str(path / STATE))
    for kind, name, tensors in (("models", MODEL, models), ("others", OPTIM, others)):
        if pieces := document.get("pieces", {}).get(kind):
            _assemble(path, name, files, pieces, tensors)
    return {**unpack(others, document["others"]), "models": unpack(models, document["models"])}


def _assemble(path: Path, name: str, files: Mapping[str, Any], pieces: Mapping[str, Any], tensors: Any) -> None:
    """Put sharded tensors together, in place of the parts that the first rank has of them."""
    whole: dict[str, Tensor] = {}
    for rank in sorted({rank for piece in pieces.values() for rank, _ in piece["parts"]}):
        file = _part_name(name, rank)
        parts = tensors if not rank else _read_verified(path / file, files[file])
        for key, piece in pieces.items():
            for begin in (begin for number, begin in piece["parts"] if number == rank):
                part = parts[key]
                full = whole.setdefault(key, torch.empty(piece["shape"], dtype=part.dtype))
                full[tuple(slice(start, start + size) for start, size in zip(begin, part.shape))] = part
    tensors.update(whole)


def _read_verified(path: Path, expected: Mapping[str, int]) -> Any:
    """Read a file's tensors or bytes.

    Raise where its size or checksum is not that of the manifest.
    """
    if not path.is_file():
        raise ArchiveDamaged(f"there is no {path.name}")
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise ArchiveDamaged(f"{path.name} has {size} bytes, and {expected['bytes']} were written")
    with open(path, "rb", buffering=0) as file:
        checked_file = ChecksumFile(file)
        content = checked_file.read(size) if path.name == STATE else read_tensors(checked_file, path)
    if (checked_file.bytes, checked_file.crc32) != (size, expected["crc32"]):
        raise ArchiveDamaged(f"{path.name} is not what was written: its checksum differs")
    return content
