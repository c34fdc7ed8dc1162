"""Every dtype of the one table is known wherever a dtype matters: nothing has a table of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from message_types import page_files
from safetensors.torch import save_file
from seams import (
    BLOCKS,
    DTYPES,
    FLOATS,
    Checkpoints,
    Dtype,
    describe_sample,
    encode,
    from_bytes,
    numbers,
    numbers_of,
    read_media,
)
from torch import nn

import torcheer as tl
from torcheer.records import Sample


def of_every_dtype(*, without: tuple[str, ...] = ()) -> Any:
    return pytest.mark.parametrize(
        "dtype", [row for row in DTYPES.values() if row.name not in without], ids=lambda dtype: dtype.name
    )


CONVERTED = [row for row in FLOATS.values() if row.numbers == 1]  # torch does not convert numbers to packed types
of_every_float = pytest.mark.parametrize("dtype", CONVERTED, ids=lambda dtype: dtype.name)


def in_torch(dtype: Dtype) -> Any:
    return getattr(torch, dtype.name)


def some_bytes(dtype: Dtype) -> torch.Tensor:
    """A tensor of (2, 6) elements whose numbers are all finite."""
    if dtype.name == "bool":
        return torch.tensor([[0, 1] * 3] * 2, dtype=torch.bool)
    top = 56 if dtype.kind in ("float", "complex") else 100
    pattern = (torch.arange(12 * dtype.bytes) * 7 % top).to(torch.uint8)
    return pattern.view(in_torch(dtype)).reshape(2, 6)


def as_numbers(tensor: torch.Tensor) -> list[Any]:
    """What torch says that its numbers are; of the packed type, which it cannot convert, what ml_dtypes says."""
    if tensor.dtype == torch.float4_e2m1fn_x2:
        bits = tensor.view(torch.uint8).numpy()
        halves = np.stack([bits & 15, bits >> 4], -1).reshape(*bits.shape[:-1], -1)
        return halves.view(ml_dtypes.float4_e2m1fn).astype(float).tolist()
    return (tensor.double() if tensor.is_floating_point() else tensor).tolist()


def test_every_dtype_of_torch_that_holds_numbers_is_in_the_table_or_known_to_be_missing() -> None:
    known = {str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)}
    missing = {name for name in known - set(DTYPES) if not name.startswith(("int", "uint", "bits", "q"))}
    assert missing == {"complex32"}
    assert set(DTYPES) <= known


@of_every_dtype()
def test_a_dtype_is_as_large_as_torch_says_and_of_the_same_kind(dtype: Dtype) -> None:
    theirs = in_torch(dtype)
    assert (dtype.bytes, dtype.array_type.itemsize) == (theirs.itemsize, theirs.itemsize)
    assert (dtype.kind == "float", dtype.kind == "complex") == (theirs.is_floating_point, theirs.is_complex)
    assert dtype.kind not in ("int", "uint") or (dtype.kind == "int") == theirs.is_signed


@of_every_float
def test_the_rounding_unit_is_half_a_step_from_one(dtype: Dtype) -> None:
    bits = getattr(torch, f"int{8 * dtype.bytes}")
    one = torch.tensor([1.0]).to(in_torch(dtype)).view(bits)
    after_one = (one + 1).view(in_torch(dtype)).double().item()
    assert after_one - 1 == 2 * dtype.rounding_unit


@of_every_dtype()
def test_a_tensor_goes_to_bytes_and_back(dtype: Dtype) -> None:
    tensor = some_bytes(dtype)
    descriptor, payload = encode(Sample(0, "a", "output", array=tensor))
    assert descriptor["type"] == dtype.name
    array = numbers_of(dtype.name, from_bytes(dtype.name, tuple(descriptor["shape"]), payload))
    assert array.astype(complex).tolist() == np.array(as_numbers(tensor), complex).tolist()


@of_every_dtype(without=("complex128",))
def test_a_dtype_is_called_what_safetensors_calls_it(dtype: Dtype, tmp_path: Path) -> None:
    tensor = some_bytes(dtype)
    save_file({"a": tensor}, tmp_path / "a.safetensors")
    header = json.loads((tmp_path / "a.safetensors").read_bytes()[8:].partition(b"}}")[0] + b"}}")
    assert header["a"]["dtype"] == dtype.safetensors
    read = tl.load(tmp_path / "a.safetensors")["a"]
    assert read.type == dtype.name
    assert read.numpy().astype(complex).tolist() == np.array(as_numbers(tensor), complex).tolist()


@of_every_dtype()
def test_torch_save_and_export_and_onnx_are_read(dtype: Dtype, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    tensor = some_bytes(dtype)
    torch.save({"a": tensor}, tmp_path / "a.pt")
    raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    initializer = TensorProto(name="a", dims=dtype.in_numbers(tuple(tensor.shape)), data_type=dtype.onnx, raw_data=raw)
    save(helper.make_model(helper.make_graph([], "g", [], [], [initializer])), tmp_path / "a.onnx")

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", tensor)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    if dtype.pt2 >= 0:
        torch.export.save(torch.export.export(Holds(), (torch.ones(1),)), tmp_path / "a.pt2")
    for name in ("a.pt", "a.onnx", *(["a.pt2"] if dtype.pt2 >= 0 else [])):
        read = tl.load(tmp_path / name)["a"]
        assert (name, read.type) == (name, dtype.name)
        assert read.numpy().astype(complex).tolist() == np.array(as_numbers(tensor), complex).tolist()


@of_every_dtype()
def test_onnx_calls_a_dtype_by_its_number(dtype: Dtype) -> None:
    from onnx import TensorProto

    theirs = TensorProto.DataType.Name(dtype.onnx).lower()
    names = {"float": "float32", "double": "float64", "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn_x2"}
    assert names.get(theirs, theirs).replace("_", "") == dtype.name.replace("_", "")


def test_gguf_numbers_its_types_and_blocks_once() -> None:
    numbered = [row.gguf for row in (*DTYPES.values(), *BLOCKS.values()) if row.gguf >= 0]
    assert len(numbered) == len(set(numbered)) == 32


class Rounds(nn.Module):
    def __init__(self, dtype: Dtype) -> None:
        super().__init__()
        self.dtype = in_torch(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype).to(torch.float32)


@pytest.mark.parametrize("dtype", [row for row in CONVERTED if row.bytes < 4], ids=lambda dtype: dtype.name)
def test_two_passes_are_allowed_the_rounding_of_their_dtype(dtype: Dtype) -> None:
    x = torch.linspace(1, 4, 64)
    comparison = tl.log_forward_pass(Rounds(dtype), x).compare(tl.log_forward_pass(nn.Identity(), x))
    assert comparison.precision == dtype.name


@of_every_float
def test_an_image_may_be_of_any_float(dtype: Dtype) -> None:
    (media,) = read_media("a", tl.Image(torch.ones(4, 4).to(in_torch(dtype))))
    assert media.kind == "image" and str(media.array.dtype).endswith(dtype.name)


@of_every_float
def test_the_weights_of_a_checkpoint_may_be_of_any_float(dtype: Dtype, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "3"
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").write_text("{}")
    save_file({"w": torch.ones(2, 2).to(in_torch(dtype))}, folder / "model.safetensors")
    checkpoints = Checkpoints(tmp_path)
    checkpoints.refresh()
    weights = checkpoints.weights(3, "w")
    assert weights is not None and weights.astype(float).tolist() == [[1, 1], [1, 1]]


@of_every_dtype()
def test_a_table_a_log_and_a_video_take_tensors_of_any_dtype(dtype: Dtype) -> None:
    tensor = some_bytes(dtype)
    if dtype.kind != "complex":
        table = tl.studio.Table({"a": [tensor, tensor]})
        assert table["a"][0].tolist() == as_numbers(tensor)
    assert f"2×{6 * dtype.numbers}" in describe_sample({"a": tensor}).text
    drawn, _ = numbers(tensor)
    assert drawn.shape == dtype.in_numbers((2, 6))


def test_the_page_writes_as_many_digits_as_a_float_has() -> None:
    text = page_files()["vocabulary.ts"]
    for dtype in FLOATS.values():
        assert (f"  {dtype.name}: [{dtype.fraction_bits + 1}, " in text) == (dtype.fraction_bits > 0)


@of_every_dtype()
def test_a_pass_that_returns_a_dtype_is_read_and_saved(dtype: Dtype, tmp_path: Path) -> None:
    class Views(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(in_torch(dtype))

    tensor = some_bytes(dtype)
    history = tl.log_forward_pass(Views(), tensor.view(torch.uint8))
    history.save(tmp_path / "pass")
    for each in (history, tl.load(tmp_path / "pass")):
        layer = each[-2]
        assert (layer.dtype, layer.shape) == (f"torch.{dtype.name}", (2, 6)), layer
        assert dtype.name in str(layer)
        assert torch.equal(torch.as_tensor(layer.tensor_contents).view(torch.uint8), tensor.view(torch.uint8))
