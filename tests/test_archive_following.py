"""An archive that is read while it grows: `refresh` reads only what is new, and sees what a fresh reader sees."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from archive_checks import values
from children import Child

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged


def same(one: Archive, other: Archive) -> bool:
    """Whether two readers have the same steps and values."""
    assert one.frames == other.frames and one.entries == other.entries and one.sealed == other.sealed
    return all(np.array_equal(one.array(entry), other.array(entry)) for entry in one.entries)


@pytest.mark.parametrize("segment_bytes", [1 << 30, 900])
def test_refresh_sees_each_step_as_it_is_committed(tmp_path: Path, segment_bytes: int) -> None:
    writer = Writer(tmp_path, segment_bytes=segment_bytes)
    archive = Archive(tmp_path)
    assert archive.refresh() == 0
    for step in range(12):
        writer.step(values(step))
        assert archive.refresh() == 1 and same(archive, Archive(tmp_path))
    writer.close()
    assert archive.refresh() == 0 and archive.sealed
    with Writer(tmp_path) as writer:
        writer.step(values(12))
        writer.step(values(13))
    assert archive.refresh() == 2 and same(archive, Archive(tmp_path))


def test_refresh_waits_for_the_rest_of_a_frame(tmp_path: Path) -> None:
    with Writer(tmp_path / "whole") as writer:
        for step in range(3):
            writer.step(values(step))
    index = (tmp_path / "whole" / "000000.index").read_bytes()
    (tmp_path / "part").mkdir()
    for name in ("archive.json", "000000.data"):
        (tmp_path / "part" / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    (tmp_path / "part" / "000000.index").write_bytes(b"")
    archive, seen = Archive(tmp_path / "part"), [0]
    frames = len(Archive(tmp_path / "whole").frames)
    last = index.rindex(b"FRME")  # the seal, whose copy would be missing here
    for length in (*range(0, last, 7), last):
        (tmp_path / "part" / "000000.index").write_bytes(index[:length])
        archive.refresh()
        seen.append(len(archive.frames))
        assert archive.frames == Archive(tmp_path / "part").frames
    assert seen == sorted(seen) and set(seen) == set(range(frames + 1))


def test_refresh_says_when_what_follows_is_damaged(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.step(values(0))
        archive = Archive(tmp_path)
        writer.step(values(1))
        writer.step(values(2))
        index = tmp_path / "000000.index"
        text = bytearray(index.read_bytes())
        text[text.index(b"FRME", text.index(b"FRME", text.index(b"FRME") + 1)) + 30] ^= 1  # in the second step
        index.write_bytes(text)
        with pytest.raises(ArchiveDamaged, match="is damaged; others follow it"):
            archive.refresh()
        assert archive.steps == [0]


ENDLESS = """
    import itertools, sys
    from archive_checks import values
    from torcheer.archive import Writer
    writer = Writer(sys.argv[1], segment_bytes=20_000)
    for step in itertools.count(int(sys.argv[2])):
        writer.step(values(step % 50))
        print(step, flush=True)
"""


def test_a_follower_outlives_writers_that_are_killed(tmp_path: Path) -> None:
    archive, count = None, 0
    for _ in range(4):
        with Child("-c", ENDLESS, tmp_path / "a", count, cwd=Path(__file__).parent) as process:
            while (last := int(process.line())) < count + 40:
                archive = archive or Archive(tmp_path / "a")
                archive.refresh()
                assert len(archive.frames) > last
            process.kill()
            rest = process.ends(-signal.SIGKILL).splitlines(keepends=True)
            last = max([last, *(int(line) for line in rest if line.strip() and line.endswith("\n"))])
        assert archive is not None
        archive.refresh()
        count = len(archive.frames)
        assert same(archive, Archive(tmp_path / "a")) and count > last
    assert archive is not None and archive.steps == [number % 50 for number in range(count)] and not archive.sealed
