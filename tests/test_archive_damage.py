"""Input that is not what it should be: a clear error, little memory, never a wrong value."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from archive_checks import assert_holds, written
from seams import index_header

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged, NotAnArchive


def crafted(path: Path, *bodies: Any, data: bytes = bytes(256)) -> Path:
    """An archive with frames that no writer of ours would write."""
    Writer(path).close(seal=False)
    text, after = index_header(0), 0
    for body in bodies:
        raw = body if isinstance(body, bytes) else json.dumps({**body, "after": after}).encode()
        start = struct.pack("<4sII", b"FRME", len(raw), after := zlib.crc32(raw))
        text += start + struct.pack("<I", zlib.crc32(start)) + raw
    (path / "000000.index").write_bytes(text)
    (path / "000000.data").write_bytes(data)
    return path


ENTRY = {
    "layer": "x", "variable": "value", "item": -1, "type": "float32", "shape": [2, 2], "offset": 64, "stored": 16,
    "crc32": zlib.crc32(bytes(16)),
}  # fmt: skip


def step_of(*entries: Any, **change: Any) -> dict[str, Any]:
    return {"step": 0, "entries": list(entries), "about": {}, **change}


def test_a_crafted_archive_is_one(tmp_path: Path) -> None:
    path = crafted(tmp_path / "a", step_of(ENTRY), step_of(step=None), step_of(step=-7))
    assert Archive(path).steps == [0, None, -7] and Archive(path).verify() == 1


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in ("offset", "stored", "crc32") for value in (-64, True, 64.0, "64", None, [64])),
        *({name: value} for name in ("offset", "stored") for value in (2**40 * 64, 2**200, 10**4000)),
        {"offset": 65},
        {"offset": 256},
        *({"shape": shape} for shape in ([-2, -2], [4.0], [True, 4], ["4"], [[4]], {}, "4", 4, None)),
        *({"shape": shape} for shape in ([2], [2**70], [1] * 65)),
        *({"shape": shape, "stored": 0} for shape in ([0, 2**70], [0, -1], [0, 2**62, 2**62], [0] * 65, [0, 10**4000])),
        *({"type": kind} for kind in ("float128", "object", "os.system", None, 4, ["float32"], {}, "")),
        *({"layer": name} for name in (None, 4, ["x"], {})),
        *({"variable": name} for name in (None, 4, ["x"], {})),
        *({"item": item} for item in (None, True, 0.0, "0", [0])),
        {"unknown": 1},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_an_entry_that_cannot_be_is_damage(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ArchiveDamaged):
        Archive(crafted(tmp_path / "a", step_of({**ENTRY, **change}))).verify()


@pytest.mark.parametrize("name", ENTRY)
def test_an_entry_that_lacks_something_is_damage(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveDamaged):
        Archive(crafted(tmp_path / "a", step_of({key: value for key, value in ENTRY.items() if key != name})))


@pytest.mark.parametrize(
    "body",
    [
        step_of(ENTRY, ENTRY),
        step_of(None),
        step_of([]),
        step_of("x"),
        step_of(entries={}),
        step_of(entries=None),
        step_of(entries="entries"),
        step_of(ENTRY, step=None),
        step_of(step=True),
        step_of(step=1.0),
        step_of(step="1"),
        step_of(about=[]),
        step_of(about=None),
        {},
        {"seal": None},
        {"seal": []},
        {"seal": {}},
        {"seal": {"frames": 1, "bytes": 256}},
        {"seal": {"frames": 0, "bytes": 255}},
        {"seal": {"frames": 0, "bytes": 257}},
        {"seal": {"frames": False, "bytes": 256}},
        {"seal": {"frames": 0, "bytes": 256.0}},
        {"seal": {"frames": 0, "bytes": 256, "more": 1}},
        b"",
        b"[]",
        b"null",
        b'{"step": 0, "entries": [], "about": {}, "after": 0}x',
        b'{"step": 0, "step": 1, "entries": [], "about": {}, "after": 0}',
        b'{"step": 0, "entries": [], "about": {"a": 1, "a": 2}, "after": 0}',
        b'{"step": 0, "entries": [], "about": {"a": NaN}, "after": 0}',
        b'{"step": 0, "entries": [], "about": {"a": "\xff"}, "after": 0}',
        b'{"step": 0, "entries": [], "about": {"a": "\xed\xa0\x80"}, "after": 0}',
        '{"step": 0, "entries": [], "about": {}, "after": 0}'.encode("utf-16"),
        b'{"step": 0, "entries": ' + b"[" * 10**5 + b"]" * 10**5 + b', "about": {}, "after": 0}',
        b'{"step": 0, "entries": [], "about": ' + b'{"a":' * 10**5 + b"0" + b"}" * 10**5 + b', "after": 0}',
        b'{"step": 1' + b"0" * 10**5 + b', "entries": [], "about": {}, "after": 0}',
        b'{"step": 0, "entries": [], "about": {}, "after": 1}',
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_frame_that_cannot_be_is_damage(body: Any, tmp_path: Path) -> None:
    path = crafted(tmp_path / "a", body)
    for open_it in (Archive, Writer):
        with pytest.raises(ArchiveDamaged):
            open_it(path)


def test_nothing_stands_behind_a_seal(tmp_path: Path) -> None:
    seal = {"seal": {"frames": 0, "bytes": 0}}
    crafted(tmp_path / "a", seal, data=b"")
    (tmp_path / "a" / ".000000.seal.part").touch()  # its writer was killed before the copy had its name
    assert Archive(tmp_path / "a").sealed
    with pytest.raises(ArchiveDamaged, match="behind"):
        Archive(crafted(tmp_path / "b", seal, step_of(), data=b""))
    with pytest.raises(ArchiveDamaged, match="behind"):
        Archive(crafted(tmp_path / "c", seal, seal, data=b""))


def test_a_checksum_covers_one_entry_only(tmp_path: Path) -> None:
    wrong = {**ENTRY, "layer": "y", "shape": [8], "stored": 32, "crc32": 1}
    archive = Archive(crafted(tmp_path / "a", step_of(ENTRY, wrong)))
    archive.array(archive.entries[0])
    with pytest.raises(ArchiveDamaged, match="not what was written"):
        archive.array(archive.entries[1])


def test_absurd_lengths_take_no_memory(tmp_path: Path) -> None:
    huge = {**ENTRY, "shape": [2**50], "stored": 2**52}
    nothing = {**ENTRY, "shape": [0, 2**50], "stored": 0}
    path = crafted(tmp_path / "a", step_of(nothing))
    start = struct.pack("<4sII", b"FRME", 2**32 - 1, 0)
    (path / "000000.index").write_bytes(
        (path / "000000.index").read_bytes() + start + struct.pack("<I", zlib.crc32(start)) + b"x"
    )
    tracemalloc.start()
    archive = Archive(path)
    assert archive.torn_bytes == 17 and archive.array(archive.entries[0]).shape == (0, 2**50)
    with pytest.raises(ArchiveDamaged):
        Archive(crafted(tmp_path / "b", step_of(huge)))
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


def test_an_index_of_another_version_or_kind_or_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 1)
    whole = (path / "000000.index").read_bytes()
    for begin, error in (
        (b"torchidx\2\0\0\0\0\0\0\0", NotAnArchive),
        (b"torchidx\0\0\0\0\0\0\0\0", NotAnArchive),
        (b"PK\3\4idxx\1\0\0\0\0\0\0\0", NotAnArchive),
        (b"torchidx\1\0\0\0\1\0\0\0", ArchiveDamaged),
    ):
        (path / "000000.index").write_bytes(begin + whole[16:])
        for open_it in (Archive, Writer):
            with pytest.raises(error):
                open_it(path)


GOOD = b'{"format":"torcheer archive","version":1,"about":{}'


def checked(text: bytes) -> bytes:
    return text + b',"crc32":%d}' % zlib.crc32(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", ArchiveDamaged),
        (b"{}", NotAnArchive),
        (b"[]", NotAnArchive),
        (b"PK\3\4", ArchiveDamaged),
        (b'{"format": "zarr"}', NotAnArchive),
        (GOOD + b"}", ArchiveDamaged),
        (checked(GOOD)[:-1] + b" }", ArchiveDamaged),
        (checked(GOOD) + b" ", ArchiveDamaged),
        (checked(GOOD).replace(b'"about":{}', b'"about":{"a":1}'), ArchiveDamaged),
        (checked(GOOD.replace(b"{}", b"[]")), ArchiveDamaged),
        (checked(GOOD.replace(b"{}", b"null")), ArchiveDamaged),
        (checked(GOOD.replace(b"{}", b'{"a":1,"a":1}')), ArchiveDamaged),
        (checked(GOOD.replace(b"{}", b'{"a":NaN}')), ArchiveDamaged),
        (checked(GOOD.replace(b"{}", b'{"a":"\xff"}')), ArchiveDamaged),
        (checked(GOOD.replace(b"{}", b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}")), ArchiveDamaged),
        (checked(GOOD + b',"version":1'), ArchiveDamaged),
        *((checked(GOOD.replace(b"1", version)), NotAnArchive) for version in (b"2", b"0", b"true", b"1.0", b'"1"')),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_foreign_newer_or_damaged_description_is_refused(tmp_path: Path, text: bytes, error: type) -> None:
    (tmp_path / "archive.json").write_bytes(text)
    for open_it in (Archive, Writer):
        with pytest.raises(error):
            open_it(tmp_path)


def test_segments_without_a_description_are_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    (path / "archive.json").unlink()
    for open_it in (Archive, Writer):
        with pytest.raises(ArchiveDamaged, match="missing"):
            open_it(path)


def test_a_file_or_nothing_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for name in ("file", "nothing"):
        with pytest.raises(NotAnArchive, match="no archive"):
            Archive(tmp_path / name)


def test_other_files_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    for name in ("0.index", "0000001.index", "00000².index", "notes.txt", "000007.data", "999999.index.bak"):
        (path / name).write_text("text")
    assert_holds(path, 5)


def test_a_sealed_archive_notices_what_is_added_to_it_or_lost(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 3)
    data = path / "000000.data"
    whole = data.read_bytes()
    for changed in (whole + b"x", whole[:-1], b""):
        data.write_bytes(changed)
        with pytest.raises(ArchiveDamaged):
            Archive(path)
    data.unlink()
    with pytest.raises(ArchiveDamaged):
        Archive(path)


def test_the_loss_of_the_last_segment_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 6, segment_bytes=200)
    assert Archive(path).sealed
    for file in (path / f"000005.{kind}" for kind in ("index", "data")):
        file.unlink()
    for opened in (Archive, Writer):
        with pytest.raises(ArchiveDamaged, match="segment 5 was sealed, and its seal is gone"):
            opened(path)
    (path / "000005.seal").unlink()
    assert not assert_holds(path, 5).sealed
    Writer(path).close()  # killed between two segments, it would look the same
    assert assert_holds(path, 5).sealed
