"""What a writer takes and what it refuses, and that there is one at a time."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from archive_checks import assert_holds, child, values, written
from seams import index_frames

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveBusy, ArchiveClosed, BadArgument, CannotWrite, TorcheerError
from torcheer.records import Sample


def test_a_closed_writer_writes_no_more(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a")
    writer.step(values(0))
    for _ in range(2):
        writer.close()
    with pytest.raises(ArchiveClosed, match="goes on where it ended"):
        writer.step(values(1))
    assert_holds(tmp_path / "a", 1)


def test_threads_wait_for_one_another(tmp_path: Path) -> None:
    def work(first: int) -> None:
        for step in range(first, 80, 4):
            writer.step(values(step))

    with Writer(tmp_path / "a", fsync="never", segment_bytes=9000) as writer:
        threads = [Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    archive = Archive(tmp_path / "a")
    assert sorted(archive.steps) == list(range(80)) and archive.verify() == 240


def test_a_step_inside_a_step_is_refused(tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        yield from values(1)
        writer.step(values(2))

    with Writer(tmp_path / "a") as writer:
        writer.step(values(0))
        with pytest.raises(BadArgument, match="samples of a step"):
            writer.step(samples())
        writer.step(values(1))
    assert_holds(tmp_path / "a", 2)


FORKED = """
import os
from archive_checks import values
from torcheer.archive import Writer
with Writer(sys.argv[1]) as writer:
    writer.step(values(0))
    if os.fork() == 0:
        try:
            with writer:
                writer.step(values(5))
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        try:
            Writer(sys.argv[1])
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.wait()
    writer.step(values(1))
"""


def test_a_fork_cannot_write_or_end_its_parents_archive(tmp_path: Path) -> None:
    said = child(FORKED, tmp_path / "a")
    assert "ArchiveClosed" in said and "cannot be shared" in said and "ArchiveBusy" in said
    assert assert_holds(tmp_path / "a", 2).sealed


def test_a_generator_may_use_its_array_again(tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        for length in (5, 300_000):
            array = np.zeros(length)
            for number in range(10):
                array[:] = number
                yield Sample(0, f"layer {number} of {length}", "value", -1, array)

    with Writer(tmp_path / "a") as writer:
        writer.step(samples())
    archive = Archive(tmp_path / "a")
    assert [archive.array(entry)[0] for entry in archive.entries] == [*range(10), *range(10)]


def test_large_values_are_checked_aside_and_lose_nothing(tmp_path: Path) -> None:
    arrays = [np.full(40_000 * number, number) for number in range(12)]
    with Writer(tmp_path / "a") as writer:
        for step in range(3):
            writer.step([Sample(step, str(n), "value", -1, array) for n, array in enumerate(arrays)])
            with pytest.raises(BadArgument):
                writer.step([Sample(9, "x", "value", -1, arrays[11]), Sample(9, "y", "value", -1, None)])
    archive = Archive(tmp_path / "a")
    assert archive.verify() == 36 and archive.steps == [0, 1, 2]
    assert all((archive.array(entry) == int(entry.layer)).all() for entry in archive.entries)


@pytest.mark.parametrize(
    "about", [{"a": {1: 2, "1": 3}}, {"a": float("nan")}, {"a": object()}, {"a": {1}}, {"a": [{2: 3}]}, {"a": 10**5000}]
)
def test_what_json_would_not_give_back_is_refused(about: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="JSON"):
        Writer(tmp_path / "b", about=about)
    with Writer(tmp_path / "a") as writer:
        with pytest.raises(BadArgument, match="JSON"):
            writer.step(values(0), **about)
        writer.step(values(0), samples=[1, {"self": None}])
    assert assert_holds(tmp_path / "a", 1).frames[0]["about"] == {"samples": [1, {"self": None}]}


def test_what_is_nested_too_deeply_to_be_read_is_refused(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    with Writer(tmp_path / "a") as writer:
        for bad in (deep, circle):
            with pytest.raises(BadArgument, match="deep"):
                writer.step(values(0), bad=bad)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(0, 7, "value"),  # type: ignore[arg-type]
        Sample(0, "x", None),  # type: ignore[arg-type]
        Sample(0.5, "x", "value", -1, np.ones(2)),  # type: ignore[arg-type]
        Sample("0", "x", "value", -1, np.ones(2)),  # type: ignore[arg-type]
        Sample(0, "x", "value", None, np.ones(2)),  # type: ignore[arg-type]
        Sample(0, "x", "value", -1, None),
        Sample(0, "x", "value", -1, np.array(["text"])),
    ],
)
def test_a_sample_that_could_not_be_read_is_refused(sample: Sample, tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        with pytest.raises(BadArgument):
            writer.step([sample])
        writer.step(values(0))
    assert_holds(tmp_path / "a", 1)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.step([Sample(np.int64(3), "x", "value", np.uint8(2), np.ones(2))])  # type: ignore[arg-type]
    assert Archive(tmp_path / "a").find("x", item=2).step == 3


def test_a_frame_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.step(values(0))
        monkeypatch.setattr(index_frames, "MAX_BODY_BYTES", 1000)
        with pytest.raises(BadArgument, match="several"):
            writer.step(values(1), note="x" * 1000)
        writer.step(values(1))
    assert_holds(tmp_path / "a", 2)


def test_very_many_values_in_a_step(tmp_path: Path) -> None:
    with Writer(tmp_path / "a", fsync="never") as writer:
        writer.step(Sample(0, "x", "value", item, np.array([item])) for item in range(20_000))
    archive = Archive(tmp_path / "a")
    assert archive.verify() == 20_000 and archive.array(archive.entries[12_345]) == [12_345]


# -- one writer at a time --------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_here_and_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    code = "from torcheer.archive import Writer\ntry: Writer(sys.argv[1])\nexcept OSError as error: print(repr(error))"
    with Writer(tmp_path / "a") as writer:
        writer.step(values(0))
        for path in (tmp_path / "a", tmp_path / "link"):
            with pytest.raises(ArchiveBusy, match="this process"):
                Writer(path)
            assert "ArchiveBusy" in child(code, path) and "another process" in child(code, path)
        writer.step(values(1))
    assert child(code, tmp_path / "a") == ""
    assert_holds(tmp_path / "a", 2)


def test_a_writer_that_was_let_go_of_or_failed_holds_nothing(tmp_path: Path) -> None:
    Writer(tmp_path / "a").step(values(0))
    gc.collect()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "archive.json").write_text("{}")
    with pytest.raises(TorcheerError) as found:
        Writer(tmp_path / "b")
    (tmp_path / "b" / "archive.json").unlink()
    for name, steps in (("a", 1), ("b", 0)):
        with Writer(tmp_path / name) as writer:
            writer.step(values(steps))
            assert_holds(tmp_path / name, steps + 1)
    assert found.value


def test_a_lock_that_was_left_over_is_no_obstacle(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 2)
    (path / "LOCK").write_text("4711")
    with Writer(path) as writer:
        writer.step(values(2))
    assert_holds(path, 3)


def test_a_lock_that_the_system_cannot_give_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(CannotWrite, match="Input/output"):
        Writer(tmp_path / "a")


def test_a_writer_killed_between_the_seal_and_its_copy_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    Writer(tmp_path / "a").close()
    copy = tmp_path / "a" / "000000.seal"
    text = copy.read_bytes()
    copy.rename(tmp_path / "a" / ".000000.seal.part")
    Writer(tmp_path / "a").close()
    assert copy.read_bytes() == text
