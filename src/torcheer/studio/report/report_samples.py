"""What people logged beside numbers, in a report: the newest samples that there is room for."""

from __future__ import annotations

from torcheer.errors import TorcheerError
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.studio.report.report_blocks import Blocks, pack
from torcheer.studio.sources.sample_index import SampleIndex, answer_of
from torcheer.terminal import plural
from torcheer.wire.json_codec import serialize


def add_samples(blocks: Blocks, samples: SampleIndex, share: float) -> tuple[SampleIndex, list[str]]:
    """Add the content of samples, newest first, within a share of the room; returns those that are in the report."""
    room_bytes, kept = int(blocks.left_bytes * share), list[tuple[LoggedSample, bytes]]()
    for sample in reversed(samples.all):
        packed = _packed(sample)
        if packed is None or len(packed) > room_bytes:
            continue
        room_bytes -= len(packed)
        kept.append((sample, packed))
    chosen = SampleIndex()
    chosen.update([sample for sample, _ in reversed(kept)])
    for head, (_, packed) in zip(chosen.heads(0, len(chosen)), reversed(kept)):
        blocks.add_packed(["sample", head.id], packed)
    missing = len(samples) - len(kept)
    return chosen, [f"{missing:,} of {plural(len(samples), 'sample')}: there was no room for them."] if missing else []


def _packed(sample: LoggedSample) -> bytes | None:
    """The answer to a page's question, compressed; None for a sample that cannot be read."""
    try:
        answer = answer_of(sample, 0)
    except (TorcheerError, OSError, ValueError, OverflowError, MemoryError):
        return None
    return pack(answer if isinstance(answer, bytes) else serialize(answer).encode())
