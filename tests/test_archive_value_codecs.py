"""Codecs: what is stored is less, what is read is what the codec promises, and what it cannot hold is kept as it is."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import run_python
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from seams import CODECS, DTYPES, encode_frame, from_bytes, index_header, parse_codec, to_bytes
from seams import pack_value as pack
from seams import unpack_value as unpack

import torcheer as tl
from torcheer.archive import Archive, Entry, Writer
from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.records import Sample

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import read_archive

SMOOTH = np.sin(np.arange(600, dtype=np.float32)).reshape(20, 30)


def kept(path: Path, array: Any, codec: Any) -> tuple[Entry, np.ndarray[Any, Any]]:
    """An array's entry and values, after a way through an archive."""
    with Writer(path, codec=codec) as writer:
        writer.step([Sample(0, "x", "value", -1, array)])
    archive = Archive(path)
    assert archive.verify() == 1
    (entry,) = archive.entries
    return entry, archive.array(entry)


def through(codec: str, array: np.ndarray[Any, Any]) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """The same without a file: what the entry says, and the values."""
    kind, shape, payload = to_bytes(array)
    about, stored = pack(codec, kind, payload)
    name, scale = parse_codec({**about, "stored": len(stored)}, kind, shape)
    return about, from_bytes(kind, shape, unpack(name, scale, kind, shape, memoryview(stored)))


LOSSLESS = ("raw", "zstd", "zlib")


@pytest.mark.parametrize("codec", CODECS)
def test_an_entry_says_how_it_is_stored_and_a_reader_that_shares_no_code_agrees(tmp_path: Path, codec: str) -> None:
    array = np.repeat(SMOOTH, 4, axis=0)
    entry, values = kept(tmp_path / "a", array, codec)
    assert entry.codec == codec and entry.type == "float32" and values.dtype == np.float32
    assert (entry.stored < array.nbytes) == (codec != "raw")
    ((_, _, _, _, theirs),) = read_archive.read(str(tmp_path / "a"))
    assert theirs.dtype == values.dtype and theirs.tobytes() == values.tobytes()
    if codec in LOSSLESS:
        assert values.tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_float16_is_what_numpy_rounds_to(tmp_path: Path, kind: str) -> None:
    array = SMOOTH.astype(kind)
    entry, values = kept(tmp_path / "a", array, "float16")
    assert np.array_equal(values, array.astype(np.float16).astype(kind)) and entry.stored == 2 * array.size


def test_float16_keeps_infinities_and_nan_that_were_there() -> None:
    array = np.array([1.0, np.inf, -np.inf, np.nan], np.float32)
    about, values = through("float16", array)
    assert about == {"as": {"type": "float16"}} and np.array_equal(values, array, equal_nan=True)


FLOATS = st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_side=1, max_side=6), elements=st.floats(
        width=8 * np.dtype(kind).itemsize, allow_nan=False, allow_infinity=False))
)  # fmt: skip


@given(FLOATS)
def test_int8_is_off_by_at_most_half_of_its_scale(array: np.ndarray[Any, Any]) -> None:
    about, values = through("int8", array)
    if not about:
        assert values.tobytes() == array.tobytes()
        return
    scale = about["as"]["scale"]
    off = np.abs(values.astype(np.longdouble) - array.astype(np.longdouble))
    rounding = (
        np.abs(values).astype(np.longdouble) * np.finfo(array.dtype).eps + np.finfo(array.dtype).smallest_subnormal
    )
    assert (off <= np.longdouble(scale) / 2 + rounding).all()
    assert scale == 1.0 or scale == float(np.abs(array).max()) / 127


@given(FLOATS, st.sampled_from(CODECS))
def test_a_codec_gives_back_the_shape_the_type_and_finite_numbers(array: np.ndarray[Any, Any], codec: str) -> None:
    _, values = through(codec, array)
    assert values.shape == array.shape and values.dtype == array.dtype and np.isfinite(values).all()


@pytest.mark.parametrize(
    ("array", "codec"),
    [
        (np.array([1.0, np.nan]), "int8"),
        (np.array([1.0, -np.inf], np.float32), "int8"),
        (np.array([5e-324, 0.0]), "int8"),  # a scale that small has no bits left
        (np.array([1e-310, 3e-310]), "int8"),
        (np.array([np.finfo(np.float64).max] * 2), "float16"),
        (np.array([65520.0, 1.0], np.float32), "float16"),
        (np.array([1e30, np.inf], np.float32), "float16"),
        (np.ones(4, np.float16), "float16"),
        (np.arange(4), "int8"),
        (np.array([True, False]), "float16"),
        (np.ones(4, np.complex64), "int8"),
        (np.zeros((0, 3), np.float32), "int8"),
        (np.frombuffer(np.random.default_rng(0).bytes(4000), np.float32), "zstd"),
        (np.array([1e30, 1.0, 2.0], np.float32), "float16+zstd"),
    ],
)
def test_what_a_codec_cannot_hold_is_kept_bit_for_bit(array: np.ndarray[Any, Any], codec: str, tmp_path: Path) -> None:
    entry, values = kept(tmp_path / "a", array, codec)
    assert entry.codec == "raw" and values.tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", [name for name in DTYPES if hasattr(torch, name)])
@pytest.mark.parametrize("codec", CODECS)
def test_every_type_passes_every_codec(kind: str, codec: str, tmp_path: Path) -> None:
    numbers = torch.arange(96).remainder(2)
    is_packed = DTYPES[kind].numbers > 1  # torch converts nothing to such a type
    tensor = numbers.to(torch.uint8).view(getattr(torch, kind)) if is_packed else numbers.to(getattr(torch, kind))
    entry, values = kept(tmp_path / "a", tensor, codec)
    assert entry.type == kind
    if "int8" not in codec:
        assert values.tobytes() == tensor.view(torch.uint8).numpy().tobytes()


def test_the_largest_double_is_not_read_as_infinite() -> None:
    for step in range(200):
        array = np.array([np.finfo(np.float64).max * (1 - step * 2.0**-52)])
        assert np.isfinite(through("int8", array)[1]).all()


def test_a_function_picks_a_codec_for_each_value(tmp_path: Path) -> None:
    def pick(sample: Sample) -> str:
        return "int8" if sample.layer == "big" else "raw"

    with Writer(tmp_path / "a", codec=pick) as writer:
        writer.step([Sample(0, layer, "value", -1, SMOOTH) for layer in ("big", "small")])
    assert [entry.codec for entry in Archive(tmp_path / "a").entries] == ["int8", "raw"]


@pytest.mark.parametrize("codec", ["gzip", "int8+", "", None, lambda sample: "float8"])
def test_an_unknown_codec_is_told_which_there_are(codec: Any, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"use one of raw, zstd, zlib, float16, int8, float16\+zstd, int8\+zstd"):
        kept(tmp_path / "a", SMOOTH, codec)


def test_without_zstandard_the_extra_is_named(tmp_path: Path) -> None:
    kept(tmp_path / "a", np.zeros(999), "zstd")
    code = f"""
import sys
sys.modules["zstandard"] = None
from torcheer.archive import Archive, Writer
for ask in (lambda: Writer({str(tmp_path / "b")!r}, codec="int8+zstd"), Archive({str(tmp_path / "a")!r}).verify):
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = run_python("-c", code)
    assert done.stdout.count("TorcheerError the codec zstd needs zstandard") == 2, done.stderr
    assert done.stdout.count("pip install 'torcheer[all]'") == 2


def test_decoded_values_are_in_memory_of_their_own(tmp_path: Path) -> None:
    kept(tmp_path / "a", SMOOTH, "int8")
    archive = Archive(tmp_path / "a")
    one, two = (np.frombuffer(archive.memory(archive.entries[0]), np.float32) for _ in range(2))
    one[:] = 5
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("codec", CODECS)
def test_a_history_is_saved_with_a_codec(codec: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    history = tl.log_forward_pass(torch.nn.Linear(64, 64), torch.rand(8, 64))
    again = tl.load(history.save(tmp_path / "net", codec=codec))
    one, two = (found["linear_1"].tensor_contents.detach() for found in (again, history))
    assert one.dtype == two.dtype and torch.allclose(one, two, atol=float(two.abs().max()) / 250)
    assert torch.equal(one, two) == (codec in LOSSLESS)


ENTRY = {"layer": "x", "variable": "value", "item": -1, "type": "float32", "shape": [4], "offset": 0, "stored": 16}


@pytest.mark.parametrize(
    "change",
    [
        {"as": {"type": "int8"}, "stored": 4},
        {"as": {"type": "int8", "scale": 1}, "stored": 4},
        {"as": {"type": "int8", "scale": 0.0}, "stored": 4},
        {"as": {"type": "int8", "scale": -1.0}, "stored": 4},
        {"as": {"type": "int8", "scale": True}, "stored": 4},
        {"as": {"type": "float16", "scale": 1.0}, "stored": 8},
        {"as": {"type": "float16"}, "stored": 16},
        {"as": {"type": "float64"}, "stored": 32},
        {"as": {"type": ["int8"], "scale": 1.0}, "stored": 4},
        {"as": {"type": "int8", "scale": 1.0}, "type": "int32", "stored": 4},
        {"as": "float16", "stored": 8},
        {"as": None},
        {"zlib": 16, "stored": 0},
        {"zlib": 17},
        {"zlib": True},
        {"shape": [2**40], "zlib": 2**42},
        {"zlib": 16, "as": {"type": "float16"}},
        {"zstd": 16, "stored": 0},
        {"zstd": 17},
        {"zstd": 16.0},
        {"zstd": True},
        {"zstd": -16},
        {"shape": [2**40], "zstd": 2**42},
        {"gzip": 16},
    ],
)
def test_a_codec_that_cannot_be_is_damage(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a"
    Writer(path).close(seal=False)
    entry = {**ENTRY, "crc32": 0, **change}
    (path / "000000.data").write_bytes(bytes(64))
    (path / "000000.index").write_bytes(
        index_header(0) + encode_frame({"step": 0, "entries": [entry], "about": {}}, 0)[0]
    )
    with pytest.raises(ArchiveDamaged):
        Archive(path)


def test_compressed_bytes_that_say_another_size_are_damage() -> None:
    import zstandard

    for size, claimed in ((16, 1 << 40), (1 << 20, 16), (16, 15)):
        small = zstandard.ZstdCompressor().compress(bytes(size))
        with pytest.raises(ArchiveDamaged):
            unpack("zstd", 1.0, "uint8", (claimed,), memoryview(small))
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    for stored in (b"", b"garbage", small[:-1], small + b"x", unsaid):
        with pytest.raises(TorcheerError):
            unpack("zstd", 1.0, "uint8", (16,), memoryview(stored))
    deflated = zlib.compress(bytes(16))
    for stored, size in ((deflated, 15), (deflated, 17), (deflated[:-1], 16), (deflated + b"x", 16), (b"garbage", 16)):
        with pytest.raises(ArchiveDamaged):
            unpack("zlib", 1.0, "uint8", (size,), memoryview(stored))
