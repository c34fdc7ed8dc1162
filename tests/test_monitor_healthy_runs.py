"""While nothing is due a watch costs next to nothing, whoever counts the steps; and it never sleeps for good."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from seams import PassCounter, PassHook
from torch import nn
from watch_checks import Probed

from torcheer.inspector import Every

pytestmark = pytest.mark.usefixtures("one_thread")
FEW = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """With a `forward` of its own, which torch.jit reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, passes: int = 1) -> None:
    for _ in range(passes):
        model(FEW).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def asleep(model: nn.Module, step: Callable[[], Any], most: int = 1_000_000) -> bool:
    """Go on until the model naps."""
    return any("forward" in vars(model) for _ in range(most) if [step()])


def looks(probed: Probed, variable: str) -> list[int]:
    return sorted({sent.sample.step for sent in probed.taken() if sent.sample.variable == variable})


# -- the nap


@pytest.mark.parametrize(
    "use",
    [
        lambda model, x: torch.jit.script(model)(x),
        lambda model, x: torch.jit.script(nn.Sequential(model))(x),
        lambda model, x: torch.jit.trace(model, x)(x),
        lambda model, x: copy.deepcopy(model)(x),
        lambda model, x: pickle.loads(pickle.dumps(model))(x),
        lambda model, x: torch.export.export(model, (x,), strict=False).module()(x),
        lambda model, x: torch.fx.symbolic_trace(model)(x),
        lambda model, x: torch.func.functional_call(model, dict(model.named_parameters()), (x,)),
    ],
    ids=["script", "script of a part", "trace", "deepcopy", "pickle", "export", "fx", "functional_call"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_torch_does_with_a_model_it_does_with_one_that_naps(use: Callable[..., torch.Tensor]) -> None:
    model, x = Net(), torch.rand(2, 4)
    expected = model(x)
    with Probed(model, every=Every(start=10**9)) as probed:
        assert asleep(model, lambda: model(x)) and isinstance(model.forward, PassCounter)
        assert torch.equal(use(model, x), expected)
        before = probed.probes.step
        model(x)
        assert probed.probes.step == before + 1 and probed.problems == []


def test_a_nap_that_two_threads_count_down_at_once_ends_all_the_same() -> None:
    model = Net()
    with Probed(model, every=Every(start=10**9)) as probed:
        assert asleep(model, lambda: model(FEW))
        probed.probes._steps._hook.idle_passes = 0  # the other thread was here between our look and our count
        model(FEW)
        assert "forward" not in vars(model) and len(model._forward_pre_hooks) == 1


def test_a_hook_that_two_threads_count_down_at_once_goes_on() -> None:
    passes: list[nn.Module] = []

    hook, model = PassHook(lambda module, *_: passes.append(module), lambda: None, only_training=True), Net()
    hook.idle_passes = -1
    hook(model, ())
    assert passes == [model] and hook.idle_passes == -1


# -- who counts


def test_a_watch_by_seconds_sleeps_between_its_looks() -> None:
    model = Net()
    with Probed(model, what="output", every=Every(secs=1000)) as probed:
        assert asleep(model, lambda: model(FEW))
    assert looks(probed, "output") == [0]


def test_a_watch_by_seconds_wakes_in_time() -> None:
    model = Net()
    watched: list[tuple[float, float]] = []  # when each watched pass began and ended; its samples' own times come later
    with Probed(model, what="output", every=Every(secs=0.3)) as probed:
        for _ in range(10_000_000):
            began_secs = time.monotonic()
            model(FEW)
            ended_secs = time.monotonic()
            if len(looks(probed, "output")) > len(watched):
                watched.append((began_secs, ended_secs))
            if len(watched) == 4:
                break
    assert len(watched) == 4 and min(ended - began for (began, _), (_, ended) in pairwise(watched)) >= 0.3


@pytest.mark.parametrize("passes", [1, 3])
def test_a_loop_that_numbers_its_steps_is_slept_through_and_looked_at_where_it_is_due(passes: int) -> None:
    model, number, naps = chain(), 999, 0
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Probed(model, what=("output", "update"), layers="2", every=200, step_of=lambda: number) as probed:
        while naps < 300 or number < 1900:
            number += 1
            learn(model, optimizer, passes)
            naps += "forward" in vars(model)
            assert probed.probes.step == number
        assert probed.probes.count == (number - 999) * passes
    assert looks(probed, "output") == looks(probed, "update") == list(range(1000, number + 1, 200))


def test_numbers_that_begin_anew_wake_it() -> None:
    model, number = Net(), 0
    with Probed(model, what="output", every=500, step_of=lambda: number) as probed:
        for _ in range(4):
            for number in range(700):
                model(FEW)
                assert probed.probes.step == number
    steps = [sent.sample.step for sent in probed.taken() if sent.key == ("linear", "output")]
    assert steps.count(500) == 4 and steps[0] == 0


@pytest.mark.parametrize("fails_at", [1, 2, 50, 501, 1502, 2505, 2900])  # in a nap, and between two
def test_a_number_that_fails_in_a_nap_is_counted_on(fails_at: int) -> None:
    model, numbers, number = Net(), range(100, 100 + fails_at), 0  # asked twice of a step, it says the same
    with Probed(model, what="output", every=Every(start=10**9), step_of=lambda: numbers[number]) as probed:
        for number in range(3000):  # noqa: B007
            model(FEW)
        assert probed.probes.step == 3099
    assert len(probed.problems) == 1 and "step_of failed" in probed.problems[0]


@pytest.mark.parametrize("passes", [1, 3])
def test_the_steps_of_an_optimizer_are_slept_through_and_looked_at_where_they_are_due(passes: int) -> None:
    model, step, naps = chain(), -1, 0
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Probed(model, what=("output", "update"), layers="2", every=200, optimizer=optimizer) as probed:
        while naps < 300 or step < 900:
            step += 1
            for _ in range(passes):
                model(FEW).sum().backward()
                assert probed.probes.step == step
            optimizer.step()
            naps += "forward" in vars(model)
            assert probed.probes.step == step
    assert looks(probed, "output") == looks(probed, "update") == list(range(0, step + 1, 200))


def test_parts_that_are_called_by_themselves_are_counted_by_their_optimizer() -> None:
    parts = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 1)})
    optimizer = torch.optim.SGD(parts.parameters(), 0.01)
    with Probed(parts, what="output", every=200) as probed:
        for step in range(601):
            parts["second"](parts["first"](FEW)).sum().backward()
            assert probed.probes.step == step
            optimizer.step()
    assert looks(probed, "output") == [0, 200, 400, 600]


# -- what is listened for


def test_who_trains_only_a_head_does_not_wait_for_the_rest_for_ever() -> None:
    model = chain()
    optimizer = torch.optim.SGD(model[2].parameters(), 0.01)
    with Probed(model, every=100) as probed:
        for _ in range(60):
            learn(model, optimizer)
        assert not probed.probes.awaits_optimizer and not probed.probes._steps._uses_optimizers
        for _ in range(50):
            learn(model, optimizer)
        optimizer.add_param_group({"params": list(model[0].parameters())})
        for _ in range(100):
            learn(model, optimizer)
    updates = {(sent.sample.layer, sent.sample.step) for sent in probed.taken() if sent.sample.variable == "update"}
    assert {step for layer, step in updates if layer == "2.weight"} == {0, 100, 200}
    assert {step for layer, step in updates if layer == "0.weight"} == {200}  # from when an optimizer had it
