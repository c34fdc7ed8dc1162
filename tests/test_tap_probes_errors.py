"""Hooks on a model where it is hard: modes, threads, transformations, things that cannot be sent."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from models import Sparse, small
from torch import nn
from torch.utils.checkpoint import checkpoint
from watch_checks import Probed, batch, hooks_of

import torcheer as tl


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_are_no_trouble(mode: Any) -> None:
    model = small()
    with Probed(model) as probed, mode():
        model(batch()[0])
        model(batch()[0])
    assert probed.problems == []
    assert ("5", "output", 1) in probed.values()


def test_a_pass_that_is_computed_again_for_its_backward_is_seen_once() -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.block, x, use_reentrant=False)

    model = Saving()
    with Probed(model) as probed:
        model(torch.rand(3, 2)).sum().backward()
    found = probed.values()
    assert not any(":2" in key[0] for key in found)
    assert probed.problems == []


def test_threads_that_use_a_model_at_once_do_no_harm() -> None:
    model = small()
    errors = []

    def use() -> None:
        try:
            for _ in range(20):
                model(batch()[0]).sum().backward()
        except Exception as error:
            errors.append(error)

    with Probed(model, what=("output", "grad")) as probed:
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert probed.problems == []
    assert hooks_of(model) == 0


@pytest.mark.filterwarnings("ignore")
def test_inside_vmap_and_grad_tensors_are_left_out_with_a_word() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with Probed(model, what="output") as probed:
        torch.vmap(model)(torch.rand(3, 2))
        model(torch.rand(3, 2))
    assert len(probed.problems) == 1 and "transformation" in probed.problems[0]
    assert [key for key in probed.values() if key[1] == "output"] == [("0", "output", 1)]  # a plain pass is seen again


def test_what_cannot_be_sent_is_said_once_and_the_rest_goes_on() -> None:
    model = nn.Sequential(nn.ReLU(), Sparse())
    with Probed(model, what="output") as probed:
        for _ in range(3):
            model(torch.eye(2))
    assert len(probed.problems) == 1
    assert "1 (output) is not sent: a tensor of layout torch.sparse_coo" in probed.problems[0]
    assert {key for key in probed.values()} == {("0", "output", step) for step in range(3)}


def test_a_probe_that_fails_is_taken_off_and_the_model_does_not_notice() -> None:
    class Odd(dict[str, Any]):
        def items(self) -> Any:
            raise ZeroDivisionError("no items today")

    class Returns(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Odd()

    model = nn.Sequential(nn.Linear(2, 2), nn.Identity(), Returns())
    with Probed(model, what="output") as probed:
        for _ in range(3):
            assert isinstance(model(torch.rand(1, 2)), Odd)
    assert probed.problems == ["2 is no longer watched: ZeroDivisionError: no items today"]
    assert ("1", "output", 2) in probed.values()


def test_a_layer_without_a_shape_is_watched_once_it_has_one() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with Probed(model) as probed:
        for _ in range(2):
            model(torch.rand(2, 4)).sum().backward()
    found = probed.values()
    assert ("0.weight", "weight", 0) not in found
    assert ("0.weight", "weight", 1) in found
    assert probed.problems == []


def test_scaled_losses_and_skipped_steps_are_waited_for() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with Probed(model, what=("weight_grad", "update"), every=100) as probed:
        for value in (float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.full((1, 2), value)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    found = probed.values()
    assert np.allclose(found["0.weight", "update", 0], -0.1)
    assert found["0.weight", "weight_grad", 0].tolist() == [[1, 1]]


def test_a_capture_of_a_watched_model_sees_the_model_only() -> None:
    model = small()
    expected = len(tl.log_forward_pass(model, batch()[0]))
    with Probed(model) as probed:
        history = tl.log_forward_pass(model, batch()[0])
    assert len(history) == expected
    assert ("5", "output", 0) in probed.values()


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_traced_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def traced() -> list[str]:
        found = torch.jit.trace(nn.Sequential(model), torch.rand(1, 2), check_trace=False)
        return [node.kind() for node in found.inlined_graph.nodes()]

    expected = traced()
    with Probed(model) as probed:
        assert traced() == expected
    assert not probed.values() and probed.problems == []


def test_users_hooks_on_the_optimizer_are_called_all_the_same() -> None:
    model, calls = nn.Sequential(nn.Linear(2, 1)), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Probed(model, every=1) as probed:
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        for _ in range(3):
            model(torch.rand(1, 2)).sum().backward()
            optimizer.step()
    assert calls == ["before", "after"] * 3
    assert ("0.weight", "update", 2) in probed.values()


def test_an_optimizer_that_is_given_our_weights_late_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)
    with Probed(model, what="update") as probed:
        for step in range(2):
            model(torch.rand(1, 2)).sum().backward()
            optimizer.step()
            if step == 0:
                assert not probed.values()
                optimizer.add_param_group({"params": list(model.parameters())})
        assert {key[0] for key in probed.values()} == {"0.weight", "0.bias"}


def test_passes_after_the_optimizers_step_are_not_taken_for_watched_ones() -> None:
    parts = nn.ModuleDict({"maker": nn.Linear(2, 2), "judge": nn.Linear(2, 1)})
    optimizer = torch.optim.SGD(parts.parameters(), 0.1)
    with Probed(parts, layers="maker", what="output", every=2) as probed:
        for _ in range(2):
            with torch.no_grad():  # so that no gradient tells that the pass is over
                made = parts["maker"](torch.rand(3, 2))
            parts["judge"](made).sum().backward()
            optimizer.step()
    assert set(probed.values()) == {("maker", "output", 0)}
