"""What a session directory holds, as `torcheer show` prints it: read as data, without torch and without its code."""

from __future__ import annotations

import csv
import fcntl
import json
import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torcheer.archive.format.index_frames import strict_json
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.terminal import align, human_bytes, plural, printable
from torcheer.training.checkpoints.checkpoint_manifest import verified

ROWS = 5  # of the table, the last ones


def described(directory: Path, told: Callable[[int], None] = lambda _: None) -> list[str]:
    """Lines that say what a session is, how far it is and whether its checkpoints are whole.

    `told` hears of bytes as they are checked.
    """
    run = read_json(directory / "run.json")
    if run is None:
        raise BadArgument(f"{directory} is no session: there is no run.json in it.{_beside(directory)}")
    spec = read_json(directory / "spec.json") or {}
    manifests = dict(_checkpoints(directory, told))
    try:
        return _lines(directory, run, spec, manifests)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # JSON, but not as we write it
        raise ArchiveDamaged(f"{directory}: its files are not as torcheer writes them: {error!r}") from None


def _lines(
    directory: Path, run: Mapping[str, Any], spec: Mapping[str, Any], manifests: Mapping[str, dict[str, Any] | str]
) -> list[str]:
    newest = next((one for one in reversed(list(manifests.values())) if isinstance(one, dict)), {})
    return [
        _title(directory, run, spec),
        *_part("models", _models(directory, newest, spec)),
        *_part("stages", _stages(spec, newest)),
        *_part("metrics", _metrics(directory)),
        *_part("checkpoints", _listed(manifests)),
        *_part("changed on the command line", spec.get("source", {}).get("overrides", [])),
        *_part("size", _sizes(directory)),
    ]


def _part(title: str, lines: list[str]) -> list[str]:
    return ["", title, *[f"  {printable(line)}" for line in lines]] if lines else []


def _title(directory: Path, run: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.get("versions", {}).items())
    source = spec.get("source", {}).get("config")
    trainer = trained_by(directory)
    now = f"; process {trainer} trains it now" if trainer else ""
    return printable(f"{directory}: a session{f' from {source}' if source else ''} ({versions}){now}")


def trained_by(directory: Path) -> int:
    """The number of the process that holds the lock; 0 where nobody does, or where the system does not tell."""
    layout = "@hhqqi0q"  # struct flock on Linux: type, whence, start, length, process
    try:
        with open(directory / "LOCK", "rb") as file:
            asked = struct.pack(layout, fcntl.F_WRLCK, 0, 0, 0, 0)
            found = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return 0
    return int(found[4]) if sys.platform == "linux" and found[0] != fcntl.F_UNLCK else 0


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None where there is no file."""
    if not path.is_file():
        return None
    found = strict_json(path.read_bytes(), str(path))
    if not isinstance(found, dict):
        raise ArchiveDamaged(f"{path} is not one of ours")
    return found


def _beside(directory: Path) -> str:
    """Sessions that are nearer than what was asked for."""
    if not directory.is_dir():
        return " Nor is there such a folder." if not directory.exists() else ""
    found = sorted(path.parent.name for path in directory.glob("*/run.json"))
    return f" There is one in {', '.join(found[:3])}." if found else ""


def _models(directory: Path, newest: Mapping[str, Any], spec: Mapping[str, Any]) -> list[str]:
    """A model, its class, and how many parameters it has: as init has counted them, or the file's own numbers."""
    classes = {
        one["name"]: one["spec"].get("class") or one["spec"].get("factory_fn") or ""
        for one in spec.get("initialize", {}).get("definitions", [])
        if one["group"] == "models"
    }
    counted = read_json(directory / "static" / "models.json")
    if counted is not None:
        texts = {name: f"{one['parameters']:,} parameters{_frozen(one)}" for name, one in counted.items()}
    else:
        texts = {name: f"{count:,} numbers" for name, count in _numbers(newest).items()}
    return align([(name, classes.get(name, ""), text) for name, text in texts.items()], left=3)


def _frozen(counted: Mapping[str, int]) -> str:
    frozen = counted["parameters"] - counted["trainable"]
    return f", {frozen:,} of them frozen" if frozen else ""


def _numbers(manifest: Mapping[str, Any]) -> dict[str, int]:
    """How many numbers the weights of each model are, from the header of their file."""
    found: dict[str, int] = {}
    if not manifest:
        return found
    with open(manifest["path"] / "model.safetensors", "rb") as file:
        header = strict_json(file.read(int.from_bytes(file.read(8), "little")), "its header")
    for name, one in header.items():
        if name != "__metadata__":
            model = name.split(".")[0]
            found[model] = found.get(model, 0) + math.prod(one["shape"])
    return found


def _stages(spec: Mapping[str, Any], newest: Mapping[str, Any]) -> list[str]:
    """What each stage trains, until when, and how far it is."""
    place = newest.get("place", {})
    stages = spec.get("train", {}).get("stages", [])
    lines = []
    for number, stage in enumerate(stages):
        words = [f"train {', '.join(stage['training_pipelines'])}"]
        if stage.get("validation_pipelines"):
            words.append(f"validate {', '.join(stage['validation_pipelines'])}")
        words.append(_stop(stage.get("stop_condition")))
        lines.append((str(number), "; ".join(words), _progress(number, place)))
    if not stages and place:
        lines.append((str(place["stage"]), "", _progress(place["stage"], place)))
    return align(lines, left=3)


def _stop(condition: Mapping[str, Any] | None) -> str:
    if condition is None:
        return "until 1 epoch is done"
    args = [repr(one) for one in condition.get("args", [])]
    args += [f"{key}={value!r}" for key, value in condition.get("kwargs", {}).items()]
    name = (condition.get("class") or condition.get("factory_fn") or "").rpartition(".")[2]
    return f"until {name}({', '.join(args)})"


def _progress(stage: int, place: Mapping[str, Any]) -> str:
    if not place:
        return "not begun"
    if stage != place["stage"]:
        return "done" if stage < place["stage"] else "to come"
    inside = f" and {plural(place['round'], 'round')}" if place["round"] else ""
    return f"at epoch {place['epoch']}{inside}, step {place['step']:,}"


def _metrics(directory: Path) -> list[str]:
    """The last rows of the stage that was trained last."""
    files = [path for path in (directory / "metrics").glob("*.csv") if path.stem.isdecimal()]
    if not files:
        return []
    with open(max(files, key=lambda path: int(path.stem)), newline="") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    shown = [tuple(_rounded(cell) for cell in row) for row in rows[-ROWS:] if len(row) == len(header)]
    return align([tuple(header), *shown], left=0) if shown else []


def _rounded(cell: str) -> str:
    try:
        return f"{float(cell):.4f}" if not cell.isdecimal() else cell
    except ValueError:
        return cell


def _checkpoints(directory: Path, told: Callable[[int], None]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each checkpoint's manifest, or what is wrong with it, the oldest first."""
    folder = directory / "checkpoints"
    paths = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    for path in sorted(paths, key=lambda path: int(path.name)):
        try:
            yield path.name, {**verified(path, told), "path": path}
        except (TorcheerError, OSError, KeyError) as error:
            yield path.name, f"damaged: {error}"


def _listed(manifests: Mapping[str, dict[str, Any] | str]) -> list[str]:
    rows = []
    for name, one in manifests.items():
        if isinstance(one, str):
            rows.append((f"step {name}", one, ""))
        else:
            size = sum(file["bytes"] for file in one["files"].values())
            values = ", ".join(f"{column} {value:.4f}" for column, value in one["row"].items())
            rows.append((f"step {name}", f"whole, {human_bytes(size)}", values))
    return align(rows, left=3)


def _sizes(directory: Path) -> list[str]:
    """What takes how much of the disk."""
    parts = {path.name: _size(path) for path in sorted(directory.iterdir()) if path.name != "LOCK"}
    total = sum(parts.values())
    large = [f"{name} {human_bytes(size)}" for name, size in parts.items() if size > total / 20]
    return [f"{human_bytes(total)}: {', '.join(large)}"]


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_size(one) for one in path.iterdir())
    return path.lstat().st_size


def count_models(models: Mapping[str, Any]) -> str:
    """How many parameters models have, as JSON for `static/models.json`."""
    found = {}
    for name, model in models.items():
        sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
        found[name] = {"parameters": sum(size for size, _ in sizes), "trainable": sum(size for size, on in sizes if on)}
    return json.dumps(found, indent=1) + "\n"
