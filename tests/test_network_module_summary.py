"""`history.summary()`: what it says of each module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import torcheer as tl


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
        self.memory, self.unused, self.head = nn.LSTM(16, 6), nn.Linear(3, 3), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        values, _ = self.memory(self.features(x).view(2, -1, 16))
        return self.head(self.head.weight.new_ones(2, 6) + values[:, 0])  # type: ignore[no-any-return]


SUMMARY = tl.log_forward_pass(Net(), torch.randn(2, 3, 8, 8)).summary()


def test_each_module_has_its_output_shape_and_parameters_as_in_torchinfo() -> None:
    rows = {row.address: (row.output_shape, row.parameters) for row in SUMMARY}
    assert rows == {
        "features": ((2, 288), 224), "features.0": ((2, 8, 6, 6), 224), "features.1": ((2, 8, 6, 6), 0),
        "features.2": ((2, 288), 0), "memory": ((2, 18, 6), 576), "head": ((2, 10), 70), "unused": ((), 12),
    }  # fmt: skip
    assert (SUMMARY.total.output_shape, SUMMARY.total.parameters) == ((2, 10), 882)


def test_the_table_shows_shapes_and_says_where_there_are_several_or_none() -> None:
    lines = {line.split()[0]: line.split() for line in str(SUMMARY).splitlines()[2:]}
    assert lines["features.0"][1:4] == ["Conv2d", "1", "2×8×6×6"]
    assert lines["memory"][3:5] == ["2×18×6,", "+2"]
    assert lines["unused"][2:4] == ["0", "–"]
    assert lines["total"][3] == "2×10"


def test_a_data_frame_has_the_shapes() -> None:
    frame = SUMMARY.to_pandas().set_index("address")
    assert frame.loc["features.0", "output_shape"] == (2, 8, 6, 6) and frame.loc["memory", "outputs"] == 3
