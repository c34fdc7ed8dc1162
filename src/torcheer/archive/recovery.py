"""A new archive of all that can be trusted of a damaged one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.archive.exchange.guards import typed
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.format.index_frames import Entry
from torcheer.archive.listing import counted, state
from torcheer.archive.progress import Told, tell_nobody
from torcheer.archive.verification import Examined, examine
from torcheer.encoding import decode
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample
from torcheer.terminal import plural


@dataclass(frozen=True)
class Repaired:
    """What a repair found, and where it wrote what could be trusted."""

    path: Path  # the archive, which is as it was
    to: Path | None  # the new one; None where nothing was to be repaired
    kept: str  # "4 steps, 12 values, 1.2 MB"
    lost: tuple[str, ...]  # a sentence for each thing that the new one lacks
    torn_bytes: int  # of a step at the end that was never finished

    def __str__(self) -> str:
        if self.to is not None:
            lost = [f"lost: {line}" for line in self.lost]
            return "\n".join([*lost, f"kept: {self.kept}", f"{self.to} holds what was kept; {self.path} is as it was"])
        if self.torn_bytes:
            torn = f"{plural(self.torn_bytes, 'byte')} at its end are of a step that was never finished"
            return f"{self.path} is fine as it is: {self.kept}; {torn}"
        return f"{self.path} is whole: {self.kept}; nothing is to be repaired"


def repair(
    path: str | os.PathLike[str], to: str | os.PathLike[str] | None = None, *, told: Told = tell_nobody
) -> Repaired:
    """Write all that can be trusted of a damaged archive to a new one; the old one stays as it is."""
    source = Path(path) if Path(path).name not in ("", "..") else Path(path).resolve()
    target = source.with_name(f"{source.name}-repaired") if to is None else Path(to)
    found = examine(path, told)
    if not found.lost:
        return Repaired(Path(path), None, f"{counted(found)}, {state(found)}", (), found.torn_bytes)
    if target.exists() or target.is_symlink():
        raise BadArgument(f"{target} is there already; repair to a new folder")
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _write(found, part)
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Repaired(Path(path), target, counted(Archive(target)), tuple(found.lost), found.torn_bytes)


def _write(found: Examined, part: Path) -> None:
    emptied = {entry.step for entry in found.lost_entries}
    bodies = [body for body in found.frames if body["entries"] or body["about"] or body["step"] not in emptied]
    if not bodies:
        raise ArchiveDamaged(f"nothing in {found.path} can be trusted: {'; '.join(found.lost)}")
    values = _Values(found)
    with Writer(part, about=found.about, codec=values.codec) as writer:
        for body in bodies:
            writer.step(values.of(body["entries"]), **_about(found, body["about"]))


def _about(found: Examined, about: dict[str, Any]) -> dict[str, Any]:
    """What a frame says of itself; a history also says why a value is not there."""
    if found.about.get("kind") != "history" or not isinstance(about.get("left_out"), dict):
        return about
    lost = {f"{one.layer} {one.variable}": "it was damaged, and a repair left it out" for one in found.lost_entries}
    return {**about, "left_out": {**about["left_out"], **lost}}


class _Values:
    """Values on their way into the new archive, each with a codec that keeps its bits."""

    def __init__(self, found: Examined) -> None:
        self._found = found
        self._codec = "raw"

    def of(self, entries: list[Entry]) -> Iterator[Sample]:
        for entry in entries:
            self._codec = entry.codec
            if entry.codec.startswith("int8"):  # it would round once more
                self._codec = "zstd" if entry.codec.endswith("zstd") else "raw"
            yield typed(decode(entry._asdict(), self._found.memory(entry), entry.step or 0), entry.type)

    def codec(self, sample: Sample) -> str:
        """The writer asks this for the sample that it was just given."""
        return self._codec
