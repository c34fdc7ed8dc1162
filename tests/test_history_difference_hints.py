"""What `compare` says of a difference, and of what is none: uninitialised memory, weights, zeros, NaN, edits."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import Comparison
from seams import describe_patterns as describe_numbers
from seams import difference_of_arrays as difference
from tiny_transformers import tiny
from torch import Tensor, nn

import torcheer as tl

NAN = float("nan")
WORDS = torch.arange(24.0).reshape(4, 6).sin() + 1.5


class Function(nn.Module):
    """A model of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def recorded(model: nn.Module | Callable[..., Any], inputs: Any = WORDS, **settings: Any) -> tl.ModelHistory:
    with torch.no_grad():
        return tl.log_forward_pass(model if isinstance(model, nn.Module) else Function(model), inputs, **settings)


def compared(first: Callable[..., Any], second: Callable[..., Any]) -> Comparison:
    return recorded(first).compare(recorded(second))


def empty(*shape: int) -> Tensor:
    """Return memory that nothing has written, as far as torch knows: it holds one byte everywhere."""
    memory = torch.empty(shape)
    ctypes.memset(memory.data_ptr(), held[0], memory.nbytes)
    return memory


held = [0]


def with_memory(function: Callable[..., Any], byte: int) -> tl.ModelHistory:
    held[0] = byte
    return recorded(function)


# uninitialised memory


def leave_unwritten(x: Tensor) -> tuple[Tensor, ...]:
    part = empty(4, 6)
    part[1] = x[1]
    picked = empty(4, 6)
    picked[torch.tensor([0, 3, 2, 1])] = x
    return empty(4, 6), part, part[2:], picked.clone(), x + 1


def test_what_uninitialised_memory_holds_is_no_difference() -> None:
    first, second = with_memory(leave_unwritten, 1), with_memory(leave_unwritten, 2)
    assert not torch.equal(first["empty_3"].tensor_contents, second["empty_3"].tensor_contents)
    comparison = first.compare(second)
    assert comparison and comparison.first_difference is None and not comparison.divergences
    assert "uninitialised memory" in str(comparison).partition("\n")[0]
    assert {row.label.rpartition("_")[0]: row.status for row in comparison}["empty_3"] == "uninitialised memory"


def test_what_is_written_beside_uninitialised_memory_is_compared() -> None:
    def wrong(x: Tensor) -> tuple[Tensor, ...]:
        part = empty(4, 6)
        part[1] = x[1] * 3
        return (part,)

    def right(x: Tensor) -> tuple[Tensor, ...]:
        part = empty(4, 6)
        part[1] = x[1] * 2
        return (part,)

    comparison = with_memory(right, 1).compare(with_memory(wrong, 2))
    assert comparison.first_difference == "mul_1_3"
    assert "They part at mul_1_3:" in str(comparison) and "1.5 times the first" in str(comparison)


def test_memory_that_holds_what_is_written_next_is_no_difference_either() -> None:
    def fill(x: Tensor) -> Tensor:
        out = empty(4, 6)
        out[torch.arange(4)] = torch.zeros_like(x)
        return out + x

    assert with_memory(fill, 0).compare(with_memory(fill, 7))
    other = with_memory(lambda x: fill(x * 1), 7)  # another program: matched by numbers
    assert not with_memory(fill, 0).compare(other).divergences


def test_an_operation_that_reads_uninitialised_memory_is_named() -> None:
    first, second = (with_memory(lambda x: empty(4, 6) * x, number) for number in (0, 60))
    assert "mul_1_2 of the second reads uninitialised memory: empty_1_1" in str(first.compare(second))


@pytest.mark.filterwarnings("ignore")
def test_a_mixtral_compared_with_itself_is_equal_and_with_another_parts_where_a_weight_does() -> None:
    model, inputs = tiny("Mixtral")
    first = recorded(model, inputs)
    with torch.no_grad():
        torch.full((1 << 12,), 7.3)  # what the next empty_like finds
    assert first.compare(recorded(model, inputs))
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight.mul_(1.1)  # type: ignore[union-attr, index, operator]
    comparison = first.compare(recorded(model, inputs))
    assert comparison.first_difference is not None and comparison.first_difference.startswith("linear_")
    assert "q_proj.weight of the second holds other numbers than that of the first: 1.1 times the first" in str(
        comparison
    )


# weights


@pytest.fixture(scope="module")
def gpt2() -> tuple[Any, Any, tl.ModelHistory]:
    model, inputs = tiny("GPT-2")
    return model, inputs, recorded(model, inputs)


def changed(gpt2: tuple[Any, Any, tl.ModelHistory], change: Callable[[Any], object]) -> Comparison:
    model, inputs, first = gpt2
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other.transformer)
    return first.compare(recorded(other, inputs))


def query(layer: Any) -> Tensor:
    weight = layer.attn.c_attn.weight
    return weight[:, : len(weight)]  # type: ignore[no-any-return]


def test_a_transposed_q_inside_a_fused_weight_is_said_with_its_place(gpt2: Any) -> None:
    comparison = changed(gpt2, lambda net: query(net.h[0]).copy_(query(net.h[0]).T.clone()))
    assert comparison.divergence and comparison.divergence.op and comparison.divergence.op.label.startswith("addmm_1_")
    assert (
        "transformer.h.0.attn.c_attn.weight of the second holds other numbers than that of the first "
        "in columns 0 to 31 of 96 (part 1 of 3): the first with its axes exchanged to (1, 0) (transposed)"
    ) in comparison.divergence.hints
    assert ", but what is made of it agrees" not in str(comparison)  # k and v do, q does not


def test_a_permuted_q_inside_a_fused_weight_is_said_with_its_place(gpt2: Any) -> None:
    comparison = changed(gpt2, lambda net: query(net.h[1]).copy_(query(net.h[1])[:, torch.arange(32).flip(0)]))
    assert "in columns 0 to 31 of 96 (part 1 of 3): the first, reversed along axis 1" in str(comparison)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    comparison = changed(gpt2, lambda net: query(net.h[1]).copy_(query(net.h[1])[order]))
    assert "in columns 0 to 31 of 96 (part 1 of 3): the first with its rows in another order" in str(comparison)


def test_a_transposed_conv1d_weight_is_said_to_be(gpt2: Any) -> None:
    comparison = changed(gpt2, lambda net: net.h[0].attn.c_proj.weight.copy_(net.h[0].attn.c_proj.weight.T.clone()))
    assert "c_proj.weight of the second holds other numbers than that of the first: the first with its axes" in str(
        comparison
    )


def test_one_number_of_a_weight_is_found(gpt2: Any) -> None:
    comparison = changed(gpt2, lambda net: net.h[1].mlp.c_fc.weight[3, 4].add_(1))
    assert "c_fc.weight of the second holds other numbers than that of the first in 1 of 4,096 numbers" in str(
        comparison
    )


def test_the_missing_final_norm_of_gpt2_is_said_to_be_left_out(gpt2: Any) -> None:
    comparison = changed(gpt2, lambda net: setattr(net, "ln_f", nn.Identity()))
    assert "the second leaves out layernorm_5_90: it goes on from add_10_89" in str(comparison)


def test_the_missing_norm_of_a_sequential_is_left_out_and_its_relu_no_other_function() -> None:
    layers = [nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)]
    first = recorded(nn.Sequential(*layers))
    comparison = first.compare(recorded(nn.Sequential(layers[0], *layers[2:])))
    assert "the second leaves out layernorm_1_2: it goes on from linear_1_1" in str(comparison)
    assert "another function" not in str(comparison)


@pytest.mark.filterwarnings("ignore")
def test_a_transposed_q_of_llama_is_said_to_be() -> None:
    model, inputs = tiny("Llama")
    first = recorded(model, inputs)
    model = copy.deepcopy(model)
    with torch.no_grad():
        weight = model.model.layers[0].self_attn.q_proj.weight  # type: ignore[union-attr, index]
        weight.copy_(weight.T.clone())  # type: ignore[operator, union-attr]
    comparison = first.compare(recorded(model, inputs))
    assert comparison.divergence and comparison.divergence.op and comparison.divergence.op.record.name == "linear"
    assert "q_proj.weight of the second" in str(comparison) and "(transposed)" in str(comparison)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m[2].weight.zero_(), "2.weight of the second holds other numbers than that of the first: all zero"),
        (lambda m: m[2].bias.zero_(), "2.bias of the second holds other numbers than that of the first: all zero"),
        (lambda m: m[2].weight[1].fill_(NAN), "in row 1 of 3: NaN in 0 places against 8"),
        (lambda m: m[0].weight.mul_(-2), "0.weight of the second holds other numbers than that of the first: -2 times"),
        (lambda m: m[0].reset_parameters(), "0.weight of the second holds other numbers than that of the first"),
    ],
)
def test_a_weight_with_other_numbers_is_named_with_its_side(change: Callable[[Any], object], text: str) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    assert text in str(recorded(model).compare(recorded(other)))


def test_a_weight_that_was_rounded_is_not_said_to_hold_other_numbers() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    other = copy.deepcopy(model).bfloat16().float()
    assert "holds other numbers" not in str(recorded(model).compare(recorded(other)))


# numbers


NUMBERS = np.sin(np.arange(24.0).reshape(4, 6)) + 2
LARGE = "+∞ or numbers as large"
HALF = np.arange(6) < 3


@pytest.mark.parametrize(
    ("first", "second", "hints"),
    [
        (NUMBERS, NUMBERS * 0, ["the second is all zero"]),
        (NUMBERS * 0, NUMBERS, ["the first is all zero"]),
        (NUMBERS, NUMBERS * NAN, ["NaN in 0 places against 24"]),
        (NUMBERS, np.where(HALF, NUMBERS, NAN), ["NaN in 0 places against 12", "equal elsewhere"]),
        (np.where(HALF, NUMBERS, NAN), np.where(HALF, NAN, NUMBERS), ["NaN in 12 places against 12 others"]),
        (NUMBERS, np.where(HALF, NUMBERS * 3, np.inf), [f"{LARGE} in 0 places against 12", "3 times the first"]),
        (np.where(HALF, NUMBERS, np.inf), np.where(HALF, NUMBERS, -np.inf),
         [f"{LARGE} in 12 places against 0", f"{LARGE.replace('+', '-')} in 0 places against 12", "equal elsewhere"]),
        (NUMBERS > 2, NUMBERS > 2.5, ["true in 12 of 24 places against 8"]),
        (np.arange(12), np.arange(12) + 2, ["shifted by 2"]),
        (np.arange(12), np.arange(12) % 7, ["5 of 12 whole numbers differ"]),
        (np.arange(12), np.arange(12) * 0, ["the second is all zero"]),
        (NUMBERS, NUMBERS * HALF, ["zero in 3 of 6, equal in the others: by place of axis 1"]),
        (NUMBERS, NUMBERS * (NUMBERS > 2.5), ["zero in 67% of the places, equal elsewhere"]),
        (NUMBERS, NUMBERS * (1 + 3e-7), ["(1 + 3e-07) times the first"]),
        (NUMBERS, NUMBERS[[1, 3, 2, 0]], ["the first with its rows in another order"]),
        (NUMBERS, NUMBERS * np.arange(1, 7),
         ["times a factor for each place of axis 1 (1 to 6), as another eps or scale gives"]),
        (NUMBERS, NUMBERS, []),
        (NUMBERS[:0], NUMBERS[:0], []),
    ],
)  # fmt: skip
def test_a_hint_says_what_the_numbers_are(first: Any, second: Any, hints: list[str]) -> None:
    assert list(describe_numbers(first, second, 1e-9, [], {})) == hints


def test_a_complex_factor_is_said_to_be_one() -> None:
    assert "hint:    0+1j times the first" in str(compared(lambda x: x * (1 + 0j), lambda x: x * 1j))
    assert "hint:    the complex conjugate of the first" in str(
        compared(lambda x: (x * (1 + 2j)) + x, lambda x: (x * (1 - 2j)) + x)
    )


def test_whole_numbers_have_no_rounding() -> None:
    comparison = compared(lambda x: x.argmax(-1), lambda x: x.argmin(-1))
    assert comparison.divergence is not None and comparison.divergence.expected == 0
    assert "rounding explains" not in str(comparison)


def test_a_result_of_one_number_that_differs_does_not_agree() -> None:
    comparison = compared(lambda x: x.sum(), lambda x: x.mean())  # a loss with reduction="sum"
    assert not comparison.agrees
    assert "They part at output_1_2" in str(comparison)


def test_dropout_is_said_where_what_it_keeps_is_scaled_up() -> None:
    torch.manual_seed(0)
    model = nn.Dropout(0.5)
    words = torch.rand(40, 40) + 1
    comparison = recorded(model.eval(), words).compare(recorded(model.train(), words))
    assert "2 times the first elsewhere, as dropout leaves it" in str(comparison)


def test_large_integers_are_compared_exactly() -> None:
    row = difference("x", np.array([2**53, 1]), np.array([2**53 + 1, 1]))
    assert (row.status, row.max_abs) == ("different", 1.0)
    assert difference("x", np.array([-(2**63)]), np.array([2**63 - 1])).max_abs == 2.0**64


# edits


def test_an_edited_history_is_said_to_be_edited_and_where() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    first, second = recorded(model), recorded(model, edits={"relu_1": tl.edits.zero()})
    comparison = first.compare(second)
    assert comparison.divergence is not None
    assert comparison.divergence.hints == ("the second was edited at relu_1_2: zeroed",)
    assert "Note on the second: edited at relu_1_2 (zeroed)" in str(comparison)
    assert "eps" not in str(comparison)
    assert "Note on both: edited at relu_1_2 (zeroed)" in str(
        second.compare(recorded(model, edits={"relu_1": tl.edits.zero()}))
    )


def test_an_edit_that_is_downstream_of_another_difference_is_noted_all_the_same(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    recorded(model, edits={"relu_1": lambda value: value * 3}).save(tmp_path / "edited")
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.mul_(2)  # type: ignore[operator, union-attr]
    shown = str(tl.load(tmp_path / "edited").compare(recorded(other)))
    assert "They part at linear_1_1" in shown and "Note on the first: edited at relu_1_2 (by a function)" in shown
