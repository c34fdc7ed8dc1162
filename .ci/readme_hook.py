"""The README as package indexes show it, where a relative link leads nowhere.

With a `Repository` among pyproject.toml's `[project.urls]`, links and pictures lead to its main branch; without one,
pictures and the addresses of links are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINKED_PICTURE = re.compile(r"\[(!\[[^\]]*\]\([^)]*\))\]\((?!https?:|#)[^)]*\)")
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)")
_PICTURE_PLACE = re.compile(r"(!\[[^\]]*\]\()(?!https?:)([^)]*\))")
_PLACE = re.compile(r"(?<!\\)(\]\()(?!https?:|#)([^)]*\))")


class ReadmeHook(MetadataHookInterface):
    """Hatchling's hook; its name is pyproject.toml's `custom`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": indexed(text, repository)}


def indexed(text: str, repository: str = "") -> str:
    """Return a README whose links lead to a repository on the web, or are plain words; code stays as it is."""
    blocks = _CODE.split(text)
    blocks[::2] = [_linked(block, repository) if repository else _unlinked(block) for block in blocks[::2]]
    return "".join(blocks)


def _linked(text: str, repository: str) -> str:
    text = _PICTURE_PLACE.sub(rf"\1{repository}/raw/main/\2", text)
    return _PLACE.sub(rf"\1{repository}/blob/main/\2", text)


def _unlinked(text: str) -> str:
    return _LINK.sub(r"\1", _PICTURE.sub("", _LINKED_PICTURE.sub(r"\1", text)))
