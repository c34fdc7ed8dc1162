"""Checkpoints damaged by the thousand; full disks and stops: test_faults_system.py; kills: kill_matrix.py."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from seams import MANIFEST, MODEL, OPTIM, STATE, read_checkpoint
from training_cases import run

from torcheer.errors import TorcheerError

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("one_thread")]
FLIPS = 10_000


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
