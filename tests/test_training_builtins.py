"""The rest of what a config may name: optimizers, adapters, output devices, hooks, stop conditions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seams import better
from torch import nn

from torcheer.config import find
from torcheer.errors import BadArgument, TorcheerError
from torcheer.training.adapters import DefaultInputAdapter, IdentityAdapter, Rename, StackImages, ToModel
from torcheer.training.hooks import GradientNoise, NotFinite, PrintGradientNorm, StopOnNaN, install
from torcheer.training.optimizers import (
    OPTIMIZERS,
    SCHEDULERS,
    find_optimizer,
    find_scheduler,
    optimizer,
    schedule,
    schedule_timing,
)
from torcheer.training.output_devices import Printer, SaveAsCSV, SaveAsImages, SaveAsText
from torcheer.training.postprocessors import ArgMax, DefaultPostProcessor
from torcheer.training.stop_conditions import EarlyStopping, EpochsCompleted

Image = pytest.importorskip("PIL.Image")


# Names


OPEN = """
    collators.BatchDivide collators.ColumnWiseCollator collators.PadSequences collators.SeqsToOneHot
    collators.StackTensors collators.to_long_tensor collators.no_transform collators.images_to_tensor
    datasets.Linked datasets.Merged datasets.Split
    metrics.Accuracy metrics.CER metrics.F1 metrics.Perplexity metrics.TokenCounter metrics.WER
    preprocessors.CharTokenizer preprocessors.NullProcessor preprocessors.OneHot preprocessors.ValueNormalizer
    preprocessors.WordTokenizer
""".split()
ALSO = """
    adapters.DefaultInputAdapter adapters.IdentityAdapter adapters.StackImages adapters.ToModel
    hooks.GradientNoise hooks.PrintGradientNorm hooks.StopOnNaN
    output_devices.Printer output_devices.SaveAsCSV output_devices.SaveAsImages output_devices.SaveAsText
    postprocessors.ArgMax postprocessors.DefaultPostProcessor
    stop_conditions.EarlyStopping stop_conditions.EpochsCompleted
""".split()


@pytest.mark.parametrize("name", OPEN)
def test_a_config_may_name_it_as_torchassistant_does(name: str) -> None:
    assert find(f"torchassistant.{name}") is find(f"torcheer.training.{name}")


@pytest.mark.parametrize("name", ALSO)
def test_it_has_the_name_that_torchassistant_gives_it(name: str) -> None:
    trusted = ["torcheer.training"]
    assert find(f"torchassistant.{name}", trusted=trusted) is find(f"torcheer.training.{name}", trusted=trusted)


# Optimizers and schedulers


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop"])
def test_optimizers_are_those_of_torch(name: str) -> None:
    made = optimizer(name, nn.Linear(2, 2).parameters(), lr=0.5)
    assert type(made) is getattr(torch.optim, name)
    assert made.param_groups[0]["lr"] == 0.5


def test_the_class_that_all_optimizers_share_is_none() -> None:
    assert "Optimizer" not in OPTIMIZERS
    assert "LRScheduler" not in SCHEDULERS


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: find_optimizer("Adm"), r"no optimizer 'Adm' in torch.optim. Did you mean 'Adam'\?"),
        (lambda: find_optimizer("adam"), r"no optimizer 'adam' in torch.optim. Did you mean 'Adam'\?"),
        (lambda: find_optimizer("LBFGS"), "LBFGS runs the model several times for an update"),
        (
            lambda: find_scheduler("StepRL"),
            r"no scheduler 'StepRL' in torch.optim.lr_scheduler. Did you mean 'StepLR'\?",
        ),
        (lambda: optimizer("Adam", [], learning_rate=1), "Adam has no argument 'learning_rate'; it takes params, lr"),
        (lambda: schedule("StepLR", sgd()), "StepLR also needs 'step_size'"),
        (lambda: schedule("ReduceLROnPlateau", sgd()), "needs to know which column it looks at: monitor='val loss'"),
        (
            lambda: schedule_timing("ReduceLROnPlateau", "step", "loss"),
            "known once an epoch: it cannot step every step",
        ),
        (lambda: schedule_timing("StepLR", monitor="loss"), "StepLR looks at no column: leave out monitor='loss'"),
        (lambda: schedule_timing("StepLR", "batch"), "every='batch': a scheduler steps every 'step' or every 'epoch'"),
    ],
)
def test_what_is_wrong_with_an_optimizer_or_scheduler_is_said(make: Any, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        make()


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_only_the_schedulers_that_count_updates_step_every_step(name: str) -> None:
    monitor = "loss" if name == "ReduceLROnPlateau" else ""
    assert schedule_timing(name, monitor=monitor)[0] == ("step" if name in ("OneCycleLR", "CyclicLR") else "epoch")


def test_a_schedule_steps_as_it_is_told() -> None:
    made = schedule("StepLR", sgd(), every="step", step_size=1)
    assert (made.every, made.monitor, type(made.scheduler).__name__) == ("step", "", "StepLR")
    assert schedule("ReduceLROnPlateau", sgd(), monitor="val loss").monitor == "val loss"


# Output devices


def test_the_printer_prints_names_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    Printer()({"y_hat": torch.tensor([[0.5, 1.0]]), "text": "abc"})
    assert capsys.readouterr().out == "y_hat:tensor([[0.5000, 1.0000]])\ntext:abc\n"


def read(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image)


@pytest.mark.parametrize(
    ("image", "pixel"),
    [
        (torch.full((2, 3), 0.2), 51),
        (torch.full((1, 2, 3), 51, dtype=torch.uint8), 51),
        (torch.tensor([1.0, 0.0, 0.2]).reshape(3, 1, 1).expand(3, 2, 3), [255, 0, 51]),
        (torch.ones(4, 2, 3), [255] * 4),
        (torch.ones(2, 3, dtype=torch.bool), 255),
        (torch.full((2, 3), 300), 255),
        (torch.full((2, 3), 7.0), 255),
        (torch.full((2, 3), math.nan), 0),
        (torch.full((2, 3), 0.2, dtype=torch.bfloat16), 51),
        (np.full((2, 3), 0.2), 51),
        (Image.new("L", (3, 2), 51), 51),
    ],
    ids=range(11),
)
def test_an_image_is_written_with_its_colours(image: Any, pixel: Any, tmp_path: Path) -> None:
    SaveAsImages(tmp_path / "new" / "folder")({"y_hat": [image]})
    written = read(tmp_path / "new" / "folder" / "y_hat-00000.png")
    assert written.shape[:2] == (2, 3)
    assert written[1, 2].tolist() == pixel


def test_what_a_tanh_made_is_brought_back_to_colours(tmp_path: Path) -> None:
    SaveAsImages(tmp_path, mean=0.5, std=0.5)({"y_hat": torch.tensor([-1.0, 1.0]).reshape(1, 1, 1, 2)})
    assert read(tmp_path / "y_hat-00000.png").tolist() == [[0, 255]]


def test_images_of_earlier_runs_are_left_alone(tmp_path: Path) -> None:
    for level in (0.0, 1.0):
        SaveAsImages(tmp_path)({"a": torch.full((2, 2, 2), level), "b/c": torch.zeros(1, 2, 2)})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a-00000.png", "a-00001.png", "a-00002.png", "a-00003.png", "b_c-00000.png", "b_c-00001.png",
    ]  # fmt: skip
    assert read(tmp_path / "a-00000.png").max() == 0


def test_the_name_of_a_result_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    SaveAsImages(tmp_path / "in")({"../out": torch.zeros(1, 2, 2)})
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("shape", [(5,), (5, 2, 2), (1, 1, 2, 2), (0, 3)])
def test_what_is_no_image_is_refused_with_its_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"y_hat: an image is height × width or 1 to 4 channels first, not \("):
        SaveAsImages(tmp_path)({"y_hat": torch.zeros(1, *shape)})


def test_results_become_lines_and_rows(tmp_path: Path) -> None:
    results = {"y_hat": torch.tensor([0.5, 1.0]), "text": ["a", "b, c"]}
    folder = tmp_path / "new"
    for save in (SaveAsText(folder / "out.txt"), SaveAsCSV(folder / "out.csv")):
        save(results)
        save(results)
    assert (folder / "out.txt").read_bytes() == b"0.5\ta\n1.0\tb, c\n" * 2
    assert (folder / "out.csv").read_bytes() == b"y_hat,text\n" + b'0.5,a\n1.0,"b, c"\n' * 2


@pytest.mark.parametrize("make", [SaveAsText, SaveAsCSV])
def test_only_files_that_are_named_as_what_they_hold_are_added_to(make: Any) -> None:
    with pytest.raises(BadArgument, match=r".bashrc: the name of this file ends in \."):
        make(".bashrc")


def test_results_of_different_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="different numbers of items: a 1, b 2"):
        SaveAsCSV(tmp_path / "out.csv")({"a": [1], "b": [1, 2]})


# Adapters and postprocessors


def test_columns_go_to_a_model_as_tensors_under_the_names_of_its_inputs() -> None:
    frame = {"images": [[1.0, 2.0]], "y": [3], "text": ["a"], "t": torch.ones(1)}
    assert ToModel("net", {"x": "images"})(frame)["net"]["x"].tolist() == [[1, 2]]
    given_ = ToModel("net", ["y", "text", "t"])(frame)["net"]
    assert (given_["y"].tolist(), given_["text"], given_["t"]) == ([3], ["a"], frame["t"])


def test_what_is_no_column_of_numbers_goes_to_a_model_as_it_is() -> None:
    frame = {"n": 3, "empty": [], "odd": {"a": 1}}
    passed = ToModel("net", ["n", "empty", "odd"])(frame)["net"]
    assert (passed["n"], len(passed["empty"]), passed["odd"]) == (3, 0, {"a": 1})


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(BadArgument, match=r"no column 'image' in images, y. Did you mean 'images'\?"):
        ToModel("net", ["image"])({"images": [], "y": []})


def test_images_go_to_a_model_as_floats() -> None:
    frame = {"images": [Image.new("L", (28, 28), 255)] * 2}
    x = StackImages("images", "net")(frame)["net"]["x"]
    assert (x.shape, x.dtype, x.max()) == ((2, 1, 28, 28), torch.float32, 1)


def test_a_batch_of_bytes_becomes_floats_and_one_of_floats_stays() -> None:
    bytes_, floats = torch.full((2, 3, 4, 4), 255, dtype=torch.uint8), torch.rand(2, 3, 4, 4)
    assert StackImages("a", "net", "y")({"a": bytes_})["net"]["y"].max() == 1
    assert StackImages("a", "net", "y")({"a": floats})["net"]["y"] is floats


def test_the_default_adapter_gives_the_first_input() -> None:
    assert DefaultInputAdapter("net")({"input_1": [1.5], "y": [0]})["net"]["input_1"].tolist() == [1.5]


def test_results_stay_or_are_renamed() -> None:
    frame = {"y": 1, "y_hat": 2}
    assert IdentityAdapter()(frame) is frame
    assert Rename({"prediction": "y_hat"})(frame) == {"y": 1, "prediction": 2}


def test_scores_become_classes_or_their_names() -> None:
    scores = {"y_hat": torch.tensor([[0.1, 0.9], [0.8, 0.2]]), "text": ["a", "b"]}
    assert ArgMax()(scores)["y_hat"].tolist() == [1, 0]
    assert ArgMax(["cat", "dog"])(scores) == {"y_hat": ["dog", "cat"], "text": ["a", "b"]}
    assert DefaultPostProcessor()(scores) is scores
    with pytest.raises(BadArgument, match=r"y_hat has the shape \(2, 2\), not items × the 1 classes"):
        ArgMax(["cat"])(scores)


# Hooks


def test_a_hook_is_made_for_every_parameter_that_is_trained() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    seen: list[str] = []
    handles = install(model, lambda name: lambda gradient: seen.append(name))
    model(torch.ones(1, 2)).sum().backward()
    for handle in handles:
        handle.remove()
    model(torch.ones(1, 2)).sum().backward()
    assert seen == ["weight"]


def test_norms_are_printed_every_so_many_times(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(4, 1, bias=False)
    install(model, PrintGradientNorm(every=2))
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()
    assert capsys.readouterr().out == "gradient of weight: 2\n"


def test_training_stops_at_a_gradient_that_is_not_a_number() -> None:
    model = nn.Linear(2, 1)
    install(model, StopOnNaN())
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(NotFinite, match=r"the gradient of (weight|bias) is not a number"):
        (model(torch.ones(1, 2)).sum() * math.nan).backward()
    assert issubclass(NotFinite, TorcheerError) and issubclass(NotFinite, FloatingPointError)


def test_noise_is_added_to_gradients() -> None:
    model = nn.Linear(200, 1, bias=False)
    install(model, GradientNoise(0.5))
    model(torch.zeros(1, 200)).sum().backward()
    assert model.weight.grad is not None
    assert 0.3 < float(model.weight.grad.std()) < 0.7


def test_a_hook_cannot_act_less_than_never() -> None:
    with pytest.raises(BadArgument, match="every=0"):
        StopOnNaN(every=0)


# Stop conditions


def stops_after(stop: Any, values: list[float], column: str = "val loss") -> int | None:
    """The epoch after which training stops."""
    rows = [{"epoch": number, column: value} for number, value in enumerate(values, 1)]
    return next((count for count in range(len(rows) + 1) if stop.is_met(rows[:count])), None)


def test_epochs_are_counted() -> None:
    assert stops_after(EpochsCompleted(3), [0.0] * 5) == 3
    assert stops_after(EpochsCompleted(0), [0.0]) == 0


@pytest.mark.parametrize(
    ("kwargs", "values", "epoch"),
    [
        ({}, [3, 2, 1], None),
        ({"patience": 0}, [3, 2, 2], 3),
        ({"patience": 1}, [3, 2, 2.1, 2.2, 2.3], 4),  # as TorchAssistant's own
        ({}, [3, 2, 2, 2], 4),
        ({"patience": 1}, [3, 1, 2, 1.5], 4),  # better than its neighbour is not better than the best
        ({"patience": 1}, [3, 1, 2, 0.5, 2, 2], 6),
        ({"min_delta": 0.5, "patience": 0}, [3, 2.6], 2),
        ({"min_delta": 0.5, "patience": 1}, [3, 2.75, 2.5, 2.25], 3),  # small steps are measured from the best
        ({"patience": 1}, [3, math.nan, 2, math.nan, math.nan], 5),
        ({"patience": 1}, [math.nan, 3, 2], None),
        ({"patience": 0}, [math.nan], 1),
        ({}, [math.inf, math.inf], 2),
        ({"mode": "max"}, [1, 2, 3, 3, 3], 5),
        ({"patience": 5, "max_epochs": 2}, [3, 2, 1], 2),
    ],
)
def test_early_stopping_compares_with_the_best(kwargs: dict[str, Any], values: list[float], epoch: int | None) -> None:
    assert stops_after(EarlyStopping("val loss", **kwargs), values) == epoch


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 4), st.sampled_from(["min", "max"]))
def test_early_stopping_means_that_no_recent_epoch_was_the_first_best(
    values: list[int], patience: int, mode: str
) -> None:
    best = {"min": min, "max": max}[mode]
    expected = bool(values) and len(values) - 1 - values.index(best(values)) > patience
    rows = [{"loss": value} for value in values]
    assert EarlyStopping("loss", patience=patience, mode=mode).is_met(rows) == expected


@pytest.mark.parametrize(
    ("column", "mode"),
    [("val loss", "min"), ("loss", "min"), ("val acc", "max"), ("accuracy", "max"), ("f1_score", "max")]
    + [("cer", "min"), ("vacc", "min"), ("accuracy loss", "min"), ("Recall", "max")],
)
def test_the_name_of_a_column_says_whether_more_is_better(column: str, mode: str) -> None:
    assert EarlyStopping(column).mode == better(column) == mode


def test_a_column_that_is_not_there_to_be_watched_is_named_with_the_nearest() -> None:
    with pytest.raises(
        BadArgument, match=r"watches 'val_loss', and there is only loss, val loss. Did you mean 'val loss'\?"
    ):
        EarlyStopping("val_loss").is_met([{"epoch": 1, "loss": 1.0, "val loss": 1.0}])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EarlyStopping("loss", mode="less"), "mode='less': 'min' where less is better"),
        (lambda: EarlyStopping("loss", patience=-1), "patience=-1: a whole number of epochs, 0 or more"),
        (lambda: EarlyStopping("loss", min_delta=-1), "min_delta=-1: by how much a value must be better"),
        (lambda: EarlyStopping("loss", min_delta=math.nan), "min_delta=nan"),
        (lambda: EpochsCompleted("3"), "num_epochs='3': a whole number of epochs, 0 or more"),
        (lambda: EpochsCompleted(-1), "num_epochs=-1"),
    ],
)
def test_stop_conditions_that_mean_nothing_are_refused(make: Any, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        make()
