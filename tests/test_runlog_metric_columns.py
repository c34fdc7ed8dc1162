"""Single columns of a log, read without parsing the others, are what reading all of it gives."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seams import LogWriter, RunLog, last_metrics, metric_columns

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
    return len(one) == len(other) and all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(one, other)
    )


@given(st.lists(st.dictionaries(NAMES, CELLS, min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_a_column_is_what_the_whole_log_has(tmp_path_factory: pytest.TempPathFactory, rows: list, commit: bool) -> None:
    run = tmp_path_factory.mktemp("run")
    write(run, rows, commit=commit)
    names = sorted({name for row in rows for name, cell in row.items() if cell is not None})
    whole = RunLog(run).tables()
    curves = metric_columns(run, names)
    assert curves is not None
    for name in names:
        cells = [cell for cell in whole["metric"].columns[name] if cell is not None]
        assert same(curves[name][1], cells), name
        assert same([(last_metrics(run) or {})["metric"][name]], cells[-1:])


def test_a_name_with_quotes_is_no_other_column(tmp_path: Path) -> None:
    write(tmp_path, [{'a"loss': 1.0, "loss": 2.0, '","loss': 3.0}])
    curves = metric_columns(tmp_path, ["loss", 'a"loss', '","loss'])
    assert curves == {"loss": ([0], [2.0]), 'a"loss': ([0], [1.0]), '","loss': ([0], [3.0])}


def test_a_column_of_another_table_is_not_taken_for_it(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "live", tell=None, is_temporary=True)
    log.row("metric", {"loss": 1.0}, 0)
    log.row("other", {"speed": 9.0}, 0)
    log.close()
    assert metric_columns(tmp_path, ["speed"]) == {}
    assert last_metrics(tmp_path) is None  # it has more than metrics


def test_a_log_that_was_opened_again_is_left_to_the_whole_reader(tmp_path: Path) -> None:
    write(tmp_path, [{"loss": 1.0}, {"loss": 2.0}])
    write(tmp_path, [{"loss": 3.0}])
    assert metric_columns(tmp_path, ["loss"]) is None and last_metrics(tmp_path) is None


def test_a_torn_log_is_left_to_the_whole_reader(tmp_path: Path) -> None:
    write(tmp_path, [{"loss": 1.0}, {"loss": 2.0}], commit=True)
    (index,) = tmp_path.glob("log/live/*.index")
    data = index.read_bytes()
    index.write_bytes(data[: data.rindex(b'"loss":[2.0]') + 5])
    assert metric_columns(tmp_path, ["loss"]) is None
