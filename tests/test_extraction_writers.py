"""Several writers: batches dealt out to shards, in order again when they are read."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import (
    BatchValues,
    ExtractionPlan,
    ParallelChecksum,
    StreamedValue,
    WriterThreads,
    _count_lanes,
    combine,
    parallel_checksums,
)
from torch import nn
from torch.utils.data import DataLoader

import torcheer as tl
from torcheer.archive import Archive, Writer
from torcheer.errors import BadArgument, CannotWrite, ValueUnavailable
from torcheer.extraction import Extraction, open_extraction
from torcheer.records import Sample

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = torch.arange(55.0)[:, None] * torch.ones(3)


def run(path: Path, data: Any = ROWS, **options: Any) -> Extraction:
    settings = {"layers": ["0"], "batch_size": 4, "shard_samples": 8, "writers": 3, "progress": False, **options}
    if isinstance(data, DataLoader):
        del settings["batch_size"]
    found = tl.extract(nn.Sequential(nn.Identity()), data, to=path, **settings)
    assert isinstance(found, Extraction)
    return found


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# Which batch goes where


@pytest.mark.parametrize(("lanes", "per_shard"), [(1, 1), (1, 3), (3, 1), (4, 2), (3, 5)])
def test_every_batch_has_one_place(lanes: int, per_shard: int) -> None:
    plan = ExtractionPlan("Net", 0, ("0",), 4, None, 0, None, per_shard, "raw", 0, lanes)
    for batches in (1, 2, 7, 30):
        places = [plan.place_of(batch) for batch in range(batches)]
        assert len(set(places)) == batches
        assert all(plan.batches_of(shard)[place] == batch for batch, (shard, place) in enumerate(places))
        assert {shard for shard, _ in places} == set(range(plan.count_shards(batches)))
    assert all(len({plan.place_of(start + n)[0] for n in range(lanes)}) == lanes for start in range(9))


@pytest.mark.parametrize("writers", [1, 2, 3, 7, 40])
def test_rows_are_in_the_order_of_the_data(tmp_path: Path, writers: int) -> None:
    found = run(tmp_path / "x", writers=writers)
    assert np.array_equal(found["0"][:], ROWS.numpy()) and found.ids == list(range(55))
    assert np.array_equal(found["0"][[50, 3, 17]], ROWS[[50, 3, 17]].numpy())
    assert np.array_equal(np.stack(list(found["0"])), ROWS.numpy())
    assert len(list((found.path / "shards").iterdir())) == found.plan.count_shards(14)


def test_batches_of_a_loader_may_have_any_size(tmp_path: Path) -> None:
    parts = torch.split(ROWS, [5, 1, 9, 9, 9, 9, 9, 4])  # type: ignore[no-untyped-call]
    found = run(tmp_path / "x", DataLoader(parts, batch_size=None))
    assert np.array_equal(found["0"][:], ROWS.numpy()) and found.ids == list(range(55))
    again = open_extraction(found.path)
    assert np.array_equal(again["0"][4:7], ROWS[4:7].numpy())


def test_a_part_of_an_extraction_has_the_batches_of_its_shards(tmp_path: Path) -> None:
    found = run(tmp_path / "x")
    (found.path / "complete.json").unlink()
    for file in sorted((found.path / "shards" / "000001").iterdir(), reverse=True):
        file.unlink()
    (found.path / "shards" / "000001").rmdir()
    part = open_extraction(found.path, partial=True)
    assert [part.ids[place] for place in (0, 4, 8)] == [0, 8, 12] and len(part) == 55 - 8
    assert np.array_equal(part["0"][:, 0], np.array(part.ids, np.float32))


def test_numbers_that_nobody_knows_yet_are_not_made_up(tmp_path: Path) -> None:
    found = run(tmp_path / "x", DataLoader(torch.split(ROWS, 5), batch_size=None))  # type: ignore[no-untyped-call]
    (found.path / "complete.json").unlink()
    (found.path / "shards" / "000001").rename(found.path / "shards" / ".away")
    with pytest.raises(ValueUnavailable, match="batch 1"):
        _ = open_extraction(found.path, partial=True).ids


# Going on


class _Stops(Exception):
    pass


@pytest.mark.parametrize(("stop_at", "workers"), [(0, 0), (3, 0), (20, 0), (33, 0), (54, 0), (20, 1)])
def test_a_run_that_failed_anywhere_ends_with_the_same_bytes(tmp_path: Path, stop_at: int, workers: int) -> None:
    class Failing(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 55

        def __getitem__(self, index: int) -> torch.Tensor:
            if index == stop_at:
                raise _Stops
            return ROWS[index]

    with pytest.raises(_Stops):
        run(tmp_path / "x", Failing())
    assert files_of(run(tmp_path / "x", workers=workers).path) == files_of(run(tmp_path / "whole").path)


def test_another_number_of_writers_goes_on_with_the_one_there(tmp_path: Path) -> None:
    run(tmp_path / "x")
    assert run(tmp_path / "x", writers=1).plan.lanes == 3


@pytest.mark.parametrize("writers", [0, -1, 2.0, True, "4"])
def test_a_number_of_writers_that_is_none_is_told(tmp_path: Path, writers: Any) -> None:
    with pytest.raises(BadArgument, match="writers="):
        run(tmp_path / "x", writers=writers)


def test_what_is_small_has_one_writer_and_what_is_large_four(tmp_path: Path) -> None:
    assert run(tmp_path / "x", writers=None).plan.lanes == 1
    batch = BatchValues({"0": torch.zeros(1, 1 << 18).expand(4, -1)}, 4)  # 4 MB, of one row's memory
    assert [_count_lanes(None, samples, batch) for samples in (None, 252, 256)] == [4, 1, 4]
    assert _count_lanes(None, None, BatchValues({"0": torch.zeros(3)}, 3)) == 1


# The threads


def test_at_most_two_batches_wait_besides_those_being_written() -> None:
    threads, started, go_on = WriterThreads(3), list[int](), threading.Event()

    def write(number: int) -> None:
        started.append(number)
        go_on.wait()

    def fill() -> None:
        for number in range(9):
            threads.put_batch(number % 3, lambda number=number: write(number))  # type: ignore[misc]
            put.append(number)

    put: list[int] = []
    filler = threading.Thread(target=fill)
    filler.start()
    while len(put) < 5 or len(started) < 3:
        time.sleep(0.001)
    time.sleep(0.05)
    assert put == [0, 1, 2, 3, 4] and sorted(started) == [0, 1, 2]
    go_on.set()
    filler.join()
    assert threads.close() is None and sorted(started) == list(range(9))


@pytest.mark.parametrize("where", ["batch", "end"])
def test_the_first_error_ends_all_and_blocks_nobody(where: str) -> None:
    threads, ran = WriterThreads(2), list[int]()

    def fail() -> None:
        raise OSError("full")

    (threads.put_batch if where == "batch" else threads.put_end)(0, fail)
    with pytest.raises(OSError, match="full"):
        for number in range(10_000):
            threads.put_batch(number % 2, lambda number=number: ran.append(number))  # type: ignore[misc]
            time.sleep(0.001)
    assert isinstance(threads.close(), OSError)


def test_an_end_comes_after_what_its_lane_wrote_before() -> None:
    threads, events = WriterThreads(2), list[str]()
    for number in range(20):
        threads.put_batch(0, lambda number=number: events.append(f"write {number}"))  # type: ignore[misc]
        threads.put_end(0, lambda number=number: events.append(f"end {number}"))  # type: ignore[misc]
    assert threads.close() is None
    assert all(events.index(f"write {number}") < events.index(f"end {number}") for number in range(20))


# Checksums, and values that arrive in blocks


@pytest.mark.parametrize("size", [0, 1, 5000, 8 << 20, (8 << 20) + 1, 17_000_001])
def test_pieces_make_the_checksum_of_the_whole(size: int) -> None:
    data = np.random.default_rng(0).bytes(size)
    checksums = ParallelChecksum()
    assert checksums.start(data)() == zlib.crc32(data) and checksums.start(data, 12345)() == zlib.crc32(data, 12345)
    checksums.close()


@pytest.mark.parametrize(("first", "second"), [(b"", b""), (b"a", b""), (b"", b"b"), (b"abc", b"d" * 1000)])
def test_two_checksums_make_one(first: bytes, second: bytes) -> None:
    assert combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_without_isal_the_same_bytes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import shard_writer

    rows = torch.rand(40, 1 << 13, generator=torch.Generator().manual_seed(0))  # values of 128 kB: written at once
    whole = run(tmp_path / "whole", rows)
    used: list[int] = []
    real = ParallelChecksum.start

    def counted(self: Any, data: Any, first: int = 0) -> Any:
        used.append(len(data))
        return real(self, data, first)

    monkeypatch.setattr(shard_writer, "has_fast_crc32", lambda: False)
    monkeypatch.setattr(parallel_checksums, "_PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(ParallelChecksum, "start", counted)
    assert files_of(run(tmp_path / "x", rows).path) == files_of(whole.path) and used == [1 << 17] * 10


def test_values_go_to_the_disk_while_their_shard_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import shard_writer

    synced: list[int] = []
    monkeypatch.setattr(shard_writer, "_SYNC_BYTES", 3 * 4 * 8)
    monkeypatch.setattr(Writer, "sync_values", lambda writer: synced.append(writer.value_bytes))
    run(tmp_path / "x", shard_samples=32, writers=1)
    assert len(synced) == 7, "once for every two of 8 and of 6 batches"


def test_a_disk_that_fails_meanwhile_ends_the_extraction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import Segment, shard_writer

    def fail(segment: Segment) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shard_writer, "_SYNC_BYTES", 1)
    monkeypatch.setattr(Segment, "sync_values", fail)
    with pytest.raises(CannotWrite, match="Input/output error"):
        run(tmp_path / "x")
    monkeypatch.undo()
    assert files_of(run(tmp_path / "x").path) == files_of(run(tmp_path / "whole").path)


@pytest.mark.parametrize("codec", ["raw", "float16", "zstd"])
@pytest.mark.parametrize("count", [3, 40_000])
def test_a_value_that_arrives_in_blocks_is_written_like_one_that_is_there(
    tmp_path: Path, codec: str, count: int
) -> None:
    values = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)

    def blocks() -> Iterator[memoryview]:
        memory = bytearray(10_000)
        data = values.tobytes()
        for start in range(0, len(data), len(memory)):
            part = data[start : start + len(memory)]
            memory[: len(part)] = part  # the same memory each time, as of a pinned ring
            yield memoryview(memory)[: len(part)]

    for name, array in {
        "there": values,
        "blocks": StreamedValue("float32", values.shape, values.nbytes, blocks),
    }.items():
        with Writer(tmp_path / name, codec=codec) as writer:
            writer.step([Sample(0, "a", "value", -1, np.ones(3)), Sample(0, "b", "value", -1, array)])
    assert files_of(tmp_path / "blocks") == files_of(tmp_path / "there")
    assert Archive(tmp_path / "blocks").verify() == 2
