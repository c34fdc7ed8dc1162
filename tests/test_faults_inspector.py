"""Faults of the inspector by the hundred. `make test-faults` runs them."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from inspector_spine import Diary, all_of, balanced, offer, reader_of, watched
from leftovers import nothing_added, traces
from seams import Ring

from torcheer.samples import Account

pytestmark = pytest.mark.faults


def test_fifty_links_leave_nothing_behind(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    watched(diary).stop()
    before = traces()
    for number in range(50):
        link = watched(diary, ring_bytes=1 << 16, policy=("drop", "latest", "block")[number % 3])
        offer(link, np.ones(3), number)
        assert link.stop() == Account(1, 1)
    assert nothing_added(traces(), before) and diary.lines().count("closed after 1") == 50


@pytest.mark.filterwarnings("ignore:the watching process")
@pytest.mark.parametrize("policy", ["drop", "latest", "block"])
def test_a_child_killed_again_and_again_keeps_the_books_balanced(tmp_path: Path, policy: str) -> None:
    draw, diary = random.Random(0), Diary(tmp_path / "diary", 0.001)
    link = watched(diary, ring_bytes=1 << 18, policy=policy, block_ms=1.0, restarts=1000)
    step = 0
    for _ in range(25):
        until, handled = time.monotonic() + 0.3 + 0.3 * draw.random(), link.account.handled
        while time.monotonic() < until or link.account.handled < handled + 5:  # it lives long enough to do something
            offer(link, np.full(draw.randrange(2000), step % 7), step, layer=f"l{step % 9}")
            step += 1
            time.sleep(0.0005)
        os.kill(link.process.pid, draw.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS]))
        link.process.join()
        link.heard()
    account = link.stop(30.0)
    assert balanced(account) and account.offered == step and account.restarts == 25 and account.damaged == 0
    assert account.lost <= 2 * 25 and account.handled > 100
    steps = [int(line.split()[1]) for line in diary.lines() if not line.startswith("closed")]
    assert len(steps) == len(set(steps)) and account.handled <= len(steps) <= account.handled + account.lost


@pytest.mark.parametrize("policy", ["drop", "latest"])
def test_a_thousand_damaged_rings_yield_nothing_wrong(policy: str) -> None:
    for seed in range(1000):
        draw, ring = random.Random(seed), Ring(1 << 18, policy=policy)
        reader, sent = reader_of(ring), 0
        arrays = [np.frombuffer(draw.randbytes(draw.randrange(3000)), np.uint8) for _ in range(30)]
        for step, array in enumerate(arrays):
            sent += offer(ring, array, step, layer=str(step))
        for _ in range(draw.choice([1, 10, 1000])):
            begin, size = draw.randrange(ring.memory.size), draw.choice([1, 8, 64, 500])
            end = min(begin + size, ring.memory.size)
            ring.memory.data[begin:end] = draw.choice([bytes(size), draw.randbytes(size), b"\xff" * size])[
                : end - begin
            ]
        found = all_of(reader)
        reader.finish()
        assert all(value.sample.array.tobytes() == arrays[value.sample.step].tobytes() for value in found)
        assert policy == "latest" or len(found) + reader.damaged == sent
        reader.close(), ring.close()
