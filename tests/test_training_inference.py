"""`torcheer infer`: inputs of a command line through a trained pipeline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import _convert, _converter_like
from test_training_cli import config_of, definition, project, run  # noqa: F401

from torcheer.errors import BadArgument
from torcheer.training.datasets import ImageFolder, preprocessed
from torcheer.training.preprocessors import ImagePreprocessor

CONVERTERS = """
import torch
from torch import nn

def numbers(text):
    return [float(word) for word in text.split(",")]

class Halved:
    def process(self, value):
        return [number / 2 for number in value]

def needs_labels(samples):
    return [list(column) for column in zip(*[(row, label) for row, label in samples])]

def fails(samples):
    return 1 / 0

class Loud:
    def __init__(self, session):
        self.models = list(session.models)
    def __call__(self, results):
        return {f"{name} of {self.models[0]}": value.shape for name, value in results.items()}

class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        nn.init.eye_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
    def forward(self, x):
        return self.layer(x)
    def run_inference(self, x):
        return [100 * self.layer(x)]
"""


@pytest.fixture
def trained(project: Path) -> Path:  # noqa: F811
    """A session that was trained, with converters for its inputs."""
    (project / "my_inputs.py").write_text(CONVERTERS)
    assert run("train", "training.json") == 0
    return project


def inference(folder: Path, **changes: Any) -> str:
    config = {
        "session_dir": "pretrained",
        "inference_pipeline": "evaluation",
        "inputs_meta": [{"input_alias": "batch", "input_adapter": {"class": "my_inputs.numbers"}}],
        **changes,
    }
    (folder / "inference.json").write_text(json.dumps(config, indent=1))
    return "inference.json"


def test_infer_prints_what_it_runs_on_and_the_results(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run("infer", inference(trained), "1,0,0,0") == 0
    found = capsys.readouterr()
    first, second = found.out.splitlines()
    assert first == "Running inference on: ['1,0,0,0']"
    assert re.fullmatch(r"y_hat:tensor\(\[\[ ?-?\d.*\]\]\)", second)
    assert found.err == "Using pretrained/checkpoints/30\n"


def test_many_inputs_are_one_batch(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = inference(trained, batch_size=32, post_processor={"class": "torcheer.training.postprocessors.ArgMax"})
    capsys.readouterr()
    assert run("infer", config, "1,0,0,0", "0,0,1,0", "0,0,0,1") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["y_hat:tensor([0, 2, 3])"]


def test_a_torchassistant_session_infers_one_input_at_a_time(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = inference(trained, post_processor={"class": "torcheer.training.postprocessors.ArgMax"})
    capsys.readouterr()
    assert run("infer", config, "1,0,0,0", "0,0,1,0") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["y_hat:tensor([0])", "y_hat:tensor([2])"]


def test_more_inputs_than_fit_a_batch_are_several(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = inference(trained, batch_size=2, post_processor={"class": "torcheer.training.postprocessors.ArgMax"})
    capsys.readouterr()
    assert run("infer", config, "1,0,0,0", "0,0,1,0", "0,0,0,1") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["y_hat:tensor([0, 2])", "y_hat:tensor([3])"]


def test_a_post_processor_may_ask_for_the_session(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = inference(trained, post_processor={"class": "my_inputs.Loud"}, results=["y_hat"])
    capsys.readouterr()
    assert run("infer", config, "1,0,0,0") == 0
    assert capsys.readouterr().out.splitlines()[1] == "y_hat of net:torch.Size([1, 4])"


def test_results_go_to_the_output_device(trained: Path) -> None:
    device = {"class": "torcheer.training.output_devices.SaveAsCSV", "args": ["out.csv"]}
    config = inference(
        trained, output_device=device, post_processor={"class": "torcheer.training.postprocessors.ArgMax"}
    )
    assert run("infer", config, "1,0,0,0", "0,1,0,0") == 0
    assert (trained / "out.csv").read_text().split() == ["y_hat", "0", "1"]


def test_inputs_go_through_the_preprocessors_of_the_dataset(
    project: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "my_inputs.py").write_text(CONVERTERS)
    config = config_of()
    definitions = config["initialize"]["definitions"]
    definitions.insert(0, definition("preprocessors", "halved", **{"class": "my_inputs.Halved"}))
    definitions[2]["spec"]["preprocessors"] = ["halved"]
    (project / "training.json").write_text(json.dumps(config))
    assert run("init", "training.json") == 0
    rows = inference(project, results=["rows"])
    capsys.readouterr()
    assert run("infer", rows, "8,0,4,0") == 0
    assert capsys.readouterr().out.splitlines()[1] == "rows:[[4.0, 0.0, 2.0, 0.0]]"


def test_a_model_with_run_inference_is_run_with_it(
    project: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "my_inputs.py").write_text(CONVERTERS)
    config = config_of()
    config["initialize"]["definitions"][5]["spec"]["class"] = "my_inputs.Twice"
    (project / "training.json").write_text(json.dumps(config))
    assert run("init", "training.json") == 0
    capsys.readouterr()
    assert run("infer", inference(project), "1,0,2,0") == 0
    assert capsys.readouterr().out.splitlines()[1] == "y_hat:tensor([[100.,   0., 200.,   0.]])"


def test_a_pipeline_with_several_ports_takes_an_input_for_each(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seams import _group_inputs

    from torcheer.errors import BadArgument

    class PipelineRunner:
        name = "two"
        inputs = [(None, "left", None), (None, "right", None)]

    assert _group_inputs(PipelineRunner(), ["a", "b", "c", "d"]) == [["a", "b"], ["c", "d"]]  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="takes 2 inputs for each sample: left, right; 3 were given"):
        _group_inputs(PipelineRunner(), ["a", "b", "c"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"results": ["y"]}, "results: there is no y; there is rows, y_hat"),
        ({"inference_pipeline": "evaluatoin"}, "Did you mean 'evaluation'?"),
        ({"inputs_meta": [{"input_adapter": {"class": "my_inputs.number"}}]}, "Did you mean 'numbers'?"),
        ({"session_dir": "elsewhere"}, "elsewhere: there is no session here"),
    ],
)
def test_what_is_wrong_with_an_inference_config_is_told(
    trained: Path, changes: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("infer", inference(trained, **changes), "1,0,0,0") == 1
    assert message in capsys.readouterr().err


def test_an_input_that_cannot_be_converted_is_named(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("infer", inference(trained), "1,0,0,0", "one") == 1
    said = "input 'one' cannot be converted by my_inputs.numbers: ValueError: could not convert string"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("sample", "text", "needed"), [
    (torch.zeros(1, 8, 8), "seven", "a picture is needed, as the path of its file, such as photo.png, and there is no"),
    (torch.zeros(1, 8, 8), "data.json", "such as photo.png, and 'data.json' is a file of another kind"),
    (torch.zeros(1, 2, 2), "0.1, 0.5",
     "4 numbers (1×2×2) are needed, such as 0.1, 0.5, or a picture, as the path of its file; there are 2"),
    (torch.zeros(3), "seven", "3 numbers (3) are needed, such as 0.1, 0.5; this is something else"),
    (3, "seven", "a whole number is needed, such as 3"),
    (0.5, "seven", "a number is needed, such as 0.5"),
])  # fmt: skip
def test_what_an_input_has_to_be_is_said_by_the_samples_of_the_dataset(
    sample: Any, text: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.json").write_text("{}")
    converter = _converter_like([(sample, 0)], 0)
    with pytest.raises(BadArgument, match=f"input '{text}' cannot be converted: .*{re.escape(needed)}.*An input conv"):
        _convert(text, converter)


@pytest.mark.parametrize(("text", "why"), [
    ("seven", "there is no file 'seven'"), ("data.json", "'data.json' is a file of another kind"),
])  # fmt: skip
def test_an_input_that_a_dataset_of_files_cannot_read_is_told_so(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.json").write_text("{}")
    Path("pictures", "cat").mkdir(parents=True)
    pytest.importorskip("PIL.Image").new("L", (2, 2)).save("pictures/cat/1.png")
    converter = _converter_like(ImageFolder("pictures", size=2), 0)
    with pytest.raises(BadArgument, match=f"a file is needed that the dataset reads, as its path, and {why}. An input"):
        _convert(text, converter)


def test_an_input_is_read_as_a_sample_is_before_its_preprocessors(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (9, 9), "white").save(tmp_path / "white", "png")
    grey = preprocessed([(image.new("L", (4, 4)), 0)], [ImagePreprocessor()])
    converter = _converter_like(grey, 0)
    read = _convert(str(tmp_path / "white"), converter)
    assert (read.mode, read.size) == ("L", (4, 4))
    with pytest.raises(BadArgument, match="a picture is needed"):
        _convert("white", converter)


@pytest.mark.parametrize("name", ["needs_labels", "fails"])
def test_a_collator_that_asks_for_labels_gets_them_and_one_that_fails_is_named(
    trained: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"group": "collators", "name": "divide", "spec": {"class": f"my_inputs.{name}"}}
    merged = {"definitions": {"replace_strategy": "override", "override_key": ["name"], "options": [change]}}
    assert run("infer", inference(trained, initialize=merged), "1,0,0,0") == (name == "fails")
    said = "the collator of 'test' cannot make a batch of what inference gives it: ZeroDivisionError"
    assert (said in capsys.readouterr().err) == (name == "fails")


def test_inference_uses_averaged_weights_and_leaves_the_generators_alone(project: Path) -> None:  # noqa: F811
    from seams import inference as asked_of
    from seams import predict, reopen

    (project / "my_inputs.py").write_text(CONVERTERS)
    assert run("train", "training.json", "ema=0.9") == 0
    from torcheer.config import read

    built = reopen("pretrained", read(inference(project)))
    session = built.session
    assert session.checkpoints is not None
    state = session.checkpoints.newest()[0]
    assert state is not None
    session.restore_weights(state)
    before = torch.get_rng_state()
    asked = asked_of(built)
    found = predict(session, session.runners[asked.pipeline], asked, [["1,0,0,0"]])["y_hat"]
    assert torch.equal(torch.get_rng_state(), before)
    weights = state["averages"]["net"]
    middle = torch.tanh(torch.tensor([[1.0, 0, 0, 0]]) @ weights["first.weight"].T + weights["first.bias"])
    torch.testing.assert_close(found, middle @ weights["last.weight"].T + weights["last.bias"])
