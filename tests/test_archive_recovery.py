"""A damaged archive: what can be trusted is kept bit for bit, what was lost is said, the original stays as it was."""

from __future__ import annotations

import random
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from seams import RepairReport, index_header

import torcheer as tl
from torcheer.archive import Archive, Writer, repair
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, ValueUnavailable
from torcheer.records import Sample


def values(step: int) -> list[Sample]:
    draw = np.random.default_rng(step)
    return [
        Sample(step, "conv1", "value", -1, draw.normal(size=(8, 8)).astype(np.float32)),
        Sample(step, "conv1", "grad", 2, draw.normal(size=(7,))),
        Sample(step, "head", "value", -1, draw.integers(0, 9, (3, 0))),
    ]


def written(path: Path, steps: int = 5, **options: object) -> Path:
    with Writer(path, about={"model": "Net"}, **options) as writer:  # type: ignore[arg-type]
        for step in range(steps):
            writer.step(values(step), rate=step / 10)
    return path


def frames(path: Path) -> list[tuple[int, int]]:
    """Where each frame of the first index begins and ends, the seal's last."""
    text = (path / "000000.index").read_bytes()
    starts = [found.start() for found in re.finditer(b"FRME", text)]
    return list(zip(starts, [*starts[1:], len(text)]))


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def stored(path: Path) -> dict[tuple[object, ...], bytes]:
    archive = Archive(path)
    return {(one.step, one.layer, one.variable, one.item): archive.array(one).tobytes() for one in archive.entries}


def bytes_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def repaired(path: Path) -> RepairReport:
    """Repair, and see that the original is as it was and the new archive whole."""
    before = bytes_of(path)
    found = repair(path)
    assert bytes_of(path) == before
    assert found.to is not None and Archive(found.to).sealed and Archive(found.to).verify() >= 0
    assert str(repair(found.to)).endswith("nothing is to be repaired")
    return found


# Nothing to do


def test_a_healthy_archive_is_whole(tmp_path: Path) -> None:
    found = repair(written(tmp_path / "a"))
    assert found.to is None and found.lost == ()
    assert str(found) == f"{tmp_path / 'a'} is whole: 5 steps, 15 values, 1.5 KB, sealed; nothing is to be repaired"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_an_unfinished_step_at_the_end_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = Writer(path)
    for step in range(5):
        writer.step(values(step))
    start, end = frames(path)[4]
    data = (path / "000000.index").read_bytes()
    (path / "000000.index").write_bytes(data[: end - 30])
    found = repair(path)
    assert found.to is None and found.torn_bytes == end - 30 - start
    assert "is fine as it is: 4 steps, 12 values, 1.2 KB, open" in str(found)
    assert "at its end are of a step that was never finished" in str(found)


def test_an_archive_that_is_being_written_is_fine(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a")
    writer.step(values(0))
    assert repair(tmp_path / "a").to is None
    writer.step(values(1))
    writer.close()


# Damage, and what is left


def test_a_damaged_value_is_left_out_and_all_others_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    expected = stored(path)
    flip(path / "000000.data", Archive(path).find("conv1", step=3).offset)
    found = repaired(path)
    del expected[3, "conv1", "value", -1]
    assert stored(tmp_path / "a-repaired") == expected
    assert found.lost == ("step 3: 'conv1' value: it is not what was written",)
    assert str(found).splitlines() == [
        "lost: step 3: 'conv1' value: it is not what was written",
        "kept: 5 steps, 14 values, 1.3 KB",
        f"{tmp_path / 'a-repaired'} holds what was kept; {path} is as it was",
    ]


def test_what_the_archive_and_its_frames_say_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    flip(path / "000000.data", 0)
    repaired(path)
    archive = Archive(tmp_path / "a-repaired")
    assert archive.about == {"model": "Net"} and [body["about"]["rate"] for body in archive.frames][3] == 0.3


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_damaged_frame_costs_its_step_and_no_other(tmp_path: Path, step: int) -> None:
    path = written(tmp_path / "a")
    expected = {key: data for key, data in stored(path).items() if key[0] != step}
    start, end = frames(path)[step]
    flip(path / "000000.index", (start + end) // 2)
    found = repaired(path)
    assert stored(tmp_path / "a-repaired") == expected
    where = f"behind step {step - 1}" if step else "before all others"
    assert found.lost == (f"segment 0: a step or more, {where}: {end - start} bytes of its index",)


def test_a_frame_that_was_cut_out_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    start, end = frames(path)[2]
    data = (path / "000000.index").read_bytes()
    (path / "000000.index").write_bytes(data[:start] + data[end:])
    assert repaired(path).lost == (f"segment 0: a step or more, before byte {start} of its index",)
    assert Archive(tmp_path / "a-repaired").steps == [0, 1, 3, 4]


@pytest.mark.parametrize("place", [0, 9, 13])
def test_a_damaged_beginning_of_an_index_costs_nothing(tmp_path: Path, place: int) -> None:
    path = written(tmp_path / "a")
    expected = stored(path)
    flip(path / "000000.index", place)
    assert len(repaired(path).lost) == 1
    assert stored(tmp_path / "a-repaired") == expected


def test_an_index_that_lost_its_beginning_keeps_its_frames(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    expected = stored(path)
    index = path / "000000.index"
    index.write_bytes(index.read_bytes()[len(index_header(0)) :])
    repaired(path)
    assert stored(tmp_path / "a-repaired") == expected


def test_a_data_file_that_was_cut_costs_what_lay_behind(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    first = Archive(path).find("conv1", step=2).offset
    with open(path / "000000.data", "r+b") as file:
        file.truncate(first)
    found = repaired(path)
    assert "step 2: 'conv1' value: it lies outside of the data file" in found.lost
    assert "step 4: 'conv1' grad item 2: it lies outside of the data file" in found.lost
    assert {key[0] for key in stored(tmp_path / "a-repaired") if key[1] == "conv1"} == {0, 1}


def test_a_missing_segment_costs_its_steps(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 12, segment_bytes=1500)
    (path / "000001.index").unlink()
    size = (path / "000001.data").stat().st_size
    found = repaired(path)
    assert found.lost == (f"segment 1: its index is missing, and with it what its {size} bytes of values are",)
    assert 2 < len(Archive(tmp_path / "a-repaired").steps) < 12


def test_a_missing_data_file_costs_its_values(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 12, segment_bytes=1500)
    (path / "000001.data").unlink()
    found = repaired(path)
    assert all("lies outside of the data file" in line for line in found.lost)
    assert Archive(tmp_path / "a-repaired").about == {"model": "Net"}


@pytest.mark.parametrize(
    "text", [None, "", "{", '{"format": "torcheer archive", "version": 1, "about": {"model": "Bet"}}']
)
def test_a_damaged_archive_json_costs_only_what_it_says(tmp_path: Path, text: str | None) -> None:
    path = written(tmp_path / "a")
    (path / "archive.json").unlink() if text is None else (path / "archive.json").write_text(text)
    assert repaired(path).lost == ("what the archive says of itself: archive.json is missing or damaged",)
    assert Archive(tmp_path / "a-repaired").about == {} and len(stored(tmp_path / "a-repaired")) == 15


@pytest.mark.parametrize("codec", ["zstd", "float16", "int8", "float16+zstd", "int8+zstd"])
def test_values_kept_by_a_codec_read_the_same_after_a_repair(tmp_path: Path, codec: str) -> None:
    path = written(tmp_path / "a", codec=codec)
    expected = stored(path)
    flip(path / "000000.data", Archive(path).find("conv1", step=3).offset)
    repaired(path)
    del expected[3, "conv1", "value", -1]
    assert stored(tmp_path / "a-repaired") == expected


def test_a_codec_of_one_frame_is_not_that_of_another(tmp_path: Path) -> None:
    for codec in ("raw", "float16", "raw"):
        with Writer(tmp_path / "a", codec=codec) as writer:
            writer.step(values(0))
    flip(tmp_path / "a" / "000001.data", 0)
    repaired(tmp_path / "a")
    old, new = Archive(tmp_path / "a"), Archive(tmp_path / "a-repaired")
    for frame in (0, 2):
        for one, other in zip(old.frames[frame]["entries"], new.frames[frame]["entries"]):
            assert old.array(one).tobytes() == new.array(other).tobytes()


def test_random_damage_never_gives_a_wrong_value(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", 6, segment_bytes=1200)
    expected, draw = stored(whole), random.Random(0)
    files = sorted(file.name for file in whole.iterdir() if file.name != "LOCK")
    for attempt in range(120):
        path = tmp_path / f"a{attempt}"
        shutil.copytree(whole, path)
        for _ in range(draw.randrange(1, 4)):
            file = path / draw.choice(files)
            data = bytearray(file.read_bytes())
            place = draw.randrange(max(1, len(data)))
            data[place : place + draw.randrange(1, 60)] = b"" if draw.random() < 0.3 else bytes([draw.randrange(256)])
            file.write_bytes(data)
        try:
            found = repair(path)
        except TorcheerError:
            continue
        kept = stored(found.to or path)
        assert kept.items() <= expected.items()
        assert len(kept) == len(expected) or found.lost or found.torn_bytes


# Histories


def test_a_history_with_one_damaged_value_loads_with_all_others(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    history = tl.log_forward_pass(model, torch.rand(3, 4))
    path = history.save(tmp_path / "net")
    flip(path / "000000.data", Archive(path).find("2", "value 0").offset)
    found = repaired(path)
    again = tl.load(tmp_path / "net-repaired")
    assert found.lost == ("step 0: 'relu_1_2' value 0: it is not what was written",)
    assert [op.label for op in again] == [op.label for op in history]
    assert torch.equal(again["linear_2"].tensor_contents, history["linear_2"].tensor_contents)
    with pytest.raises(ValueUnavailable, match="it was damaged, and a repair left it out"):
        _ = again["relu_1"].tensor_contents


def test_a_history_whose_data_was_cut_names_what_it_lost_by_label(tmp_path: Path) -> None:
    path = tl.log_forward_pass(torch.nn.ReLU(), torch.rand(3)).save(tmp_path / "net")
    with open(path / "000000.data", "r+b") as file:
        file.truncate(Archive(path).find("1", "value 0").offset)
    assert repaired(path).lost[0] == "step 0: 'relu_1_1' value 0: it lies outside of the data file"
    assert len(tl.load(tmp_path / "net-repaired")) == 3


def test_a_history_whose_archive_json_is_gone_is_known_by_its_records(tmp_path: Path) -> None:
    history = tl.log_forward_pass(torch.nn.ReLU(), torch.rand(3))
    path = history.save(tmp_path / "net")
    (path / "archive.json").unlink()
    repaired(path)
    assert str(tl.load(tmp_path / "net-repaired")) == str(history)


# Refusals


def test_an_archive_of_which_nothing_is_left_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 1)
    start, _ = frames(path)[0]
    flip(path / "000000.index", start + 20)
    with pytest.raises(ArchiveDamaged, match=r"nothing in .* can be trusted: segment 0: a step or more"):
        repair(path)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_an_archive_of_a_version_to_come_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as future:
        future.setattr("torcheer.archive.format.archive_folder.VERSION", 9)
        path = written(tmp_path / "a")
    with pytest.raises(NotAnArchive, match="version 9"):
        repair(path)


def test_a_folder_without_an_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="holds no archive"):
        repair(tmp_path)


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    flip(path / "000000.data", 0)
    (tmp_path / "a-repaired").mkdir()
    with pytest.raises(BadArgument, match="there already; repair to a new folder"):
        repair(path)
    assert repair(path, tmp_path / "elsewhere").to == tmp_path / "elsewhere"


def test_without_ml_dtypes_a_type_that_numpy_lacks_is_repaired_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = torch.arange(64).bfloat16()
    with Writer(tmp_path / "a") as writer:
        writer.step([Sample(0, "x", "value", -1, values), Sample(0, "y", "value", -1, np.ones(9))])
    flip(tmp_path / "a" / "000000.data", Archive(tmp_path / "a").find("y").offset)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    again = Archive(repair(tmp_path / "a").to)
    assert (
        again.find("x").type == "bfloat16"
        and again.array(again.find("x")).tobytes() == values.view(torch.uint8).numpy().tobytes()
    )
