"""Fifty kills over two hundred shards: the bytes are those of a run that nobody disturbed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from children import RUN_SECS, Child
from waiting import wait_until

from torcheer.extraction import open_extraction

SCRIPT = """
import sys, time
import torch
from torch import nn
import torcheer as tl

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Linear(32, 8))
data = torch.rand(1600, 16)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return len(data)
    def __getitem__(self, index):
        time.sleep(0.001)
        return data[index]

print("ready", flush=True)
workers, writers = int(sys.argv[2]), int(sys.argv[3])
options = dict(batch_size=4, shard_samples=8, workers=workers, writers=writers)
tl.extract(model, Slow(), layers=["0", "1", "2"], to=sys.argv[1], **options)
"""
KILLS, SHARDS = 50, 200


@contextmanager
def started(path: Path, workers: int, writers: int) -> Iterator[Child]:
    with Child("-c", SCRIPT, path, workers, writers) as process:
        assert process.line() == "ready"
        yield process


def shards_of(path: Path) -> int:
    return len(list((path / "shards").glob("[0-9]*")))


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.faults
@pytest.mark.parametrize(("workers", "writers"), [(0, 1), (0, 4), (2, 4)])
def test_fifty_kills_over_two_hundred_shards_leave_the_bytes_of_a_serial_run(
    tmp_path: Path, workers: int, writers: int
) -> None:
    with started(tmp_path / "whole", 0, writers) as whole:
        whole.ends(secs=RUN_SECS)
    assert shards_of(tmp_path / "whole") == SHARDS
    draw, kills, path = random.Random(0), 0, tmp_path / "x"
    aim = KILLS if workers == 0 else 10
    while kills < aim:
        goal = min(SHARDS - 1, (kills + 1) * SHARDS // (aim + 1))  # the kills are spread over all the shards
        with started(path, workers, writers) as process:
            wait_until(lambda goal=goal: shards_of(path) >= goal, f"{goal} shards", seen=lambda: shards_of(path))
            time.sleep(draw.random() * 0.02)
            process.kill()
            process.ends(-signal.SIGKILL)
        kills += 1
    print(f"{kills} kills, {shards_of(path)} of {SHARDS} shards were sealed before the last")
    with started(path, workers, writers) as last:
        last.ends(secs=RUN_SECS)
    assert files_of(path) == files_of(tmp_path / "whole")
    assert open_extraction(path).verify() == 3 * 400
