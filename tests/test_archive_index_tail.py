"""Frames read from an archive's end: the same as those read from its beginning, and damage is noticed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seams import LogWriter, RunLog, read_backwards

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.records import Sample


def write(path: Path, count: int, first: int = 0, *, seal: bool = True, **settings: Any) -> None:
    writer = Writer(path, fsync="never", **settings)
    for step in range(first, first + count):
        writer.step([Sample(step, "a", "value", array=np.arange(step % 3))] if step % 2 else [], number=step)
    writer.close(seal=seal)


def same(path: Path) -> bool:
    return list(read_backwards(path)) == Archive(path).frames[::-1]


@pytest.mark.parametrize("seal", [True, False])
def test_frames_from_the_end_are_those_from_the_beginning(tmp_path: Path, seal: bool) -> None:
    write(tmp_path, 2000, seal=seal)
    assert same(tmp_path)


def test_all_segments_are_read_also_those_that_follow_a_seal(tmp_path: Path) -> None:
    for first in range(0, 60, 20):
        write(tmp_path, 20, first, segment_bytes=700)
    assert len(list(tmp_path.glob("*.index"))) > 5 and same(tmp_path)


def test_a_frame_that_is_longer_than_a_block_is_read(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        for size in (10, 300_000, 5, 200_000):
            writer.step([], text="FRME" * size)
    assert same(tmp_path)


def test_an_empty_archive_has_no_frames(tmp_path: Path) -> None:
    write(tmp_path, 0, seal=False)
    assert same(tmp_path)


def test_a_frame_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, 30, seal=False)
    index = tmp_path / "000000.index"
    for cut in (1, 20, 100, 170):
        index.write_bytes(index.read_bytes()[:-cut])
        assert same(tmp_path)


def test_an_end_that_was_cut_off_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, 30)
    index = tmp_path / "000000.index"
    index.write_bytes(index.read_bytes()[:-5])
    with pytest.raises(ArchiveDamaged, match="the end of its index is cut off"):
        next(read_backwards(tmp_path))


def test_flipped_bytes_never_give_another_frame(tmp_path: Path) -> None:
    write(tmp_path, 800)
    index, draw = tmp_path / "000000.index", random.Random(0)
    whole, frames = index.read_bytes(), Archive(tmp_path).frames[::-1]
    for _ in range(12):
        place = draw.randrange(16, len(whole))
        index.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << draw.randrange(8))]) + whole[place + 1 :])
        seen = []
        with pytest.raises(TorcheerError):
            for frame in read_backwards(tmp_path):
                seen.append(frame)
        assert seen == frames[: len(seen)] and len(seen) < len(frames)


# -- the last rows of a log -----------------------------------------------------------------------------------------


def log(run: Path, steps: range, **cells: Any) -> LogWriter:
    writer = LogWriter(run, "live", tell=pytest.fail)
    for step in steps:
        writer.row("train_step", {"loss": step / 7, **cells}, step)
        writer.commit()
    return writer


def last(run: Path, count: int) -> list[int]:
    table = RunLog(run).tail(count)["train_step"]
    assert table.columns["loss"] == [step / 7 for step in table.columns["Step"]]
    assert table.columns["Step"] == RunLog(run).tables()["train_step"].columns["Step"][-count:]
    return table.columns["Step"]


def test_the_last_rows_are_read_without_the_first(tmp_path: Path) -> None:
    log(tmp_path, range(2000)).close()
    index = tmp_path / "log" / "live" / "000000.index"
    assert last(tmp_path, 3) == [1997, 1998, 1999]
    text = bytearray(index.read_bytes())
    text[5000] ^= 1
    index.write_bytes(text)
    assert RunLog(tmp_path).tail(3)["train_step"].columns["Step"] == [1997, 1998, 1999]
    assert RunLog(tmp_path).problems  # once all of it is read


@pytest.mark.parametrize("cut", [False, True])
def test_the_last_rows_of_a_log_that_was_cut_back_are_those_that_hold(tmp_path: Path, cut: bool) -> None:
    log(tmp_path, range(100)).close()
    writer = LogWriter(tmp_path, "live", tell=pytest.fail)
    if cut:
        writer.cut(step=49)
    writer.close()
    log(tmp_path, range(50, 60)).close()
    assert last(tmp_path, 12) == list(range(48, 60))


def test_a_table_that_was_cleared_has_only_later_rows(tmp_path: Path) -> None:
    writer = log(tmp_path, range(100))
    writer.clear("train_step")
    writer.row("train_step", {"loss": 100 / 7}, 100)
    writer.close()
    assert last(tmp_path, 12) == [100]
