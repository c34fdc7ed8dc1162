"""Training on disks that are full or read-only, and checkpoints damaged by the thousand; kills: kill_matrix.py."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_checks import disk
from training_cases import results, run

from torcheer.errors import CannotWrite, TorcheerError
from torcheer.training.checkpoints.checkpoint_files import MODEL, OPTIM, STATE, read_checkpoint
from torcheer.training.checkpoints.checkpoint_folders import CheckpointStore
from torcheer.training.checkpoints.checkpoint_manifest import MANIFEST

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("one_thread")]
FLIPS = 10_000


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
