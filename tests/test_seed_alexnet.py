"""The session printed in TorchLens' own guide, to the letter where its numbers are true."""

import re
import sys
from pathlib import Path

import pytest
import torch

import torcheer as tl

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from alexnet import AlexNet

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def model_history(tmp_path_factory):
    torch.manual_seed(0)
    alexnet = AlexNet()
    x = torch.rand(1, 3, 224, 224)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("drawing"))
        history = tl.log_forward_pass(alexnet, x, layers_to_save="all", vis_opt="unrolled")
        assert Path("AlexNet.svg").read_text().count(">Conv2d<") == 5
    return history


def test_alexnet_has_24_layers_with_the_names_of_the_guide(model_history):
    assert len(model_history) == 24
    assert model_history.layer_labels[:10] == [
        "input_1_0",
        "conv2d_1_1",
        "relu_1_2",
        "maxpool2d_1_3",
        "conv2d_2_4",
        "relu_2_5",
        "maxpool2d_2_6",
        "conv2d_3_7",
        "relu_3_8",
        "conv2d_4_9",
    ]
    assert model_history.layer_labels[-1] == "output_1_23"


@pytest.mark.parametrize(
    "key", ["conv2d_3_7", "conv2d_3", "conv2d_3_7:1", "conv2d_3:1", "features.6", "features.6:1", 7, -17]
)
def test_every_key_of_the_guide_finds_the_same_layer(model_history, key):
    layer = model_history[key]
    assert layer.label == "conv2d_3_7"
    assert layer.tensor_contents.shape == (1, 384, 13, 13)


def _steady(text):
    """Times differ from run to run."""
    text = re.sub(r"Time elapsed: +[\d.E+-]+s", "Time elapsed: T", text)
    return re.sub(r"tensor\(\[\[.*?\]\]\)", "tensor(…)", text, flags=re.S)


@pytest.mark.parametrize(("name", "key"), [("alexnet-history.txt", None), ("alexnet-conv2d_3_7.txt", "conv2d_3_7")])
def test_both_printouts_follow_the_guide(model_history, name, key, request):
    printed = _steady(str(model_history if key is None else model_history[key])) + "\n"
    golden = GOLDEN / name
    if request.config.getoption("--overwrite"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")


def test_the_excerpt_printed_is_the_tensor(model_history):
    shown = str(model_history["conv2d_3_7"])
    first = model_history["conv2d_3_7"].tensor_contents[0, 0, 0, 0].item()
    assert f"{first:.4f}" in shown.split("tensor([[")[1].split(",")[0]


def test_the_whole_pass_validates(model_history):
    report = model_history.validate()
    assert report, report
    assert sum(verdict == "equal" for verdict in report.verdicts.values()) == 23
