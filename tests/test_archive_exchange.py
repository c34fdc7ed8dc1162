"""An archive in another format and back is the archive; a hostile file is an error and nothing else."""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import resource
import struct
import sys
import warnings
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import safetensors.torch
import torch
import zarr
from children import run_python
from fast_cases import fast_first
from seams import FORMATS, TYPES, array_names

import torcheer as tl
from torcheer.archive import Archive, Writer, export, import_from
from torcheer.errors import ArchiveDamaged, BadArgument, CannotWrite, NotAnArchive, TorcheerError
from torcheer.records import Sample

SUFFIXES = [".safetensors", ".npz", ".arrow", ".feather", ".parquet", ".zarr", ".zarr.zip"]
NAMED = [".safetensors", ".npz", ".zarr", ".zarr.zip"]
every_format = pytest.mark.parametrize("suffix", SUFFIXES)
named_formats = pytest.mark.parametrize("suffix", NAMED)

ODD_NAMES = ["a/b", "", "..", "../..", "/etc/passwd", "a\\..\\b", "__metadata__", "zarr.json", ".zgroup", "c", "ünï",
             "A", "a", "a/b/value", "x" * 5000, "y/" * 3000, "\x1b[2J", "\n", "torcheer.json", "0"]  # fmt: skip


def every_type(step: int) -> list[Sample]:
    """A row, one number and nothing, of every type; their bits drawn, so that there are NaNs of all kinds."""
    draw = np.random.default_rng(step)
    found = []
    for name in TYPES:
        bits = torch.from_numpy(draw.integers(0, 2 if name == "bool" else 256, 96, dtype=np.uint8))
        values = bits.view(getattr(torch, name))
        found += [
            Sample(step, name, "value", -1, values.reshape(2, -1)),
            Sample(step, name, "value", 3, values[0]),
            Sample(step, name, "empty", -1, values[:0].reshape(0, 3)),
        ]
    return found


def ordinary(path: Path) -> Path:
    with Writer(
        path, about={"kind": "test", "rate": 0.1, "list": [None, True, "é\ud800"]}, segment_bytes=4000
    ) as writer:
        writer.step(every_type(0), loss=0.5, note="first")
        writer.step([])
        writer.step(every_type(7)[:9])
        writer.step(every_type(7)[:9], again=True)
        writer.step(
            [Sample(8, name, kind, -1, np.arange(3.0)) for name in ODD_NAMES for kind in ("value", "", "b/value")]
        )
        writer.step([], **{"self": 1, "samples": 2, "codec": "é", "nested": {"": [[]]}})
        writer.step([Sample(9, "minus zero", "value", -1, -np.zeros((2, 3), np.float32).T)])
    return path


def small(path: Path, **about: Any) -> Path:
    with Writer(path, about=about) as writer:
        for step in range(2):
            writer.step(
                [
                    Sample(step, "conv1", "value", -1, np.arange(12, dtype=np.float32).reshape(3, 4) + step),
                    Sample(step, "conv1", "value", 0, torch.arange(4).bfloat16()),
                    Sample(step, "head", "grad", -1, np.array(True)),
                ],
                step_note=step,
            )
    return path


def content(path: Path) -> Any:
    archive = Archive(path)
    values = [(entry[:6], archive.array(entry).tobytes()) for entry in archive.entries]
    return archive.about, archive.steps, [body["about"] for body in archive.frames], values


def there_and_back(path: Path, suffix: str) -> Path:
    file = export(path, path.with_name(f"{path.name}{suffix}"))
    return import_from(file, path.with_name(f"{path.name}-again"))


# There and back


@every_format
def test_an_archive_comes_back_bit_for_bit(tmp_path: Path, suffix: str) -> None:
    path = ordinary(tmp_path / "a")
    assert content(there_and_back(path, suffix)) == content(path)


@every_format
def test_a_history_comes_back_as_the_same_history(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2))
    history = tl.log_forward_pass(model, torch.rand(1, 3, 6, 6), save_gradients=True)
    history.backward()
    again = tl.load(there_and_back(history.save(tmp_path / "net"), suffix))
    assert str(again) == str(history) and again.draw().svg() == history.draw().svg()
    for op in history:
        assert torch.equal(again[op.label].tensor_contents, op.tensor_contents)
    assert torch.equal(again["relu_1"].grad_contents, history["relu_1"].grad_contents)


@every_format
@pytest.mark.parametrize("steps", [0, 1])
def test_an_archive_of_nothing_comes_back(tmp_path: Path, suffix: str, steps: int) -> None:
    with Writer(tmp_path / "a") as writer:
        for _ in range(steps):
            writer.step([])
    assert content(there_and_back(tmp_path / "a", suffix)) == content(tmp_path / "a")


@every_format
def test_values_kept_by_a_codec_come_back_as_they_read(tmp_path: Path, suffix: str) -> None:
    with Writer(tmp_path / "a", codec="int8+zstd") as writer:
        writer.step([Sample(0, "x", "value", -1, np.sin(np.arange(1000.0)).astype(np.float32))])
    assert content(there_and_back(tmp_path / "a", suffix))[3] == content(tmp_path / "a")[3]


def test_an_open_archive_is_exported_as_far_as_it_was_committed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a")
    writer.step(every_type(0))
    again = import_from(export(tmp_path / "a", tmp_path / "a.npz"), tmp_path / "b")
    assert content(again) == content(tmp_path / "a")
    writer.close()


# What others see


def test_safetensors_reads_our_file_with_its_own_types(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.step(every_type(4))
    found = safetensors.torch.load_file(export(tmp_path / "a", tmp_path / "a.safetensors"))
    assert found["4/bfloat16/value"].dtype == torch.bfloat16
    assert found["4/float8_e4m3fn/value"].dtype == torch.float8_e4m3fn
    assert found["4/complex64/value/3"].dtype == torch.complex64 and found["4/complex64/value/3"].shape == ()
    assert found["4/complex128/value"].shape == (2, 3, 2)  # safetensors has no such type: pairs of float64
    archive = Archive(tmp_path / "a")
    for entry in archive.entries:
        name = f"4/{entry.layer}/{entry.variable}" + ("/3" if entry.item == 3 else "")
        raw = found[name].contiguous().reshape(-1).view(torch.uint8).numpy() if found[name].numel() else np.zeros(0)
        assert raw.tobytes() == archive.array(entry).tobytes()


def test_safetensors_begin_at_multiples_of_their_width(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.step([Sample(0, "odd", "value", -1, np.zeros(3, np.uint8)), Sample(0, "wide", "value", -1, np.zeros(2))])
    data = export(tmp_path / "a", tmp_path / "a.safetensors").read_bytes()
    room = struct.unpack("<Q", data[:8])[0]
    assert room % 8 == 0 and json.loads(data[8 : 8 + room])["0/wide/value"]["data_offsets"] == [0, 16]


def test_numpy_reads_our_npz(tmp_path: Path) -> None:
    found = np.load(export(small(tmp_path / "a"), tmp_path / "a.npz"))
    assert np.array_equal(found["1/conv1/value"], np.arange(12, dtype=np.float32).reshape(3, 4) + 1)
    assert found["0/head/grad"] == np.array(True)


def test_zarr_reads_our_folder_and_our_zip(tmp_path: Path) -> None:
    small(tmp_path / "a")
    for file in (export(tmp_path / "a", tmp_path / "a.zarr"), export(tmp_path / "a", tmp_path / "a.zarr.zip")):
        store = zarr.storage.ZipStore(file, mode="r") if file.is_file() else file
        group = zarr.open_group(store, mode="r")
        assert np.array_equal(group["1/conv1/value"][...], np.arange(12, dtype=np.float32).reshape(3, 4) + 1)
        assert group["0/head/grad"].attrs["type"] == "bool"


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".parquet"])
def test_pandas_reads_our_tables(tmp_path: Path, suffix: str) -> None:
    import pandas

    read = pandas.read_parquet if suffix == ".parquet" else pandas.read_feather
    table = read(export(small(tmp_path / "a"), tmp_path / f"a{suffix}"))
    assert list(table.layer) == ["conv1", "conv1", "head"] * 2 and list(table.step) == [0, 0, 0, 1, 1, 1]
    row = table.iloc[3]
    array = np.frombuffer(row.data, row.type).reshape(row["shape"])
    assert np.array_equal(array, np.arange(12, dtype=np.float32).reshape(3, 4) + 1)


@named_formats
def test_no_array_of_ours_has_a_name_that_leads_out(tmp_path: Path, suffix: str) -> None:
    file = export(ordinary(tmp_path / "a"), tmp_path / "to" / f"a{suffix}")
    if suffix == ".safetensors":
        names = list(_header(file))
    elif file.is_file():
        names = zipfile.ZipFile(file).namelist()
    else:
        names = [str(one.relative_to(file)) for one in file.rglob("*")]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith("/") or ".." in name.split("/")]


def test_names_on_disk_differ_on_every_file_system_and_none_is_a_folder_of_another(tmp_path: Path) -> None:
    names = array_names(Archive(ordinary(tmp_path / "a")), as_folders=True)
    keys = {name.casefold() for name in names}
    assert len(keys) == len(names)
    assert not [key for key in keys if any(str(above) in keys for above in PurePosixPath(key).parents)]
    assert max(len(part.encode()) for name in names for part in name.split("/")) < 240


def _header(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])


def test_values_of_a_history_are_named_by_their_labels(tmp_path: Path) -> None:
    tl.log_forward_pass(torch.nn.ReLU(), torch.rand(2)).save(tmp_path / "net")
    assert "relu_1_1/value 0" in _header(export(tmp_path / "net", tmp_path / "net.safetensors"))


# Files from elsewhere


def foreign(path: Path, suffix: str, arrays: dict[str, Any]) -> Path:
    file = path / f"foreign{suffix}"
    if suffix == ".safetensors":
        safetensors.numpy.save_file(arrays, file, metadata={"by": "them"})
    elif suffix == ".npz":
        np.savez_compressed(file, **arrays)
    else:
        store = zarr.storage.ZipStore(file, mode="w") if suffix == ".zarr.zip" else zarr.storage.LocalStore(file)
        group = zarr.create_group(store, attributes={"by": "them"})
        for name, array in arrays.items():
            group.create_array(name, data=array)
        store.close()
    return file


@named_formats
def test_plain_arrays_from_elsewhere_become_layers_of_one_step(tmp_path: Path, suffix: str) -> None:
    arrays = {"fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "block/fc.bias": np.arange(3)}
    archive = Archive(import_from(foreign(tmp_path, suffix, arrays), tmp_path / "a"))
    assert archive.steps == [0] and archive.about["kind"] == "tensors" and archive.about["from"] == f"foreign{suffix}"
    assert {entry.layer for entry in archive.entries} == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(archive.array(archive.find(name)), array)
    assert suffix == ".npz" or archive.about["metadata"] == {"by": "them"}


def test_weights_of_torch_are_imported_with_their_types(tmp_path: Path) -> None:
    weights = {"a": torch.randn(4).bfloat16(), "b": torch.randn(4).to(torch.float8_e5m2)}
    safetensors.torch.save_file(weights, tmp_path / "w.safetensors")
    archive = Archive(import_from(tmp_path / "w.safetensors", tmp_path / "w"))
    assert {entry.layer: entry.type for entry in archive.entries} == {"a": "bfloat16", "b": "float8_e5m2"}


def test_arrays_of_numpy_keep_their_numbers_in_any_order_of_bytes(tmp_path: Path) -> None:
    arrays = {"big": np.arange(6, dtype=">f8").reshape(2, 3), "columns": np.asfortranarray(np.arange(6).reshape(2, 3))}
    np.savez(tmp_path / "f.npz", **arrays)
    archive = Archive(import_from(tmp_path / "f.npz", tmp_path / "a"))
    for name, array in arrays.items():
        assert np.array_equal(archive.array(archive.find(name)), array)


def test_zarr_2_with_compressors_and_filters_is_imported(tmp_path: Path) -> None:
    import numcodecs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(tmp_path / "f.zarr", mode="w", zarr_format=2)
        group.create_array("x", data=np.arange(9, dtype=">i4"), filters=[numcodecs.Delta(dtype=">i4")])
    archive = Archive(import_from(tmp_path / "f.zarr", tmp_path / "a"))
    assert np.array_equal(archive.array(archive.find("x")), np.arange(9))


def test_zarr_that_is_one_array_is_imported_under_its_files_name(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "weights.zarr", data=np.arange(4.0), shards=(4,), chunks=(2,))
    archive = Archive(import_from(tmp_path / "weights.zarr", tmp_path / "a"))
    assert np.array_equal(archive.array(archive.find("weights")), np.arange(4.0))


def test_a_table_of_somebody_elses_making_is_imported_step_by_step(tmp_path: Path) -> None:
    rows = {"step": [0, 0, 5], "layer": ["a", "b", "a"], "variable": ["value"] * 3, "item": [-1] * 3}
    rows |= {"type": ["int8"] * 3, "shape": [[2], [], [1]], "data": [b"\1\2", b"\3", b"\4"]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    archive = Archive(import_from(tmp_path / "t.parquet", tmp_path / "a"))
    assert archive.steps == [0, 5] and archive.array(archive.find("a", step=0)).tolist() == [1, 2]


def test_a_filtered_table_is_imported_once_its_checksums_are_left_out(tmp_path: Path) -> None:
    table = pq.read_table(export(small(tmp_path / "a"), tmp_path / "a.parquet"))
    some = table.filter(pa.compute.equal(table["layer"], "head")).replace_schema_metadata(None)
    pq.write_table(some, tmp_path / "some.parquet")
    with pytest.raises(ArchiveDamaged, match="leave out the column crc32"):
        import_from(tmp_path / "some.parquet", tmp_path / "b")
    pq.write_table(some.drop_columns("crc32"), tmp_path / "some.parquet")
    assert len(Archive(import_from(tmp_path / "some.parquet", tmp_path / "b")).entries) == 2


def test_a_table_with_other_columns_is_told_which_are_missing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"step": [1], "name": ["x"]}), tmp_path / "t.parquet")
    with pytest.raises(BadArgument, match="no column layer, variable, item, type, shape, data; it has step, name"):
        import_from(tmp_path / "t.parquet", tmp_path / "a")


# What is refused


@pytest.mark.parametrize("file", ["a.h5", "a", "a.pt"])
def test_an_unknown_suffix_is_told_the_known_ones(tmp_path: Path, file: str) -> None:
    small(tmp_path / "archive")
    with pytest.raises(BadArgument, match=r"use one of \.safetensors, \.npz, "):
        export(tmp_path / "archive", tmp_path / file)
    with pytest.raises(BadArgument, match=r"use one of \.safetensors, \.npz, "):
        import_from(tmp_path / file, tmp_path / "b")


@every_format
def test_nothing_is_overwritten_unasked(tmp_path: Path, suffix: str) -> None:
    file = export(small(tmp_path / "a"), tmp_path / f"a{suffix}")
    with pytest.raises(BadArgument, match="overwrite=True"):
        export(tmp_path / "a", file)
    small(tmp_path / "other", by="others")
    export(tmp_path / "other", file, overwrite=True)
    assert Archive(import_from(file, tmp_path / "b")).about == {"by": "others"}
    with pytest.raises(BadArgument, match="there already; import to a new folder"):
        import_from(file, tmp_path / "b")


@pytest.mark.parametrize("suffix", [".zarr", ".npz"])
def test_a_folder_that_export_did_not_write_is_never_replaced(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"mine{suffix}").mkdir()
    with pytest.raises(BadArgument, match="export did not write"):
        export(small(tmp_path / "a"), tmp_path / f"mine{suffix}", overwrite=True)


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CannotWrite, match="Nothing of it was left there"):
        export(small(tmp_path / "a"), tmp_path / "file" / "a.npz")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="no archive"):
        export(tmp_path / "nothing", tmp_path / "a.npz")
    with pytest.raises(BadArgument, match=r"there is no .*nothing\.npz to import"):
        import_from(tmp_path / "nothing.npz", tmp_path / "a")


@every_format
def test_a_damaged_archive_leaves_no_file(tmp_path: Path, suffix: str) -> None:
    path = small(tmp_path / "a")
    data = bytearray((path / "000000.data").read_bytes())
    data[-1] ^= 1
    (path / "000000.data").write_bytes(data)
    with pytest.raises(ArchiveDamaged, match="not what was written"):
        export(path, tmp_path / "to" / f"a{suffix}")
    assert list((tmp_path / "to").iterdir()) == []


@every_format
def test_an_interrupt_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    file = export(small(tmp_path / "a"), tmp_path / f"whole{suffix}")
    (tmp_path / "to").mkdir()
    with pytest.raises(KeyboardInterrupt):
        export(tmp_path / "a", tmp_path / "to" / f"a{suffix}", on_progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_from(file, tmp_path / "to" / "b", on_progress=interrupt)
    assert list((tmp_path / "to").iterdir()) == []


FULL = """
import resource, sys
from torcheer.archive import export, import_from
from torcheer.errors import CannotWrite
sys.dont_write_bytecode = True  # or half a .pyc is left of what is imported from here on
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    (export if sys.argv[1] == "export" else import_from)(sys.argv[2], sys.argv[3])
except CannotWrite as error:
    print("told:", error)
"""


@pytest.mark.parametrize("suffix", fast_first(reversed(SUFFIXES), 3))
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    with Writer(tmp_path / "a") as writer:
        for step in range(4):
            writer.step([Sample(step, "x", "value", -1, np.random.default_rng(step).normal(size=50_000))])
    file = export(tmp_path / "a", tmp_path / f"whole{suffix}")
    (tmp_path / "to").mkdir()
    for verb, source, target in (("export", tmp_path / "a", f"a{suffix}"), ("import", file, "b")):
        done = run_python("-c", FULL, verb, source, tmp_path / "to" / target)
        assert "told:" in done.stdout and "File too large" in done.stdout, done.stderr
        assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize(("suffix", "package"), [(".parquet", "pyarrow"), (".arrow", "pyarrow"), (".zarr", "zarr")])
def test_a_missing_package_is_told_how_to_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, package: str
) -> None:
    file = export(small(tmp_path / "a"), tmp_path / f"a{suffix}")
    monkeypatch.setitem(sys.modules, package, None)
    for attempt in (lambda: export(tmp_path / "a", tmp_path / f"b{suffix}"), lambda: import_from(file, tmp_path / "b")):
        with pytest.raises(TorcheerError, match=rf"needs {package}.*pip install 'torcheer\[all\]'"):
            attempt()


def test_without_ml_dtypes_a_type_that_numpy_lacks_is_imported_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert "bfloat16" in {entry.type for entry in Archive(path).entries}
    assert content(there_and_back(path, ".npz")) == content(path)


def test_too_many_values_for_a_safetensors_header_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.archive.exchange.safetensors_format.MOST_BYTES", 500)
    with pytest.raises(BadArgument, match=r"6 values make a header .* export to \.parquet"):
        export(small(tmp_path / "a"), tmp_path / "a.safetensors")


def test_a_value_too_large_for_parquet_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.archive.exchange.arrow_format._PARQUET_BYTES", 40)
    with pytest.raises(BadArgument, match=r"'conv1' has 48 bytes.*\.arrow"):
        export(small(tmp_path / "a"), tmp_path / "a.parquet")


def test_a_name_that_is_no_unicode_is_told_to_travel_otherwise(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.step([Sample(0, "\ud800", "value", -1, np.zeros(1))])
    with pytest.raises(BadArgument, match=r"export to \.npz"):
        export(tmp_path / "a", tmp_path / "a.parquet")
    assert content(there_and_back(tmp_path / "a", ".npz")) == content(tmp_path / "a")


# Hostile files


@every_format
def test_a_changed_file_is_told_or_is_the_same(tmp_path: Path, suffix: str) -> None:
    path = small(tmp_path / "a", by="us")
    expected = content(path)
    file = export(path, tmp_path / f"a{suffix}")
    parts = [file] if file.is_file() else sorted(one for one in file.rglob("*") if one.is_file())
    draw = random.Random(suffix)
    for attempt in range(60 if "zarr" in suffix else 150):
        part = draw.choice(parts)
        whole = part.read_bytes()
        part.write_bytes(changed(whole, draw))
        try:
            assert content(import_from(file, tmp_path / f"b{attempt}")) == expected
        except TorcheerError as error:
            assert str(tmp_path) in str(error)
        part.write_bytes(whole)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("suffix", [one for one in SUFFIXES if one != ".zarr"])
def test_a_file_that_was_cut_is_told_and_named(tmp_path: Path, suffix: str) -> None:
    file = export(small(tmp_path / "a"), tmp_path / f"a{suffix}")
    whole = file.read_bytes()
    for missing in (*range(1, 41), len(whole) // 2):
        file.write_bytes(whole[:-missing])
        with pytest.raises(ArchiveDamaged, match=re.escape(str(file))):
            import_from(file, tmp_path / f"b{missing}")
        assert not (tmp_path / f"b{missing}").exists()


@pytest.mark.parametrize("suffix", [".npz", ".zarr.zip"])
def test_a_zip_of_somebody_elses_that_was_cut_within_its_comment_is_told(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(file, x=np.arange(3.0))
    else:
        with zarr.storage.ZipStore(file, mode="w") as store:
            zarr.create_array(store, name="x", data=np.arange(3.0))
    with zipfile.ZipFile(file, "a") as opened:
        opened.comment = b"made elsewhere"
    assert len(Archive(import_from(file, tmp_path / "whole")).entries) == 1
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ArchiveDamaged, match=f"{re.escape(str(file))} is cut: of its last 14 bytes, 4 are missing"):
        import_from(file, tmp_path / "cut")


def changed(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    return draw.choice(
        [
            data[:place],
            data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :],
            data[:place] + b"\xff" * 8 + data[place + 8 :],
            data[:place] + data[place + draw.randrange(1, 20) :],
        ]
    )


@every_format
@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\xff" * 8, b"PK\5\6" + bytes(18), pickle.dumps(range(9))])
def test_a_file_that_is_something_else_is_told(tmp_path: Path, suffix: str, data: bytes) -> None:
    (tmp_path / f"f{suffix}").write_bytes(data)
    if (suffix, data[:2]) == (".npz", b"PK"):
        assert Archive(import_from(tmp_path / f"f{suffix}", tmp_path / "a")).entries == []  # an empty zip is one
        return
    with pytest.raises(TorcheerError, match=f"f{suffix}"):
        import_from(tmp_path / f"f{suffix}", tmp_path / "a")


def as_safetensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ONE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct.pack("<Q", 1 << 62) + b"{}", "its header would be"),
        (struct.pack("<Q", 3) + b"{}", "its header would be"),
        (as_safetensors([]), "no object"),
        (as_safetensors(b"[" * 100_000), "cannot be read"),
        (as_safetensors(b'{"a":%s,"a":%s}' % ((json.dumps(ONE).encode(),) * 2), b"1234"), "twice"),
        (as_safetensors({"a": ONE, "b": ONE}, b"1234"), "overlap"),
        (as_safetensors({"a": {**ONE, "data_offsets": [4, 8]}}, b"12345678"), "gaps"),
        (as_safetensors({"a": ONE}, b"123456"), "2 bytes at its end"),
        (as_safetensors({"a": ONE}, b"123"), "outside"),
        (as_safetensors({"a": {**ONE, "data_offsets": [-4, 0]}}, b""), "cannot be read"),
        (as_safetensors({"a": {**ONE, "shape": [1 << 40]}}, b"1234"), "outside"),
        (as_safetensors({"a": {**ONE, "shape": [-4]}}, b"1234"), "cannot be read"),
        (as_safetensors({"a": {**ONE, "dtype": "F6"}}, b"1234"), "cannot be kept"),
        (as_safetensors({"a": 1}), "cannot be read"),
        (as_safetensors({"__metadata__": 3}), "no object"),
        (as_safetensors({"__metadata__": {"torcheer": "x"}}), "not what was written"),
        (as_safetensors({"__metadata__": {"made_by": "torcheer exchange"}}), "missing"),
    ],
)
def test_hostile_safetensors_are_told(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "f.safetensors").write_bytes(data)
    with pytest.raises(TorcheerError, match=says):
        import_from(tmp_path / "f.safetensors", tmp_path / "a")
    assert [one.name for one in tmp_path.iterdir()] == ["f.safetensors"]


class Canary:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was read",))


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def lying(shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return out.getvalue() + bytes(64)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("a.npy", npy(np.array([Canary()], dtype=object)))], "pickled objects, which are never read"),
        ([("a.npy", pickle.dumps(Canary()))], "cannot be read"),
        ([("a.npy", npy(np.zeros(1))), ("a.npy", npy(np.ones(1)))], "twice"),
        ([("../../evil.npy", npy(np.zeros(1)))], "leads out"),
        ([("/etc/evil.npy", npy(np.zeros(1)))], "leads out"),
        ([("a.npy", lying((1 << 50,)))], "another size than its shape"),
        ([("a.npy", lying((-8,)))], "another size than its shape"),
        ([("a.npy", npy(np.zeros(3, "U4")))], "cannot be kept"),
        ([("a.npy", npy(np.zeros(3, "M8[s]")))], "cannot be kept"),
        ([("a.npy", npy(np.zeros(3, [("é", "f4")])))], "cannot be kept|named fields"),
        ([("readme.txt", b"hi")], "no array"),
        ([("torcheer.json", b"\xff")], "cannot be read"),
        ([("torcheer.json", b"{}")], "not what was written"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_npz_are_told(tmp_path: Path, members: list[tuple[str, bytes]], says: str) -> None:
    with zipfile.ZipFile(tmp_path / "f.npz", "w") as out:
        for name, data in members:
            out.writestr(name, data)
    with pytest.raises(TorcheerError, match=says):
        import_from(tmp_path / "f.npz", tmp_path / "a")
    assert [one.name for one in tmp_path.iterdir()] == ["f.npz"]


def test_a_zip_bomb_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "f.npz", "w", zipfile.ZIP_LZMA) as out:
        out.writestr("a.npy", npy(np.zeros(80 << 20, np.uint8)))
    with pytest.raises(ArchiveDamaged, match="not believed"):
        import_from(tmp_path / "f.npz", tmp_path / "a")


def test_an_array_of_zarr_that_is_not_there_takes_no_memory(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "f.zarr", mode="w")
    group.create_array("a", shape=(1 << 45,), dtype="f8", chunks=(1 << 20,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArchiveDamaged, match="not believed"):
        import_from(tmp_path / "f.zarr", tmp_path / "a")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize(
    ("codec", "says"), [("pickle", "pickle"), ("adler32", "packed with adler32, which is not undone")]
)
def test_a_codec_of_zarr_that_is_not_known_to_be_safe_is_refused(tmp_path: Path, codec: str, says: str) -> None:
    (tmp_path / "f.zarr").mkdir()
    about = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|u1",
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    (tmp_path / "f.zarr" / ".zarray").write_text(json.dumps({**about, "compressor": {"id": codec}}))
    (tmp_path / "f.zarr" / "0").write_bytes(pickle.dumps(Canary()))
    with pytest.raises(TorcheerError, match=says):
        import_from(tmp_path / "f.zarr", tmp_path / "a")


def test_a_zarr_zip_with_names_that_lead_out_is_told(tmp_path: Path) -> None:
    file = foreign(tmp_path, ".zarr.zip", {"x": np.zeros(3)})
    with zipfile.ZipFile(file, "a") as out:
        out.writestr("../y/zarr.json", "{}")
    with pytest.raises(ArchiveDamaged, match="leads out"):
        import_from(file, tmp_path / "a")


def rows(**changes: Any) -> dict[str, list[Any]]:
    row = {"step": 0, "layer": "a", "variable": "value", "item": -1, "type": "int8", "shape": [2], "data": b"12"}
    return {name: [value] for name, value in {**row, **changes}.items()}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"type": "object"}, "no sample"),
        ({"shape": [3]}, "3|bytes"),
        ({"shape": [-2]}, "no sample"),
        ({"shape": "2"}, "no sample"),
        ({"shape": [1 << 40, 1 << 40]}, "bytes"),
        ({"step": "zero"}, "not what was written"),
        ({"layer": None}, "no sample"),
        ({"item": 1.5}, "no sample"),
        ({"data": 12}, "cannot be read"),
        ({"data": None}, "cannot be read"),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_hostile_tables_are_told(tmp_path: Path, suffix: str, changes: dict[str, Any], says: str) -> None:
    table = pa.table(rows(**changes))
    if suffix == ".parquet":
        pq.write_table(table, tmp_path / "f.parquet")
    else:
        pa.feather.write_feather(table, tmp_path / "f.arrow", compression="uncompressed")
    with pytest.raises(TorcheerError, match=says):
        import_from(tmp_path / f"f{suffix}", tmp_path / "a")


def test_a_table_whose_dictionary_unpacks_to_far_more_is_told(tmp_path: Path) -> None:
    count, cell = 3000, b"x" * (1 << 16)
    table = {name: cells * count for name, cells in rows(shape=[len(cell)], data=cell).items()}
    table["item"] = list(range(count))
    pq.write_table(pa.table(table), tmp_path / "f.parquet", compression="zstd")
    assert (tmp_path / "f.parquet").stat().st_size < 100_000
    with pytest.raises(ArchiveDamaged, match="not believed"):
        import_from(tmp_path / "f.parquet", tmp_path / "a")


def test_a_file_of_a_later_version_is_told_to_need_an_update(tmp_path: Path) -> None:
    text = json.dumps({"format": "torcheer exchange", "version": 2})
    metadata = {"torcheer": f"{zlib.crc32(text.encode()):08x} {text}"}
    (tmp_path / "f.safetensors").write_bytes(as_safetensors({"__metadata__": metadata}))
    with pytest.raises(BadArgument, match=r"version 2, .* update it"):
        import_from(tmp_path / "f.safetensors", tmp_path / "a")


def test_every_format_has_a_way_out_and_a_way_in() -> None:
    assert set(FORMATS) == {f".{suffix.rpartition('.')[2]}" for suffix in SUFFIXES}
