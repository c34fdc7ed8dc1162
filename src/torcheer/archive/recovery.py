"""Repair of a damaged archive: every intact value is copied to a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.format.index_frames import Entry
from torcheer.archive.listing import describe_counts, describe_state
from torcheer.archive.verification import TrustedArchive, examine
from torcheer.disk import replacing
from torcheer.encoding import decode
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample
from torcheer.terminal import ProgressCallback, ignore_progress, plural


@dataclass(frozen=True)
class RepairReport:
    """Result of a repair: what was lost, what was kept, and where it is."""

    path: Path  # the damaged archive, unchanged
    to: Path | None  # the new one; None where there was nothing to repair
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
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    on_progress: ProgressCallback = ignore_progress,
) -> RepairReport:
    """Copy every intact value of a damaged archive to a new one; the old one is not changed.

    `to`: the new folder, `<path>-repaired` by default. `on_progress` is called with each number of bytes checked.

    - `path`: the damaged archive.
    """
    source = Path(path) if Path(path).name not in ("", "..") else Path(path).resolve()
    target = source.with_name(f"{source.name}-repaired") if to is None else Path(to)
    archive = examine(path, on_progress)
    if not archive.lost:
        return RepairReport(
            Path(path), None, f"{describe_counts(archive)}, {describe_state(archive)}", (), archive.torn_bytes
        )
    if target.exists() or target.is_symlink():
        raise BadArgument(f"{target} is there already; repair to a new folder")
    with replacing(target) as part:
        _write_trusted(archive, part)
    return RepairReport(Path(path), target, describe_counts(Archive(target)), tuple(archive.lost), archive.torn_bytes)


def _write_trusted(archive: TrustedArchive, target: Path) -> None:
    emptied = {entry.step for entry in archive.lost_entries}
    bodies = [body for body in archive.frames if body["entries"] or body["about"] or body["step"] not in emptied]
    if not bodies:
        raise ArchiveDamaged(f"nothing in {archive.path} can be trusted: {'; '.join(archive.lost)}")
    values = CopiedValues(archive)
    with Writer(target, about=archive.about, codec=values.codec) as writer:
        for body in bodies:
            writer.step(values.samples(body["entries"]), **_frame_about(archive, body["about"]))


def _frame_about(archive: TrustedArchive, about: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a frame; that of a history also lists the lost values as left out."""
    if archive.about.get("kind") != "history" or not isinstance(about.get("left_out"), dict):
        return about
    lost = {
        f"{entry.layer} {entry.variable}": "it was damaged, and a repair left it out" for entry in archive.lost_entries
    }
    return {**about, "left_out": {**about["left_out"], **lost}}


class CopiedValues:
    """Values for a new archive, each with a codec that preserves its bits."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._codec = "raw"

    def samples(self, entries: list[Entry]) -> Iterator[Sample]:
        for entry in entries:
            self._codec = entry.codec
            if entry.codec.startswith("int8"):  # it would round once more
                self._codec = "zstd" if entry.codec.endswith("zstd") else "raw"
            yield decode(entry._asdict(), self._archive.memory(entry), entry.step or 0)

    def codec(self, sample: Sample) -> str:
        """Return the codec of the sample that was yielded last.

        The Writer asks while it writes that sample.
        """
        return self._codec
