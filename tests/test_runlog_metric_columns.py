"""Single columns of a log, read without the others, are what reading all of it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seams import LogWriter, RunLog

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(lambda name: name != "Step")
CELLS = st.one_of(st.none(), st.integers(-5, 5), st.floats())


def write(run: Path, rows: list[dict[str, object]], table: str = "metric", commit: bool = False) -> None:
    log = LogWriter(run, "live", tell=None, is_temporary=True)
    for step, row in enumerate(rows):
        log.row(table, {name: cell for name, cell in row.items() if cell is not None}, step)
        if commit:
            log.commit()
    log.close()


def same(one: list[object], other: list[object]) -> bool:
    return len(one) == len(other) and all(a == b or (a != a and b != b) for a, b in zip(one, other))


@given(st.lists(st.dictionaries(NAMES, CELLS, min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_a_column_is_what_the_whole_log_has(tmp_path_factory: pytest.TempPathFactory, rows: list, commit: bool) -> None:
    run = tmp_path_factory.mktemp("run")
    write(run, rows, commit=commit)
    names = sorted({name for row in rows for name, cell in row.items() if cell is not None})
    whole, curves, last = RunLog(run).tables(), RunLog(run).curves(names), RunLog(run).last_numbers()
    assert curves is not None and last is not None
    for name in names:
        cells = [cell for cell in whole["metric"].columns[name] if cell is not None]
        assert same(curves[name][1].tolist(), cells), name
        assert same([last["metric"][name]], cells[-1:])


def test_a_name_with_quotes_is_no_other_column(tmp_path: Path) -> None:
    write(tmp_path, [{'a"loss': 1.0, "loss": 2.0, '","loss': 3.0}])
    curves = RunLog(tmp_path).curves(["loss", 'a"loss', '","loss']) or {}
    assert {name: cells.tolist() for name, (_, cells) in curves.items()} == {
        "loss": [2.0],
        'a"loss': [1.0],
        '","loss': [3.0],
    }


def test_a_run_with_other_tables_is_left_to_who_reads_them(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "live", tell=None, is_temporary=True)
    log.row("metric", {"loss": 1.0}, 0)
    log.row("other", {"speed": 9.0}, 0)
    log.close()
    assert RunLog(tmp_path).curves(["loss"]) is None and RunLog(tmp_path).last_numbers() is None


def test_a_column_of_a_log_that_was_opened_again_has_what_holds(tmp_path: Path) -> None:
    write(tmp_path, [{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}])
    log = LogWriter(tmp_path, "live", tell=None, is_temporary=True)
    log.row("metric", {"loss": 4.0}, 1)
    log.close()
    steps, cells = (RunLog(tmp_path).curves(["loss"]) or {})["loss"]
    assert steps.tolist() == [0, 1] and cells.tolist() == [1.0, 4.0]


def test_a_column_whose_numbers_were_damaged_lacks_them_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, [{"loss": 1.0}, {"loss": 2.0}], commit=True)
    (data,) = tmp_path.glob("log/live/*.data")
    damaged = bytearray(data.read_bytes())
    damaged[-1] ^= 1
    data.write_bytes(damaged)
    log = RunLog(tmp_path)
    assert (log.curves(["loss"]) or {})["loss"][1].tolist() == [1.0]
    (problem,) = log.problems
    assert "rows of metric cannot be read" in problem
    assert RunLog(tmp_path).last_numbers() is None
