"""How much of each value travels, and who is told where it is less than was asked for."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from models import small
from seams import FullKeys, Ring, Sender, fair_share
from torch import nn
from waiting import wait_until
from watch_checks import Probed, train

import torcheer as tl
from torcheer.inspector import Transport, open_watch

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
            limits.append(probed.sender.limits.limit_bytes)
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


# -- a look that is larger than the ring


class Wide(nn.Module):
    """Twelve layers that return a megabyte each."""

    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


LARGE = torch.ones(512, 512)  # a megabyte


def keys_sent(probed: Probed) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in probed.taken():
        found.setdefault(one.key[0], []).append(one.sample.step)
    return found


@pytest.mark.parametrize("layers", [12, 40])
def test_where_a_look_is_larger_than_the_ring_no_layer_is_lost_for_ever(layers: int) -> None:
    model, looks = Wide(layers), 60
    with Probed(model, what="output", every=1, limit_bytes=1 << 20) as probed:  # a ring of eight
        probed.sender.limits.full_keys = FullKeys(("*",))
        for _ in range(looks):
            model(LARGE)
            probed.taken()  # what a child has read before the next step
        dropped = {key[0]: count for key, count in probed.ring.dropped.items()}
    found = keys_sent(probed)
    assert len(found) == layers and sum(map(len, found.values())) + sum(dropped.values()) == layers * looks
    often = [len(steps) for steps in found.values()]
    assert max(often) - min(often) <= 0.25 * looks and sum(often) >= 0.8 * 7 * looks  # fair, and the ring is used
    gaps = [after - before for steps in found.values() for before, after in pairwise(steps)]
    assert max(gaps) <= 2 * layers // 7 + 2
    (problem,) = probed.problems
    assert f"one look has {layers << 20:,} bytes, and the ring 8,388,608: not all" in problem
    megabytes = int(problem.partition("Transport(bytes=")[2].partition(" ")[0])
    assert 8 * layers / 7 <= megabytes <= 4 * layers


def test_the_ring_that_is_named_for_a_look_has_room_for_it() -> None:
    model, said = Wide(), list[str]()
    ring = Ring(16 << 20)
    sender = Sender(ring, limit_bytes=1 << 20, share_bytes=ring.share_bytes, whole=["*"], report=said.append)
    for layer in range(12):
        sender.send(LARGE, f"{layer}", "output", 0)
    sender.begin()
    assert said == [] and ring.dropped == {} and model is not None
    ring.close()


def test_a_slow_child_does_not_always_lose_the_same_layers_either() -> None:
    model = Wide(4)
    with Probed(model, what="output", every=1, limit_bytes=1 << 20) as probed:
        probed.sender.limits.full_keys = FullKeys(("*",))
        for _ in range(3):
            model(LARGE)  # nobody reads: the ring is full
        for _ in range(40):
            taken = probed.reader.take()  # one value for each look of four
            assert taken is not None
            probed._kept.append(taken)
            model(LARGE)
        assert probed.problems == []  # the ring is large enough
    found = {name: sum(step >= 10 for step in steps) for name, steps in keys_sent(probed).items()}
    assert len(found) == 4 and min(found.values()) >= 4


def test_when_there_is_room_again_nobody_waits() -> None:
    model = Wide()
    with Probed(model, what="output", every=1, limit_bytes=1 << 20) as probed:
        probed.sender.limits.full_keys = FullKeys(("*",))
        for _ in range(3):
            model(LARGE)
            probed.taken()
        for _ in range(20):
            model(LARGE[:64])
            probed.taken()
    last = [steps[-3:] for steps in keys_sent(probed).values()]
    assert last == [[20, 21, 22]] * 12


def test_numbers_never_wait_for_their_turn_and_drops_are_counted_by_key(tmp_path: Path) -> None:
    model = Wide()
    with tl.watch(
        model, what="output", every=1, to=tmp_path, keep="*", tell=lambda text: None,
        transport=Transport(8 << 20, drain_secs=60),
    ) as w:  # fmt: skip
        for step in range(12):
            model(LARGE)
            assert wait_until(lambda: w._link is not None and not w._link.waiting)  # or it may be full to its last byte
            w.log(loss=step)
            assert wait_until(lambda: not w._link.waiting)
    found, account = open_watch(tmp_path), w.account
    often = {key: len(found[key]) for key in found.keys() if key[1] == "output" or key[0] == "loss"}
    assert all(often[key] + account.dropped.get(key, 0) == 12 for key in often) and len(often) == 13
    assert often["loss", "metric"] == 12


def test_what_does_not_come_any_more_holds_up_nobody() -> None:
    model, short = Wide(24), Wide(6)
    with Probed(model, what="output", every=1, limit_bytes=1 << 20) as probed:
        probed.sender.limits.full_keys = FullKeys(("*",))
        for _ in range(3):
            model(LARGE)
            probed.taken()
        model.forward = short.forward  # type: ignore[method-assign]
        for layer, name in zip(short.layers, range(6)):
            layer.register_forward_hook(
                lambda _, __, out, key=f"layers.{name}": probed.sender.send(out, key, "output", probed.probes.step)
            )
        for _ in range(4):
            model(LARGE)
            probed.taken()
    found = keys_sent(probed)
    assert all(found[f"layers.{name}"][-2:] == [5, 6] for name in range(6))
