"""`torcheer plan`: the memory of a config's training step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torcheer import cli

CODE = """
import torch
from torch import nn

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.zeros(256), index % 4

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 4))

class Picky(Net):
    def forward(self, x):
        raise ValueError("these rows are too short")
"""
CONFIG = """
session_dir: run
batch_size: 16
initialize:
  definitions:
  - {group: datasets, name: rows, spec: {class: code_of_plan.Rows}}
  - {group: models, name: net, spec: {class: code_of_plan.Net}}
  - {group: optimizers, name: adam, spec: {class: Adam, kwargs: {lr: 0.01}, model: net}}
"""


@pytest.fixture(name="config")
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "code_of_plan.py").write_text(CODE)
    (tmp_path / "training.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "training.yaml"


def test_the_command_plans_the_step_of_a_config(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(config), "--json", "--device", "cpu"]) == 0
    written = {path.name for path in config.parent.iterdir()} - {"__pycache__"}
    assert written == {"code_of_plan.py", "training.yaml"}
    told = json.loads(capsys.readouterr().out)
    weights = 4 * (257 * 4096 + 4097 * 4)
    assert told["phases"][0]["kinds"]["parameter"] == weights
    assert told["phases"][0]["kinds"]["state"] == 2 * weights
    assert not any("loss" in text for text in told["assumptions"]), "it is the config's"

    def activations(*change: str) -> int:
        cli.main(["plan", str(config), *change, "--json", "--no-savings", "--device", "cpu"])
        return json.loads(capsys.readouterr().out)["phases"][0]["kinds"]["activation"]

    assert activations("batch_size=32") == pytest.approx(2 * activations(), rel=0.01)


def test_the_command_says_whether_it_fits(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(config), "--memory", "1GB"]) == 0
    assert "It fits into 1.0 GB" in capsys.readouterr().out
    assert cli.main(["plan", str(config), "--memory", "1MB"]) == 1
    assert "It does not fit into 1.0 MB" in capsys.readouterr().out
    assert cli.main(["plan", str(config.with_name("other.yaml"))]) == 1
    assert "other.yaml" in capsys.readouterr().err


def test_layers_to_recompute_are_named_as_in_the_config(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for arguments in (["--checkpoint", "1"], ['activation_checkpointing=["1"]']):
        assert cli.main(["plan", str(config), *arguments, "--json", "--no-savings"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1]
    assert cli.main(["plan", str(config), "--checkpoint", "nobody.*"]) == 1
    assert "checkpoint: nothing among 4 modules matches 'nobody.*'" in capsys.readouterr().err


def test_a_model_that_raises_is_reported_with_its_own_words(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(config), "initialize.definitions.net.spec.class=code_of_plan.Picky"]) == 1
    text = capsys.readouterr().err
    assert "plan: the forward pass failed on meta tensors" in text and "ValueError: these rows are too short" in text
