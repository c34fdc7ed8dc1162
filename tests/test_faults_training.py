"""Training killed by the dozen, disks that are full, damage by the thousand: nothing is lost, nothing differs."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_checks import disk
from training_cases import CASES, Nursery, results, run

from torcheer.errors import CannotWrite, TorcheerError
from torcheer.training.checkpoints.checkpoint_files import MODEL, OPTIM, STATE, read_checkpoint
from torcheer.training.checkpoints.checkpoint_folders import CheckpointStore
from torcheer.training.checkpoints.checkpoint_manifest import MANIFEST

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("one_thread")]
KILLS, KILLS_WHILE_SAVING, FLIPS = 20, 50, 10_000


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


@pytest.mark.parametrize("case", CASES)
def test_twenty_killed_runs_end_as_one_that_was_not(case: str, nursery: Nursery, tmp_path: Path) -> None:
    nursery.finish(case, tmp_path / "first")  # the files of torch are in memory now
    began = time.monotonic()
    nursery.finish(case, tmp_path / "whole")
    secs, draw, killed, kills, trials = time.monotonic() - began, random.Random(case), 0, 0, 0
    assert results(tmp_path / "first") == results(tmp_path / "whole")
    while killed < KILLS:
        trials += 1
        delays = [draw.random() * secs for _ in range(draw.choice((1, 1, 2, 3)))]
        found = nursery.killed_often(case, tmp_path / f"{trials}", delays)
        assert results(tmp_path / f"{trials}") == results(tmp_path / "whole"), f"killed after {delays} s"
        killed, kills = killed + bool(found), kills + found
        assert trials < 5 * KILLS
    print(f"{case}: {kills} kills in {killed} runs of {secs:.1f} s, all equal")


def test_fifty_kills_while_saving_leave_a_checkpoint_that_loads(nursery: Nursery, tmp_path: Path) -> None:
    options = {"checkpoint_steps": 1, "keep_last": 1}
    nursery.finish("stages", tmp_path / "whole", **options)
    draw, kills, number, saving = random.Random(0), 0, 0, 0
    while kills < KILLS_WHILE_SAVING:
        path, number, last = tmp_path / f"{number}", number + 1, -1
        while nursery.killed("stages", path, draw.uniform(0.05, 0.6), slow_secs=0.02, **options):
            kills += 1
            saving += any((path / "checkpoints").glob(".*"))
            state, _, problems = CheckpointStore(path).newest()
            assert not problems
            if state is not None:
                assert state["place"]["step"] >= last  # what was there once is not lost
                last = state["place"]["step"]
            if kills % 10 == 0:
                break
        nursery.finish("stages", path, **options)
        assert results(path) == results(tmp_path / "whole")
    print(f"{kills} kills, {saving} of them while something was being written or removed, over {number} runs")
    assert saving > KILLS_WHILE_SAVING // 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 300 KB."""
    with disk(tmp_path / "disk", "300k") as path:
        yield path


def test_a_full_disk_is_named_and_the_old_checkpoints_stay(small_disk: Path, tmp_path: Path) -> None:
    run("plain", tmp_path / "whole", keep_last=1000)
    refusals = 0
    with pytest.raises(CannotWrite, match=r"No space left on device.*Free some space"):
        run("plain", small_disk, keep_last=1000)
    state, path, problems = CheckpointStore(small_disk).newest()
    assert state is not None and path is not None and not problems
    kept = sorted((small_disk / "checkpoints").iterdir(), key=lambda one: int(one.name))
    assert len(kept) > 2 and [read_checkpoint(one)["place"]["step"] for one in kept] == [int(one.name) for one in kept]
    while refusals < 3:  # still full: still refused, still whole
        with pytest.raises(CannotWrite):
            run("plain", small_disk, keep_last=1000)
        refusals += 1
    assert CheckpointStore(small_disk).newest()[1] == path
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    run("plain", small_disk, keep_last=1000)
    assert results(small_disk) == results(tmp_path / "whole")


def test_a_disk_that_is_read_only_is_named(small_disk: Path, tmp_path: Path) -> None:
    run("plain", small_disk, keep_last=1)
    before = results(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(CannotWrite, match="Read-only file system"):
        run("plain", small_disk)
    assert results(small_disk) == before


def test_ten_thousand_damaged_files_are_all_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    run("plain", tmp_path)
    path, draw = sorted((tmp_path / "checkpoints").iterdir())[-1], random.Random(0)
    for name, count in ((MANIFEST, FLIPS), (STATE, FLIPS // 10), (MODEL, FLIPS // 10), (OPTIM, FLIPS // 10)):
        whole = (path / name).read_bytes()
        for _ in range(count):
            (path / name).write_bytes(damaged(whole, draw))
            with pytest.raises(TorcheerError):
                read_checkpoint(path)
        (path / name).write_bytes(whole)
    read_checkpoint(path)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The same bytes with one changed, some gone, some twice, or some of something else."""
    at, length = draw.randrange(len(data)), draw.randrange(1, 9)
    kind = draw.randrange(4)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[at + length :]
    if kind == 2:
        return data[:at] + draw.randbytes(length) + data[at:]
    return data[:at] + b"0" * length + data[at:]
