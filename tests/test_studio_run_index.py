"""The index of a folder of runs: read once, kept, read again where files changed; its columns and curves."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from folder_runs import logged, sweep
from seams import (
    RunCurves,
    RunIndex,
    RunNotes,
    is_live,
    kind_of,
    list_cells,
    list_columns,
    load_index,
    open_catalog,
    read_facts,
    read_notes,
    run_details,
    run_index,
    runs_below,
    save_index,
    thinned,
    write_notes,
)
from seams import open_source_module as open_source
from studio_runs import fake

from torcheer.errors import BadArgument


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the viewer's own for each test."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("TORCHEER_STATE", str(folder))
    return folder


def indexed(folder: Path, budget_secs: float = math.inf) -> RunIndex:
    index = RunIndex(folder, kind_of, is_live)
    index.refresh(runs_below(folder), budget_secs)
    if not index.waiting:
        index.refresh(runs_below(folder), budget_secs)  # the first call may only have taken what was kept
    return index


def test_a_run_in_brief_has_its_config_and_last_results(tmp_path: Path) -> None:
    run = logged(tmp_path / "run", config={"lr": 0.1, "layers": [64, 32]})
    facts = read_facts(run, "run")
    assert facts.config == {"train.lr": 0.1, "train.layers": "64, 32"}
    assert facts.results == {"Step": 40.0, "loss": math.exp(-2), "accuracy": 1 - math.exp(-2) / 2}
    assert (facts.made_by, facts.summary) == ("a test", "40 steps")


def test_a_run_with_epochs_has_the_results_of_the_last(tmp_path: Path) -> None:
    facts = read_facts(fake(tmp_path / "run", 4), "run")
    assert facts.results == {"Epoch": 4.0, "loss": 0.125, "val loss": 0.225}
    assert facts.summary == "4 epochs · val loss 0.225"


def test_a_run_that_cannot_be_read_says_why_and_is_listed(tmp_path: Path) -> None:
    run = logged(tmp_path / "run")
    (run / "log" / "live" / "000000.index").write_bytes(b"junk")
    logged(tmp_path / "good")
    index = indexed(tmp_path)
    assert [run.name for run in index.listed()] == ["good", "run"]
    assert "cut off" in index.runs[1].facts.problem and not index.runs[0].facts.problem


def test_an_index_is_kept_and_only_changed_runs_are_read_again(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(tmp_path, 4)
    monkeypatch.setattr(run_index, "_WORTH_SAVING_SECS", 0.0)
    before = indexed(tmp_path)
    assert len(list((state / "runs").iterdir())) == 1
    read: list[str] = []
    monkeypatch.setattr(
        run_index, "read_facts", lambda path, kind, check: read.append(path.name) or read_facts(path, kind)
    )
    write_notes(tmp_path / "sweep-2", RunNotes("second"))
    after = indexed(tmp_path)
    assert read == ["sweep-2"] and after.runs[2].facts.notes.name == "second"
    assert list_cells(after, ["loss", "train.lr"]) | {"revision": 0} == list_cells(before, ["loss", "train.lr"]) | {
        "revision": 0
    }


def test_a_damaged_or_foreign_index_is_made_anew(tmp_path: Path) -> None:
    index = indexed(sweep(tmp_path / "runs", 2))
    file = tmp_path / "index"
    save_index(file, {index.name_of(number): run for number, run in index.runs.items()})
    stored = load_index(file)
    assert stored["sweep-1"].facts == index.runs[1].facts
    assert np.array_equal(stored["sweep-1"].numbers, index.runs[1].numbers)
    data = file.read_bytes()
    for damaged in (data[:-1], data[:40], b"", data[:-3] + b"x" + data[-2:], b"TCHRUNS9" + data[8:]):
        file.write_bytes(damaged)
        assert load_index(file) == {}


def test_a_folder_that_is_only_read_has_an_index_too(tmp_path: Path, state: Path) -> None:
    sweep(tmp_path, 2)
    before = sorted(path for path in tmp_path.rglob("*"))
    index = indexed(tmp_path)
    assert len(index.runs) == 2 and sorted(path for path in tmp_path.rglob("*")) == before


def test_reading_many_runs_goes_on_with_the_next_call(tmp_path: Path) -> None:
    sweep(tmp_path, 5)
    index = indexed(tmp_path, budget_secs=-1)
    assert (len(index.runs), index.waiting, index.total) == (1, 4, 5)
    assert [run.name for run in index.listed()] == [f"sweep-{number}" for number in range(5)]
    while index.waiting:
        assert index.refresh(runs_below(tmp_path), -1)
    assert len(index.runs) == 5 and not index.refresh(runs_below(tmp_path), -1)


def test_columns_say_where_they_are_from_and_whether_runs_differ(tmp_path: Path) -> None:
    sweep(tmp_path, 3)
    columns = {column.name: (column.group, column.count, column.varies) for column in list_columns(indexed(tmp_path))}
    assert columns["train.lr"] == ("config", 3, True) and columns["loss"] == ("result", 3, True)
    assert columns["Step"] == ("result", 3, False) and columns["Tags"] == ("run", 3, False)


def test_a_column_that_a_run_does_not_have_is_empty_there(tmp_path: Path) -> None:
    logged(tmp_path / "a", config={"lr": 0.1})
    fake(tmp_path / "b", 2)
    cells = list_cells(indexed(tmp_path), ["Name", "train.lr", "accuracy", "val loss", "nobody has this"])
    assert cells["columns"] == {
        "Name": ["a", "b"], "train.lr": [0.1, None], "accuracy": [1 - math.exp(-2) / 2, None],
        "val loss": [None, 0.35], "nobody has this": [None, None],
    }  # fmt: skip


def test_a_setting_and_a_result_of_one_name_are_two_columns(tmp_path: Path) -> None:
    run = logged(tmp_path / "a")
    (run / "spec.json").write_text(json.dumps({"loss": "mse"}))
    index = indexed(tmp_path)
    assert {"loss", "config.loss"} <= {column.name for column in list_columns(index)}
    assert list_cells(index, ["loss", "config.loss"])["columns"] == {"loss": [math.exp(-2)], "config.loss": ["mse"]}


def test_curves_are_what_was_logged(tmp_path: Path) -> None:
    sweep(tmp_path, 2)
    fake(tmp_path / "epochs", 3)
    curves = RunCurves(indexed(tmp_path))
    answer = curves.answer([0, 1, 2], ["loss", "accuracy"])
    drawn = {(curve["run"], curve["series"]): (curve["x_name"], curve["x"]) for curve in answer["curves"]}
    assert drawn == {
        (0, "loss"): ("Epoch", [1, 2, 3]),
        (1, "loss"): ("Step", [0, 10, 20, 30, 40]), (1, "accuracy"): ("Step", [0, 10, 20, 30, 40]),
        (2, "loss"): ("Step", [0, 10, 20, 30, 40]), (2, "accuracy"): ("Step", [0, 10, 20, 30, 40]),
    }  # fmt: skip
    assert answer["curves"][1]["y"] == [math.exp(-0.1 * step) for step in range(5)]
    with pytest.raises(BadArgument, match=r"no run has a series 'los' among 5\. Did you mean 'loss'"):
        curves.answer([0], ["los"])


def test_a_thinned_curve_keeps_its_ends_its_spikes_and_its_nan() -> None:
    x = np.arange(10_000.0)
    y = np.sin(x / 500)
    y[1234], y[4321], y[7777] = 50.0, np.nan, -50.0
    places, values = thinned(x, y, 200)
    assert len(places) <= 203 and (places[0], places[-1]) == (0, 9999)
    assert 50.0 in values and -50.0 in values and np.isnan(values).sum() == 1
    assert np.all(np.diff(places) > 0)


def test_notes_lie_beside_the_log_and_are_listed(tmp_path: Path) -> None:
    run = logged(tmp_path / "run")
    log = [file.read_bytes() for file in sorted((run / "log").rglob("*.index"))]
    write_notes(run, RunNotes("the good one", ("baseline", "paper"), "why\nnot"))
    assert [file.read_bytes() for file in sorted((run / "log").rglob("*.index"))] == log
    index = indexed(tmp_path)
    details = run_details(index, 0)
    assert (details["name"], details["tags"], details["note"]) == ("the good one", ["baseline", "paper"], "why\nnot")
    assert [run.name for run in index.listed()] == ["the good one"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_notes_on_a_run_that_may_only_be_read_are_kept_by_the_viewer(tmp_path: Path, state: Path) -> None:
    run = logged(tmp_path / "run")
    run.chmod(0o500)
    assert state in write_notes(run, RunNotes("mine")).parents
    assert read_notes(run).name == "mine"


def test_notes_on_a_foreign_run_leave_it_as_it_is(tmp_path: Path, state: Path) -> None:
    (tmp_path / "run").mkdir()
    assert state in write_notes(tmp_path / "run", RunNotes(tags=("a",)), foreign=True).parents
    assert list((tmp_path / "run").iterdir()) == [] and read_notes(tmp_path / "run").tags == ("a",)


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        (RunNotes("a\nb"), "one line"), (RunNotes("a" * 201), "at most 200"), (RunNotes(tags=("a b",)), "a word"),
        (RunNotes(tags=("",)), "a word"), (RunNotes(tags=tuple(map(str, range(33)))), "33"),
        (RunNotes(note="a" * 4001), "4,001"),
    ],
)  # fmt: skip
def test_notes_that_cannot_be_shown_are_refused(tmp_path: Path, notes: RunNotes, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        write_notes(logged(tmp_path / "run"), notes)


@pytest.mark.parametrize("text", ["[]", "{", '{"tags": 7, "name": ["x"]}', '{"tags": [1, null]}'])
def test_notes_that_were_edited_by_hand_hide_no_run(tmp_path: Path, text: str) -> None:
    run = logged(tmp_path / "run")
    (run / "notes.json").write_text(text)
    assert indexed(tmp_path).runs[0].facts.summary == "40 steps"


def test_a_folder_of_many_runs_is_opened_before_all_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(tmp_path, 4)
    monkeypatch.setattr("torcheer.studio.sources.open_source._FIRST_SECS", -1.0)
    monkeypatch.setattr("torcheer.studio.sources.open_source._READ_SECS", -1.0)
    catalog = open_catalog(tmp_path)
    assert catalog.index is not None and catalog.index.waiting == 3 and len(catalog.runs) == 4
    assert catalog.first().title == "sweep-3"
    while catalog.index.waiting:
        assert catalog.refresh()
    assert all(run.summary == "40 steps" for run in catalog.runs)


def test_of_runs_that_the_index_knows_few_are_looked_at_to_choose_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_index, "_WORTH_SAVING_SECS", 0.0)
    sweep(tmp_path, 4)
    os.utime(tmp_path / "sweep-2", (4e9, 4e9))
    indexed(tmp_path)
    looked_at: list[Path] = []
    monkeypatch.setattr(open_source, "_MOST_LOOKED_AT", 1)
    monkeypatch.setattr(open_source, "_changed", lambda path: looked_at.append(path) or path.stat().st_mtime)
    assert open_catalog(tmp_path).run == 2 and looked_at == [tmp_path / "sweep-2"]
    os.utime(logged(tmp_path / "newer"), (5e9, 5e9))
    assert open_catalog(tmp_path).run == 0 and looked_at[1:] == [tmp_path / "newer"] * 2  # unknown to the index
