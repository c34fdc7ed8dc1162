"""The pickle of a `torch.save` file read as data: what torch reads is read, and nothing is called that it names."""

from __future__ import annotations

import functools
import io
import pickle
import random
import struct
import time
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import MOST_READ as MOST
from seams import Budget, read_pickle
from torch import nn

from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.modelfiles import open_model_file

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
         torch.float8_e4m3fn, torch.float8_e5m2]  # fmt: skip
VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x, lambda x: x.T, lambda x: x[1:], lambda x: x[:, 1::2], lambda x: x[2, 3], lambda x: x[:0],
    lambda x: x.reshape(-1)[5:], lambda x: x[:1].expand(5, 6),
]  # fmt: skip


def good_files() -> Iterator[tuple[str, Any]]:
    """What people save: tensors of every type and layout, models, optimizers, and what stands beside them."""
    torch.manual_seed(0)
    for kind in TYPES:
        base = (torch.rand(5, 6) * 100).to(kind)
        for place, view in enumerate(VIEWS):
            yield f"{kind} view {place}", {"x": view(base), "whole": base}
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad,
                 torch.optim.Adamax, torch.optim.NAdam, torch.optim.Rprop, torch.optim.LBFGS):  # fmt: skip
        optimizer = make(model.parameters(), lr=0.01)
        if make is not torch.optim.LBFGS:
            optimizer.step()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        state = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        yield make.__name__, {"model": model.state_dict(), "epoch": 3, "loss": 0.25, **state}
    yield "state_dict", model.state_dict()
    yield "parameters", dict(model.named_parameters())
    yield "a list", list(model.parameters())
    yield "a tensor", torch.arange(6.0)
    yield "a parameter with an attribute", with_attribute(nn.Parameter(torch.arange(3.0)))
    yield "a buffer", {"b": nn.Buffer(torch.arange(3.0))}
    yield "shared storage", shared()
    yield "plain data", {"a": [1, 2.5, None, True, "é\n", b"\x00\xff", (), {}, []], "deep": {"er": {"still": [1]}}}
    yield "numbers", {"large": 2**100, "negative": -(2**70), "zero": 0, "byte": 255, "word": 65535, "int": -1}
    yield "sizes and devices", {"size": torch.Size([2, 3]), "device": torch.device("cpu"), "dtype": torch.float16}
    yield "sets and keys", {1: "int", (1, 2): "pair", (3, "x"): torch.ones(2), "set": {1, 2}, "od": OrderedDict(a=1)}
    yield "empty", {"e": torch.empty(0), "e2": torch.empty(3, 0, 2), "s": torch.tensor(3.0)}
    yield "sparse", {"s": torch.eye(3).to_sparse(), "x": torch.ones(2)}
    yield "csr", {"s": torch.eye(3).to_sparse_csr(), "x": torch.ones(2)}
    yield "quantised", {"q": torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.qint8), "x": torch.ones(2)}
    yield "on meta", {"m": torch.ones(2, device="meta"), "x": torch.ones(2)}
    yield "a thousand", {f"layer.{i}.weight": torch.full((2,), float(i)) for i in range(1000)}
    random_numbers = random.Random(0)
    for number in range(40):
        yield f"random {number}", random_state(random_numbers, 3)


def with_attribute(parameter: nn.Parameter) -> dict[str, nn.Parameter]:
    parameter.note = "kept by torch"  # type: ignore[attr-defined]
    return {"p": parameter}


def shared() -> dict[str, torch.Tensor]:
    base = torch.arange(12.0)
    return {"a": base[:6].view(2, 3), "b": base[6:], "c": base, "again": base}


def random_state(numbers: random.Random, depth: int) -> Any:
    if not depth or numbers.random() < 0.3:
        shape = [numbers.randrange(4) for _ in range(numbers.randrange(4))]
        return torch.rand(shape).to(numbers.choice(TYPES[:4])).permute(numbers.sample(range(len(shape)), len(shape)))
    parts = [random_state(numbers, depth - 1) for _ in range(numbers.randrange(1, 4))]
    return parts if numbers.random() < 0.5 else {f"k{i}": part for i, part in enumerate(parts)}


@functools.cache
def good() -> dict[str, Any]:
    return dict(good_files())


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value
    elif isinstance(value, dict | list | tuple) and not isinstance(value, torch.Size):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            key = key if isinstance(key, str | int) else type(key).__name__
            yield from leaves(part, f"{name}.{key}" if name else str(key))


def numbers_of(tensor: torch.Tensor) -> Any:
    wide = torch.float32 if tensor.dtype.is_floating_point and tensor.element_size() < 4 else tensor.dtype
    return tensor.detach().to(wide).numpy()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.filterwarnings("ignore")
def test_two_hundred_good_files_are_read_as_torch_reads_them(tmp_path: Path, protocol: int) -> None:
    path, differ = tmp_path / "w.pt", []
    assert len(good()) >= 200
    for name, value in good().items():
        torch.save(value, path, pickle_protocol=protocol)
        expected = dict(leaves(torch.load(path, weights_only=True) if protocol == 2 else value))
        ours = open_model_file(path)
        read = {key: tensor for key, tensor in expected.items() if is_read(tensor)}
        same = set(ours) == set(read) and all(
            ours[key].shape == tuple(tensor.shape) and np.array_equal(ours[key].numpy(), numbers_of(tensor))
            for key, tensor in read.items()
        )
        if not same:
            differ.append(name)
    assert differ == []


def is_read(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta


def test_a_defaultdict_is_read_which_torch_refuses(tmp_path: Path) -> None:
    torch.save({"d": defaultdict(dict, {"x": torch.ones(1)})}, tmp_path / "w.pt")
    assert open_model_file(tmp_path / "w.pt")["d.x"].numpy() == 1


@pytest.mark.parametrize("name, note", [
    ("sparse", "a sparse tensor"), ("csr", "a sparse tensor"), ("quantised", "a quantised tensor"),
    ("on meta", "a tensor without numbers (meta)"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_plain_numbers_is_named_beside_the_tensors(tmp_path: Path, name: str, note: str) -> None:
    torch.save(good()[name], tmp_path / "w.pt")
    file = open_model_file(tmp_path / "w.pt")
    assert list(file) == ["x"] and list(file.metadata.values()) == [note]


def test_a_strided_weight_of_an_exported_program_has_its_numbers(tmp_path: Path) -> None:
    model = nn.Linear(3, 2, bias=False)
    model.weight = nn.Parameter(torch.arange(6.0).view(3, 2).T)
    torch.export.save(torch.export.export(model, (torch.rand(1, 3),)), tmp_path / "m.pt2")
    file = open_model_file(tmp_path / "m.pt2")
    assert np.array_equal(file["weight"].numpy(), model.weight.detach().numpy())


# -- what torch.save never writes


def zipped(path: Path, data: bytes, storage: bytes = b"\0" * 16) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("a/data.pkl", data)
        file.writestr("a/byteorder", b"little")
        file.writestr("a/data/0", storage)
    return path


class Pickled:
    """What `pickle` writes for an object that is reduced in a way of our choice."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


STORAGE = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x04tQ"


def tensor(offset: bytes = b"K\x00", shape: bytes = b"K\x04\x85", strides: bytes = b"K\x01\x85") -> bytes:
    rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n("
    return rebuild + STORAGE + offset + shape + strides + b"\x89ccollections\nOrderedDict\n)RtR"


def state(*values: bytes) -> bytes:
    return b"\x80\x02}(" + b"".join(text(f"k{place}") + value for place, value in enumerate(values)) + b"u."


def nested_key() -> bytes:
    """A key of 2**40 parts, in shared tuples: to hash it takes for ever."""
    return b"\x80\x02}(" + text("x") + b"q\x00" + b"h\x00h\x00\x86q\x00" * 40 + b"K\x01u."


HOSTILE = {
    "a negative offset by BUILD": state(tensor() + b"}" + text("offset") + b"J\xff\xff\xff\xffsb"),
    "a state for a storage class": b"\x80\x02ctorch\nFloatStorage\n}" + text("type") + text("int32") + b"sb.",
    "a state for a storage": b"\x80\x02" + STORAGE + b"}" + text("type") + text("int32") + b"sb.",
    "a state with slots": state(tensor() + b"N}" + text("offset") + b"J\xff\xff\xff\xffs\x86b"),
    "a negative offset": state(tensor(offset=b"J\xff\xff\xff\xff")),
    "an offset outside": state(tensor(offset=b"M\xff\xff")),
    "a stride outside": state(tensor(strides=b"K\x02\x85")),
    "a negative stride": state(tensor(strides=b"J\xff\xff\xff\xff\x85")),
    "strides that overflow": state(tensor(strides=b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85")),
    "more axes than any": state(tensor(shape=b"(" + b"K\x01" * 40 + b"t", strides=b"(" + b"K\x01" * 40 + b"t")),
    "a huge expanded view": state(tensor(shape=b"J\xff\xff\xff\x7f\x85", strides=b"K\x00\x85")),
    "a shape of texts": state(tensor(shape=text("4") + b"\x85")),
    "a key of nested tuples": nested_key(),
    "a key that is a list": b"\x80\x02}(]K\x01u.",
    "a long memo": b"\x80\x02}r\xff\xff\xff\x07j\xff\xff\xff\x06.",
    "a long number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "a text longer than the file": b"\x80\x02X\xff\xff\xff\x7fab.",
    "a call of a storage class": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "a call of a call": b"\x80\x02ccollections\nOrderedDict\n)R)R.",
    "a dict of a list": b"\x80\x02ccollections\nOrderedDict\n](K\x01e\x85R.",
    "a tensor of itself": b"\x80\x02" + b"ctorch._tensor\n_rebuild_from_type_v2\n(" * 2000 + b"N" + b"tR" * 2000 + b".",
    "a device of nested tuples": b"\x80\x02" + text("x") + b"q\x00" + b"h\x00h\x00\x86q\x00" * 40 +
    b"ctorch\ndevice\nh\x00\x85R.",
    "nothing but marks": b"\x80\x02" + b"(" * 100_000 + b".",
    "an opcode of protocol 0": b"I1\n.",
    "an object of another package": b"\x80\x02cargparse\nNamespace\n)\x81.",
    "no end": b"\x80\x02" + b"]" * 1000,
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_that_torch_never_writes_ends_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "w.pt", HOSTILE[name])
    with pytest.raises(TorcheerError) as caught:
        file = open_model_file(path)
        for tensor in file.values():
            tensor.numpy()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_file_read_before_changes_nothing_of_the_next(tmp_path: Path) -> None:
    """A state was once set on the table of storage types, and every later file read as another type."""
    good = tmp_path / "good.pt"
    torch.save({"x": torch.tensor([0.5, 2.0])}, good)
    for data in HOSTILE.values():
        try:
            open_model_file(zipped(tmp_path / "bad.pt", data))
        except TorcheerError:
            continue
    assert open_model_file(good)["x"].numpy().tolist() == [0.5, 2.0]


def test_nothing_that_a_pickle_names_is_called_or_imported(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for reduced in ((Path.touch, (canary,)), (eval, (f"open({str(canary)!r}, 'w')",)), (torch.save, (1, str(canary)))):
        data = pickle.dumps({"x": Pickled(*reduced)}, 2)
        with pytest.raises(BadArgument, match="could run code and is not looked up"):
            open_model_file(zipped(tmp_path / "w.pt", data))
    assert not canary.exists()


def test_steps_have_an_end() -> None:
    with pytest.raises(ArchiveDamaged, match="its pickle needs 3,000 steps or more; at most 2,500 are read"):
        read_pickle(b"\x80\x02" + b"(" * 3000, Budget({**MOST, "steps": 2500}))


@pytest.mark.timing
def test_reading_costs_time_in_proportion_to_the_file() -> None:
    def seconds(count: int) -> float:
        data = pickle.dumps({f"k{i}": [i, str(i)] for i in range(count)}, 2)
        start = time.process_time()
        read_pickle(data, Budget())
        return time.process_time() - start

    small = min(seconds(2_000) for _ in range(5))
    assert min(seconds(20_000) for _ in range(3)) < 40 * small


def test_plain_data_is_what_pickle_reads() -> None:
    numbers = random.Random(1)

    def value(depth: int) -> Any:
        if not depth:
            return numbers.choice([numbers.randrange(-(2**70), 2**70), numbers.random(), None, True, "a\x00é", ""])
        parts = [value(depth - 1) for _ in range(numbers.randrange(5))]
        return numbers.choice([parts, tuple(parts), {f"k{i}": part for i, part in enumerate(parts)}])

    for protocol in (2, 3, 4, 5):
        for _ in range(100):
            expected = value(4)
            assert read_pickle(pickle.dumps(expected, protocol), Budget()) == expected


def test_damage_of_a_good_pickle_ends_in_a_sentence_or_in_other_data(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(good()["Adam"], buffer)
    with zipfile.ZipFile(buffer) as file:
        data = next(file.read(name) for name in file.namelist() if name.endswith("data.pkl"))
    numbers = random.Random(2)
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(numbers.randrange(1, 4)):
            damaged[numbers.randrange(len(data))] = numbers.randrange(256)
        try:
            read_pickle(bytes(damaged), Budget())
        except TorcheerError as error:
            assert str(error).startswith("it")
