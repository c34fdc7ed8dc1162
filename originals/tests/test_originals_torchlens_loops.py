"""How passes are counted where TorchLens counts otherwise: each row of the table in docs/migration/torchlens.md."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import Does
from torch import Tensor, nn

import torcheer_originals.torchlens as tl


def straight_line(x: Tensor) -> Tensor:
    x = x + 1
    x = x * 2
    x = x + 1
    x = x * 2
    return x


def beside_a_loop(x: Tensor) -> Tensor:
    while x.mean() < 3:
        x = x + torch.ones(x.shape)
    return x


def list_from_outside(*parts: Tensor) -> Tensor:
    total = torch.zeros(2, 4)
    for part in parts:
        total = torch.sin(total + part)
    return total


def written_in_place(x: Tensor) -> Tensor:
    x = x.clone()
    for _ in range(4):
        x += 1
    return x


def body_that_takes_turns(x: Tensor) -> Tensor:
    for turn in range(4):
        x = torch.relu(x) if turn % 2 else torch.tanh(x)
        x = x + 1
    return x


def loop_inside_a_loop(x: Tensor) -> Tensor:
    state = torch.zeros_like(x)
    for _ in range(4):
        level, total = state - x, torch.zeros_like(x)
        for divisor in (2.0, 4.0, 8.0):
            total = total + torch.sin(level / divisor)
            level = level * 0.5
        state = state + torch.tanh(total)
    return state


X = torch.full((2, 4), 0.5)
PROGRAMS: dict[str, tuple[Any, Any, dict[str, list[int]]]] = {
    "no loop at all": (straight_line, X, {"add": [1, 1], "mul": [1, 1]}),
    "beside a loop": (beside_a_loop, X, {"add": [3], "ones": [1] * 3, "mean": [1] * 4}),
    "a list of tensors from outside": (list_from_outside, (X, X + 1, X + 2), {"input": [1, 1, 1], "add": [1, 1, 1]}),
    "a loop that writes in place": (written_in_place, X, {"add": [4]}),
    "a body that takes turns": (body_that_takes_turns, X, {"add": [4]}),
    "a loop inside a loop": (loop_inside_a_loop, X, {"sin": [4, 4, 4], "mul": [12], "tanh": [4]}),
}


def passes(history: tl.ModelHistory, names: Any) -> dict[str, list[int]]:
    return {name: [len(layer.ops) for layer in history.facts.layers.all if layer.name == name] for name in names}


@pytest.mark.parametrize("name", PROGRAMS)
def test_passes_are_counted_as_the_page_says(name: str) -> None:
    function, inputs, expected = PROGRAMS[name]
    history = tl.log_forward_pass(Does(function), inputs)
    assert passes(history, expected) == expected


class Rescaled(nn.Module):
    """Holds buffers and no parameters, and assigns one of them again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sin(x) * self.factor
        self.factor = x.mean(0)
        return x + 1


class Called(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        x = self.inner(x * 3)
        return self.inner(x - 2)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (Rescaled(), {"sin": [3], "add": [3]}),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {"linear": [3], "relu": [3]}),
        (nn.ReLU(), {"relu": [1, 1, 1]}),
    ],
    ids=["buffers", "parameters", "neither"],
)
def test_all_of_a_module_with_state_that_is_called_again_has_passes(inner: nn.Module, expected: Any) -> None:
    assert passes(tl.log_forward_pass(Called(inner), X), expected) == expected
