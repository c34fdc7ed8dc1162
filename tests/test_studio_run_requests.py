"""What pages ask of the list of runs: names and tags, the trash, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from folder_runs import logged, sweep
from seams import Host, lock_folder, move_to_trash, take_back
from studio_runs import fake
from waiting import wait_until

from torcheer.errors import ArchiveBusy, BadArgument

pytest.importorskip("uvicorn")
from seams import start
from studio_socket import Page


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    return sweep(tmp_path / "runs", 3)


@pytest.fixture
def page(folder: Path) -> Iterator[Page]:
    with start(folder, browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        yield page


def test_a_page_lists_runs_renames_and_tags_them_and_moves_one_to_the_trash(page: Page, folder: Path) -> None:
    assert page.hello["total"] == 3 and page.hello["waiting"] == 0
    assert {column["name"] for column in page.ask("ask_run_columns", 1)} >= {"Name", "train.lr", "loss"}
    cells = page.ask("ask_runs", 2, columns=["Name", "train.lr"])
    assert cells["ids"] == [0, 1, 2] and cells["columns"]["train.lr"] == [0.1, 0.01, 0.001]
    kept = page.ask("note_run", 3, run=1, name="best", tags=["paper", "paper"], note="")
    assert kept == {"kept": str(folder / "sweep-1" / "notes.json")}
    page.until("runs_came", lambda came: came["runs"][1]["name"] == "best")
    assert page.ask("ask_runs", 4, columns=["Name", "Tags"])["columns"]["Tags"] == ["", "paper", ""]
    moved = page.ask("delete_runs", 5, runs=[2])
    assert moved["moved"] == ["sweep-2"] and moved["problems"] == []
    page.until("runs_came", lambda came: came["total"] == 2)
    assert not (folder / "sweep-2").exists() and len(list((folder / ".trash").glob("*/sweep-2/run.json"))) == 1
    assert page.ask("ask_curves", 6, runs=[0, 1], series=["loss"])["curves"][1]["run"] == 1
    assert page.ask("restore_runs", 7, places=moved["places"]) == {"restored": ["sweep-2"], "problems": []}
    page.until("runs_came", lambda came: came["total"] == 3 and came["waiting"] == 0)
    assert page.ask("ask_runs", 8, columns=["loss"])["ids"] == [0, 1, 2] and not (folder / ".trash").exists()
    assert page.ask("tag_runs", 9, runs=[0, 1], add=["all"], remove=["paper"]) == {"count": 2, "problems": []}
    page.until("runs_came", lambda came: came["waiting"] == 0)
    assert page.ask("ask_runs", 10, columns=["Name", "Tags"])["columns"] == {
        "Name": ["sweep-0", "best", "sweep-2"], "Tags": ["all", "all", ""]
    }  # fmt: skip


def test_questions_that_make_no_sense_are_answered_by_a_sentence(page: Page) -> None:
    assert "no run 7" in page.ask("ask_run_details", 1, runs=[7])
    assert "no run has a series" in page.ask("ask_curves", 2, runs=[0], series=["speed"])
    assert "at most 500" in page.ask("ask_curves", 3, runs=[0] * 400, series=["loss", "accuracy"])
    assert "at most 500" in page.ask("ask_run_details", 4, runs=[0] * 501)
    assert "a tag is a word" in page.ask("note_run", 5, run=0, name="", tags=["a b"], note="")
    assert page.ask("delete_runs", 6, runs=[9])["problems"] == [
        "there is no run 9 in the list of 3; it may have been moved away"
    ]


def test_what_comes_back_from_the_trash_replaces_nothing_and_comes_from_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    place = str(move_to_trash(logged(folder / "deep" / "run"), folder, is_live=False).relative_to(folder / ".trash"))
    again = logged(folder / "deep" / "run", steps=2)
    with pytest.raises(BadArgument, match="is there again"):
        take_back(place, folder)
    again.rename(tmp_path / "elsewhere")
    assert take_back(place, folder) == folder / "deep" / "run" and (folder / "deep" / "run" / "run.json").is_file()
    (folder / ".trash" / "day").mkdir(parents=True)
    (folder / ".trash" / "day" / "link").symlink_to(tmp_path / "elsewhere")
    for wrong in (place, "", ".", "day", "day/link", "../../elsewhere", "day/../../../elsewhere", str(again)):
        with pytest.raises(BadArgument, match="is not in"):
            take_back(wrong, folder)
    assert (tmp_path / "elsewhere").is_dir()


def test_runs_of_others_are_not_deleted(folder: Path) -> None:
    (folder / "theirs").mkdir()
    (folder / "theirs" / "metrics.csv").write_text("epoch,step,loss\n0,1,0.5\n")
    with start(folder, browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        wait_until(lambda: len(page.ask("ask_runs", 1, columns=["Name"])["ids"]) == 4, "all are read")
        cells = page.ask("ask_runs", 1, columns=["Name"])
        number = cells["ids"][cells["columns"]["Name"].index("theirs")]
        assert "Lightning's, and only read here" in page.ask("delete_runs", 2, runs=[number])["problems"][0]
        assert (folder / "theirs").is_dir()


def test_one_run_alone_has_no_list(tmp_path: Path) -> None:
    with start(fake(tmp_path / "run"), browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        assert page.hello["total"] == 0 and "no folder of runs" in page.ask("ask_run_columns", 1)


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    run = logged(tmp_path / "run")
    with pytest.raises(ArchiveBusy, match="run is being written"):
        move_to_trash(run, tmp_path, is_live=True)
    lock = lock_folder(run / "log" / "live")
    try:
        with pytest.raises(ArchiveBusy, match="stop it first"):
            move_to_trash(run, tmp_path, is_live=False)
    finally:
        lock.close()
    assert move_to_trash(run, tmp_path, is_live=False).is_dir()


def test_a_live_run_is_not_deleted(folder: Path) -> None:
    with Host(fake(folder / "live")), start(folder, browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        wait_until(lambda: page.ask("ask_runs", 1, columns=["Status"])["columns"]["Status"][0] == "live", "it is live")
        assert "is being written" in page.ask("delete_runs", 2, runs=[0])["problems"][0]
        assert (folder / "live").is_dir()


def test_links_are_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    outside, folder = logged(tmp_path / "outside" / "run"), tmp_path / "runs"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    for path in (folder / "link", folder / "linked" / "run", folder / ".." / "outside" / "run", outside):
        with pytest.raises(BadArgument, match="link"):
            move_to_trash(path, folder, is_live=False)
    assert outside.is_dir()


def test_deleting_a_run_twice_leaves_both_in_the_trash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "20261117-160000")
    for _ in range(2):
        move_to_trash(logged(tmp_path / "run"), tmp_path, is_live=False)
    assert len(list((tmp_path / ".trash").rglob("run.json"))) == 2
