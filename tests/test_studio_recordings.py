"""Recordings: what is saved comes back, bit for bit; what is damaged says so."""

from __future__ import annotations

import math
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from archive_checks import unwritable
from seams import (
    AlertSeen,
    Column,
    Layer,
    LiveSource,
    LogSource,
    Moment,
    Network,
    Parameter,
    Projection,
    RecordedValue,
    Source,
    State,
    TableHead,
    TableRows,
    Variable,
    net_of,
    open_catalog,
    recordings_in,
)

from torcheer.archive import Writer
from torcheer.errors import ArchiveDamaged, BadArgument, CannotWrite, NotAnArchive, TorcheerError, ValueUnavailable

NET = net_of(
    Network(
        "net <b>", (Layer("in", (4,)), Layer("ж\n", (2, 3), place=(1.5, 0.1 + 0.2, -3.0))),
        (Projection("w", "in", "ж\n", shape=(6, 4)),), (Variable("Act", range=(-1.0, 1.0)), Variable("Grad")),
    )
)  # fmt: skip


def filled(folder: Path, states: int = 5) -> LiveSource:
    """A live source as it would be after a while."""
    source = LiveSource(folder / "control.sock", title="a title")
    source.net, source.state = NET, State("running", {"Epoch": 3, "Name": "x"}, ("stop",), batch=3)
    source.parameters = (Parameter("lr", 0.1), Parameter("list", [1, 2.5, "x"]))
    source.alerts = [AlertSeen("bad", "error", 3, "rule", "in")]
    head = TableHead("t", "T", "x", columns=(Column("x", "int"), Column("y"), Column("cells", "tensor", (2,))))
    cells = {"x": [1, 2, 2**60], "y": [0.1 + 0.2, math.nan, math.inf], "cells": [[1.0, None], [2.0, 3.0], None]}
    source.tables["t"] = TableRows(head, cells, 3)
    rng = np.random.default_rng(0)
    for number in range(states):
        values = {
            ("in", "Act"): RecordedValue(number, rng.normal(size=(3, 4)).astype(np.float32)),
            ("in", "Grad"): RecordedValue(0, np.array([[np.nan, -0.0, np.inf, 5e-324]])),
            ("ж\n", "Act"): RecordedValue(0, rng.normal(size=(3, 2, 3)).astype(ml_dtypes.bfloat16)),
            ("w", "Wt"): RecordedValue(-1, rng.normal(size=(6, 4)).astype(np.float16)),
            ("w", "Wt[in:2]"): RecordedValue(-1, np.arange(4, dtype=np.int64)),
        }
        moment = Moment(7 + number, number * 10, {"Epoch": number, "Name": "y"}, number % 2 == 1)
        missing = {("ж\n", "Grad"): f"no backward in {number}"} if number != 2 else {}
        source.timeline.add(moment, values, missing)
    return source


def same(first: Source, second: Source) -> None:
    """Whether two sources show the same, to the last bit."""
    assert first.title == second.title and first.net == second.net and first.moments == second.moments
    assert first.parameters == second.parameters and first.alerts == second.alerts
    assert first.tables.keys() == second.tables.keys()
    for name, table in first.tables.items():
        assert repr(table.columns) == repr(second.tables[name].columns) and table.head == second.tables[name].head
    for moment in first.moments:
        one, other = first.values(moment.id), second.values(moment.id)
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert value.first == other[key].first and value.array.dtype == other[key].array.dtype
            assert value.array.shape == other[key].array.shape
            assert value.array.tobytes() == other[key].array.tobytes()


@pytest.fixture
def source(tmp_path: Path) -> LiveSource:
    return filled(tmp_path)


def test_what_is_saved_comes_back_bit_for_bit(source: LiveSource, tmp_path: Path) -> None:
    saved = source.save("first")
    assert (saved.id, saved.name, saved.states) == (0, "first", 5) and saved.bytes > 1000
    opened = LogSource(tmp_path / "recordings" / "first")
    same(source, opened)
    assert opened.kind == "recording" and opened.state.can == () and opened.state.counters == source.state.counters
    assert not opened.poll() and opened.fileno() == -1


def test_a_recording_says_why_a_value_is_missing_as_the_live_page_did(source: LiveSource, tmp_path: Path) -> None:
    source.save("first")
    first = LogSource(tmp_path / "recordings" / "first")
    first.save("second")
    second = LogSource(tmp_path / "recordings" / "second")
    for number in range(5):
        said = [one.why(7 + number, "ж\n", "Grad") for one in (source, first, second)]
        assert said == ["it was not recorded at this moment" if number == 2 else f"no backward in {number}"] * 3


def test_a_recording_whose_reasons_were_damaged_is_told(source: LiveSource, tmp_path: Path) -> None:
    source.save("first")
    moment = {"id": 1, "step": 0, "counters": {}, "test": False}
    for number, told in enumerate(([["why"]], "why", 5, [["why", "Act", 7]])):
        first = LogSource(tmp_path / "recordings" / "first").store.archive
        with Writer(tmp_path / f"odd{number}", about=first.about) as writer:
            writer.step([], **first.frames[0]["about"])
            writer.step([], moment=moment, absences=told)
        with pytest.raises(ArchiveDamaged, match=f"odd{number} is not a whole recording"):
            LogSource(tmp_path / f"odd{number}")


def test_a_recording_answers_like_what_was_recorded(source: LiveSource, tmp_path: Path) -> None:
    source.save("first")
    opened = LogSource(tmp_path / "recordings" / "first")
    for moment in (7, 9, 11):
        for layer, variable, item, of in [
            ("in", "Act", 4, None), ("ж\n", "Act", 1, None), ("in", "r.Wt", 0, ("ж\n", 3)),
            ("ж\n", "s.DWt", 0, ("in", 1)), ("ghost", "Act", 0, None),
        ]:  # fmt: skip
            one, other = (
                source.units(moment, layer, variable, item, of),
                opened.units(moment, layer, variable, item, of),
            )
            assert (one is None) == (other is None)
            assert one is None or np.array_equal(one, other, equal_nan=True)
    assert source.trace("in", 2, ("Act", "Grad"), 4) == opened.trace("in", 2, ("Act", "Grad"), 4)


def test_a_recording_of_a_recording_is_the_same(source: LiveSource, tmp_path: Path) -> None:
    source.save("first")
    opened = LogSource(tmp_path / "recordings" / "first")
    opened.save("second")
    again = LogSource(tmp_path / "recordings" / "second")
    assert len(again.moments) == len(source.moments)
    same(opened, again)


def test_recordings_are_listed_and_names_are_never_reused(source: LiveSource, tmp_path: Path) -> None:
    names = [source.save("same").name, source.save("same").name, source.save().name]
    assert names[:2] == ["same", "same-2"] and names[2].startswith("recording-")
    (tmp_path / "recordings" / "other").mkdir()
    (tmp_path / "recordings" / ".hidden.part").mkdir()
    listed = recordings_in(tmp_path / "recordings")
    assert sorted(one.name for one in listed) == sorted(names)
    assert [one.id for one in listed] == [0, 1, 2] and {one.states for one in listed} == {5}
    assert recordings_in(tmp_path / "nowhere") == [] and recordings_in(None) == []


def test_a_recording_that_goes_while_they_are_listed_takes_no_other_with_it(source: LiveSource, tmp_path: Path) -> None:
    home = tmp_path / "recordings"
    for name in ("a", "b", "c"):
        source.save(name)
    place, ended = open_catalog(home / "c"), threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            (home / "a").rename(tmp_path / "a")
            (tmp_path / "a").rename(home / "a")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        listed = [place.recordings for _ in range(300)]
    finally:
        ended.set()
        thread.join()
    assert all({"b", "c"} <= {one.name for one in found} for found in listed)
    assert {one.states for found in listed for one in found} == {5}


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "a b", "x" * 65, "ä", "-a", "a\n"])
def test_a_name_is_letters_digits_and_dashes(source: LiveSource, tmp_path: Path, name: str) -> None:
    with pytest.raises(BadArgument, match="letters, digits"):
        source.save(name)
    assert not (tmp_path / "recordings").exists()


def test_nothing_to_save_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueUnavailable, match="no state to save"):
        LiveSource(tmp_path / "control.sock").save()


def test_a_folder_that_cannot_be_written_to_is_named(source: LiveSource, tmp_path: Path) -> None:
    with unwritable(tmp_path / "recordings") as folder:
        with pytest.raises(CannotWrite, match="recordings"):
            source.save("first")
        assert not list(folder.iterdir())


def test_a_file_in_the_way_is_named_and_nothing_is_left_behind(source: LiveSource, tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("a file")
    with pytest.raises(CannotWrite, match="recordings"):
        source.save("first")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["recordings"]


def test_what_is_no_recording_is_refused(source: LiveSource, tmp_path: Path) -> None:
    Writer(tmp_path / "other", about={"kind": "extraction"}).close()
    with pytest.raises(NotAnArchive, match="which the studio cannot show"):
        LogSource(tmp_path / "other")
    Writer(tmp_path / "newer", about={"kind": "studio recording", "recording": 99}).close()
    with pytest.raises(NotAnArchive, match="another version"):
        LogSource(tmp_path / "newer")
    Writer(tmp_path / "empty", about={"kind": "studio recording", "recording": 1}).close()
    with pytest.raises(ArchiveDamaged, match="not a whole recording"):
        LogSource(tmp_path / "empty")


@pytest.mark.parametrize(
    "about", [{}, {"net": 5}, {"net": None, "state": {}, "parameters": [], "alerts": [], "tables": 3}]
)
def test_a_recording_that_says_nonsense_is_refused(tmp_path: Path, about: dict[str, Any]) -> None:
    with Writer(tmp_path / "odd", about={"kind": "studio recording", "recording": 1, "states": 0}) as writer:
        writer.step([], **about)
    with pytest.raises(ArchiveDamaged, match="not a whole recording"):
        LogSource(tmp_path / "odd")


def test_a_damaged_value_is_missing_and_told_and_the_others_are_there(source: LiveSource, tmp_path: Path) -> None:
    source.save("first")
    data = tmp_path / "recordings" / "first" / "000000.data"
    raw = bytearray(data.read_bytes())
    raw[0] ^= 1
    data.write_bytes(raw)
    opened = LogSource(tmp_path / "recordings" / "first")
    assert opened.units(7, "in", "Act", 1) is None
    assert "not what was written" in opened.poll().problems[0]
    assert opened.units(8, "in", "Act", 1) is not None and opened.units(7, "ж\n", "Act", 1) is not None


def test_a_recording_cut_anywhere_shows_only_true_values_or_refuses(source: LiveSource, tmp_path: Path) -> None:
    source.save("first")
    folder, rng = tmp_path / "recordings" / "first", random.Random(0)
    kept, refused = 0, 0
    for number in range(150):
        copy = tmp_path / "copies" / str(number)
        shutil.copytree(folder, copy)
        victim = copy / rng.choice(["000000.index", "000000.data", "archive.json"])
        raw = bytearray(victim.read_bytes())
        if rng.random() < 0.5:
            raw = raw[: rng.randrange(len(raw))]
        else:
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        victim.write_bytes(raw)
        try:
            opened = LogSource(copy)
        except TorcheerError as error:
            assert str(copy) in str(error)
            refused += 1
            continue
        for moment in opened.moments:
            for layer in ("in", "ж\n"):
                one, other = source.units(moment.id, layer, "Act", 2), opened.units(moment.id, layer, "Act", 2)
                assert other is None or np.array_equal(one, other)  # type: ignore[arg-type]
        kept += 1
    assert kept and refused


def test_a_large_recording_is_not_read_to_be_opened(source: LiveSource, tmp_path: Path) -> None:
    source.timeline.clear()
    for number in range(20):
        values = {("in", "Act"): RecordedValue(0, np.zeros((250_000, 4), np.float32))}
        source.timeline.add(Moment(number, number), values)
    source.save("large")
    opened = LogSource(tmp_path / "recordings" / "large")
    assert not opened.store.archive._checked  # nothing was touched
    opened.units(3, "in", "Act", 0)
    assert len(opened.store.archive._checked) == 1
