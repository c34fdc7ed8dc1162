"""How much of each value travels, and who is told where it is less than was asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from watch_checks import Probed, small, train

import torcheer as tl
from torcheer.inspector import open_watch
from torcheer.inspector.ring import Ring
from torcheer.inspector.sending import Sender, fair_share
from torcheer.inspector.watching import Transport

pytestmark = pytest.mark.usefixtures("one_thread")


class Often(nn.Module):
    """Calls one layer again and again, as a recurrent net does, and another at last."""

    def __init__(self, calls: int = 200) -> None:
        super().__init__()
        self.again, self.last, self.calls = nn.Linear(64, 64), nn.Linear(64, 64), calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.calls):
            x = self.again(x)
        return self.last(x)  # type: ignore[no-any-return]


def test_of_a_layer_that_is_called_often_less_is_sent_so_that_the_last_finds_room() -> None:
    model, x = Often(), torch.rand(512, 64)  # 128 KB a call, 25 MB a pass: the ring has 8
    with Probed(model, what="output", every=1) as probed:
        for _ in range(3):
            model(x)
            probed.taken()  # what a child has read before the next step
    last = [sent.sample.step for sent in probed.taken() if sent.key == ("last", "output")]
    assert last == [1, 2]  # at the first look nobody knew
    assert sum(sent.key[0].startswith("again") and sent.sample.step == 2 for sent in probed.taken()) == 200


def test_an_update_that_waits_for_its_step_is_taken_from_as_many_numbers_as_were_kept() -> None:
    model = Often(400)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with Probed(model, what=("output", "update"), every=1) as probed:
        limits = []
        for _ in range(3):  # the second look has less room than the one that kept the weights
            model(torch.rand(2048, 64)).sum().backward()
            probed.taken()
            limits.append(probed.sender.limit_bytes)
        assert limits[0] > 16384 > limits[1]  # bytes of the weight
        optimizer.step()
    updates = [sent for sent in probed.taken() if sent.key == ("again.weight", "update")]
    assert len(updates) == 1 and updates[0].sample.step == 2 and probed.problems == []


def test_what_is_wanted_whole_and_has_no_room_is_said_once() -> None:
    said: list[str] = []
    ring = Ring(1 << 20)
    sender = Sender(ring, limit_bytes=1000, share_bytes=ring.share_bytes, whole=["a/*"], report=said.append)
    for step in range(2):
        sender.send(torch.rand(300, 300), "a", "output", step)
        sender.send(torch.rand(300, 300), "b", "output", step)
        sender.send(torch.rand(10, 10), "a", "grad", step)
    ring.close()
    assert len(said) == 1 and said[0].startswith("a (output) has 360,000 bytes, more than an eighth of the ring: only")
    assert "Transport(bytes=4 << 20) has room" in said[0]


def test_the_ring_that_is_named_has_room() -> None:
    said: list[str] = []
    ring = Ring(4 << 20)
    sender = Sender(ring, limit_bytes=1000, share_bytes=ring.share_bytes, whole=["a/*"], report=said.append)
    sender.send(torch.rand(300, 300), "a", "output", 0)
    ring.close()
    assert said == []


def test_the_log_says_how_often_a_key_was_looked_at_before(tmp_path: Path) -> None:
    model = small()
    with tl.watch(
        model, what=("output", "update"), every=2, to=tmp_path, transport=Transport(8 << 20, drain_secs=60)
    ) as w:
        train(model, 6, after=lambda loss: w.log(loss=loss))
    found = open_watch(tmp_path)
    assert np.array_equal(found["5", "output"].seen, [0, 1, 2])
    assert np.array_equal(found["5.weight", "update"].seen, [0, 1, 2])
    assert np.array_equal(found["loss", "metric"].seen, range(6))


def test_a_fair_share_leaves_to_others_what_the_small_do_not_need() -> None:
    assert fair_share([10, 10, 100], 120) == 100  # all fit
    assert fair_share([10, 100, 100], 110) == 50
    assert fair_share([100] * 10, 100) == 10
