"""Describe a session directory for `torcheer show`.

Read as data, without torch and without its code.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from torcheer.disk import LOCK, lock_holder, read_json
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.modelfiles import open_model_file
from torcheer.runlog.follow.run_end import read_end
from torcheer.runlog.log_reader import RunLog, is_long, refuse_earlier
from torcheer.runlog.training_tables import HEADS, stages_of
from torcheer.runlog.watch_reader import has_watch, open_watch
from torcheer.terminal import ProgressCallback, format_table, human_bytes, ignore_progress, plural, printable
from torcheer.training.checkpoints.checkpoint_manifest import verify_checkpoint
from torcheer.training.observe.metric_csv import columns_of
from torcheer.training.observe.training_log import TrainingLog

ROWS = 5  # of the table, the last ones


def describe_run(directory: Path, on_progress: ProgressCallback = ignore_progress) -> list[str]:
    """Describe a session, its progress and whether its checkpoints are intact, as lines.

    on_progress: called with the number of bytes as they are checked.
    """
    run = read_json(directory / "run.json")
    if run is None and has_watch(directory):
        return str(open_watch(directory)).splitlines()
    if run is None:
        refuse_earlier(directory)
        raise BadArgument(f"{directory} is no session: there is no run.json in it.{_nearby_sessions(directory)}")
    spec = read_json(directory / "spec.json") or {}
    manifests = dict(_checkpoints(directory, on_progress))
    try:
        return _lines(directory, run, spec, manifests)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # valid JSON, but not in our format
        raise ArchiveDamaged(f"{directory}: its files are not as torcheer writes them: {error!r}") from None


def _lines(
    directory: Path, run: Mapping[str, Any], spec: Mapping[str, Any], manifests: Mapping[str, dict[str, Any] | str]
) -> list[str]:
    newest = next((manifest for manifest in reversed(list(manifests.values())) if isinstance(manifest, dict)), {})
    return [
        _title(directory, run, spec),
        *_part("models", _models(directory, newest, spec)),
        *_part("stages", _stages(spec, newest)),
        *_part("metrics", _metrics(directory)),
        *_logged_tables(directory, HEADS if manifests else ()),
        *_part("logged", _samples(directory)),
        *_part("checkpoints", _checkpoint_rows(manifests)),
        *_part("changed on the command line", spec.get("source", {}).get("overrides", [])),
        *_part("size", _sizes(directory)),
    ]


def _part(title: str, lines: list[str]) -> list[str]:
    return ["", title, *[f"  {printable(line)}" for line in lines]] if lines else []


def _title(directory: Path, run: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.get("versions", {}).items())
    source = spec.get("source", {}).get("config")
    trainer = lock_holder(directory)
    end = read_end(directory)
    failure = f"; it failed: {end.why}" if end.status == "failed" else ""
    status = f"; process {trainer} trains it now" if trainer else failure
    return printable(f"{directory}: a session{f' from {source}' if source else ''} ({versions}){status}")


def _nearby_sessions(directory: Path) -> str:
    """Suggest sessions in subfolders of a directory that is none."""
    if not directory.is_dir():
        return " Nor is there such a folder." if not directory.exists() else ""
    names = sorted(path.parent.name for path in directory.glob("*/run.json"))
    return f" There is one in {', '.join(names[:3])}." if names else ""


def _models(directory: Path, newest: Mapping[str, Any], spec: Mapping[str, Any]) -> list[str]:
    """List models, classes and parameter counts.

    As init counted them, else numbers in the weights file.
    """
    classes = {
        entry["name"]: entry["spec"].get("class") or entry["spec"].get("factory_fn") or ""
        for entry in spec.get("initialize", {}).get("definitions", [])
        if entry["group"] == "models"
    }
    counted = read_json(directory / "static" / "models.json")
    if counted is not None:
        texts = {name: f"{counts['parameters']:,} parameters{_frozen(counts)}" for name, counts in counted.items()}
    else:
        texts = {name: f"{count:,} numbers" for name, count in _numbers(newest).items()}
    return format_table([(name, classes.get(name, ""), text) for name, text in texts.items()], left=3)


def _frozen(counted: Mapping[str, int]) -> str:
    frozen = counted["parameters"] - counted["trainable"]
    return f", {frozen:,} of them frozen" if frozen else ""


def _numbers(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of weights of each model, from the headers of their files."""
    counts: dict[str, int] = {}
    tensors = open_model_file(manifest["path"] / "model.safetensors").tensors if manifest else {}
    for name, tensor in tensors.items():
        model = name.split(".")[0]
        counts[model] = counts.get(model, 0) + tensor.size
    return counts


def _stages(spec: Mapping[str, Any], newest: Mapping[str, Any]) -> list[str]:
    """List what each stage trains, until when, and its progress."""
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
    return format_table(lines, left=3)


def _stop(condition: Mapping[str, Any] | None) -> str:
    if condition is None:
        return "until 1 epoch is done"
    args = [repr(value) for value in condition.get("args", [])]
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
    """List the last rows of the newest stage."""
    stages = stages_of(TrainingLog(directory).tail(ROWS)) if is_long(directory) else {}
    stages = stages or stages_of(TrainingLog(directory).tables())
    rows = stages[max(stages)][-ROWS:] if stages else []
    columns = columns_of(rows)
    shown = [tuple(_rounded(str(row.get(column, ""))) for column in columns) for row in rows]
    return format_table([tuple(columns), *shown], left=0) if shown else []


def _logged_tables(directory: Path, of_training: Container[str]) -> list[str]:
    """List the last rows of each table that a loop, such as that of `tl.live`, has logged beside training."""
    lines: list[str] = []
    log, only_last = RunLog(directory), is_long(directory)
    tables = log.tail(ROWS) if only_last else log.tables() if (directory / "log").is_dir() else {}
    for table in tables.values():
        if table.head.name in of_training:
            continue
        rows = list(zip(*table.columns.values()))[-ROWS:]
        cells = [tuple("" if cell is None else _rounded(str(cell)) for cell in row) for row in rows]
        if cells:
            title = f"{table.head.title}, {'the last rows' if only_last else plural(table.count, 'row')}"
            lines += _part(title, format_table([tuple(table.columns), *cells], left=0))
    return lines


def _samples(directory: Path) -> list[str]:
    """List what was logged beside numbers."""
    return format_table(RunLog(directory).samples.lines(), left=3)


def _rounded(cell: str) -> str:
    try:
        return f"{float(cell):.4f}" if not cell.isdecimal() else cell
    except ValueError:
        return cell


def _checkpoints(directory: Path, on_progress: ProgressCallback) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield each checkpoint's manifest, or its problem, oldest first."""
    folder = directory / "checkpoints"
    paths = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    for path in sorted(paths, key=lambda path: int(path.name)):
        try:
            yield path.name, {**verify_checkpoint(path, on_progress), "path": path}
        except (TorcheerError, OSError, KeyError) as error:
            yield path.name, f"damaged: {error}"


def _checkpoint_rows(manifests: Mapping[str, dict[str, Any] | str]) -> list[str]:
    rows = []
    for name, manifest in manifests.items():
        if isinstance(manifest, str):
            rows.append((f"step {name}", manifest, ""))
        else:
            size = sum(file["bytes"] for file in manifest["files"].values())
            values = ", ".join(f"{column} {value:.4f}" for column, value in manifest["row"].items())
            rows.append((f"step {name}", f"whole, {human_bytes(size)}", values))
    return format_table(rows, left=3)


def _sizes(directory: Path) -> list[str]:
    """Describe the disk usage of the directory and its largest parts."""
    parts = {path.name: _size(path) for path in sorted(directory.iterdir()) if path.name != LOCK}
    total = sum(parts.values())
    large = [f"{name} {human_bytes(size)}" for name, size in parts.items() if size > total / 20]
    return [f"{human_bytes(total)}: {', '.join(large)}"]


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(_size(entry) for entry in path.iterdir())
    return path.lstat().st_size


def count_models(models: Mapping[str, Any]) -> str:
    """Count the parameters of models, as JSON for `static/models.json`."""
    counts = {}
    for name, model in models.items():
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
        counts[name] = {
            "parameters": sum(size for size, _ in sizes),
            "trainable": sum(size for size, on in sizes if on),
        }
    return json.dumps(counts, indent=1) + "\n"
