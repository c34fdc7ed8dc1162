"""The archive: what was committed is there bit for bit, what is damaged is told, what was not finished never was."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from archive_checks import assert_holds, values, written
from children import Child
from seams import TYPES, examine

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, UnknownLayer
from torcheer.records import Sample

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import read_archive


def test_what_was_written_is_read(tmp_path: Path) -> None:
    archive = assert_holds(written(tmp_path / "a", about={"model": "AlexNet"}), 5)
    assert archive.sealed and archive.about == {"model": "AlexNet"} and archive.verify() == 15
    assert archive.find("conv1", "grad").step == 4 and archive.find("conv1", step=2).shape == (2, 3, 4)


def test_segments_rotate_and_are_read_as_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 12, segment_bytes=300)
    assert len(list(path.glob("*.data"))) > 3
    assert_holds(path, 12)


def test_a_reader_that_shares_no_code_reads_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 12, segment_bytes=900)
    ours = list(Archive(path).samples())
    theirs = list(read_archive.read(str(path)))
    for one, (step, layer, variable, item, array) in zip(ours, theirs, strict=True):
        assert (one.step, one.layer, one.variable, one.item) == (step, layer, variable, item)
        assert np.array_equal(one.array, array)


@pytest.mark.parametrize("name", [name for name in TYPES if hasattr(torch, name)])
def test_every_type_of_torch_keeps_its_bits(tmp_path: Path, name: str) -> None:
    bits = torch.arange(64, dtype=torch.uint8)
    tensor = bits.view(getattr(torch, name)) if name != "bool" else bits % 2 == 0
    with Writer(tmp_path / "a") as writer:
        writer.step([Sample(0, "x", "value", -1, tensor.reshape(2, -1))])
    archive = Archive(tmp_path / "a")
    (entry,) = archive.entries
    assert entry.type == name and entry.shape == (2, tensor.numel() // 2)
    raw = tensor.view(torch.uint8).numpy() if name != "bool" else tensor.numpy().view(np.uint8)
    assert archive.array(entry).tobytes() == raw.tobytes()


def test_a_writer_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    for first, last in ((0, 3), (3, 5)):
        with Writer(tmp_path / "a") as writer:
            for step in range(first, last):
                writer.step(values(step))
    assert_holds(tmp_path / "a", 5)


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.step(values(0))
        with pytest.raises(BadArgument, match="object"):
            writer.step([*values(1), Sample(1, "bad", "value", -1, np.array([object()]))])
        with pytest.raises(BadArgument, match="once"):
            writer.step([*values(1), *values(1)])
        writer.step(values(1))
    assert_holds(tmp_path / "a", 2)


def test_every_length_an_index_can_be_cut_to_gives_exactly_the_whole_frames(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = Writer(path)
    index, ends = path / "000000.index", []
    for step in range(4):
        writer.step(values(step))
        ends.append(index.stat().st_size)
    writer.close(seal=False)
    whole = index.read_bytes()
    for length in range(len(whole) + 1):
        index.write_bytes(whole[:length])
        archive = assert_holds(path, sum(end <= length for end in ends))
        assert not archive.sealed


def test_a_flipped_byte_is_told_or_was_not_committed(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 3)
    draw = random.Random(0)
    silent = 0
    for file in (path / "000000.index", path / "000000.data", path / "archive.json"):
        whole = file.read_bytes()
        for _ in range(400):
            place = draw.randrange(len(whole))
            changed = bytearray(whole)
            changed[place] ^= 1 << draw.randrange(8)
            file.write_bytes(changed)
            try:
                archive = Archive(path)
                archive.verify()
                silent += [s.array.tobytes() for s in archive.samples()] != [
                    s.array.tobytes() for step in archive.steps for s in values(step or 0)
                ]
                assert archive.steps == [0, 1, 2][: len(archive.steps)]
            except TorcheerError:
                pass
        file.write_bytes(whole)
    assert silent == 0
    assert_holds(path, 3)


def test_a_data_file_that_is_too_short_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 3)
    os.truncate(path / "000000.data", 100)
    with pytest.raises(ArchiveDamaged, match="outside"):
        Archive(path)


def test_a_missing_segment_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 6, segment_bytes=200)
    (path / "000001.index").unlink()
    with pytest.raises(ArchiveDamaged, match="missing"):
        Archive(path)


def test_an_empty_folder_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="no archive"):
        Archive(tmp_path)


def test_an_unknown_layer_is_told_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayer, match=r"conv1 \(grad\)"):
        Archive(written(tmp_path / "a")).find("conv2")


WRITING = """
import sys
sys.path.insert(0, {tests!r})
from archive_checks import values
from torcheer.archive import Writer
writer = Writer(sys.argv[1], fsync="never", segment_bytes=3000)
step = int(sys.argv[2])
while True:
    writer.step(values(step))
    print(step, flush=True)
    step += 1
"""


def test_a_killed_writer_loses_nothing_it_had_committed(tmp_path: Path) -> None:
    path, draw, begin = tmp_path / "a", random.Random(0), 0
    code = WRITING.format(tests=str(Path(__file__).parent))
    for _ in range(4):
        with Child("-c", code, path, begin) as process:
            process.line()
            time.sleep(draw.random() * 0.05)
            process.kill()
            said = [int(line) for line in process.ends(-signal.SIGKILL).split()]
        archive = Archive(path)
        begin = len(archive.steps)
        assert begin > max(said, default=-1)
        assert_holds(path, begin)


@pytest.mark.parametrize("suffix", ["index", "data"])
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_segment_that_is_no_file_is_refused_and_not_read(tmp_path: Path, suffix: str, kind: str) -> None:
    """/dev/zero has no end, and a pipe that nobody writes to waits for ever."""
    path = written(tmp_path / "a")
    file = path / f"000000.{suffix}"
    file.unlink()
    {"device": lambda: file.symlink_to("/dev/zero"), "pipe": lambda: os.mkfifo(file), "folder": file.mkdir}[kind]()
    for look in (Archive, Writer, examine):
        with pytest.raises(ArchiveDamaged, match=f"000000.{suffix} is not a regular file"):
            look(path)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_reader_that_shares_no_code_notices_a_missing_segment(tmp_path: Path, lost: int) -> None:
    path = written(tmp_path / "a", 12, segment_bytes=300)
    for suffix in ("index", "data"):
        (path / f"{lost:06}.{suffix}").unlink()
    with pytest.raises(ValueError, match="a segment is missing"):
        list(read_archive.read(str(path)))


def test_an_empty_data_file_is_told_and_not_stumbled_over(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    (path / "000000.data").write_bytes(b"")
    with pytest.raises(ArchiveDamaged, match="has 0 bytes, and values lie outside of the file"):
        Archive(path)
    found = examine(path)
    assert not found.entries and len(found.lost) == 15
