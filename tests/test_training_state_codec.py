"""State as tensors and JSON: what goes in comes out, and what cannot is named."""

from __future__ import annotations

import copy
import json
import math
import random
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from seams import ChecksumFile, IsolatedRandom, read_tensors, restore_rng, rng_state, write_tensors
from seams import pack_state as pack
from seams import unpack_state as unpack
from torch import nn

from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError


def through_files(state: Any, path: Path) -> Any:
    """A state that was written and read."""
    tensors, plain = pack(state)
    with open(path, "wb", buffering=0) as file:
        write_tensors(ChecksumFile(file), tensors)
    with open(path, "rb", buffering=0) as file:
        return unpack(read_tensors(ChecksumFile(file), path), json.loads(json.dumps(plain, allow_nan=False)))


def assert_same(found: Any, wanted: Any) -> None:
    """Equal to the last bit, and of the same types."""
    assert type(found) is type(wanted) or (isinstance(wanted, nn.Parameter) and type(found) is torch.Tensor)
    if isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        assert bits(found) == bits(wanted)
    elif isinstance(wanted, (np.ndarray, np.generic)):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes()
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted) and [type(key) for key in found] == [type(key) for key in wanted]
        for key in wanted:
            assert_same(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            assert_same(one, other)
    else:
        assert repr(found) == repr(wanted)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


PLAIN = {
    "nothing": None, "yes": True, "whole": 2**200, "float": 0.1, "nan": math.nan, "infinite": [math.inf, -math.inf],
    "minus zero": -0.0, "complex": complex(1, math.nan), "text": "é\ud800\0", "bytes": b"\0\xff", "empty": [{}, [], ()],
    "tuple": (1, (2, [3])), "keys": {1: "a", "1": "b", (1, "x"): "c", None: "d", False: "e", 2.5: "f"},
    "dollar": {"$": "tensor", "v": "x"}, "ordered": OrderedDict(b=1, a=2), "counter": Counter({30: 1, 80: 2}),
    "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "scalar": [np.float32(1.5), np.float64(0.1), np.int8(-3)],
    "numpy bool": np.bool_(True), "date": np.datetime64("2020-01-01"),
}  # fmt: skip


@pytest.mark.parametrize("key", PLAIN)
def test_what_is_no_tensor_comes_back_as_it_was(key: str, tmp_path: Path) -> None:
    assert_same(through_files({key: PLAIN[key]}, tmp_path / "x"), {key: PLAIN[key]})


DTYPES = [one for one in vars(torch).values() if isinstance(one, torch.dtype)]
KEPT = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float4_e2m1fn_x2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", KEPT, ids=str)
def test_a_tensor_of_every_type_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    raw = torch.arange(96, dtype=torch.uint8)
    tensor = raw % 2 == 0 if dtype == torch.bool else raw.view(dtype)
    state = [tensor.reshape(2, 3, -1), tensor[:0], *([tensor[0]] if dtype != torch.float4_e2m1fn_x2 else [])]
    assert_same(through_files(state, tmp_path / "x"), state)


def test_two_small_floats_alone_are_refused_by_name(tmp_path: Path) -> None:
    packed = torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(BadArgument, match=r"a single element of type torch.float4_e2m1fn_x2"):
        through_files({"a": packed[0]}, tmp_path / "x")


@pytest.mark.filterwarnings("ignore:torch.quantize")
@pytest.mark.parametrize("dtype", [one for one in DTYPES if one not in KEPT], ids=str)
def test_a_tensor_of_another_type_is_refused_by_name(dtype: torch.dtype, tmp_path: Path) -> None:
    try:
        tensor = torch.empty(2, dtype=dtype)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        pytest.skip(f"torch makes none: {error}")
    with pytest.raises(BadArgument, match=r"a\.b"):
        through_files({"a": {"b": tensor}}, tmp_path / "x")


@pytest.mark.parametrize("text", [">f4", "<f8", "|b1", "<c16", "<U3", "|S4", "<M8[ns]", "<u2"])
def test_an_array_keeps_its_type_and_its_byte_order(text: str, tmp_path: Path) -> None:
    array = np.arange(6).astype(text)
    state = {"array": array.reshape(2, 3), "part": array[::2], "empty": array[:0], "one": array.reshape(2, 3)[1, 2]}
    assert_same(through_files(state, tmp_path / "x"), state)


@given(arrays.arrays(arrays.scalar_dtypes().filter(lambda one: one.kind not in "OV" and one.itemsize), (2, 3)))
def test_any_array_comes_back(array: Any) -> None:
    assert_same(unpack(*pack(array)), array)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.booleans() | st.none()


@given(st.recursive(leaves, lambda part: st.lists(part) | st.tuples(part, part) | st.dictionaries(keys, part)))
def test_any_nested_state_comes_back_through_strict_json(state: Any) -> None:
    tensors, plain = pack(state)
    assert_same(unpack(tensors, json.loads(json.dumps(plain, allow_nan=False))), state)


def test_tied_tensors_are_kept_once_and_views_by_their_values(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    state = {"a": whole, "tied": whole, "part": whole[1:, ::2], "turned": whole.t(), "wide": whole[:1].expand(5, 4)}
    tensors, _ = pack(state)
    assert sorted(tensors) == ["a", "part", "turned", "wide"]
    assert_same(through_files(state, tmp_path / "x"), state)


def test_a_model_with_tied_weights_loads_its_state(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
        model[1].weight = model[0].weight
        return model

    model, other = tied(), tied()
    other.load_state_dict(through_files(model.state_dict(), tmp_path / "x"))
    assert torch.equal(other[0].weight, model[0].weight) and other[0].weight is other[1].weight


def test_a_tensor_keeps_the_order_in_which_it_lies_in_memory(tmp_path: Path) -> None:
    tensor = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found = through_files(tensor, tmp_path / "x")
    assert found.stride() == tensor.stride() and torch.equal(found, tensor)


def test_names_that_would_be_one_stay_two(tmp_path: Path) -> None:
    state = {"a": {"b.c": torch.ones(1)}, "a.b": {"c": torch.zeros(1)}, "__metadata__": torch.ones(2)}
    assert_same(through_files(state, tmp_path / "x"), state)


def test_conjugated_and_negated_views_keep_their_values(tmp_path: Path) -> None:
    tensor = torch.randn(3, dtype=torch.complex64)
    state = {"conjugate": tensor.conj(), "negated": tensor.conj().imag}
    found = through_files(state, tmp_path / "x")
    assert torch.equal(found["conjugate"], state["conjugate"]) and torch.equal(found["negated"], state["negated"])


class Told(torch.Tensor):
    """A tensor of somebody's own."""


REFUSED = {
    "function": (math.sin, "builtin_function"), "set": ({1}, "set"), "object": (object(), "object"),
    "array": (np.array([object()]), "numpy.ndarray"), "sparse": (torch.eye(2).to_sparse(), "sparse"),
    "meta": (torch.empty(2, device="meta"), "Tensor"), "module": (nn.Linear(1, 1), "Linear"),
    "own": (torch.ones(2).as_subclass(Told), "Told"), "named": (torch.ones(2).max(0), "max"),
}  # fmt: skip


@pytest.mark.parametrize("key", REFUSED)
def test_anything_else_is_refused_by_its_path_and_type(key: str) -> None:
    value, word = REFUSED[key]
    with pytest.raises(BadArgument, match=rf"others\.{key}\.0.*{word}"):
        pack({"others": {key: [value]}})


def test_a_state_that_holds_itself_is_refused() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(BadArgument, match="does it hold itself"):
        pack(state)


OPTIMIZERS = [
    one
    for one in vars(torch.optim).values()
    if isinstance(one, type) and issubclass(one, torch.optim.Optimizer) and one is not torch.optim.Optimizer
]


@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda kind: kind.__name__)
def test_the_state_of_every_optimizer_comes_back(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.Embedding(4, 3, sparse=True) if kind is torch.optim.SparseAdam else nn.Linear(3, 4, bias=False)
    given = torch.tensor([1, 2]) if kind is torch.optim.SparseAdam else torch.rand(2, 3)
    optimizer = kind(layer.parameters())

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = layer(given).square().sum()
        found.backward()
        return found

    for _ in range(3):
        optimizer.step(loss)
    state = optimizer.state_dict()
    assert_same(through_files(state, tmp_path / "x"), state)


SCHEDULERS: dict[str, Any] = {
    "StepLR": (2,), "MultiStepLR": ([1, 3],), "ConstantLR": (), "LinearLR": (), "ExponentialLR": (0.9,),
    "CosineAnnealingLR": (4,), "PolynomialLR": (), "ReduceLROnPlateau": (), "OneCycleLR": (0.1, 10),
    "CyclicLR": (0.01, 0.1), "CosineAnnealingWarmRestarts": (2,), "LambdaLR": (lambda epoch: 0.9**epoch,),
    "MultiplicativeLR": (lambda epoch: 0.9,),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_goes_on_from_its_state(name: str, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1, momentum=0.9)
        return optimizer, getattr(torch.optim.lr_scheduler, name)(optimizer, *SCHEDULERS[name])

    def step(optimizer: Any, scheduler: Any) -> Any:
        optimizer.step()
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        return optimizer.param_groups[0]["lr"]

    one, other = made(), made()
    for _ in range(3):
        step(*one)
    states = through_files([one[0].state_dict(), one[1].state_dict()], tmp_path / "x")
    for part, state in zip(other, states):
        part.load_state_dict(state)
    assert [step(*other) for _ in range(5)] == [step(*one) for _ in range(5)]


def test_schedulers_in_a_row_go_on_from_their_state(tmp_path: Path) -> None:
    kinds = torch.optim.lr_scheduler

    def made() -> tuple[Any, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)
        parts: list[Any] = [kinds.LinearLR(optimizer, 0.1, total_iters=2), kinds.MultiStepLR(optimizer, [2, 4])]
        return optimizer, kinds.SequentialLR(optimizer, parts, [2])

    one, other = made(), made()
    for _ in range(3):
        one[0].step()
        one[1].step()
    for part, state in zip(other, through_files([part.state_dict() for part in one], tmp_path / "x")):
        part.load_state_dict(state)
    for _ in range(4):
        for part in (*one, *other):
            part.step()
        assert one[0].param_groups[0]["lr"] == other[0].param_groups[0]["lr"]


def test_every_generator_gives_the_same_numbers_again(tmp_path: Path) -> None:
    def drawn() -> list[Any]:
        return [random.gauss(0, 1), random.random(), np.random.randn(), np.random.rand(3).tolist(), torch.randn(5)]

    drawn()  # an odd number of normal draws leaves one waiting in each generator
    state = through_files(rng_state(), tmp_path / "x")
    first = drawn()
    drawn()
    restore_rng(state)
    assert_same(drawn(), first)


def test_numbers_drawn_apart_take_none_from_the_others() -> None:
    before, apart, twin = rng_state(), IsolatedRandom(5), IsolatedRandom(5)

    def drawn(one: IsolatedRandom) -> tuple[float, float, float]:
        with one.active():
            return random.random(), float(np.random.rand()), float(torch.rand(()))

    first = [drawn(apart) for _ in range(3)]
    assert_same(rng_state(), before)
    state = unpack(*pack(apart.state()))
    later = drawn(apart)
    assert [drawn(twin) for _ in range(3)] == first and len(set(first)) == 3
    twin.restore(state)
    assert drawn(twin) == later


def test_the_safetensors_library_reads_our_files_and_we_read_its_own(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    tensors = {"b": torch.rand(3, 2), "a": torch.tensor(7), "half": torch.ones(3, dtype=torch.bfloat16)}
    tensors |= {"flags": torch.tensor([True, False, True]), "none": torch.empty(0, 4), "ü": torch.rand(2).double()}
    with open(tmp_path / "ours", "wb", buffering=0) as file:
        write_tensors(ChecksumFile(file), tensors)
    assert_same(dict(sorted(library.load_file(tmp_path / "ours").items())), dict(sorted(tensors.items())))
    library.save_file(tensors, tmp_path / "theirs")
    with open(tmp_path / "theirs", "rb", buffering=0) as file:
        found = read_tensors(ChecksumFile(file), tmp_path / "theirs")
    assert_same(dict(sorted(found.items())), dict(sorted(tensors.items())))


HEADERS = [
    "[]",
    "{",
    '{"a":1}',
    '{"a":{},"a":{}}',
    '{"a":{"dtype":"X"}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}',
    '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}',
    '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
    '{"a":{"dtype":"F32","shape":[-1,-2],"data_offsets":[0,8]}}',
    '{"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":[true,2],"data_offsets":[0,8]}}',
    '{"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}}',
    '{"a":{"dtype":"U8","shape":[0,9223372036854775807,9],"data_offsets":[0,0]}}',
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_lies_is_told(header: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(8))
    with open(tmp_path / "x", "rb", buffering=0) as file, pytest.raises(ArchiveDamaged):
        read_tensors(ChecksumFile(file), tmp_path / "x")


@pytest.mark.parametrize("start", [b"", b"\1", (2**60).to_bytes(8, "little"), (9).to_bytes(8, "little")])
def test_a_file_that_is_cut_is_told(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(start)
    with open(tmp_path / "x", "rb", buffering=0) as file, pytest.raises(ArchiveDamaged):
        read_tensors(ChecksumFile(file), tmp_path / "x")


def test_a_state_made_of_anything_is_read_or_refused_and_imports_nothing() -> None:
    tensors, plain = pack(
        {**PLAIN, "t": torch.rand(2, 3, 2).permute(2, 0, 1), "c": torch.rand(2, dtype=torch.complex128)}
    )
    text, draw = json.dumps(plain), random.Random(0)
    words = ["dict", "tuple", "size", "tensor", "array", "dtype", "os.system", "-1", "null", "{}", "[]", "1e999", '"t"']
    modules, read = set(sys.modules), 0
    for _ in range(3000):
        at = draw.randrange(len(text))
        changed = text[:at] + draw.choice(words) + text[at + draw.randrange(6) :]
        try:
            unpack(tensors, json.loads(changed))
            read += 1
        except (TorcheerError, json.JSONDecodeError):
            continue
    assert 0 < read < 3000
    assert set(sys.modules) == modules


def test_what_is_packed_is_not_changed() -> None:
    state = {"optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]}}
    before = copy.deepcopy(state)
    pack(state)
    assert_same(state, before)
