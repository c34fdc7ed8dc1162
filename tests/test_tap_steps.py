"""One meaning of a step: whoever follows a model names the same step for the same pass."""

from __future__ import annotations

import copy
import gc
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from host_viewer import ALL, Viewer
from models import small
from seams import Host, LayerProbes, PageFollower, steps_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from waiting import wait_until
from watch_checks import Probed, hooks_of, train

from torcheer.inspector import Every

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    """Its layer "first" has another output in every pass of a test; checkpoints itself and stops where it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.checkpoints = self.interrupted = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.first, x, use_reentrant=False) if self.checkpoints else self.first(x)
        if self.interrupted:
            raise KeyboardInterrupt
        out: Tensor = self.second(hidden)
        return out


class Lightning(Net):
    """Has a `training_step`, so that its own `forward` is not what is called."""

    def training_step(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).sum()


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(title="followed") as made:
        yield made


def page_on(model: nn.Module, host: Host, **settings: Any) -> PageFollower:
    return PageFollower(LayerProbes(model, host), lambda step, test: False, counters=dict, **settings)


def agreed(probed: Probed, viewer: Viewer, least: int) -> list[int]:
    """The steps that both saw; of each, both have the same output."""
    found, watched = [], probed.values()

    def trained() -> list[dict[str, Any]]:
        return [moment for moment in viewer.states() if not moment["test"]]

    wait_until(lambda: len(trained()) >= least, "states of steps")
    for moment in trained():
        key = ("first", "output", moment["step"])
        if key in watched:
            assert np.array_equal(viewer.values[moment["id"], "first", "Act"].array, watched[key]), moment
            found.append(moment["step"])
    return found


def passes(model: Net, count: int, optimizer: torch.optim.Optimizer, accumulated: int = 1) -> None:
    for _ in range(count):
        for _ in range(accumulated):
            model(torch.rand(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def plain(model: Net, optimizer: Any) -> None:
    passes(model, 6, optimizer)


def checkpointed(model: Net, optimizer: Any) -> None:
    model.checkpoints = True
    passes(model, 6, optimizer)


def evaluated(model: Net, optimizer: Any) -> None:
    for _ in range(3):
        passes(model, 2, optimizer)
        model.eval()
        with torch.no_grad():
            model(torch.rand(3, 4))
        model.train()


def interrupted(model: Net, optimizer: Any) -> None:
    passes(model, 3, optimizer)
    model.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        model(torch.rand(3, 4))
    model.interrupted = False
    passes(model, 3, optimizer)


def closures(model: Net, _: Any) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2)
    for _ in range(4):
        x = torch.rand(3, 4)

        def closure(x: Tensor = x) -> Tensor:
            optimizer.zero_grad()
            loss = model(x * (1 + torch.rand(1))).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)


LOOPS: dict[str, Callable[[Net, Any], None]] = {
    "plain": plain, "checkpointing": checkpointed, "evaluation": evaluated, "Ctrl-C": interrupted, "closure": closures,
}  # fmt: skip


@pytest.mark.parametrize("page_first", [False, True], ids=["watch first", "page first"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_watch_and_a_page_name_the_same_step_for_the_same_pass(host: Host, loop: str, page_first: bool) -> None:
    model = Net()
    page = page_on(model, host) if page_first else None
    with Probed(model, what="output") as probed, Viewer(host, ALL) as viewer:
        page = page or page_on(model, host)
        LOOPS[loop](model, torch.optim.SGD(model.parameters(), 0.01))
        assert page.step == probed.probes.step >= 5
        page.close()
        assert len(agreed(probed, viewer, 4)) >= 4
    assert hooks_of(model) == 0 and "forward" not in vars(model) and not probed.problems


@pytest.mark.parametrize("page_first", [False, True], ids=["watch first", "page first"])
def test_an_optimizer_that_is_named_to_one_counts_the_steps_of_both(host: Host, page_first: bool) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    page = page_on(model, host) if page_first else None
    with Probed(model, what="output", optimizer=optimizer) as probed, Viewer(host, ALL) as viewer:
        page = page or page_on(model, host)
        passes(model, 5, optimizer, accumulated=3)
        assert page.step == probed.probes.step == 4
        page.close()
        assert len(agreed(probed, viewer, 3)) >= 3


def test_steps_of_a_training_step_are_those_of_its_optimizer_for_both(host: Host) -> None:
    model = Lightning()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    other = torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.01)  # of another model, and no step of this one
    with Probed(model, what="output") as probed, Viewer(host, ALL) as viewer:
        page = page_on(model, host)
        for _ in range(5):
            for _ in range(2):
                model.training_step(torch.rand(3, 4)).backward()
                other.step()
            optimizer.step()
        assert page.step == probed.probes.step == 4
        page.close()
        assert len(agreed(probed, viewer, 3)) >= 3


def test_a_page_that_comes_later_and_a_watch_that_goes_earlier_keep_the_count(host: Host) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Viewer(host, ALL) as viewer:
        with Probed(model, what="output") as probed:
            passes(model, 10, optimizer)
            page = page_on(model, host)
            passes(model, 5, optimizer)
            assert page.step == probed.probes.step == 14
            assert agreed(probed, viewer, 3)[-1] >= 12
        passes(model, 5, optimizer)
        assert page.step == 19 and probed.probes.step == 14 and probed.probes.count == 15
        with Probed(model, what="output") as again:
            passes(model, 2, optimizer)
            assert again.probes.step == page.step == 21 and again.probes.count == 2
            page.close()
            passes(model, 3, optimizer)
            assert again.probes.step == 24 and page.step == 21
    assert hooks_of(model) == 0 and "forward" not in vars(model)
    with Probed(model, what="output") as anew:
        passes(model, 1, optimizer)
        assert anew.probes.step == 0  # nobody followed: another count begins


def test_a_number_that_one_is_told_is_that_of_all(host: Host) -> None:
    model, numbers = Net(), iter(range(100, 1000, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Probed(model, what="output", step_of=lambda: next(numbers)) as probed, Viewer(host, ALL) as viewer:
        page = page_on(model, host)
        passes(model, 5, optimizer)
        assert page.step == probed.probes.step == 140  # asked once for each pass, though two follow
        page.close()
        assert set(agreed(probed, viewer, 3)) <= {100, 110, 120, 130, 140}


def test_two_watches_with_different_schedules_see_the_steps_that_each_is_due() -> None:
    model = small()
    with Probed(model, what="output", every=3) as thirds, Probed(model, what="output", every=5) as fifths:
        train(model, 31)
    steps = [sorted({step for _, _, step in probed.values()}) for probed in (thirds, fifths)]
    assert steps == [list(range(0, 31, 3)), list(range(0, 31, 5))]


def test_two_watches_count_idle_passes_once_and_wake_in_time() -> None:
    model = small()
    with Probed(model, what="output", every=Every(start=10**9)) as idle:
        with Probed(model, what="output", every=400) as due:
            train(model, 2001)
            assert idle.probes.step == due.probes.step == 2000
            assert len(model._forward_pre_hooks) + ("forward" in vars(model)) == 1  # one hook, or one counter
        train(model, 100)
        assert idle.probes.step == 2100
    assert sorted({step for _, _, step in due.values()}) == [0, 400, 800, 1200, 1600, 2000]


@pytest.mark.parametrize("who", ["neither", "watch", "page", "both"])
def test_losses_are_the_same_bit_for_bit_whoever_follows(host: Host, who: str) -> None:
    model = small()
    expected = train(copy.deepcopy(model), 12)
    probed = Probed(model) if who in ("watch", "both") else None
    page = page_on(model, host) if who in ("page", "both") else None
    with Viewer(host, ALL):
        assert train(model, 12) == expected
    for follower in (page, probed.probes if probed else None):
        if follower is not None:
            follower.close()
    assert hooks_of(model) == 0 and "forward" not in vars(model)


def test_a_loop_that_is_stopped_by_one_leaves_the_other_its_steps(host: Host) -> None:
    model, stops = Net(), [False]

    class Stop(BaseException):
        pass

    def boundary(step: int, test: bool) -> bool:
        if stops[0]:
            raise Stop
        return False

    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Probed(model, what="output") as probed, Viewer(host, ALL):
        page = PageFollower(LayerProbes(model, host), boundary, counters=dict)
        passes(model, 3, optimizer)
        stops[0] = True
        with pytest.raises(Stop):
            model(torch.rand(3, 4))
        assert hooks_of(model.first) == hooks_of(model.second) == 0  # the pass did not begin
        page.close()
        passes(model, 2, optimizer)
        assert probed.probes.step == 5
    assert {step for _, _, step in probed.values()} == {0, 1, 2, 4, 5} and not probed.problems


def test_steps_go_with_their_last_follower() -> None:
    model = small()
    with Probed(model):
        steps = weakref.ref(steps_of(model))
        assert steps_of(model) is steps()
    gc.collect()
    assert steps() is None and steps_of(model).count == 0


def test_a_forked_process_counts_for_itself() -> None:
    model = small()
    with Probed(model) as probed:
        train(model, 2)
        if (child := os.fork()) == 0:
            os._exit(0 if steps_of(model) is not probed.probes._steps and steps_of(model).count == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0 and probed.probes.step == 1
