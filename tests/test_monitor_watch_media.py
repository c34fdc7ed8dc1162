"""`w.log(image=…)` of a watch: sent whole, never raising, bounded, not mixed with watched values."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.inspector import Transport, Watch


def watched(to: Path | None, *calls: dict[str, Any], **settings: Any) -> Watch:
    """A watch of one step, with these calls of `log`."""
    model = nn.Linear(4, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with tl.watch(model, every=1, to=to, rules="none", **settings) as w:
            model(torch.ones(1, 4)).sum().backward()
            for call in calls:
                w.log(**call)
    return w


def test_samples_and_numbers_of_one_call_are_both_there(tmp_path: Path) -> None:
    image = torch.rand(3, 8, 9)
    w = watched(tmp_path, {"loss": 0.5, "image": image, "text": "hello"})
    log = tl.load(tmp_path)
    assert not w.problems and w.account.written == w.account.handled and not w.account.missing
    assert log["loss"].mean.tolist() == [0.5]
    assert log.samples("image")[0].array.tobytes() == image.numpy().tobytes()
    assert log.samples("text")[0].text == "hello" and log.samples().steps == [0]


def test_a_sample_has_no_statistics_no_key_and_goes_to_no_callback(tmp_path: Path) -> None:
    def record(layer: str, variable: str, step: int, array: Any) -> None:
        with open(tmp_path / "calls", "a") as file:
            file.write(f"{variable}\n")

    watched(tmp_path / "run", {"image": torch.rand(3, 8, 9), "loss": 1.0}, callback=record, keep="*")
    assert "image" not in tl.load(tmp_path / "run")
    assert {"output", "metric"} <= set((tmp_path / "calls").read_text().split())
    assert "image" not in (tmp_path / "calls").read_text()


def test_what_is_changed_after_the_call_is_logged_as_it_was(tmp_path: Path) -> None:
    image, model = np.zeros((4, 4), np.uint8), nn.Linear(4, 2)
    with tl.watch(model, every=1, to=tmp_path) as w:
        model(torch.ones(1, 4))
        w.log(image=image)
        image[:] = 255
    assert not tl.load(tmp_path).samples("image")[0].array.any()


def test_without_a_folder_it_is_said_once_that_a_sample_is_kept_nowhere() -> None:
    w = watched(None, {"image": torch.rand(3, 8, 9)}, {"image": torch.rand(3, 8, 9)})
    assert w.problems == ["image 'image' is kept nowhere: tl.watch(…, to='folder') writes it"]


def test_a_sample_larger_than_its_share_of_the_ring_is_said_with_a_ring_that_has_room(tmp_path: Path) -> None:
    w = watched(tmp_path, {"image": np.zeros((300, 300), np.uint8)}, transport=Transport(bytes=128 << 10))
    (problem,) = w.problems
    assert "image 'image' has 90,000 bytes, more than an eighth of the ring: it is not sent" in problem
    assert "Transport(bytes=2 << 20)" in problem and not tl.load(tmp_path).samples()


class Refuses:
    """Fails whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"there is no {name} today")


ODD = ["a text", torch.ones(3), np.ones(3), [1, 2], object(), pytest.param(Refuses(), id="refuses")]


@pytest.mark.parametrize("value", ODD)
def test_what_is_neither_number_nor_sample_is_reported_as_before(tmp_path: Path, value: Any) -> None:
    (problem,) = watched(tmp_path, {"mine": value}).problems
    assert "'mine'" in problem


@pytest.mark.parametrize("value", ["a text", torch.ones(3)])
def test_the_report_says_how_to_log_it(tmp_path: Path, value: Any) -> None:
    (problem,) = watched(tmp_path, {"mine": value}).problems
    assert "tl.Text(x)" in problem if isinstance(value, str) else "tl.Image(x)" in problem


def test_a_list_of_images_keeps_its_order_and_captions(tmp_path: Path) -> None:
    faces = [tl.Image(np.full((4, size), 0.5), caption=str(size)) for size in (3, 9, 5)]
    watched(tmp_path, {"faces": faces})
    read = tl.load(tmp_path).samples("image", "faces")
    assert [(sample.item, sample.caption, sample.shape) for sample in read] == [
        (0, "3", (4, 3)), (1, "9", (4, 9)), (2, "5", (4, 5))
    ]  # fmt: skip


def test_samples_change_no_weight(tmp_path: Path) -> None:
    def train(log: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with tl.watch(model, every=2, to=tmp_path / str(log)) as w:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.rand(3, 4)).square().sum().backward()
                optimizer.step()
                if log:
                    w.log(image=model.weight, confusion=model.weight.detach()[:, :2], text="x")
        return model.weight.detach().clone()

    assert torch.equal(train(True), train(False))
