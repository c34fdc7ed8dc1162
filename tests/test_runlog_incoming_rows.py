"""Tables made of a host's messages: behind the rows that were stored, in bounded memory, whatever the host sends."""

from __future__ import annotations

from typing import Any

import pytest

from torcheer.errors import BadArgument
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.runlog.tables import long_table
from torcheer.runlog.tables.incoming_rows import IncomingTables

HEAD = TableHead("t", "T", "Step", columns=(Column("Step", "int", plotted=False), Column("loss")))


def incoming(stored: int = 0) -> tuple[IncomingTables, dict[str, Any]]:
    tables: dict[str, Any] = {}
    if stored:
        tables["t"] = TableRows(HEAD, {"Step": list(range(stored)), "loss": [9.0] * stored}, stored)
    return IncomingTables(tables), tables


def test_rows_follow_the_stored_ones_before_the_first_that_comes() -> None:
    incoming_tables, tables = incoming(stored=5)
    incoming_tables.head(HEAD)
    assert tables["t"].columns["Step"] == [0, 1, 2, 3, 4]
    incoming_tables.rows("t", 0, {"Step": [3, 4], "loss": [1.0, 2.0]})
    incoming_tables.rows("t", 2, {"Step": [5], "loss": [3.0]})
    assert tables["t"].columns == {"Step": [0, 1, 2, 3, 4, 5], "loss": [9.0, 9.0, 9.0, 1.0, 2.0, 3.0]}
    incoming_tables.rows("t", 0, {})  # another run begins
    assert tables["t"].count == 0 and [column.name for column in tables["t"].head.columns] == ["Step", "loss"]


def test_a_new_column_sends_all_rows_again() -> None:
    incoming_tables, tables = incoming(stored=2)
    incoming_tables.head(HEAD)
    incoming_tables.rows("t", 0, {"Step": [2], "loss": [1.0]})
    before = tables["t"].restarts
    incoming_tables.head(TableHead("t", "T", "Step", columns=(*HEAD.columns, Column("acc"))))
    incoming_tables.rows("t", 0, {"Step": [2, 3], "loss": [1.0, 2.0], "acc": [None, 0.5]})
    assert tables["t"].columns == {"Step": [0, 1, 2, 3], "loss": [9.0, 9.0, 1.0, 2.0], "acc": [None, None, None, 0.5]}
    assert tables["t"].restarts > before


def test_however_many_rows_come_it_holds_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_table, "MOST_ROWS", 1000)
    incoming_tables, tables = incoming()
    incoming_tables.head(HEAD)
    for first in range(0, 30_000, 500):
        steps = list(range(first, first + 500))
        incoming_tables.rows("t", first, {"Step": steps, "loss": [1e6 if step == 777 else 0.5 for step in steps]})
    assert tables["t"].count <= 1000 and tables["t"].columns["Step"][-250:] == list(range(29_750, 30_000))
    assert max(tables["t"].columns["loss"]) == 1e6


@pytest.mark.parametrize("first", [-1, 2, 10**9, "0", None])
def test_rows_that_do_not_follow_are_refused(first: Any) -> None:
    incoming_tables, tables = incoming()
    with pytest.raises(BadArgument, match="not announced"):
        incoming_tables.rows("t", 0, {"Step": [0]})
    incoming_tables.head(HEAD)
    with pytest.raises(BadArgument, match="cannot be put"):
        incoming_tables.rows("t", first, {"Step": [0]})
    incoming_tables.rows("t", 0, {"Step": [0], "ragged": [[[1], [2, 3]]]})
    assert tables["t"].columns["ragged"] == [[[1], [2, 3]]]
