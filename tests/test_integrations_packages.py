"""Exporters, captum, ONNX, folders of the hub, with the real packages."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from wandb_records import numbers_by_step

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.integrations import OutsideRun, attribute, export_model, export_run

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("torchvision_without_its_compiled_half"),
]


LOSSES = [1.0 / (step + 1) for step in range(4)]
PIXELS = np.arange(90, dtype=np.uint8).reshape(5, 6, 3)


def decoded(picture: bytes) -> Any:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).tolist()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with numbers, an image, a sound, a text, a table and a matrix."""
    with OutsideRun(tmp_path / "run", made_by="a test", config={"lr": 0.1, "net": {"width": 3}}, system_secs=0) as made:
        for step in range(4):
            made.log({"loss": LOSSES[step], "val loss": float(step)}, step)
        made.log({"picture": tl.Image(PIXELS)}, 1)
        made.log({"sound": tl.Audio(np.zeros((2, 80), np.int16), rate=8000), "said": tl.Text("hello")}, 2)
        made.log({"worst": tl.TableOf([{"id": 3}]), "matrix": tl.Confusion([[1, 0], [0, 2]])}, 9)
    return tmp_path / "run"


# exporters


def test_a_log_is_exported_to_tensorboard_by_the_command(run: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    command = [sys.executable, "-m", "torcheer", "export", str(run), "--to", "tensorboard", str(tmp_path / "board")]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.stdout == (
        f"wrote 8 numbers of 2 series, 5 samples in {tmp_path / 'board'}; see them with: tensorboard --logdir "
        f"{tmp_path / 'board'}\n"
    ), told.stderr
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    assert {tag: [(event.step, event.value) for event in board.Scalars(tag)] for tag in board.Tags()["scalars"]} == {
        "loss": [(step, np.float32(loss)) for step, loss in enumerate(LOSSES)],
        "val_loss": [(0, 0), (1, 1), (2, 2), (3, 3)],
    }
    [picture] = board.Images("picture")
    assert picture.step == 1 and decoded(picture.encoded_image_string) == PIXELS.tolist()
    [sound] = board.Audio("sound")
    assert (sound.step, sound.length_frames) == (2, 80)
    assert board.Images("picture")[0].width == 6 and board.Audio("sound")[0].sample_rate == 8000
    assert {"said/text_summary", "worst/text_summary", "config/text_summary"} <= set(board.Tags()["tensors"])
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1 and "is there already, and not empty; --overwrite writes into it" in again.stderr


def test_a_log_is_exported_to_wandb_offline(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    exported = export_run(run, "wandb", tmp_path / "exported")
    assert (exported.numbers, exported.series, exported.samples) == (8, 2, 5)
    [folder] = (tmp_path / "exported" / "wandb").glob("offline-run-*")
    assert [file.stat().st_size > 0 for file in folder.glob("run-*.wandb")] == [True]
    media = {re.sub("_.*", "", file.name): file for file in folder.glob("files/media/*/*")}
    assert sorted(media) == ["matrix", "picture", "said", "sound", "worst"]
    assert decoded(media["picture"].read_bytes()) == PIXELS.tolist()
    table = json.loads(media["worst"].read_text())
    assert (table["columns"], table["data"]) == (["id"], [[3]])
    assert numbers_by_step(tmp_path / "exported") == {
        step: {"loss": loss, "val loss": step} for step, loss in enumerate(LOSSES)
    }


def test_a_log_is_exported_to_mlflow(run: Path, tmp_path: Path) -> None:
    import mlflow

    export_run(run, "mlflow", tmp_path / "exported")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'exported'}/mlflow.db")
    number = (tmp_path / "exported" / "run-id").read_text()
    found = client.get_run(number)
    assert found.data.params == {"lr": "0.1", "net.width": "3"} and found.info.status == "FINISHED"
    for name, numbers in (("loss", LOSSES), ("val_loss", [0, 1, 2, 3])):
        history = client.get_metric_history(number, name)
        assert [(metric.step, metric.value) for metric in history] == list(enumerate(numbers))
    [picture] = client.list_artifacts(number, "picture")
    assert decoded(Path(client.download_artifacts(number, picture.path)).read_bytes()) == PIXELS.tolist()
    assert {file.path for file in client.list_artifacts(number)} == {"matrix", "picture", "said", "sound", "worst"}
    with pytest.raises(BadArgument, match="is no run with a log"):
        export_run(tmp_path / "exported", "mlflow", tmp_path / "other")


def test_training_writes_to_mlflow_as_to_the_others(tmp_path: Path) -> None:
    import mlflow
    from training_cases import session as small

    session = small("plain", tmp_path, writers=("mlflow",), steps_csv=0)
    assert [event for event in session.run() if type(event).__name__ == "Alert"] == []
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    number = (tmp_path / "mlflow" / "run-id").read_text()
    assert [metric.step for metric in client.get_metric_history(number, "val_loss")] == [11, 22, 33, 44]


# captum


def test_captums_attributions_are_a_variable_of_each_layer() -> None:
    from captum.attr import LayerConductance, LayerGradientXActivation

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()
    x = torch.rand(2, 1, 8, 8)
    history = attribute(net, x, target=3)
    for layer in ("0", "1", "3"):
        expected = LayerGradientXActivation(net, net.get_submodule(layer)).attribute(x, target=3)
        assert torch.equal(history[layer].variables["GradientXActivation"], expected)
    assert attribute(net, x, target=3, method="LayerConductance", layers=["1"], history=history, n_steps=5) is history
    expected = LayerConductance(net, net[1]).attribute(x, target=3, n_steps=5)
    assert torch.allclose(history["1"].variables["Conductance"], expected)
    attribute(net, x, target=3, method="LayerGradCam", layers="0", history=history)
    assert history["0"].variables["GradCam"].shape == (2, 4, 6, 6)
    with pytest.raises(BadArgument, match="Did you mean 'LayerGradCam'"):
        attribute(net, x, method="LayerGradCAM")
    with pytest.raises(
        BadArgument, match=r"^attribute cannot take an operation's label, 'input_1': it follows modules"
    ):
        attribute(net, x, target=3, layers="input_1")


# files


def test_an_exported_onnx_graph_computes_the_same(tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    export_model(net, tmp_path / "net.onnx", torch.rand(2, 4))
    runtime = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    x = torch.rand(5, 4)
    [found] = runtime.run(None, {runtime.get_inputs()[0].name: x.numpy()})
    assert np.allclose(found, net(x).detach().numpy(), atol=1e-6)


def test_an_exported_program_and_its_weights_compute_the_same(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()
    x = torch.rand(5, 1, 8, 8)
    export_model(net, tmp_path / "net.pt2", torch.rand(2, 1, 8, 8))
    assert torch.equal(torch.export.load(str(tmp_path / "net.pt2")).module()(x), net(x))
    export_model(net, tmp_path / "net.safetensors")
    other = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()
    other.load_state_dict(load_file(tmp_path / "net.safetensors"))
    assert torch.equal(other(x), net(x))


CONFIG = """
session_dir = "run"
[train]
epochs = 1

[[initialize.definitions]]
group = "datasets"
name = "tokens"
spec = { class = "tokens.Tokens" }

[[initialize.definitions]]
group = "models"
name = "bert"
spec = { class = "torcheer.integrations.hub_folder.hub_model", kwargs = { path = "hub" } }

[[initialize.definitions]]
group = "optimizers"
name = "adam"
spec = { class = "Adam", kwargs = { lr = 0.01 }, model = "bert" }

[[initialize.definitions]]
group = "batch_processors"
name = "classify"
spec = { neural_graph = [{ model_name = "bert", inputs = ["input_1"], outputs = ["logits"], optimizer_name = "adam" }] }
"""

TOKENS = """
import torch
class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, place):
        return torch.arange(6) + place % 3, place % 3
"""
PROGRAM = "import zoo_torchvision, sys; zoo_torchvision.load(); from torcheer.cli import main; sys.exit(main())"


def test_a_folder_of_the_hub_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers
    from seams import hub_model

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**settings, intermediate_size=8, max_position_embeddings=8, num_labels=3)
    saved = transformers.BertForSequenceClassification(config).eval()
    saved.save_pretrained(tmp_path / "hub")
    ids = torch.randint(0, 20, (2, 6))
    loaded = hub_model(tmp_path / "hub").eval()
    assert type(loaded) is type(saved) and torch.equal(loaded(ids).logits, saved(ids).logits)
    assert type(hub_model(tmp_path / "hub", head="AutoModel")).__name__ == "BertModel"
    with pytest.raises(BadArgument, match="transformers has no model class 'pipeline'"):
        hub_model(tmp_path / "hub", head="pipeline")
    (tmp_path / "training.toml").write_text(CONFIG)
    (tmp_path / "tokens.py").write_text(TOKENS)
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, "train", "training.toml", "--plain"], cwd=tmp_path, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "benchmarks")},
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert tl.load(tmp_path / "run").tables["train_epoch"]["loss"][0] > 0
