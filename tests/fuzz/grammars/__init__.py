"""What writes the files: one grammar for each format, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.dice import Dice


@dataclass(frozen=True, slots=True)
class Grammar:
    """How files of a format are written, and how they are opened."""

    write: Callable[[Dice, Path], Path]  # writes into an empty folder; returns the path to open
    door: str  # a name in `opening.DOORS`
    reference: str = ""  # a name in `reference.READERS`; "" where there is no reference reader


def grammars() -> dict[str, Grammar]:
    """All grammars, by the name of their format."""
    from fuzz.grammars import archives, configs, events, exported, gguf, lightning, onnx, pickles, safetensors

    return {
        "safetensors": Grammar(safetensors.write_file, "model", "safetensors"),
        "safetensors-index": Grammar(safetensors.write_index, "model"),
        "gguf": Grammar(gguf.write_file, "model", "gguf"),
        "torch-save": Grammar(pickles.write_file, "model", "torch"),
        "torch-export": Grammar(exported.write_file, "model"),
        "onnx": Grammar(onnx.write_file, "model", "onnx"),
        "events": Grammar(events.write_folder, "foreign-run", "events"),
        "lightning": Grammar(lightning.write_folder, "foreign-run"),
        "archive": Grammar(archives.write_archive, "own"),
        "run": Grammar(archives.write_run, "own"),
        "config-json": Grammar(configs.write_json, "config", "config"),
        "config-yaml": Grammar(configs.write_yaml, "config", "config"),
        "config-toml": Grammar(configs.write_toml, "config", "config"),
    }
