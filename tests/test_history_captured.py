"""Histories of real captures: layers, values of every kind, FLOPs against torch's own counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from models import DoesWith
from seams import excerpt, to_numpy
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import torcheer as tl
from torcheer.errors import ValueUnavailable


def passes(model: nn.Module, *inputs: torch.Tensor) -> dict[str, int]:
    history = tl.log_forward_pass(model, inputs)
    return {layer.key: len(layer) for layer in history.layers if layer.name not in ("input", "output")}


X = torch.rand(2, 4)


def test_a_module_and_a_function_in_a_loop_are_one_layer_each() -> None:
    def forward(self: DoesWith, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = torch.relu(self.fc(x))
        return x

    assert passes(DoesWith(forward, fc=nn.Linear(4, 4)), X) == {"linear_1": 5, "relu_1": 5}


def test_a_recurrence_without_modules_is_rolled() -> None:
    def forward(self: DoesWith, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            h = torch.tanh(h + x)
        return h

    assert passes(DoesWith(forward), X, X.clone()) == {"add_1": 4, "tanh_1": 4}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("relu_first", [True, False])
def test_a_relu_in_a_loop_over_different_layers_is_different_relus(count: int, relu_first: bool) -> None:
    def forward(self: DoesWith, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:  # type: ignore[union-attr]
            x = layer(torch.relu(x)) if relu_first else torch.relu(layer(x))
        return x

    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))
    assert set(passes(DoesWith(forward, layers=layers), X).values()) == {1}


def test_a_shared_relu_module_between_different_layers_is_different_relus() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu)
    assert passes(model, X) == {"linear_1": 1, "relu_1": 1, "linear_2": 1, "relu_2": 1}


def test_a_reused_block_repeats_all_its_layers() -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    assert passes(nn.Sequential(block, block, block), X) == {"linear_1": 3, "relu_1": 3, "linear_2": 3}


def test_a_gated_cell_over_a_sequence_is_rolled() -> None:
    def forward(self: DoesWith, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(2, 4)
        for t in range(6):
            i, f, g, o = (self.a(x[:, t]) + self.b(h)).chunk(4, 1)  # type: ignore[operator]
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h

    model = DoesWith(forward, a=nn.Linear(4, 16), b=nn.Linear(4, 16))
    found = passes(model, torch.rand(2, 6, 4))
    repeated = {name: count for name, count in found.items() if count > 1}
    assert set(repeated.values()) == {6}
    assert len(repeated) == 13
    assert [name for name, count in found.items() if count == 1] == [
        "zeros_1",
        *(f"getitem_{k}" for k in range(1, 7)),
    ]


def test_attention_opened_to_its_operations_is_not_a_loop() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert set(passes(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.rand(2, 5, 8)).values()) == {1}


# FLOPs

MATRIX_PRODUCTS = {
    "linear", "matmul", "bmm", "mm", "addmm", "baddbmm", "einsum", "conv1d", "conv2d", "conv3d", "conv_transpose2d",
    "scaled_dot_product_attention", "__matmul__",
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Linear(4, 7), (3, 5, 4)),
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
        (nn.Conv2d(4, 8, 3, groups=2, stride=2), (2, 4, 9, 9)),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (2, 4, 5, 5)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
        (DoesWith(lambda self, x: torch.einsum("bi,bj->ij", x, x) @ x.T), (3, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_matrix_products_count_as_torch_counts_them(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.rand(shape)
    model.train()
    with FlopCounterMode(display=False) as counter:
        model(x)
    history = tl.log_forward_pass(model, x)
    counted = sum(op.flops or 0 for op in history if op.name in MATRIX_PRODUCTS)
    assert counted == counter.get_total_flops()
    assert history.modules[""].flops_unknown == 0


# Values


def test_an_excerpt_of_a_tensor_is_torchs_own_text() -> None:
    x = torch.arange(100.0, requires_grad=True).reshape(1, 2, 10, 5)
    assert excerpt(x) == f"{x.detach()[0, 0, :5, :5]}..."
    assert excerpt(torch.tensor(1.5)) == "tensor(1.5000)"
    assert excerpt(torch.empty(0, 3)) == "tensor([], size=(0, 3))"
    assert excerpt(torch.ones(2, dtype=torch.bfloat16)) == "tensor([1., 1.], dtype=torch.bfloat16)"


KINDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": lambda x: x,
    "grad": lambda x: x.requires_grad_(),
    "bfloat16": lambda x: x.bfloat16(),
    "float8": lambda x: x.to(torch.float8_e5m2),
    "sparse": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "bool": lambda x: x.bool(),
    "conjugate": lambda x: x.to(torch.complex64).conj(),
    "transposed": lambda x: x.T,
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8),
    "parameter": nn.Parameter,
    "numpy": lambda x: x.numpy(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_kind_of_value_becomes_an_array_and_an_excerpt(kind: str) -> None:
    value = KINDS[kind](torch.eye(3))
    assert to_numpy(value).astype(complex).real.tolist() == np.eye(3).tolist()
    assert excerpt(value)


def test_values_without_a_corner_are_shown_as_torch_shows_them() -> None:
    assert excerpt(torch.eye(3).to_sparse()).startswith("tensor(indices=")
    assert len(excerpt(torch.eye(900).to_sparse()).splitlines()) <= 15


def test_a_meta_tensor_has_no_values() -> None:
    with pytest.raises(ValueUnavailable, match="meta device"):
        to_numpy(torch.ones(3, device="meta"))
    assert "meta" in excerpt(torch.ones(3, device="meta"))


def test_two_captures_of_one_model_compare_equal_and_a_changed_weight_is_found() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to(torch.bfloat16)
    x = X.to(torch.bfloat16)
    before, again = tl.log_forward_pass(model, x), tl.log_forward_pass(model, x)
    assert before.compare(again)
    with torch.no_grad():
        model[2].bias += 1
    assert before.compare(tl.log_forward_pass(model, x)).first_difference == "linear_2_3"


def test_a_model_called_twice_has_two_passes_of_everything_in_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    x = torch.rand(1, 4)
    with tl.recording(model) as history:
        model(x)
        model(x)
    assert [len(layer.passes) for layer in history.layers if not layer.label.startswith("input")] == [2, 2, 2, 2]


def test_a_list_of_modules_has_the_operations_of_its_items() -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    history = tl.log_forward_pass(Stack(), torch.rand(1, 4))
    assert len(history.modules["blocks"].ops) == 3


def test_a_parameter_shows_its_value_and_unknown_names_the_nearest() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    history = tl.log_forward_pass(model, torch.rand(1, 4))
    assert torch.equal(history.parameters["0.weight"].tensor_contents, model[0].weight)
    with pytest.raises(KeyError, match=r"0\.weight"):
        _ = history.parameters["0.weigth"]
