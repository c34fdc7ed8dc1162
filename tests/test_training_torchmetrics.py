"""The real torchmetrics as the metrics of a session: the same numbers, reset with each epoch, and resumed."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import EpochDone, StepDone
from torch import nn
from training_loop_cases import classifier, labelled

from torcheer.errors import BadArgument
from torcheer.training import Session

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(importlib.util.find_spec("torchmetrics") is None, reason="torchmetrics is not installed"),
]


@pytest.fixture(scope="module")
def torchmetrics() -> Any:
    """torchmetrics imports torchvision, where it is installed, and that needs its compiled half."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    with suppress(ImportError):
        import zoo_torchvision

        zoo_torchvision.load()
    import torchmetrics

    return torchmetrics


def session(metrics: dict[str, Any], directory: Path | None = None, epochs: int = 2) -> Session:
    torch.manual_seed(0)
    others = {"metrics": metrics, "to": directory}
    return classifier(nn.Linear(4, 3), labelled(50), (8, 8), epochs=epochs, others=others)  # the last batch has 2


def test_the_value_is_that_of_the_metric_over_the_whole_epoch(torchmetrics: Any) -> None:
    metrics = {
        "acc": torchmetrics.Accuracy(task="multiclass", num_classes=3),
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro"),
    }
    one = session(metrics)
    rows = [event.values for event in one.run() if isinstance(event, EpochDone)]
    x, y = labelled(50).tensors
    for name, metric in metrics.items():
        with torch.no_grad():
            expected = float(metric(one.models["net"](x), y))
        assert rows[-1][f"val {name}"] == pytest.approx(expected, abs=1e-6)
    assert len({row["acc"] for row in rows}) == 2  # reset, and trained on


def test_a_killed_epoch_goes_on_with_its_counts(torchmetrics: Any, tmp_path: Path) -> None:
    def metrics() -> dict[str, Any]:
        return {"acc": torchmetrics.Accuracy(task="multiclass", num_classes=3)}

    whole = [event.values for event in session(metrics()).run() if isinstance(event, EpochDone)]
    first = session(metrics(), tmp_path / "run")
    for event in first.run():
        if isinstance(event, StepDone) and event.step == 10:  # in the second epoch
            first.stop_reason = "a test"
    again = session(metrics(), tmp_path / "run")
    rest = [event.values for event in again.run() if isinstance(event, EpochDone)]
    assert rest == whole[1:]


def test_a_collection_is_refused_and_says_what_to_do(torchmetrics: Any) -> None:
    both = torchmetrics.MetricCollection([torchmetrics.Accuracy(task="multiclass", num_classes=3)])
    with pytest.raises(
        BadArgument, match=r"MetricCollection gives several values .* one: give each of its metrics a name"
    ):
        list(session({"all": both}).run())
