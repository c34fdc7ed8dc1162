"""Files of a checkpoint: tensors and strict JSON, listed in a manifest."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torcheer.disk import strict_json, sync_folder
from torcheer.errors import ArchiveDamaged
from torcheer.training.checkpoints.checkpoint_manifest import read_manifest, write_manifest
from torcheer.training.checkpoints.state_codec import pack, unpack
from torcheer.training.checkpoints.tensor_files import ChecksumFile, has_nan, read_tensors, write_tensors

MODEL, OPTIM, STATE = "model.safetensors", "optim.safetensors", "state.json"


def write_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write the files of a checkpoint, the manifest last; of its rows, which the log has, their counts."""
    models, models_json = pack(state["models"])
    counted = {**state, "rows": [len(rows) for rows in state["rows"]]}
    others, others_json = pack({key: value for key, value in counted.items() if key != "models"})
    text = json.dumps({"models": models_json, "others": others_json}, separators=(",", ":"), allow_nan=False)
    files = {}
    for name, content in ((MODEL, models), (OPTIM, others), (STATE, text.encode())):
        with open(folder / name, "wb", buffering=0) as file:
            checked_file = ChecksumFile(file)
            write_tensors(checked_file, content) if isinstance(content, dict) else checked_file.write(content)
            os.fsync(file.fileno())
        files[name] = {"bytes": checked_file.bytes, "crc32": checked_file.crc32}
    write_manifest(folder, {"place": state["place"], "row": _row(state), "files": files, "has_nan": has_nan(models)})
    sync_folder(folder)


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
    return {**unpack(others, document["others"]), "models": unpack(models, document["models"])}


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
