"""How two runs differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fake_trace import FakeTrace, small_network
from seams import difference_of_arrays as difference


def test_a_run_compared_with_itself_is_equal() -> None:
    report = small_network().history().compare(small_network().history())
    assert report
    assert report.first_difference is None
    assert str(report) == "7 tensors compared: 7 equal\nStructure: the same\nFirst difference: none"


def test_the_first_layer_that_differs_is_named_and_measured() -> None:
    other = small_network()
    other.values[3, 0] = other.values[3, 0] + np.float32(0.5)
    report = small_network().history().compare(other.history())
    assert not report
    assert report.first_difference == "linear_2_3"
    row = next(row for row in report if row.label == "linear_2_3")
    assert (row.status, row.max_abs, row.mean_abs, row.relative) == ("different", *[pytest.approx(0.5)] * 3)
    assert 0 < row.cosine < 1
    assert "linear_2_3  different" in str(report)
    assert report.same_structure


def test_layers_are_matched_by_number_so_that_one_more_op_shifts_nothing() -> None:
    def network(extra: bool) -> FakeTrace:
        trace = FakeTrace()
        x = trace.input(value=np.ones(2, np.float32))
        if extra:
            x = trace.add("neg", x, value=np.ones(2, np.float32))
        trace.add("relu", x, value=np.ones(2, np.float32))
        return trace

    report = network(False).history().compare(network(True).history())
    assert [row.label for row in report] == ["input_1_0", "relu_1_1"]
    assert (report.missing, report.extra) == ((), ("neg_1_1",))
    assert not report
    assert not report.same_structure
    assert "Only in the second: neg_1_1" in str(report)


def test_shapes_outputs_and_missing_values_are_said() -> None:
    one, other = small_network(), small_network()
    del one.values[0, 0]
    other.change(1, outputs=one.list[2].outputs)
    other.change(2, outputs=one.list[2].outputs * 2)
    rows = {row.label: row.status for row in one.history().compare(other.history())}
    assert rows["input_1_0"] == "not saved"
    assert rows["linear_1_1"] == "shape (2, 6) against (3, 6)"
    assert rows["relu_1_2"] == "1 outputs against 2"


@pytest.mark.parametrize(
    ("one", "other", "status", "mismatches"),
    [
        ([np.nan, 1], [np.nan, 1], "equal", 0),
        ([np.nan, 1], [2, 1], "different", 1),
        ([np.inf, 1], [np.inf, 2], "different", 0),
        ([np.inf, 1], [-np.inf, 1], "different", 1),
        ([0.0], [-0.0], "equal values, other bits or type", 0),
        ([], [], "equal", 0),
    ],
)
def test_nan_and_infinity_are_equal_to_themselves_only(
    one: list[float], other: list[float], status: str, mismatches: int
) -> None:
    found = difference("x", np.array(one, np.float32), np.array(other, np.float32))
    assert (found.status, found.nan_mismatches) == (status, mismatches)
    assert math.isfinite(found.max_abs)


def test_other_number_types_compare_by_value() -> None:
    found = difference("x", np.array([1, 2]), np.array([1.0, 2.0]))
    assert found.status == "equal values, other bits or type"
    assert difference("x", np.array([1j]), np.array([1 + 1j])).max_abs == 1
    assert difference("x", np.array([True]), np.array([False])).max_abs == 1


def test_the_structural_hash_sees_edges_and_shapes_but_not_values() -> None:
    one, other = small_network(), small_network()
    other.values[3, 0] = other.values[3, 0] * 2
    other.change(3, elapsed_secs=9.0, site=("elsewhere.py", 1, 1))
    assert one.history().structural_hash() == other.history().structural_hash()
    other.change(3, parents=one.list[1].parents)
    assert one.history().structural_hash() != other.history().structural_hash()
