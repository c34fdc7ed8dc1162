"""Sinks that listen to the same pass share its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from host_viewer import ALL, Viewer
from seams import ModuleOutput, PassTap
from torch import Tensor, nn
from watch_checks import Probed, hooks_of

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")


class Sink:
    """Remembers what it was handed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.gradients: list[tuple[str, Tensor]] = []
        self.failures: list[str] = []
        self.tap = PassTap(self.take, lambda name, error: self.failures.append(f"{name}: {error}"))

    def take(self, name: str, call: int, output: ModuleOutput) -> None:
        self.calls.append((name, call))
        for _, tensor in output.tensors:
            self.tap.follow(tensor, lambda gradient: self.gradients.append((name, gradient)))


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))


def test_a_module_that_two_sinks_listen_to_has_one_hook(model: nn.Module) -> None:
    first, second = Sink(), Sink()
    first.tap.attach({"a": model[0], "b": model[1]})
    second.tap.attach({"other": model[0]})
    assert [len(part._forward_hooks) for part in model] == [1, 1]
    model(torch.rand(2, 3))
    assert first.calls == [("a", 1), ("b", 1)] and second.calls == [("other", 1)]


def test_one_that_leaves_takes_nothing_from_the_other(model: nn.Module) -> None:
    first, second = Sink(), Sink()
    first.tap.attach({"a": model[0]})
    second.tap.attach({"a": model[0]})
    first.tap.end()
    model(torch.rand(2, 3))
    second.tap.end()
    assert not first.calls and second.calls == [("a", 1)] and hooks_of(model) == 0


def test_one_that_comes_later_counts_its_own_calls(model: nn.Module) -> None:
    first, second = Sink(), Sink()
    first.tap.attach({"a": model[0]})
    model(torch.rand(2, 3))
    second.tap.attach({"a": model[0]})
    model(torch.rand(2, 3))
    assert first.calls == [("a", 1), ("a", 2)] and second.calls == [("a", 1)]


def test_a_tensor_that_two_sinks_and_two_modules_have_in_hand_has_one_hook(model: nn.Module) -> None:
    first, second = Sink(), Sink()
    for sink in (first, second):
        sink.tap.attach({"1": model[1], "whole": model})
    out = model(torch.rand(2, 3))
    assert len(out._backward_hooks) == 1
    out.sum().backward()
    for sink in (first, second):
        assert [(name, gradient.tolist()) for name, gradient in sink.gradients] == [
            ("1", [[1, 1], [1, 1]]), ("whole", [[1, 1], [1, 1]]),
        ]  # fmt: skip


def test_what_is_written_in_place_has_a_hook_for_each_of_its_gradients() -> None:
    model, sink = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), Sink()
    sink.tap.attach({"0": model[0], "1": model[1]})
    (model(-torch.ones(1, 3) * 1e3) * 2).sum().backward()
    before = {name: gradient.tolist() for name, gradient in sink.gradients}
    assert before["1"] == [[2, 2, 2]] and before["0"] != before["1"]


def test_a_leaf_keeps_no_hook_when_its_followers_are_gone() -> None:
    model, x, first, second = nn.Identity(), torch.ones(2, requires_grad=True), Sink(), Sink()
    for sink in (first, second):
        sink.tap.attach({"x": model})
    model(x)
    first.tap.release()
    x.sum().backward()
    assert not first.gradients and len(second.gradients) == 1
    second.tap.release()
    assert not x._backward_hooks


def test_a_sink_that_fails_is_told_and_the_other_gets_its_value(model: nn.Module) -> None:
    broken, well = Sink(), Sink()
    broken.take = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    broken.tap = PassTap(broken.take, lambda name, error: broken.failures.append(f"{name}: {error}"))
    for sink in (broken, well):
        sink.tap.attach({"a": model[0]})
    assert model(torch.rand(2, 3)).shape == (2, 2)
    assert broken.failures == ["a: division by zero"] and well.calls == [("a", 1)]


class Peeks(nn.Linear):
    """Counts the hooks on itself while it runs."""

    seen: list[int]

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(self._forward_hooks))
        return super().forward(x)


@pytest.fixture
def peeking() -> Iterator[tuple[nn.Module, list[int]]]:
    parts: Any = nn.Sequential(Peeks(4, 4), nn.Sequential(Peeks(4, 4), nn.ReLU()), Peeks(4, 2))
    seen: list[int] = []
    for part in parts.modules():
        part.seen = seen
    yield parts, seen


@pytest.mark.parametrize("order", ["watch first", "page first"])
def test_with_a_watch_and_a_page_a_module_has_one_hook(peeking: Any, order: str) -> None:
    model, seen = peeking

    def step() -> None:
        seen.clear()
        model(torch.rand(3, 4)).sum().backward()

    def page() -> Any:
        return tl.live(model, open_server=False)

    probed, view = (Probed(model), page()) if order == "watch first" else (page(), Probed(model))[::-1]
    with view, probed, Viewer(view.host, ALL) as viewer:
        for _ in range(4):  # the first describes the network
            step()
        assert len(viewer.moments(2)) >= 2 and seen == [1, 1, 1]
    step()
    assert seen == [0, 0, 0] and hooks_of(model) == 0 and "forward" not in vars(model)
    assert ("0", "output", 3) in probed.values() and not probed.problems and not view.problems
