"""A writer in trouble: what was committed stays, what was not never was, and the error says what to do."""

from __future__ import annotations

import errno
import linecache
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_checks import assert_holds, child, disk, values, written

from torcheer.archive import Archive, Writer
from torcheer.errors import BadArgument, CannotWrite, TorcheerError
from torcheer.records import Sample

# -- the system refuses ----------------------------------------------------------------------------------------------


def test_a_full_disk_loses_nothing_and_writing_goes_on_once_there_is_space(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "300k") as small:
        ballast, step, refusals = small / "ballast", 0, 0
        ballast.write_bytes(bytes(100_000))
        with Writer(small / "a", fsync="step") as writer:
            while refusals < 3:
                try:
                    writer.step([*values(step), Sample(step, "large", "value", -1, np.full(9000, step))])
                    step += 1
                except CannotWrite as error:
                    assert error.errno == errno.ENOSPC and f"The {step} steps" in str(error)
                    assert str(small / "a") in str(error) and "Free some space" in str(error)
                    archive = Archive(small / "a")
                    assert archive.steps == list(range(step)) and archive.verify() == 4 * step
                    refusals += 1
                    os.truncate(ballast, ballast.stat().st_size // 4)
        archive = Archive(small / "a")
        assert archive.sealed and archive.steps == list(range(step)) and step > 2
        assert all((archive.array(archive.find("large", step=one)) == one).all() for one in range(step))


def test_a_disk_that_is_full_from_the_start_is_told_and_tried_again(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "100k") as small:
        with pytest.raises(OSError, match="No space"):
            (small / "ballast").write_bytes(bytes(200_000))
        for _ in range(2):
            with pytest.raises(CannotWrite, match="Free some space"):
                Writer(small / "a").close()
        (small / "ballast").unlink()
        written(small / "a")
        assert_holds(small / "a", 5)


def test_a_read_only_folder_is_read_and_not_written(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "1m") as small:
        written(small / "a")
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        for name in ("a", "b"):
            with pytest.raises(CannotWrite, match="not mounted read-only") as found:
                Writer(small / name)
            assert found.value.errno == errno.EROFS and isinstance(found.value, OSError)
        assert_holds(small / "a", 5)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(CannotWrite, match="file"):
            Writer(path)


LIMITED = """
import resource
from archive_checks import values
from torcheer.archive import Writer
from torcheer.errors import CannotWrite
which, limit, path = getattr(resource, sys.argv[1]), int(sys.argv[2]), sys.argv[3]
writer, step = Writer(path, segment_bytes=1000), 0
resource.setrlimit(which, (limit, resource.getrlimit(which)[1]))
held = []
try:
    while True:
        writer.step(values(step))
        step += 1
        held.append(open(path + "/LOCK.other", "w"))
except CannotWrite as error:
    print(step, error)
held.clear()
resource.setrlimit(which, (4096, resource.getrlimit(which)[1]))
writer.step(values(step))
writer.close()
"""


@pytest.mark.parametrize(("which", "limit", "advice"), [("NOFILE", 40, "ulimit -n"), ("FSIZE", 700, "ulimit -f")])
def test_limits_of_the_system_are_told(which: str, limit: int, advice: str, tmp_path: Path) -> None:
    step, said = child(LIMITED, f"RLIMIT_{which}", limit, tmp_path / "a").split(maxsplit=1)
    assert advice in said and f"The {step} steps" in said
    assert assert_holds(tmp_path / "a", int(step) + 1).sealed


class Refusing:
    """A function of `os` that fails at chosen calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
        self.real, self.number, self.failing = getattr(os, name), number, False
        monkeypatch.setattr(os, name, self)

    def __call__(self, *arguments: Any) -> Any:
        if self.failing:
            raise OSError(self.number, os.strerror(self.number))
        return self.real(*arguments)


@pytest.mark.parametrize("name", ["pwrite", "fsync", "ftruncate"])
def test_a_step_whose_disk_fails_is_not_there_and_can_be_tried_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(tmp_path / "a", fsync="step") as writer:
        writer.step(values(0))
        refusing, truncate = Refusing(monkeypatch, name, errno.EIO), None
        if name != "ftruncate":
            truncate = Refusing(monkeypatch, "ftruncate", errno.EIO)  # nothing can be taken away at once
            truncate.failing = True
        refusing.failing = True
        for _ in range(2):
            with pytest.raises((CannotWrite, BadArgument)):
                writer.step(
                    [*values(1), Sample(1, "bad", "value", -1, np.array([None]))][: 4 if name == "ftruncate" else 3]
                )
        refusing.failing = False
        if truncate:
            truncate.failing = False
        writer.step(values(1)[::-1][:0], note="a step without values")
        writer.step(values(1))
    archive = Archive(tmp_path / "a")
    assert archive.steps == [0, None, 1] and archive.sealed and archive.verify() == 6


@pytest.mark.parametrize("first", ["seal", "close"])
def test_what_storage_says_only_when_a_file_is_closed_is_explained_and_frees_the_lock(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS does, whose writes wait in memory; the first error is the one that is reported."""
    writer = Writer(tmp_path / "a")
    writer.step(values(0))
    real = type(writer._segment).close

    def close(segment: Any) -> None:
        real(segment)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(type(writer._segment), "close", close)
    if first == "seal":
        shutil.rmtree(tmp_path / "a")
    message = "No such file or directory" if first == "seal" else "Input/output error"
    with pytest.raises(CannotWrite, match=message):
        writer.close()
    monkeypatch.undo()
    with Writer(tmp_path / "a") as again:
        again.step(values(1))


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, data[:7], at))
    written(tmp_path / "a")
    assert_holds(tmp_path / "a", 5)


def test_an_error_of_the_samples_themselves_passes_as_it_is(tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        yield from values(1)
        raise FileNotFoundError("a picture is missing")

    with Writer(tmp_path / "a") as writer:
        writer.step(values(0))
        with pytest.raises(FileNotFoundError, match="picture") as found:
            writer.step(samples())
        assert not isinstance(found.value, TorcheerError)
    assert_holds(tmp_path / "a", 1)


def test_whatever_the_system_did_last_the_folder_is_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill is a stop between two calls of the system, or inside a write."""
    path, committed, seen = tmp_path / "a", [0], set()

    def check() -> None:
        if not (path / "archive.json").exists():
            return
        archive = Archive(path)
        assert archive.steps == list(range(len(archive.steps))) and len(archive.steps) in (
            committed[0],
            committed[0] + 1,
        )
        assert archive.verify() == 3 * len(archive.steps)
        seen.add((len(archive.steps), archive.torn_bytes, len(list(path.iterdir()))))

    for name in ("pwrite", "ftruncate", "fsync"):
        real = getattr(os, name)

        def call(*arguments: Any, real: Any = real) -> Any:
            if real.__name__ == "pwrite" and len(arguments[1]) > 1:
                real(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
                check()
            found = real(*arguments)
            check()
            return found

        monkeypatch.setattr(os, name, call)
    with Writer(path, fsync="step", segment_bytes=500) as writer:
        for step in range(8):
            writer.step(values(step))
            committed[0] = step + 1
    assert len(seen) > 30
    assert_holds(path, 8)


# -- the user interrupts ----------------------------------------------------------------------------------------------


def interrupted(run: Any, line: int) -> bool:
    """Run with Ctrl-C at the so-many-th line of the archive's code; whether there were so many."""
    left = line

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if "torcheer/archive" not in (file := frame.f_code.co_filename):
            return None
        # Python looks for signals when it calls, returns or loops: not on its way into or out of a `try` or a lock.
        before, here = (linecache.getline(file, frame.f_lineno - lines) for lines in (1, 0))
        if event == "line" and "finally:" not in before and here.strip() not in ("try:", "with self._step_lock:"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_an_interrupt_at_any_line_of_a_step_leaves_it_whole_or_not_at_all(tmp_path: Path) -> None:
    for line in range(1, 1000):
        path = tmp_path / str(line)
        writer = Writer(path, fsync="never", segment_bytes=300)
        writer.step(values(0))
        was = interrupted(lambda writer=writer: writer.step(values(1)), line)
        there = len(Archive(path).steps)
        assert there in (1, 2)
        for step in range(there, 4):
            writer.step(values(step))
        writer.close()
        assert assert_holds(path, 4).sealed
        shutil.rmtree(path)
        if not was:
            break
    assert 50 < line < 999


def test_an_interrupt_at_any_line_of_the_end_loses_no_step(tmp_path: Path) -> None:
    for line in range(1, 1000):
        path = tmp_path / str(line)
        writer = Writer(path, fsync="never")
        writer.step(values(0))
        was = interrupted(writer.close, line)
        writer.close()
        assert_holds(path, 1)
        del writer
        with Writer(path) as writer:
            writer.step(values(1))
        assert_holds(path, 2)
        if not was:
            break
    assert 20 < line < 999
