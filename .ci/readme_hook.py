"""The README and the addresses of the project as package indexes show them, where a relative link leads nowhere.

In a clone of a public host (`repository.py`), links and pictures lead to its main branch; elsewhere, pictures and the
addresses of links are left out, and there are no addresses.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
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
        repository = _addresses().find_repository(Path(self.root))
        metadata["urls"] = repository.urls if repository else {}
        metadata["readme"] = {"content-type": "text/markdown", "text": indexed(text, repository)}


def indexed(text: str, repository: Any = None) -> str:
    """Return a README whose links lead to a repository on the web, or are plain words; code stays as it is."""
    blocks = _CODE.split(text)
    blocks[::2] = [_linked(block, repository) if repository else _unlinked(block) for block in blocks[::2]]
    return "".join(blocks)


def _linked(text: str, repository: Any) -> str:
    text = _PICTURE_PLACE.sub(rf"\1{repository.files}/\2", text)
    return _PLACE.sub(rf"\1{repository.pages}/\2", text)


def _unlinked(text: str) -> str:
    return _LINK.sub(r"\1", _PICTURE.sub("", _LINKED_PICTURE.sub(r"\1", text)))


def _addresses() -> ModuleType:
    """Return repository.py beside this file, which is no package."""
    spec = importlib.util.spec_from_file_location("torcheer_repository", Path(__file__).with_name("repository.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
