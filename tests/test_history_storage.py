"""What a history takes in memory, how it is written, and where its parameters are."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import UnknownLayer

MODEL = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()
HISTORY = tl.log_forward_pass(MODEL, torch.randn(2, 3, 8, 8))


def test_memory_that_saved_values_share_counts_once() -> None:
    sizes = {op.record.name: op.bytes for op in HISTORY}
    shared = sizes["flatten"] + sizes["output"]  # of the ReLU and of the Linear
    assert HISTORY.saved_bytes == sum(sizes.values()) - shared


def test_a_history_of_a_file_has_every_value_of_its_own(tmp_path: Path) -> None:
    HISTORY.save(tmp_path / "run")
    assert tl.load(tmp_path / "run").saved_bytes >= HISTORY.saved_bytes


@pytest.mark.parametrize(
    "write", [pickle.dumps, copy.deepcopy, lambda history: torch.save({"run": history}, io.BytesIO())]
)
def test_what_cannot_write_a_history_names_save(write: Callable[[Any], object]) -> None:
    for value in (HISTORY, HISTORY["relu_1"]):
        with pytest.raises(TypeError, match=r"a history cannot be .*history\.save\(path\)"):
            write(value)


def test_a_shallow_copy_is_the_same_history() -> None:
    assert copy.copy(HISTORY)["relu_1"].tensor_contents is HISTORY["relu_1"].tensor_contents


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "4.weight",
            r"'4\.weight' is a parameter, no layer: history\.parameters\['4\.weight'\] has it \(read by linear_1",
        ),
        (
            "1.running_mean",
            r"is a buffer, no layer: history\.buffers\['1\.running_mean'\] has it \(read by batchnorm_1",
        ),
        ("4.weigth", r"Did you mean '4\.weight'"),
    ],
)
def test_a_parameter_that_is_looked_up_as_a_layer_is_found_where_it_is(name: str, text: str) -> None:
    for look in (HISTORY.__getitem__, HISTORY.find):
        with pytest.raises(UnknownLayer, match=text):
            look(name)
