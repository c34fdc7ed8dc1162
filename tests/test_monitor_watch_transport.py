"""How values travel from `tl.watch` to its child: each policy from end to end, and closing in time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import has_ended
from inspector_spine import balanced
from models import small
from seams import ByteLimits, FullKeys, model_watch
from torch import nn
from waiting import wait_until
from watch_checks import hooks_of, train

import torcheer as tl
from torcheer.inspector import Transport, open_watch


def slow(layer: str, variable: str, step: int, array: Any) -> None:
    import time

    time.sleep(0.005)


def test_the_latest_of_each_key_arrives_and_closing_waits_for_nothing_that_was_overwritten(tmp_path: Path) -> None:
    told: list[str] = []
    model = small()
    way = Transport(bytes=1 << 20, policy="latest")
    with tl.watch(model, "5", every=1, to=tmp_path, tell=told.append, transport=way) as w:
        assert w._link is not None
        train(model, 1)
        assert wait_until(lambda: w.account.handled == w.account.offered)
        os.kill(w._link.process.pid, signal.SIGSTOP)
        train(model, 9)
        assert w._link.waiting == 8  # of each key one: six of the layer, two of the time
        os.kill(w._link.process.pid, signal.SIGCONT)
        assert wait_until(lambda: w._link is not None and not w._link.waiting)
    assert balanced(w.account) and w.account.lost == 0 and w.drops["5", "output"] == 8
    assert len(told) == 1 and " dropped: " in told[0]  # and not that any value waits
    found = open_watch(tmp_path)
    assert found["5", "output"].steps.tolist() == found["5.weight", "update"].steps.tolist() == [0, 9]
    assert found.account == w.account and f"of {w.account.offered:,} values " in str(found)


def test_a_training_that_waits_loses_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    model = small()
    way = Transport(bytes=1 << 16, policy="block", block_ms=60_000)
    with tl.watch(model, every=1, callback=slow, to=tmp_path, tell=told.append, transport=way) as w:
        train(model, 6)  # of which each fills half of the ring
    assert w.account.handled == w.account.offered > 100 and not w.drops
    assert open_watch(tmp_path)["5.weight", "update"].steps.tolist() == list(range(6))
    assert told[-1].endswith(f"in {tmp_path}")


def test_values_that_came_damaged_are_not_waited_for() -> None:
    told: list[str] = []
    with tl.watch(nn.Linear(2, 2), tell=told.append, transport=Transport(bytes=1 << 20)) as w:
        assert w._link is not None
        w.log(loss=1.0)
        assert wait_until(lambda: w.account.handled == 1)
        os.kill(w._link.process.pid, signal.SIGSTOP)
        w.log(loss=2.0)
        where = w._link.ring.memory.get(16)  # where the reader is
        assert where is not None
        w._link.ring.memory.data[where + 64] ^= 1
        assert w._link.waiting == 1
        os.kill(w._link.process.pid, signal.SIGCONT)
        assert wait_until(lambda: w._link is not None and not w._link.waiting)
    assert w.account.damaged == 1 and balanced(w.account)
    assert told[-1].endswith("1 lost") and not [text for text in told if "wait for the watching process" in text]


@pytest.mark.timing
def test_a_child_that_is_stopped_does_not_hold_up_the_end_of_a_watch() -> None:
    told: list[str] = []
    model = small()
    w = tl.watch(model, every=1, tell=told.append, transport=Transport(bytes=8 << 20, drain_secs=1.5))
    train(model, 2)
    assert w._link is not None
    child = w._link.process.pid
    os.kill(child, signal.SIGSTOP)
    train(model, 3)
    begun = time.monotonic()
    w.close()
    assert time.monotonic() - begun < 20 and has_ended(child) and hooks_of(model) == 0  # of which 1.5 are its own
    assert balanced(w.account) and w.account.lost > 0
    (waiting,) = [text for text in told if "wait for the watching process; it has 0." in text]  # half is over
    assert waiting.startswith("torcheer: ") and f"{w.account.lost:,} lost" in told[-1]


def test_ctrl_c_while_a_watch_closes_ends_its_child() -> None:
    def hang(layer: str, variable: str, step: int, array: Any) -> None:
        import time

        time.sleep(1000)

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    model = nn.Linear(2, 2)
    w = tl.watch(model, callback=hang, tell=interrupt, transport=Transport(bytes=1 << 20, drain_secs=100.0))
    assert w._link is not None
    model(torch.ones(1, 2))
    w.log(loss=1.0)
    assert wait_until(lambda: w._link is not None and w._link.ring.taken)
    w.log(loss=2.0)
    with pytest.raises(KeyboardInterrupt):
        w.close()  # it says that it waits
    assert w.closed and has_ended(w._link.process.pid) and balanced(w.account) and w.account.lost > 0


class Wide(nn.Module):
    """Returns 400,000 bytes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.expand(100_000) + 1


def shared_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_the_memory_of_a_child_does_not_grow_while_it_reads_the_ring_from_end_to_end() -> None:
    model = nn.Sequential(Wide())
    way = Transport(bytes=16 << 20, policy="block", block_ms=60_000)
    with tl.watch(model, what="output", every=1, tell=lambda text: None, transport=way) as w:
        assert w._link is not None
        for _ in range(100):  # 40 MB
            model(torch.zeros(1))
        assert wait_until(lambda: w.account.handled == w.account.offered)
        assert shared_bytes(w._link.process.pid) < 6 << 20
    assert w.account.handled >= 100


def test_what_is_dropped_is_said_while_it_happens_with_numbers(tmp_path: Path) -> None:
    told: list[str] = []
    model = small()
    transport = Transport(bytes=1 << 16, drain_secs=60.0)
    with tl.watch(model, every=1, to=tmp_path, tell=told.append, transport=transport) as w:
        assert w._link is not None
        os.kill(w._link.process.pid, signal.SIGSTOP)
        assert wait_until(lambda: train(model, 5) and told)
        first = sum(w.drops.values())
        assert "the other process is behind: at step " in told[0] and " values so far were dropped" in told[0]
        assert wait_until(lambda: train(model, 5) and len(told) > 1)  # ten times as many
        assert sum(w.drops.values()) > 2 * first
        os.kill(w._link.process.pid, signal.SIGCONT)
    assert f"{sum(w.drops.values()):,} dropped: " in told[-1] and w.account.lost == 0


def test_closing_waits_as_long_as_the_child_gets_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_watch, "_PATIENCE_SECS", 0.05)
    monkeypatch.setattr(model_watch, "_STALLED_SECS", 60.0)
    told: list[str] = []
    w = tl.watch(nn.Linear(2, 2), callback=slow, tell=told.append, transport=Transport(bytes=1 << 20))
    for step in range(100):
        w.log(loss=step)
    w.close()
    assert w.account.handled == w.account.offered == 100
    assert any("values wait for the watching process; Ctrl-C drops them" in text for text in told)


def test_closing_gives_up_a_child_that_does_not_get_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_watch, "_STALLED_SECS", 0.2)
    told: list[str] = []
    w = tl.watch(nn.Linear(2, 2), tell=told.append, transport=Transport(bytes=1 << 20))
    w.log(loss=1.0)
    assert w._link is not None and wait_until(lambda: w.account.handled)
    os.kill(w._link.process.pid, signal.SIGSTOP)
    w.log(loss=2.0)
    w.close()
    assert w.account.lost == 1 and "1 lost" in told[-1] and balanced(w.account)


def test_ctrl_c_while_a_watch_closes_says_what_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model_watch, "_PATIENCE_SECS", 0.05)
    monkeypatch.setattr(model_watch, "_LAST_SECS", 60.0)
    told: list[str] = []

    def interrupt(text: str) -> None:
        told.append(text)
        if "Ctrl-C drops them" in text:
            assert w._link is not None
            os.kill(w._link.process.pid, signal.SIGCONT)
            raise KeyboardInterrupt

    w = tl.watch(nn.Linear(2, 2), to=tmp_path, tell=interrupt, transport=Transport(bytes=1 << 20))
    w.log(loss=1.0)
    assert w._link is not None and wait_until(lambda: w.account.handled)
    os.kill(w._link.process.pid, signal.SIGSTOP)
    w.log(loss=2.0)
    with pytest.raises(KeyboardInterrupt):
        w.close()
    assert told[-1].endswith(f"in {tmp_path}") or "lost" in told[-1]
    assert balanced(w.account) and open_watch(tmp_path).account == w.account


def test_large_tensors_are_thinned_while_the_child_is_behind_and_sent_as_planned_when_it_has_caught_up() -> None:
    limits, sent = ByteLimits(1 << 20, 8 << 20, FullKeys(()), lambda text: None), []
    for backlog in (0.0, 0.3, 0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.2, 0.01, 0.01):
        limits.note(600_000)
        limits.begin(backlog)
        sent.append(limits.limit_bytes)
    assert sent[:3] == [600_000, 300_000, 150_000]
    assert sent[7:10] == [16 << 10] * 3 and sent[-2:] == pytest.approx([32 << 10, 64 << 10], abs=1)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16])
def test_eight_bits_travel_whole_and_are_summed_up_as_numbers(kind: torch.dtype, tmp_path: Path) -> None:
    class Narrow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(kind)

    model, x = nn.Sequential(Narrow()), torch.tensor([[0.5, -1.5], [3.0, 0.0]])
    with tl.watch(model, what="output", every=1, to=tmp_path, keep="*", tell=lambda text: None) as w:
        model(x)
    assert w.account.handled == w.account.offered and w.problems == []
    found = open_watch(tmp_path)["0", "output"]
    assert (found.minimum[0], found.maximum[0], found.zeros[0]) == (-1.5, 3.0, 1)
    assert np.array_equal(np.asarray(found.values[0], np.float32), x.numpy())
    assert found.table()["type"] == [str(kind).removeprefix("torch.")]
