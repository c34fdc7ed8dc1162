"""Where NaN and infinity begin in a history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_transformers import ARCHITECTURES, tiny
from torch import Tensor, nn
from torch.nn import functional

import torcheer as tl
from torcheer.errors import ValueUnavailable

NAN, INF = float("nan"), float("inf")


class Function(nn.Module):
    """A model of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def recorded(function: Any, *inputs: Tensor, **settings: Any) -> tl.ModelHistory:
    return tl.log_forward_pass(Function(function), inputs, **settings)


@contextmanager
def unwritten_memory_is_nan() -> Iterator[None]:
    before = torch.utils.deterministic.fill_uninitialized_memory, torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = before[0]
        torch.use_deterministic_algorithms(before[1])


def label(op: Any) -> str | None:
    return op and op.layer_label.rpartition("_")[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_nan_in_each_of_ten_weights_is_found_where_it_is_first_read(name: str) -> None:
    model, inputs = tiny(name)
    with unwritten_memory_is_nan():  # as memory may be: Mixtral leaves some
        clean = tl.log_forward_pass(model, inputs)
        assert (clean.first_nan(), clean.first_inf()) == (None, None)
        tables = ("embed", "shared", "wte", "wpe")  # of which few rows are read
        weights = [(name, p) for name, p in model.named_parameters() if not any(table in name for table in tables)]
        assert len(weights) >= 10
        for parameter, weight in weights[1 :: len(weights) // 10][:10]:
            kept = weight.detach().clone()
            weight.data.view(-1)[weight.numel() // 8] = NAN
            culprit = tl.log_forward_pass(model, inputs).first_nan()
            weight.data.copy_(kept)
            assert culprit is not None, parameter
            assert parameter in [stored.name for stored in culprit.stored], (parameter, culprit.label)


def test_infinities_that_a_mask_adds_are_no_fault() -> None:
    def attend(q: Tensor) -> Tensor:
        mask = torch.full((4, 4), -INF).triu(1)
        scores = (q @ q.T + mask).masked_fill(torch.eye(4, dtype=torch.bool).roll(1, 0), -INF)
        return scores.softmax(-1) @ q

    history = recorded(attend, torch.randn(4, 4))
    assert (history.first_nan(), history.first_inf()) == (None, None)


def test_an_overflow_beside_a_mask_is_the_first_infinity_and_what_it_becomes_the_first_nan() -> None:
    def attend(q: Tensor) -> Tensor:
        scores = (q * 1e30) @ (q * 1e30).T
        return scores.masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), -INF).softmax(-1)

    history = recorded(attend, torch.ones(4, 4))
    assert (label(history.first_inf()), label(history.first_nan())) == ("matmul_1", "softmax_1")


def test_a_row_that_is_masked_as_a_whole_is_found_by_its_nan_and_its_mask() -> None:
    history = recorded(lambda x: x.masked_fill(x < 2, -INF).softmax(-1), torch.ones(2, 3))
    assert (label(history.first_inf()), label(history.first_nan())) == ("maskedfill_1", "softmax_1")


def test_nan_and_infinity_that_are_masked_out_again_are_passed_over() -> None:
    def safe(x: Tensor) -> Tensor:
        return torch.where(x > 0, x.log(), 0.0) + (x / x).nan_to_num() + x.exp()

    history = recorded(safe, torch.tensor([0.0, -1.0, 2.0]))
    assert (history.first_nan(), history.first_inf()) == (None, None)


def test_a_nan_that_nothing_masks_wins_over_an_earlier_one_that_is_masked_out() -> None:
    history = recorded(lambda x: (x.sqrt().nan_to_num() - 1).log(), torch.tensor([-4.0, 0.5]))
    assert label(history.first_nan()) == "log_1"


def test_a_nan_in_the_input_is_the_inputs_own() -> None:
    history = recorded(lambda x, y: x + y, torch.ones(2), torch.tensor([1.0, NAN]))
    assert label(history.first_nan()) == "input_2"


def test_a_nan_that_a_kernel_swallows_or_a_choice_hides_is_found() -> None:
    history = recorded(lambda x: (x / x).argmax(), torch.zeros(3))
    assert label(history.first_nan()) == "div_1"
    q = torch.full((1, 1, 4, 8), NAN)
    history = recorded(lambda q: functional.scaled_dot_product_attention(q * 1, q.nan_to_num(), q.nan_to_num()), q)
    assert label(history.first_nan()) == "input_1"  # on some machines attention returns numbers all the same


def test_an_infinity_in_the_results_is_found_unless_it_was_put_there() -> None:
    assert label(recorded(lambda x: (x * 100).exp() + 1, torch.ones(2)).first_inf()) == "exp_1"
    assert recorded(lambda x: x.masked_fill(x > 0, -INF) + 0, torch.ones(2)).first_inf() is None


def test_an_infinite_weight_is_found_where_it_makes_infinity_and_nan_at_once() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(3, 2), nn.LayerNorm(2))
    model[1].weight.data[0, 0] = INF
    history = tl.log_forward_pass(model, torch.tensor([[1.0, 1, 1], [-1, 1, 1]]))  # infinity; 0 times infinity
    assert (label(history.first_inf()), label(history.first_nan())) == ("linear_1", "linear_1")


def test_uninitialised_memory_is_passed_over_until_it_is_written() -> None:
    def fill(x: Tensor) -> tuple[Tensor, ...]:
        part = torch.empty(4, 3)
        part[:2] = x[0]
        out = torch.empty_like(x)
        torch.mul(x, 2, out=out)
        return part, part.view(-1), part[2:], torch.empty_like(x).copy_(x), out, x.new(3)

    with unwritten_memory_is_nan():
        assert recorded(fill, torch.ones(3)).first_nan() is None
        assert label(recorded(fill, torch.tensor([NAN, 1, 1])).first_nan()) == "input_1"
        history = recorded(lambda x: torch.empty_like(x).copy_(x.log()) + 1, torch.full((2,), -1.0))
        assert label(history.first_nan()) == "log_1"  # though memory held the same NaN before


def test_reading_uninitialised_memory_is_the_first_nan_where_numbers_meet_it() -> None:
    with unwritten_memory_is_nan():
        assert label(recorded(lambda x: x + torch.empty_like(x), torch.ones(2)).first_nan()) == "add_1"


def test_values_that_decide_but_were_not_saved_are_named() -> None:
    def broken(x: Tensor) -> Tensor:
        return ((x * 1).log() * 1).relu()

    history = recorded(broken, torch.full((2,), -1.0), layers_to_save=["relu_1"])
    with pytest.raises(
        ValueUnavailable, match=r"relu_1_4 holds NaN, but whether it begins there is not known.*mul_2_3"
    ):
        history.first_nan()
    history = recorded(broken, torch.ones(2), layers_to_save=["mul_1"])
    with pytest.raises(ValueUnavailable, match=r"none was found in what was saved, but .*output_1_5 was not"):
        history.first_nan()
    history = recorded(broken, torch.ones(2), layers_to_save=["output_1"])
    assert history.first_nan() is None


def test_a_history_from_a_file_finds_the_same_nan(tmp_path: Path) -> None:
    recorded(lambda x: x.log() + 1, torch.full((2,), -1.0)).save(tmp_path / "run")
    assert label(tl.load(tmp_path / "run").first_nan()) == "log_1"


def test_a_recorded_training_step_names_the_nan_of_its_loss() -> None:
    model = nn.Linear(3, 2)
    with tl.recording(model) as history:
        loss = (model(torch.ones(1, 3)) * 0).log().sum() * 0
    assert torch.isnan(loss)
    assert (label(history.first_inf()), label(history.first_nan())) == ("log_1", "mul_2")
