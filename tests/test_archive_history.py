"""A saved history is the history."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import ArchiveDamaged, BadArgument, CannotReplay, NotAnArchive, ValueUnavailable


class Net(nn.Module):
    """Branches, a loop, slices, a dtype among the arguments, a parameter used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.conv(x))[:, :, ::2, 1:].mean((2, 3))
        for _ in range(2):
            h = self.fc(h) + h.to(torch.float64).float()
        return h.clamp(max=float("inf"))


@pytest.fixture
def history() -> tl.ModelHistory:
    torch.manual_seed(0)
    history = tl.log_forward_pass(Net(), torch.rand(2, 3, 6, 6), save_gradients=True)
    history.backward()
    return history


def test_it_prints_draws_and_compares_like_the_fresh_one(history: tl.ModelHistory, tmp_path: Path) -> None:
    again = tl.load(history.save(tmp_path / "net"))
    assert str(again) == str(history)
    assert [str(again[n]) for n in range(len(again))] == [str(history[n]) for n in range(len(history))]
    assert again.draw().svg() == history.draw().svg()
    assert again.to_pandas().astype(str).equals(history.to_pandas().astype(str))
    assert "First difference: none" in str(history.compare(again))


def test_values_and_gradients_are_bit_equal(history: tl.ModelHistory, tmp_path: Path) -> None:
    again = tl.load(history.save(tmp_path / "net"))
    for label in history.layer_labels:
        for one, two in zip(again[label].passes, history[label].passes) if hasattr(history[label], "passes") else ():
            assert torch.equal(one.tensor_contents, two.tensor_contents)
    assert torch.equal(again["relu_1"].tensor_contents, history["relu_1"].tensor_contents)
    assert torch.equal(again["relu_1"].grad_contents, history["relu_1"].grad_contents)
    assert isinstance(again["relu_1"].tensor_contents, torch.Tensor)


def test_it_is_read_without_torch(history: tl.ModelHistory, tmp_path: Path) -> None:
    path = history.save(tmp_path / "net")
    code = f"""
import sys, torcheer as tl
history = tl.load({str(path)!r})
print(history["relu_1"].tensor_contents.shape, len(history.draw().svg()) > 1000, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(2, 4, 6, 6) True False\n", done.stderr


def test_replay_is_told_to_need_the_model(history: tl.ModelHistory, tmp_path: Path) -> None:
    with pytest.raises(CannotReplay, match="live model"):
        tl.load(history.save(tmp_path / "net")).validate()


def test_values_that_were_not_saved_say_so(tmp_path: Path) -> None:
    again = tl.load(
        tl.log_forward_pass(Net(), torch.rand(1, 3, 6, 6), layers_to_save=["relu_1"]).save(tmp_path / "net")
    )
    assert again["relu_1"].tensor_contents.shape == (1, 4, 6, 6)
    with pytest.raises(ValueUnavailable):
        _ = again["conv2d_1"].tensor_contents


def test_nothing_is_overwritten_unasked(history: tl.ModelHistory, tmp_path: Path) -> None:
    history.save(tmp_path / "net")
    with pytest.raises(BadArgument, match="overwrite=True"):
        history.save(tmp_path / "net")
    history.save(tmp_path / "net", overwrite=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadArgument, match="no archive of ours"):
        history.save(tmp_path / "other", overwrite=True)


def test_a_file_names_nothing_that_is_imported(history: tl.ModelHistory, tmp_path: Path) -> None:
    from torcheer.archive.frames import frame, head

    path = history.save(tmp_path / "net")
    evil = {"step": 0, "entries": [], "about": {"info": {"$": "os.system", "v": ["echo evil"]}, "ops": []}}
    (path / "000000.index").write_bytes(head(0) + frame(evil, 0)[0])
    with pytest.raises(ArchiveDamaged, match="cannot be read"):
        tl.load(path)


def test_another_kind_of_archive_is_refused(tmp_path: Path) -> None:
    from torcheer.archive import Writer

    Writer(tmp_path / "a").close()
    assert json.loads((tmp_path / "a" / "archive.json").read_text())["format"] == "torcheer archive"
    with pytest.raises(NotAnArchive, match="not of a history"):
        tl.load(tmp_path / "a")
