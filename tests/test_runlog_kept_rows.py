"""The rows that a host keeps for who comes late."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from torcheer.runlog import kept_rows
from torcheer.runlog.kept_rows import HostTables, SentRows, cell_of
from torcheer.runlog.table_records import Column, TableHead


def all_of(kept: HostTables, told: dict[str, SentRows] | None = None) -> dict[str, dict[str, list[Any]]]:
    """What a viewer makes of the messages; each must begin where the last one ended."""
    told, found = {} if told is None else told, dict[str, dict[str, list[Any]]]()
    while kept.has_updates(told):
        for message in kept.next_messages(told):
            if message["kind"] == "table":
                found[message["table"].name] = {column.name: [] for column in message["table"].columns}
                continue
            columns = found.setdefault(message["table"], {})
            lengths = {len(cells) for cells in columns.values()} or {0}
            if message["first"] == 0:
                columns.update({name: [] for name in columns})
            else:
                assert lengths == {message["first"]}
            for name, cells in message["columns"].items():
                columns.setdefault(name, []).extend(cells)
    return found


NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (3, 3), (2.5, 2.5), (True, True), ("text", "text"), (None, None), (NAN, NAN), (float("-inf"), float("-inf")),
        (np.float32(0.5), 0.5), (np.int64(7), 7), (np.float64("nan"), NAN), (torch.tensor(2), 2),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5), (torch.tensor(float("nan")), NAN),
        (np.array([[1.0, np.nan], [np.inf, 2.0]]), [[1.0, NAN], [float("inf"), 2.0]]), ([1, 2], [1, 2]), ((), []),
        (torch.ones(2, 1), [[1.0], [1.0]]), (np.zeros(10**6), "float64 (1000000,)"), ({"a"}, "{'a'}"),
        (np.array(["a"]), "<U1 (1,)"), (10**30, None),
    ],
)  # fmt: skip
def test_a_cell_is_what_json_can_carry(value: Any, cell: Any) -> None:
    found = cell_of(value)
    assert repr(found) == repr(cell)  # NaN is equal to nothing
    assert repr(json.loads(json.dumps(found))) == repr(cell)


def test_a_table_that_nobody_announced_is_made_of_its_rows() -> None:
    kept = HostTables()
    kept.row("train_epoch", {"Epoch": 0, "loss": 0.5})
    kept.row("train_epoch", {"Epoch": 1, "name": "x"})
    told: dict[str, SentRows] = {}
    (head, *_) = kept.next_messages(told)
    assert head["table"] == TableHead(
        "train_epoch", "Train epochs", x="Epoch",
        columns=(Column("Epoch", "int"), Column("loss"), Column("name", "text", plotted=False)),
    )  # fmt: skip
    assert all_of(kept)["train_epoch"] == {"Epoch": [0, 1], "loss": [0.5, None], "name": [None, "x"]}


def test_a_long_table_comes_in_pieces_and_none_twice() -> None:
    kept, told = HostTables(), dict[str, SentRows]()
    for step in range(50_000):
        kept.row("train_step", {"Step": step, "loss": step / 2})
    pieces = 0
    found: list[int] = []
    while kept.has_updates(told):
        for message in kept.next_messages(told):
            if message["kind"] == "rows":
                assert message["first"] == len(found)
                found += message["columns"]["Step"]
                pieces += 1
    assert found == list(range(50_000)) and pieces > 3


def test_a_very_long_table_is_thinned_evenly_and_its_newest_rows_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "MOST_ROWS", 1000)
    kept, present = HostTables(), dict[str, SentRows]()
    seen: list[int] = []
    for step in range(20_000):
        kept.row("train_step", {"Step": step})
        for message in kept.next_messages(present):
            seen += message["columns"]["Step"] if message["kind"] == "rows" else []
    assert seen == list(range(20_000))  # who was there has all of them
    steps = all_of(kept)["train_step"]["Step"]
    assert len(steps) <= 1000 and steps[-400:] == list(range(19_600, 20_000)) and steps == sorted(steps)
    assert steps[0] == 0 and max(np.diff(steps)) < 4000


def test_tables_of_large_cells_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "MOST_NUMBERS", 10_000)
    kept = HostTables()
    for step in range(500):
        kept.row("test_trial", {"Trial": step, "map": np.zeros((10, 10))})
    found = all_of(kept)["test_trial"]
    assert len(found["Trial"]) * 101 <= 10_000 and found["Trial"][-1] == 499


def test_a_new_head_sends_the_rows_again() -> None:
    kept, told = HostTables(), dict[str, SentRows]()
    kept.row("run", {"seed": 1})
    all_of(kept, told)
    kept.head(TableHead("run", "Runs", columns=(Column("seed", "int"), Column("score"))))
    assert all_of(kept, told)["run"] == {"seed": [1], "score": [None]}
    kept.head(TableHead("run", "Runs", columns=(Column("seed", "int"), Column("score"))))
    assert not kept.has_updates(told)


def test_clearing_what_is_not_there_is_no_error() -> None:
    kept = HostTables()
    kept.clear("run")
    assert not kept.has_updates({})
