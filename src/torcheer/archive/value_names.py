"""Names for the values of an archive.

Layer labels of a history, and array names for exported files.
"""

from __future__ import annotations

import re
import unicodedata
from copy import copy, deepcopy

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.saved_history import SavedTrace
from torcheer.errors import TorcheerError
from torcheer.history import ModelHistory

_SEGMENT_BYTES, _NAME_BYTES = 200, 900  # file systems allow 255 and 4096, and zarr adds to both
_UNSAFE = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")  # characters that break a zip, a terminal or UTF-8
_RESERVED = re.compile(r"\.{0,2}$|__|zarr\.json$|\.z", re.IGNORECASE)  # "", ".", "..", and names that zarr reserves


def layer_labels(archive: Archive) -> dict[str, str]:
    """Map op numbers in a history's archive to labels: {"7": "conv2d_3_7"}.

    Empty for other archives.
    """
    if archive.about.get("kind") != "history" or len(archive.frames) != 1:
        return {}
    duplicate = copy(archive)
    duplicate.frames = [{**body, "about": deepcopy(body["about"])} for body in archive.frames]  # reading uses it up
    try:
        facts = ModelHistory(SavedTrace(duplicate)).facts
        return {str(op.index): facts.layers.label(op.index) for op in facts.ops}
    except (TorcheerError, LookupError, TypeError, ValueError, AttributeError):
        return {}  # unreadable records: only the numbers are left


def array_names(archive: Archive, *, as_folders: bool = False) -> list[str]:
    """Return a unique name for each entry, such as "12/features.6/value".

    Names in a history begin with the label: "conv2d_3_7/value 0".

    `as_folders` is for names used as paths on disk: no name is then a parent of another or differs only by case.
    """
    labels = layer_labels(archive)
    names = _UniqueNames(as_folders)
    return [names.take(_preferred_name(entry, labels)) for entry in archive.entries]


def _preferred_name(entry: Entry, labels: dict[str, str]) -> str:
    step = [] if labels else [str(entry.step or 0)]
    item = [str(entry.item)] if entry.item >= 0 else []
    segments = "/".join([*step, labels.get(entry.layer, entry.layer), entry.variable, *item]).split("/")
    safe = "/".join(_safe_segment(segment) for segment in segments)
    return safe if len(safe.encode()) <= _NAME_BYTES else _truncate(safe.replace("/", "_"))


def _safe_segment(text: str) -> str:
    text = _truncate(_UNSAFE.sub("_", text))
    return f"_{text}" if _RESERVED.match(text) else text


def _truncate(text: str) -> str:
    return text.encode()[:_SEGMENT_BYTES].decode(errors="ignore")


class _UniqueNames:
    """Registry of names in use; `take` makes a new name unique."""

    def __init__(self, as_folders: bool) -> None:
        self._as_folders = as_folders
        self._names: set[str] = set()
        self._folders: set[str] = set()
        self._tries: dict[str, int] = {}

    def take(self, name: str) -> str:
        if not self._names.isdisjoint(self._above(self._key(name))):
            name = name.replace("/", "_")
        candidate = name
        while (key := self._key(candidate)) in self._names or key in self._folders:
            self._tries[name] = self._tries.get(name, 1) + 1
            candidate = f"{name}~{self._tries[name]}"
        self._names.add(key)
        self._folders.update(self._above(key))
        return candidate

    def _key(self, name: str) -> str:
        """Normalize a name, so that names that collide on some file systems compare equal."""
        return unicodedata.normalize("NFC", name).casefold() if self._as_folders else name

    def _above(self, key: str) -> list[str]:
        parts = key.split("/")
        return ["/".join(parts[:count]) for count in range(1, len(parts))] if self._as_folders else []
