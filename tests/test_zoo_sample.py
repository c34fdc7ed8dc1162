"""A few models of the zoo, and whether its own checks would notice; `make zoo` runs them all."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from fast_cases import fast_first

import torcheer as tl

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import zoo_torchvision
from zoo import run_one
from zoo_check import Finding, examine
from zoo_report import write

# What models and their libraries say on the way is not ours.
pytestmark = [pytest.mark.house, pytest.mark.filterwarnings("ignore")]

SAMPLE = [
    "torchvision/resnet18 train",  # batch norm writes its statistics
    "torchvision/quantized_resnet18 eval",
    "timm/test_vit eval",
    "transformers/bert train",  # dropout
    "transformers/gpt2 eval",  # a key-value cache
    "transformers/t5 eval",
    "transformers/clip eval",
    "transformers/deberta eval",  # TorchScript functions
    "transformers/whisper eval",
    "transformers/mamba eval",
    "transformers/mixtral eval",  # experts
]
LONGER = [
    "torchvision/swin_v2_t eval",  # views, rolls, masks
    "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn eval",  # a list of images, control flow, empty results
    "torchvision/raft_small eval",  # a loop over reused modules
]


@pytest.fixture(autouse=True)
def threads():
    """The zoo runs on one thread; other tests need not."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("model", fast_first([*SAMPLE, *LONGER], len(SAMPLE)))
def test_every_operation_replays_and_none_is_missed(model):
    address, mode = model.split()
    family, name = address.split("/")
    if importlib.util.find_spec(family) is None:
        pytest.skip(f"{family} is not installed")
    found = run_one(family, name, mode)
    assert found.trouble == ""
    assert found.outputs == "equal"
    assert found.equal + sum(found.skipped.values()) == found.ops > 20
    assert found.below > 20


def test_the_cache_of_a_language_model_is_among_its_outputs():
    if any(importlib.util.find_spec(name) is None for name in ("torchvision", "transformers")):
        pytest.skip("transformers is not installed")
    zoo_torchvision.load()  # transformers asks for it where it is there
    import transformers

    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11, n_positions=16)
    history = tl.log_forward_pass(transformers.GPT2LMHeadModel(config).eval(), torch.arange(5)[None])
    shapes = [op.shape for op in history if op.kind == "output"]
    assert shapes == [(1, 5, 11), *[(1, 2, 5, 4)] * 4]  # and the keys and values of two blocks
    assert len(history.modules["transformer"].outputs) == 5
    assert history["transformer"].shape == (1, 5, 8)  # the cache beside it does not make the module ambiguous


class Hidden(torch.nn.Module):
    """Computes where no function mode sees it."""

    def forward(self, x):
        with torch._C.DisableTorchFunction():
            y = x.mul(2)
        return y + 1


def test_the_witness_names_what_the_recorder_did_not_see():
    found = examine(Finding("test", "Hidden", "eval"), Hidden(), (torch.ones(3),), {})
    assert found.outside == {"aten.mul.Tensor": 1}
    assert found.trouble == "1 aten.mul.Tensor outside any record"


class Counting(torch.nn.Module):
    """Gives something else each time."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def test_a_model_that_differs_each_time_is_not_blamed_on_the_capture():
    found = examine(Finding("test", "Counting", "eval"), Counting(), (torch.ones(3),), {})
    assert (found.held, found.outputs) == (True, "two plain runs differ too")


def test_a_fused_path_is_no_excuse():
    layer = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True))
    found = examine(Finding("test", "encoder", "eval"), layer, (torch.rand(2, 5, 16),), {})
    assert found.held and found.outputs == "equal"


def test_a_model_that_does_not_run_without_us_is_absent_not_failed():
    found = examine(Finding("test", "Linear", "eval"), torch.nn.Linear(2, 2), (torch.ones(3),), {})
    assert found.absent.startswith("does not run in this mode: RuntimeError: ")


def test_the_page_names_each_model_and_each_reason(tmp_path):
    held = Finding(
        "torchvision", "resnet18", "eval", ops=71, equal=70, skipped={"inputs come from outside": 1}, below=90
    )
    held.outputs, held.ratio, held.secs = "equal", 1.25, 0.6
    absent = Finding("timm", "rare", "eval", absent="needs another library")
    write(tmp_path / "zoo.md", [held, absent])
    page = (tmp_path / "zoo.md").read_text()
    assert "| resnet18 | eval | 71 | 70 | 1 | 90 | 0 | 1.25 | 0.6 |  |" in page
    assert "| 1 | inputs come from outside |" in page
    assert "| timm/rare | eval | needs another library |" in page
