"""From a path to what is shown."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest
import torch
from seams import (
    Channel,
    Host,
    LiveSource,
    LogSource,
    PassSource,
    PathCatalog,
    open_catalog,
    open_source,
    runs_in,
    start,
)
from studio_hosts import NETWORK
from studio_runs import captured, fake, recorded
from studio_socket import Page
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Writer
from torcheer.errors import BadArgument, NotAnArchive, UnknownLayer

# -- one thing ---------------------------------------------------------------------------------------------------------


def test_each_path_opens_as_what_it_is(tmp_path: Path) -> None:
    recorded(tmp_path / "pass")
    assert open_source(fake(tmp_path / "run")).kind == "run"
    assert isinstance(open_source(captured(tmp_path / "captures")), LogSource)
    history = open_source(str(tmp_path / "pass"))
    assert isinstance(history, PassSource) and history.title == "Digits"
    history.save("again")
    assert open_source(tmp_path / "recordings" / "again").kind == "recording"
    with Host(None) as host:
        assert host.path is not None
        assert isinstance(open_source(host.path), LiveSource)
        assert isinstance(open_source(host.path.parent), LiveSource)


@pytest.mark.parametrize("what", ["missing", "file", "pipe", "other archive", "damaged"])
def test_what_is_nothing_we_know_is_named_with_what_to_try(tmp_path: Path, what: str) -> None:
    path = tmp_path / "thing"
    if what == "file":
        path.write_text("hello")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "other archive":
        Writer(path, about={"kind": "extraction"}).close()
    elif what == "damaged":
        path.mkdir()
        (path / "archive.json").write_text("{")
    (tmp_path / "neighbour").mkdir()
    with pytest.raises((BadArgument, NotAnArchive, ValueError)) as caught:
        open_catalog(path)
    text = str(caught.value)
    assert str(path) in text
    if what == "missing":
        assert "neighbour" in text
    if what in ("missing", "file", "pipe"):
        assert "run directory" in text
    if what == "other archive":
        assert "'extraction'" in text and "history.save()" in text


def test_a_socket_that_nobody_answers_waits(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "control.sock"))
    dead.close()
    source = open_source(tmp_path)
    assert source.kind == "live" and not source.poll() and source.net is None
    run = fake(tmp_path / "run")
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(run / "control.sock"))
    other.close()
    assert open_source(run).kind == "run"  # a killed trainer left it


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_lists_its_runs(tmp_path: Path) -> None:
    fake(tmp_path / "b", 12)
    fake(tmp_path / "deep" / "er" / "c", 1)
    recorded(tmp_path / "pass")
    captured(tmp_path / "caps")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    fake(tmp_path / "b" / "inside")  # a run in a run is not looked for
    found = {one.name: (one.status, one.summary) for one in runs_in(tmp_path)}
    assert found == {
        "b": ("ended", "12 epochs · val loss 0.1417"), "deep/er/c": ("ended", "1 epoch · val loss 0.6"),
        "pass": ("ended", "a recorded pass of Digits"), "caps": ("ended", "captures"),
    }  # fmt: skip


def test_the_live_run_is_shown_first_and_others_can_be_opened(tmp_path: Path) -> None:
    fake(tmp_path / "a", 1)
    with Host(fake(tmp_path / "b", 2), title="live one") as host:
        host.network = NETWORK
        fake(tmp_path / "c", 3)
        place = open_catalog(tmp_path, url="http://127.0.0.1:5/")
        assert [(one.id, one.name, one.status) for one in place.runs] == [
            (0, "a", "ended"), (1, "b", "live"), (2, "c", "ended"),
        ]  # fmt: skip
        assert place.run == 1 and place.first().kind == "live"
        wait_until(lambda: place.first().net is not None, poll=place.first().poll)
        assert host.viewer == "http://127.0.0.1:5/"
        other = place.open_run(2)
        assert other.tables["train_epoch"].count == 3
        place.first().close()
    for number in (-1, 3, 10**9):
        with pytest.raises(UnknownLayer, match="no run"):
            place.open_run(number)


def test_the_newest_run_is_shown_where_none_is_live(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "c", "a")):
        run = fake(tmp_path / name)
        for path in (run, run / "metrics"):
            os.utime(path, (1000 + number, 1000 + number))
    assert open_catalog(tmp_path).first().title == "a"


def test_ids_stay_when_a_run_is_added_or_deleted(tmp_path: Path) -> None:
    fake(tmp_path / "b")
    place = open_catalog(tmp_path)
    assert [one.name for one in place.runs] == ["b"] and not place.refresh()
    fake(tmp_path / "a")
    assert place.refresh() and [(one.id, one.name) for one in place.runs] == [(0, "b"), (1, "a")]
    shutil.rmtree(tmp_path / "b")
    assert place.refresh() and [(one.id, one.name) for one in place.runs] == [(1, "a")]
    fake(tmp_path / "b")
    assert place.refresh() and [one.id for one in place.runs] == [0, 1]
    assert place.open_run(1).title == "a"


def test_pages_are_told_when_a_folder_has_other_runs(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    fake(tmp_path / "b")
    with start(tmp_path, browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        assert [one["name"] for one in page.hello["runs"]] == ["b"]
        fake(tmp_path / "a", 12)
        told = page.until("runs_came", lambda told: len(told["runs"]) == 2)
        assert told["run"] == 0 and told["runs"][1]["summary"] == "12 epochs · val loss 0.1417"
        page.say("open_run", id=1)
        assert page.opened()["title"] == "a"


def test_an_empty_folder_says_what_would_help_and_shows_the_run_that_comes(tmp_path: Path) -> None:
    place = open_catalog(tmp_path)
    source = place.first()
    assert source.kind == "nothing" and "no runs" in source.title and "torcheer train" in source.state.message
    assert place.runs == () and place.run == -1 and place.recordings == ()
    assert not source.poll() and source.units(0, "x", "Act") is None and source.moments == []
    with pytest.raises(UnknownLayer):
        place.open_run(0)
    channel = Channel(source, place)
    fake(tmp_path / "first")
    assert place.refresh()
    channel.poll()
    assert (channel.source.kind, channel.title, channel.run) == ("run", "first", 0)
    assert channel.source.tables["train_epoch"].count == 3


def test_an_empty_folder_becomes_the_watch_that_writes_to_it(tmp_path: Path) -> None:
    place = open_catalog(tmp_path)
    channel = Channel(place.first(), place)
    assert channel.source.kind == "nothing"
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with tl.watch(model, every=1, to=tmp_path, rules=[], tell=lambda text: None):
        model(torch.ones(1, 2))
        wait_until(lambda: channel.source.kind == "run", poll=channel.poll)
        model(torch.ones(1, 2))
    tables = channel.source.tables
    wait_until(lambda: "0 output" in tables and tables["0 output"].count == 2, poll=channel.poll)
    assert place.runs == () and place.run == -1 and channel.title == tmp_path.name


def test_an_empty_folder_becomes_the_live_loop_that_is_hosted_in_it(tmp_path: Path) -> None:
    place = open_catalog(tmp_path)
    channel = Channel(place.first(), place)
    with Host(tmp_path, title="on") as host:
        host.network = NETWORK
        wait_until(lambda: channel.source.kind == "live" and channel.source.net is not None, poll=channel.poll)
        assert channel.title == "on" and channel.source.home == tmp_path / "recordings"
    wait_until(lambda: channel.source.state.status == "done", poll=channel.poll)
    channel.source.close()


def test_what_is_saved_of_a_run_that_came_later_can_be_opened(tmp_path: Path) -> None:
    place = open_catalog(tmp_path)
    channel = Channel(place.first(), place)
    captured(fake(tmp_path / ".made") / "captures")
    (tmp_path / ".made").rename(tmp_path / "run")
    assert place.refresh()
    channel.poll()
    channel.source.saving("kept")()
    assert [one.name for one in place.recordings] == ["kept"]


def test_a_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    fake(tmp_path / "good")
    recorded(tmp_path / "pass")
    (tmp_path / "pass" / "000000.index").write_bytes(b"junk")
    os.utime(tmp_path / "pass", (4e9, 4e9))
    place = open_catalog(tmp_path)
    assert {one.name for one in place.runs} == {"good", "pass"}
    assert place.first().kind == "nothing" and "pass" in place.first().title  # the newest, and why not
    good = next(one.id for one in place.runs if one.name == "good")
    assert place.open_run(good).kind == "run"


@pytest.mark.timing
def test_many_folders_are_looked_through_in_a_moment(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"folder{number}" / "sub").mkdir(parents=True)
    for number in range(60):
        fake(tmp_path / f"run{number}")
    (tmp_path / "folder0" / "sub" / "loop").symlink_to(tmp_path)
    began = time.process_time()
    assert len(runs_in(tmp_path)) == 60
    assert time.process_time() - began < 5


def test_recordings_are_numbers_and_stay_what_they_are(tmp_path: Path) -> None:
    captured(fake(tmp_path / "run") / "captures")
    place: PathCatalog = open_catalog(tmp_path / "run")
    source = place.first()
    assert source.saving("b")().name == "b"
    assert [(one.id, one.name, one.states) for one in place.recordings] == [(0, "b", 4)]
    source.saving("a")()
    assert [(one.id, one.name) for one in place.recordings] == [(0, "b"), (1, "a")]
    opened = place.open_recording(1)
    assert opened.kind == "recording" and opened.moments == source.moments
    for number in (-1, 2):
        with pytest.raises(UnknownLayer, match="no recording"):
            place.open_recording(number)
