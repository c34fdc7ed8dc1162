"""Checkpoints and files that differ in known places, for tests of comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from folder_runs import logged
from safetensors.numpy import save_file
from seams import write_manifest

HOSTILE = "<img src=x onerror=alert(1)>"


def weights(change: float = 0.0) -> dict[str, np.ndarray]:
    """The weights of a small net; `change` is added to those of `head`."""
    rng = np.random.default_rng(0)
    conv, head = rng.normal(size=(8, 3, 3, 3)), rng.normal(size=(4, 32))
    named = {"conv.weight": conv, "conv.bias": np.zeros(8), "head.weight": head + change}
    return {name: values.astype(np.float32) for name, values in named.items()}


def two_files(folder: Path) -> tuple[Path, Path]:
    """Two files: equal, different, NaN in one, other shape, only in one."""
    folder.mkdir(parents=True, exist_ok=True)
    first = {**weights(), "old.weight": np.ones((2, 2), np.float32), "tail.weight": np.ones((3, 4), np.float32)}
    second = {**weights(0.5), f"{HOSTILE}.weight": np.ones(3, np.float32), "tail.weight": np.ones((5, 4), np.float32)}
    second["conv.bias"] = np.array([np.nan, 0, 0, 0, 0, 0, 0, 0], np.float32)
    save_file(first, folder / "first.safetensors")
    save_file(second, folder / "second.safetensors")
    return folder / "first.safetensors", folder / "second.safetensors"


def checkpoint(run: Path, step: int, change: float, **row: float) -> Path:
    """A checkpoint of a run, as training writes it, with the row of its epoch."""
    folder = run / "checkpoints" / str(step)
    folder.mkdir(parents=True)
    save_file(weights(change), folder / "model.safetensors")
    write_manifest(folder, {"place": {"step": step}, "row": row, "files": {}, "has_nan": False})
    return folder


def run_with_checkpoints(run: Path, changes: dict[int, float], keep_best: str = "val acc") -> Path:
    """A run with checkpoints by step; the best is the one with the smallest change."""
    logged(run, config={"lr": 0.1})
    (run / "spec.json").write_text(json.dumps({"keep_best": keep_best, "train": {"lr": 0.1}}))
    for step, change in changes.items():
        checkpoint(run, step, change, **{"val acc": 1 - change})
    return run
