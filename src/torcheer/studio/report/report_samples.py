"""What people logged beside numbers, in a report: the newest samples that there is room for."""

from __future__ import annotations

from typing import Final

from torcheer.errors import TorcheerError
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.studio.report.report_blocks import Blocks, pack
from torcheer.studio.sources.sample_index import SampleIndex, answer_of
from torcheer.terminal import plural
from torcheer.wire.json_codec import serialize

_ENTRY_BYTES: Final = 400  # of a sample in the index of blocks, at most
_ENOUGH: Final = 0.95  # of a share; then no further samples are tried
_MOST_MISSED: Final = 200  # samples that do not fit, one after the other; then no further are read


class SampleRoom:
    """Keeps a share of the room for samples, the newest first, until it is known what else is left for them."""

    def __init__(self, blocks: Blocks, samples: SampleIndex, share: float) -> None:
        self._blocks, self._samples = blocks, samples
        self._packed: dict[int, bytes | None] = {}  # by place; read when it is first asked for
        self._reserved, room_bytes = 0, int(blocks.left_bytes * share)
        for place in reversed(range(len(samples.all))):
            size = len(self._pack(place) or b"")
            if self._reserved + size <= room_bytes:
                self._reserved += size
            if self._reserved > room_bytes * _ENOUGH:
                break
        blocks.reserve(self._reserved)

    def fill(self) -> tuple[SampleIndex, list[str]]:
        """Add the content of all samples that there is room for; returns those that are in the report."""
        self._blocks.release(self._reserved)
        room_bytes, kept, missed = self._blocks.left_bytes, list[tuple[LoggedSample, bytes]](), 0
        for place in reversed(range(len(self._samples.all))):
            packed = self._pack(place)
            if packed is None or len(packed) + _ENTRY_BYTES > room_bytes:
                missed += 1
                if missed > _MOST_MISSED:
                    break
                continue
            room_bytes -= len(packed) + _ENTRY_BYTES
            kept.append((self._samples.all[place], packed))
        chosen = SampleIndex()
        chosen.update([sample for sample, _ in reversed(kept)])
        for head, (_, packed) in zip(chosen.heads(0, len(chosen)), reversed(kept)):
            self._blocks.add_packed(["sample", head.id], packed)
        missing, count = len(self._samples) - len(kept), plural(len(self._samples), "sample")
        return chosen, [f"{missing:,} of {count}: there was no room for them."] if missing else []

    def _pack(self, place: int) -> bytes | None:
        if place not in self._packed:
            self._packed[place] = _packed(self._samples.all[place])
        return self._packed[place]


def _packed(sample: LoggedSample) -> bytes | None:
    """The answer to a page's question, compressed; None for a sample that cannot be read."""
    try:
        answer = answer_of(sample, 0)
    except (TorcheerError, OSError, ValueError, OverflowError, MemoryError):
        return None
    return pack(answer if isinstance(answer, bytes) else serialize(answer).encode())
