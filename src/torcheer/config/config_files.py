"""Config files: JSON, YAML or TOML in, plain values and the line of each out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torcheer.config import json_text, toml_text, yaml_text
from torcheer.config.line_numbers import DEPTH, Fault, KeyPath
from torcheer.config.problems import nearest
from torcheer.errors import BadConfig

PARSERS = {".json": json_text.parse, ".yaml": yaml_text.parse, ".yml": yaml_text.parse, ".toml": toml_text.parse}
MOST_BYTES = 1 << 20  # more is data that lost its way


@dataclass(frozen=True, slots=True)
class Config:
    """What a config file says, and where."""

    data: dict[str, Any]
    path: Path
    lines: Mapping[KeyPath, int] = field(repr=False)
    overrides: list[str] = field(default_factory=list)  # key.path=value, as they were given

    def line(self, path: Sequence[str | int]) -> int | None:
        """The line, from 1, on which the value at a key path stands; for a YAML block or a TOML table, its name."""
        return self.lines.get(tuple(path))


def read(path: str | os.PathLike[str]) -> Config:
    """Read a config file; what is wrong with it is said with its line."""
    path = Path(path)
    parser = PARSERS.get(path.suffix.lower())
    if parser is None:
        known = ", ".join(PARSERS)
        raise BadConfig(f"{path}: the end of its name says how a config is written, and is one of {known}")
    text = text_of(path)
    try:
        data, places = parser(text)
    except Fault as fault:
        raise BadConfig(located(path, text, fault)) from None
    except RecursionError:
        raise BadConfig(f"{path}: nested more than {DEPTH} levels deep") from None
    if not isinstance(data, dict):
        raise BadConfig(f"{path}: at the top there is {kind_of(data)}; a config is a mapping of keys to values")
    for remark in places.remarks:
        warnings.warn(located(path, text, remark), stacklevel=2)
    return Config(data, path, places.lines)


def text_of(path: Path) -> str:
    """The text of a file, or why it has none."""
    try:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "not a regular file"
            raise BadConfig(f"{path}: this is {what}; a config is a file")
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise BadConfig(f"{path}: there is no such file.{beside(path)}") from None
    except (OSError, ValueError) as error:  # not ours to read; a name with a zero byte
        raise BadConfig(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MOST_BYTES:
        raise BadConfig(f"{path}: this is more than {MOST_BYTES >> 20} MiB, which is no config")
    return decoded(path, content)


def decoded(path: Path, content: bytes) -> str:
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


def located(path: Path, text: str, fault: Fault) -> str:
    """An error with its place, the line of text and a mark below the character."""
    if not fault.line:
        return f"{path}: {fault}"
    lines = text.split("\n")
    line = lines[fault.line - 1] if fault.line <= len(lines) else ""
    start = max(0, fault.column - 61)  # a config on one line can be long
    shown = "".join(letter if letter.isprintable() else " " for letter in line[start : start + 100])
    mark = " " * (fault.column - 1 - start) + "^"
    return f"{path}:{fault.line}:{fault.column}: {fault}\n    {shown}\n    {mark}"


def beside(path: Path) -> str:
    """The config in the same folder whose name is nearest."""
    try:
        names = [name for name in os.listdir(path.parent) if Path(name).suffix.lower() in PARSERS]
    except OSError:
        return f" Nor is there a folder {path.parent}."
    return nearest(path.name, names)


def kind_of(value: Any) -> str:
    return {type(None): "nothing", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")
