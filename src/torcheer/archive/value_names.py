"""What people call the values of an archive: labels of a history, and names of arrays in other files."""

from __future__ import annotations

import re
import unicodedata
from copy import copy, deepcopy

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.saved_history import SavedTrace
from torcheer.errors import TorcheerError
from torcheer.history import ModelHistory

_SEGMENT_BYTES, _NAME_BYTES = 200, 900  # file systems take 255 and 4096, and zarr adds to both
_ODD = re.compile("[\x00-\x1f\x7f\\\\\ud800-\udfff]")  # what a zip, a terminal or UTF-8 would trip over
_RESERVED = re.compile(r"\.{0,2}$|__|zarr\.json$|\.z", re.IGNORECASE)  # "", ".", "..", and what zarr keeps for itself


def layer_labels(archive: Archive) -> dict[str, str]:
    """The label of each layer that a history's archive knows by a number: {"7": "conv2d_3_7"}; else nothing."""
    if archive.about.get("kind") != "history" or len(archive.frames) != 1:
        return {}
    read = copy(archive)
    read.frames = [{**body, "about": deepcopy(body["about"])} for body in archive.frames]  # reading uses it up
    try:
        facts = ModelHistory(SavedTrace(read)).facts
        return {str(op.index): facts.layers.label(op.index) for op in facts.ops}
    except (TorcheerError, LookupError, TypeError, ValueError, AttributeError):
        return {}  # records that cannot be read: the numbers are all there is


def array_names(archive: Archive, *, as_folders: bool = False) -> list[str]:
    """A name for each entry, unlike all others: "12/features.6/value", of a history "conv2d_3_7/value 0".

    `as_folders` is for files on disk: none is then a folder of another, and none differs from another by case only.
    """
    labels = layer_labels(archive)
    names = _Names(as_folders)
    return [names.take(_wanted(entry, labels)) for entry in archive.entries]


def _wanted(entry: Entry, labels: dict[str, str]) -> str:
    step = [] if labels else [str(entry.step or 0)]
    item = [str(entry.item)] if entry.item >= 0 else []
    segments = "/".join([*step, labels.get(entry.layer, entry.layer), entry.variable, *item]).split("/")
    safe = "/".join(_segment(segment) for segment in segments)
    return safe if len(safe.encode()) <= _NAME_BYTES else _short(safe.replace("/", "_"))


def _segment(text: str) -> str:
    text = _short(_ODD.sub("_", text))
    return f"_{text}" if _RESERVED.match(text) else text


def _short(text: str) -> str:
    return text.encode()[:_SEGMENT_BYTES].decode(errors="ignore")


class _Names:
    """Names given so far."""

    def __init__(self, as_folders: bool) -> None:
        self._as_folders = as_folders
        self._names: set[str] = set()
        self._folders: set[str] = set()
        self._tries: dict[str, int] = {}

    def take(self, name: str) -> str:
        if not self._names.isdisjoint(self._above(self._key(name))):
            name = name.replace("/", "_")
        found = name
        while (key := self._key(found)) in self._names or key in self._folders:
            self._tries[name] = self._tries.get(name, 1) + 1
            found = f"{name}~{self._tries[name]}"
        self._names.add(key)
        self._folders.update(self._above(key))
        return found

    def _key(self, name: str) -> str:
        """The same for names that some file systems take for one."""
        return unicodedata.normalize("NFC", name).casefold() if self._as_folders else name

    def _above(self, key: str) -> list[str]:
        parts = key.split("/")
        return ["/".join(parts[:count]) for count in range(1, len(parts))] if self._as_folders else []
