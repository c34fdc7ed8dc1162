"""The README as package indexes show it: its links and pictures lead nowhere outside the repository, so they go."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)")


class ReadmeHook(MetadataHookInterface):
    """Hatchling's hook; its name is pyproject.toml's `custom`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        blocks = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)  # code stays as it is
        blocks[::2] = [_LINK.sub(r"\1", _PICTURE.sub("", block)) for block in blocks[::2]]
        metadata["readme"] = {"content-type": "text/markdown", "text": "".join(blocks)}
