"""The examples of training configs: they are right, they train, and the right weights move."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Built, EpochDone, StepDone, assemble, begin, check, inference, reopen, understand
from torch import nn

from torcheer.config import read

EXAMPLES = Path(__file__).parents[1] / "examples" / "training"
sys.path.insert(0, str(EXAMPLES.parents[1] / "benchmarks"))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the examples, which is the working directory."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__", "data", "*_run", "pretrained"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def digits(examples: Path) -> None:
    """A few digits in the format of MNIST, and torchvision without its compiled part."""
    pytest.importorskip("PIL")
    zoo = pytest.importorskip("zoo_torchvision")
    try:
        zoo.load()
    except ImportError:
        pytest.skip("torchvision is not installed")
    source: dict[str, Any] = {"__name__": "make_digits"}
    exec((examples / "make_digits.py").read_text(), source)
    source["main"]("data", 64, 32)


CONFIGS = [
    "translation/training.json",
    "gan/training.json",
    "two_heads/training.yaml",
    "two_heads/classifier_only.toml",
]


@pytest.mark.parametrize("name", [*CONFIGS, "my_examples/mnist/training.json"])
def test_check_finds_nothing_wrong_without_importing(name) -> None:
    assert check(read(name)) == []


@pytest.mark.parametrize("name", CONFIGS)
def test_an_example_is_right_in_all_and_trains(name, examples) -> None:
    assert check(read(name), imports=True) == []
    session = assemble(understand(read(name))).session
    list(session.run())
    first, last = session.rows[0][0], session.rows[0][-1]
    assert all(torch.tensor(value).isfinite() for value in last.values())
    assert any(last[column] < first[column] for column in first if column != "epoch")


def moved(built: Built, pipelines: tuple[str, ...]) -> set[str]:
    """Which models one epoch of some pipelines changes."""
    session = built.session
    before = {name: [one.clone() for one in model.parameters()] for name, model in session.models.items()}
    with session.training(session.stages[0]) as lanes:
        for lane in (one for one in lanes if one.name in pipelines):
            for batch in lane.batches(0):
                loss, items = lane.loss(*lane.forward(batch))
                assert lane.update is not None
                lane.update.backward(loss, items)
    return {
        name
        for name, model in session.models.items()
        if not all(torch.equal(one, other) for one, other in zip(model.parameters(), before[name]))
    }


# The quick start


@pytest.mark.usefixtures("digits")
def test_the_quick_start_of_the_seed_trains(capsys) -> None:
    config = read("my_examples/mnist/training.json")
    assert check(config, imports=True) == []
    session = begin(understand(config)).session
    epochs = [event for event in session.run() if isinstance(event, EpochDone)]
    assert [event.epoch for event in epochs] == [1, 2, 3]
    assert set(epochs[0].values) == {"acc", "loss", "val acc", "val loss"}
    assert Path("pretrained/metrics/0.csv").read_text().splitlines()[0] == "epoch,acc,loss,val acc,val loss"
    assert session.device.type == "cpu"


@pytest.mark.usefixtures("digits")
def test_the_quick_start_has_pillow_images_and_labels_in_a_list() -> None:
    session = assemble(understand(read("my_examples/mnist/training.json"))).session
    with session.reading():
        images, labels = next(session.feeds["training_factory"].epoch(0))
    assert images[0].size == (28, 28) and isinstance(labels, list) and isinstance(labels[0], int)


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_the_quick_starts_other_configs_come_over_it() -> None:
    begin(understand(read("my_examples/mnist/training.json")))
    assert check(read("my_examples/mnist/evaluation.json"), imports=True) == []
    found = inference(reopen("pretrained", read("my_examples/mnist/inference.json")))
    assert found.pipeline == "evaluation_pipeline" and list(found.converters) == ["input_batch"]


# A sequence to a sequence


@pytest.mark.slow
def test_both_halves_of_the_translator_are_trained() -> None:
    assert moved(assemble(understand(read("translation/training.json"))), ("train",)) == {"encoder", "decoder"}


@pytest.mark.slow
def test_the_translator_writes_words_backwards() -> None:
    built = assemble(understand(read("translation/training.json")))
    for event in built.session.run():
        if isinstance(event, StepDone) and event.epoch == 12:
            break
    assert built.session.rows[0][-1]["val acc"] > 2 * built.session.rows[0][0]["val acc"]


def test_the_translators_inference_runs_letter_by_letter() -> None:
    begin(understand(read("translation/training.json")))
    built = reopen("translation_run", read("translation/inference.json"))
    asked = inference(built)
    assert built.session.feeds["validation_loader"].loader.batch_size == 4
    sample = asked.converters["words"]("abc")
    letters, lane = built.parts.preprocessors["letters"], built.session.runners["evaluate"]
    batch = built.parts.collators["pad"]([[letters.process(one) for one in sample]])
    with torch.no_grad():
        frames, _ = lane.forward((batch,), infer=True)
    assert frames["translator"]["y_hat"].shape == (1, 8, letters.count)  # run_inference, not forward
    (word,) = asked.post_processor({"y_hat": frames["translator"]["y_hat"]})["y_hat"]  # type: ignore[misc]
    assert set(word) <= set("abcde")


# A generator against a discriminator


def test_each_half_of_the_gan_is_trained_by_its_own_pipeline() -> None:
    config = read("gan/training.json")
    assert moved(assemble(understand(config)), ("discriminate",)) == {"discriminator"}
    assert moved(assemble(understand(config)), ("generate",)) == {"generator"}
    assert moved(assemble(understand(config)), ("discriminate", "generate")) == {"discriminator", "generator"}


def test_the_gans_pipelines_take_turns() -> None:
    session = assemble(understand(read("gan/training.json"))).session
    order = [event.pipeline for event in session.run() if isinstance(event, StepDone)]
    assert order == ["discriminate", "generate"] * 20


def test_gradients_reach_the_generator_through_the_frozen_discriminator() -> None:
    session = assemble(understand(read("gan/training.json"))).session
    lane = session.runners["generate"]
    loss, _ = lane.loss(*lane.forward(next(lane.batches(0))))
    loss.backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in session.models["generator"].parameters())


def test_the_gan_steps_each_optimizer_once_for_two_losses() -> None:
    session = assemble(understand(read("gan/training.json"))).session
    steps = {name: [0] for name in session.optimizers}
    for name, optimizer in session.optimizers.items():
        optimizer.register_step_post_hook(lambda *_, count=steps[name]: count.__setitem__(0, count[0] + 1))
    list(session.run())
    assert steps == {"generator_optimizer": [20], "discriminator_optimizer": [20]}


# An autoencoder with two heads


def calls_of(model: nn.Module) -> list[int]:
    count = [0]
    model.register_forward_hook(lambda *_: count.__setitem__(0, count[0] + 1))
    return count


def test_the_encoder_of_two_heads_runs_once_for_both() -> None:
    session = assemble(understand(read("two_heads/training.yaml"))).session
    calls = {name: calls_of(model) for name, model in session.models.items()}
    lane = session.runners["training"]
    lane.loss(*lane.forward(next(lane.batches(0))))
    assert calls == {"encoder": [1], "decoder": [1], "classifier": [1]}


def test_both_heads_move_with_one_update() -> None:
    built = assemble(understand(read("two_heads/training.yaml")))
    steps = [0]
    built.session.optimizers["adam"].register_step_post_hook(lambda *_: steps.__setitem__(0, steps[0] + 1))
    assert moved(built, ("training",)) == {"encoder", "decoder", "classifier"}
    assert steps == [6]  # 90 samples, 16 to a batch


def test_the_weight_of_a_head_counts() -> None:
    session = assemble(understand(read("two_heads/training.yaml"))).session
    lane = session.runners["training"]
    frames, samples = lane.forward(next(lane.batches(0)))
    total, _ = lane.loss(frames, samples)
    values = lane.values()
    assert total.item() == pytest.approx(values["picture"] + 0.1 * values["label"])


def test_a_model_may_return_a_dict() -> None:
    session = assemble(understand(read("two_heads/training.yaml"))).session
    lane = session.runners["training"]
    frames, _ = lane.forward(next(lane.batches(0)))
    assert frames["classify"]["classes"].shape == (16, 3)
