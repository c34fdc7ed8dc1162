"""Config files: their values, the line of each value, and which code a config may name."""

from __future__ import annotations

from torcheer.config.arguments import bind, downloads
from torcheer.config.code_names import describe, find, read_source
from torcheer.config.config_files import Config, read
from torcheer.config.overrides import override
from torcheer.config.problems import problem, where

__all__ = [
    "Config",
    "bind",
    "describe",
    "downloads",
    "find",
    "override",
    "problem",
    "read",
    "read_source",
    "where",
]
