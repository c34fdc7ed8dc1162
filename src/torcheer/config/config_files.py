"""Reader of config files in JSON, YAML or TOML: plain values and the line of each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torcheer.config import json_text, toml_text, yaml_text
from torcheer.config.line_numbers import MAX_DEPTH, KeyPath, TextFault
from torcheer.errors import BadConfig
from torcheer.terminal import did_you_mean

PARSERS = {".json": json_text.parse, ".yaml": yaml_text.parse, ".yml": yaml_text.parse, ".toml": toml_text.parse}
MAX_BYTES = 1 << 20  # a larger file is misplaced data


@dataclass(frozen=True, slots=True)
class Config:
    """Values of a config file, and their lines."""

    data: dict[str, Any]
    path: Path
    lines: Mapping[KeyPath, int] = field(repr=False)
    overrides: list[str] = field(default_factory=list)  # key.path=value, as given on the command line
    words: frozenset[KeyPath] = frozenset()  # key paths that overrides set to a string without quotes

    def line(self, path: Sequence[str | int]) -> int | None:
        """Return the line, from 1, of the value at a key path.

        For a YAML block or TOML table, of its name.
        """
        return self.lines.get(tuple(path))


def read(path: str | os.PathLike[str]) -> Config:
    """Read a config file; errors name the line."""
    path = Path(path)
    parser = PARSERS.get(path.suffix.lower())
    if parser is None:
        suffixes = ", ".join(PARSERS)
        raise BadConfig(f"{path}: the end of its name says how a config is written, and is one of {suffixes}")
    text = read_text(path)
    try:
        data, line_map = parser(text)
    except TextFault as fault:
        raise BadConfig(format_fault(path, text, fault)) from None
    except RecursionError:
        raise BadConfig(f"{path}: nested more than {MAX_DEPTH} levels deep") from None
    if not isinstance(data, dict):
        raise BadConfig(f"{path}: at the top there is {describe_kind(data)}; a config is a mapping of keys to values")
    return Config(data, path, line_map.lines)


def read_text(path: Path) -> str:
    """Read the text of a file; raise BadConfig where it has none."""
    try:
        if path.exists() and not path.is_file():
            description = "a folder" if path.is_dir() else "not a regular file"
            raise BadConfig(f"{path}: this is {description}; a config is a file")
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadConfig(f"{path}: there is no such file.{suggest_file(path)}") from None
    except (OSError, ValueError) as error:  # no permission; a name with a zero byte
        raise BadConfig(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MAX_BYTES:
        raise BadConfig(f"{path}: this is more than {MAX_BYTES >> 20} MiB, which is no config")
    return decode_text(path, content)


def decode_text(path: Path, content: bytes) -> str:
    if content.startswith(b"\xef\xbb\xbf"):
        raise BadConfig(f"{path}: starts with a byte order mark; save it as UTF-8 without one")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadConfig(f"{path}:{line}: not UTF-8 text: byte {content[error.start]:#04x} cannot stand there") from None
    if "\0" in text:
        raise BadConfig(f"{path}: holds zero bytes; this is no text file")
    if not text.strip():
        raise BadConfig(f"{path}: the file is empty; a config is a mapping of keys to values")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def format_fault(path: Path, text: str, fault: TextFault) -> str:
    """Format an error with its position, the line of text and a mark below the character."""
    if not fault.line:
        return f"{path}: {fault}"
    lines = text.split("\n")
    line = lines[fault.line - 1] if fault.line <= len(lines) else ""
    start = max(0, fault.column - 61)  # a config on one line can be long
    shown = "".join(character if character.isprintable() else " " for character in line[start : start + 100])
    mark = " " * (fault.column - 1 - start) + "^"
    return f"{path}:{fault.line}:{fault.column}: {fault}\n    {shown}\n    {mark}"


def suggest_file(path: Path) -> str:
    """Suggest the config in the same folder with the nearest name."""
    try:
        names = [name for name in os.listdir(path.parent) if Path(name).suffix.lower() in PARSERS]
    except OSError:
        return f" Nor is there a folder {path.parent}."
    return did_you_mean(path.name, names)


def describe_kind(value: Any) -> str:
    return {type(None): "nothing", list: "a list", str: "a string", bool: "true or false"}.get(type(value), "a number")
