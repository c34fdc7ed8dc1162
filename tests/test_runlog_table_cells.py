"""Cells of a table: what JSON can carry, frozen when they are logged."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from seams import cell_of, frozen_cells

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


def test_what_is_changed_afterwards_was_logged_as_it_was() -> None:
    array, tensor, numbers = np.zeros(2), torch.zeros(2), [1, 2]
    row = frozen_cells({"array": array, "tensor": tensor, "numbers": numbers, "plain": 0.5})
    array[:], tensor[:], numbers[:] = 1.0, 1.0, [3]
    assert row == {"array": [0.0, 0.0], "tensor": [0.0, 0.0], "numbers": [1, 2], "plain": 0.5}
