"""`torcheer extract`: an extraction from a config file."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_python

from torcheer import cli
from torcheer.extraction import open_extraction

CODE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.fc = torch.nn.Linear(3, width)
    def forward(self, x):
        return torch.relu(self.fc(x))

class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return torch.full((3,), float(index)), index

def doubled(item):
    return item[0] * 2

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.nn.Embedding(9, 2)
    def forward(self, input_ids, attention_mask):
        return self.stream(input_ids)

class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return {"input_ids": torch.arange(5), "attention_mask": torch.arange(5) <= index}
"""


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "my_rows.py").write_text(CODE)
    return {
        "model": {"class": "my_rows.Net", "kwargs": {"width": 6}},
        "data": {"class": "my_rows.Rows", "kwargs": {"count": 20}},
        "layers": ["fc", "relu_1"],
        "to": "out",
        "batch_size": 8,
    }


def run(folder: Path, config: Any, *arguments: str) -> int:
    file = folder / "config.json"
    file.write_text(json.dumps(config, indent=1))
    return cli.main(["extract", str(file), *arguments])


def test_a_config_makes_an_extraction_beside_it(
    tmp_path: Path, config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, config) == 0
    assert f"<Extraction {tmp_path / 'out'}: 20 samples of Net, 2 layers>" in capsys.readouterr().out
    assert open_extraction(tmp_path / "out")["relu_1"].shape == (20, 6)


def test_a_second_run_finds_the_same_model(tmp_path: Path, config: Any) -> None:
    assert run(tmp_path, config) == run(tmp_path, config) == 0


def test_a_dry_run_writes_nothing(tmp_path: Path, config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, config, "--dry-run") == 0
    assert "20 samples: about 960 B" in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_a_word_on_the_command_line_changes_the_config(tmp_path: Path, config: Any) -> None:
    assert run(tmp_path, config, "data.kwargs.count=7", "to=other", 'layers=["fc"]') == 0
    found = open_extraction(tmp_path / "other")
    assert len(found) == 7 and found.layers == ("fc",)


def test_a_transform_is_named(tmp_path: Path, config: Any) -> None:
    assert run(tmp_path, {**config, "transform": "my_rows.doubled", "layers": ["input_1"]}) == 0
    assert open_extraction(tmp_path / "out")["input_1"][3, 0] == 6.0


def test_workers_find_what_stands_beside_the_config(
    tmp_path: Path, config: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.terminal.progress.wants_progress", lambda *_: False)  # it comes after two seconds
    assert run(tmp_path, {**config, "workers": 2, "shard_samples": 8}) == 0
    assert len(open_extraction(tmp_path / "out")) == 20 and not capsys.readouterr().err


def test_what_stands_beside_the_config_may_import_more_as_it_runs(tmp_path: Path, config: Any) -> None:
    (tmp_path / "my_numbers.py").write_text("TWICE = 2")
    (tmp_path / "my_rows.py").write_text(
        CODE.replace("return item[0] * 2", "import my_numbers\n    return item[0] * my_numbers.TWICE")
    )
    assert run(tmp_path, {**config, "transform": "my_rows.doubled", "layers": ["input_1"]}) == 0
    assert open_extraction(tmp_path / "out")["input_1"][3, 0] == 6.0


def test_a_config_that_names_nothing_beside_it_runs_nothing_from_there(tmp_path: Path) -> None:
    (tmp_path / "cloudpickle.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    config = {
        "model": {"class": "torch.nn.Flatten"},
        "data": {"class": "torch.ones", "args": [8, 3]},
        "layers": ["output_1"], "to": "out", "workers": 1,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    code = f"from torcheer import cli; raise SystemExit(cli.main(['extract', {str(file)!r}]))"
    done = run_python("-P", "-c", code, cwd=tmp_path)
    assert not (tmp_path / "canary").exists(), done.stderr
    assert done.returncode == 0 and "8 samples of Flatten" in done.stdout, done.stderr


def test_weights_come_from_safetensors(tmp_path: Path, config: Any) -> None:
    from safetensors.torch import save_file

    save_file({"fc.weight": torch.ones(6, 3), "fc.bias": torch.zeros(6)}, tmp_path / "w.safetensors")
    assert run(tmp_path, {**config, "model": {**config["model"], "weights": "w.safetensors"}}) == 0
    assert open_extraction(tmp_path / "out")["fc"][2, 0] == 6.0


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_pickle_is_refused_whatever_it_is_called(
    tmp_path: Path, config: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "canary",))

    (tmp_path / name).write_bytes(pickle.dumps(Evil()))
    assert run(tmp_path, {**config, "model": {**config["model"], "weights": name}}) == 1
    assert "is not safetensors" in capsys.readouterr().err and not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": ["fc"]}, "layer: there is no such setting. Did you mean 'layers'?"),
        ({"model": {"class": "my_rows.Net", "kwarg": {}}}, "model.kwarg: there is no such setting. Did you mean"),
        ({"model": {"class": "my_rows.Net", "kwargs": {"widht": 3}}}, "Net has no argument 'widht'"),
        ({"model": {"class": "my_rows.Nett"}}, "Did you mean 'Net'?"),
        ({"model": {"class": "os.system", "args": ["touch canary"]}}, "--trust os"),
        ({"model": 3}, "give a name, or a mapping"),
        ({"model": {}}, "give a dotted name"),
        ({"model": {"class": "my_rows.Net", "weights": "away.safetensors"}}, "there is no file"),
        ({"layers": ["fd"]}, "Did you mean 'fc'?"),
        ({"to": 3}, "to = 3: give the name of a folder"),
        ({"to": "my_rows.py/out"}, "my_rows.py/out"),
        ({"seed": "x"}, "seed = 'x': give a whole number"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"data": {"class": "my_rows.Rows"}}, "also needs 'count'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, config: Any, change: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, {**config, **change}) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "canary").exists()


@pytest.mark.parametrize("key", ["model", "data", "layers", "to"])
def test_what_is_missing_is_told(tmp_path: Path, config: Any, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, {name: value for name, value in config.items() if name != key}) == 1
    assert f"{key!r} is missing" in capsys.readouterr().err


def test_an_interrupted_command_exits_with_130(tmp_path: Path, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torcheer.extraction.extraction_run._run_all", interrupted)
    assert run(tmp_path, config) == 130


def test_a_config_names_the_mask(tmp_path: Path, config: Any) -> None:
    names = {"model": "my_rows.Words", "data": "my_rows.Texts", "layers": "stream", "mask": "attention_mask"}
    assert run(tmp_path, {**config, **names, "writers": 2}) == 0
    assert [len(row) for row in open_extraction(tmp_path / "out")["stream"]] == [1, 2, 3, 4]
