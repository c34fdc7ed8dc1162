"""A history as tables and summaries."""

from __future__ import annotations

import sys

import pytest
from fake_trace import recurrent_network, small_network

from torcheer.errors import TorcheerError


def test_a_pandas_table_has_one_row_per_operation() -> None:
    frame = small_network().history().to_pandas()
    assert list(frame.label) == [op.label for op in small_network().history()]
    row = frame.set_index("label").loc["linear_2_3"]
    assert (row["layer"], row["pass"], row["module"], row["bytes"]) == ("linear_2_3", 1, "body.2", 96)
    assert row["parents"] == ["relu_1_2"]
    assert row["children"] == ["relu_2_4"]
    assert row["params"] == ["body.2.weight", "body.2.bias"]
    assert row["source"] == "model.py:125"
    assert row["saved"]


def test_an_arrow_table_has_the_same_columns_and_types_even_when_empty() -> None:
    table = recurrent_network().history().to_arrow()
    assert table.num_rows == 12
    assert table.column_names == list(recurrent_network().history().to_pandas().columns)
    assert table.column("label").to_pylist()[3] == "linear_1_1:2"
    trace = small_network()
    del trace.list[1:]
    assert trace.history().to_arrow().schema == table.schema


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_missing_package_is_named_with_its_cure(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    history = small_network().history()
    with pytest.raises(TorcheerError) as caught:
        history.to_pandas() if package == "pandas" else history.to_arrow()
    assert str(caught.value) == (
        f"this table needs {package}, which is not installed. Try: pip install 'torcheer[all]'"
    )


def test_a_summary_adds_up_module_by_module() -> None:
    summary = small_network().history().summary()
    rows = {row.address: row for row in summary}
    assert rows["body"].parameters == rows["body.0"].parameters + rows["body.2"].parameters == 24
    assert summary.total.parameters == 36
    assert summary.total.bytes == 648
    assert len(summary) == 6
    assert str(summary).splitlines()[-1].startswith("total")
    assert list(summary.to_pandas().address) == list(rows)


def test_a_summary_is_aligned_and_marks_what_it_could_not_count() -> None:
    trace = small_network()
    trace.change(3, name="mystery")
    text = str(trace.history().summary())
    assert "+?" in text
    widths = {len(line) for line in text.splitlines() if line.startswith("─")}
    assert len(widths) == 1
    assert max(len(line) for line in text.splitlines()) == widths.pop()


def test_a_reused_module_is_counted_once_in_parameters_and_every_time_in_work() -> None:
    row = next(iter(recurrent_network().history().summary()))
    assert (row.calls, row.parameters, row.flops) == (5, 12, 5 * 2 * 6 * 3)
