"""Fifty kills over two hundred shards: the bytes are those of a run that nobody disturbed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
workers = int(sys.argv[2])
tl.extract(model, Slow(), layers=["0", "1", "2"], to=sys.argv[1], batch_size=4, shard_samples=8, workers=workers)
"""
KILLS, SHARDS = 50, 200


def start(path: Path, workers: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(workers)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def shards_of(path: Path) -> int:
    return len(list((path / "shards").glob("[0-9]*")))


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.faults
@pytest.mark.parametrize("workers", [0, 2])
def test_fifty_kills_over_two_hundred_shards_leave_the_bytes_of_a_serial_run(tmp_path: Path, workers: int) -> None:
    whole = start(tmp_path / "whole", 0)
    _, errors = whole.communicate()
    assert whole.returncode == 0, errors.decode()
    assert shards_of(tmp_path / "whole") == SHARDS
    draw, kills, path = random.Random(0), 0, tmp_path / "x"
    aim = KILLS if workers == 0 else 10
    while kills < aim:
        process = start(path, workers)
        goal = min(SHARDS - 1, (kills + 1) * SHARDS // (aim + 1))  # the kills are spread over all the shards
        while shards_of(path) < goal and process.poll() is None:
            time.sleep(0.001)
        time.sleep(draw.random() * 0.02)
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.fail(process.stderr.read().decode())
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    print(f"{kills} kills, {shards_of(path)} of {SHARDS} shards were sealed before the last")
    last = start(path, workers)
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    assert files_of(path) == files_of(tmp_path / "whole")
    assert open_extraction(path).verify() == 3 * 400
