"""What runs before an epoch: callbacks and pipelines, in Python and in configs, also in runs that go on."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import EpochDone, StepDone, begin, understand
from torch import nn
from training_spec_cases import WHOLE, Project, definition

from torcheer.errors import BadArgument, BadConfig
from torcheer.training import Session
from torcheer.training.session_parts import Graph, Input, Loader, Measure, Node, Options, Pipeline, Processor, Term
from torcheer.training.session_parts import Stage as StagePart
from torcheer.training.stop_conditions import EpochsCompleted


class Growing(torch.utils.data.Dataset[Any]):
    """Samples that are read from a file, as pseudo-labels are; `reread` reads it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reread()

    def reread(self) -> None:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.values = [float(line) for line in lines]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        x = torch.tensor([self.values[index], 1.0])
        return x, x[:1] * 2


class Erase:
    """Empty a file, and count how often; the count is a state."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, 0

    def __call__(self, session: Session, epoch: int) -> None:
        self.calls += 1
        self.path.write_text("")

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


class Predict:
    """An output adapter that appends what the model predicts to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, frame: dict[str, Any]) -> dict[str, Any]:
        with self.path.open("a") as file:
            file.writelines(f"{value}\n" for value in frame["y_hat"].flatten().tolist())
        return frame


def reread(session: Session, epoch: int) -> None:
    session.datasets["labels"].reread()


def self_training(folder: Path, *, epochs: int = 3, parts: Callable[[Path], Any] | None = None) -> Session:
    """A model that is trained with labels of its own, which are made anew before each epoch."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model, path = nn.Linear(2, 1), folder / "labels.txt"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    node = Node("net", ("x",), ("y_hat",), "sgd")
    unlabelled = [(torch.tensor([number / 8, 1.0]), 0.0) for number in range(6)]
    stage = StagePart(
        ("fit",),
        ("fit",),
        EpochsCompleted(epochs),
        before_epoch=(Erase(path), "predict", reread) if parts is None else parts(path),
        eval_steps=0.5,
    )
    return Session(
        models={"net": model},
        optimizers={"sgd": optimizer},
        loaders={"labels": Loader(Growing(path), 2), "pictures": Loader(unlabelled, 4)},
        losses={"loss": Measure(nn.functional.mse_loss, ("y_hat", "y"))},
        processors={"fit": Processor((node,)), "predict": Processor((node,), output_adapter=Predict(path))},
        graphs={name: Graph((name,), ("in",), {name: ("in",)}) for name in ("fit", "predict")},
        pipelines={
            "fit": Pipeline("fit", (Input("labels", ("x", "y")),), (Term("loss", "fit", "loss"),)),
            "predict": Pipeline("predict", (Input("pictures", ("x", "y")),)),
        },
        stages=[stage],
        options=Options(checkpoint_steps=1, keep_last=100, system_secs=0),
        to=folder / "run",
    )


def weights(session: Session) -> list[float]:
    return [value for parameter in session.models["net"].parameters() for value in parameter.flatten().tolist()]


def test_parts_run_in_order_before_each_epoch(tmp_path: Path) -> None:
    session = self_training(tmp_path)
    labels = []
    for event in session.run():
        if isinstance(event, EpochDone):
            labels.append((tmp_path / "labels.txt").read_text().splitlines())
    assert session.stages[0].before_epoch[0].calls == 3  # type: ignore[union-attr]
    assert [len(lines) for lines in labels] == [6, 6, 6] and labels[0] != labels[1] != labels[2]
    assert [float(line) for line in labels[-1]] == session.datasets["labels"].values
    assert session.place.step == 9, "three batches in each epoch, though there was no sample at first"


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_run_that_goes_on_anywhere_ends_the_same_bit_for_bit(steps: int, tmp_path: Path) -> None:
    whole = self_training(tmp_path / "whole")
    list(whole.run())
    for event in (stopped := self_training(tmp_path / "parts").run()):
        if isinstance(event, StepDone) and event.step == steps:
            break  # as a kill does: what came after the last checkpoint is lost
    stopped.close()  # type: ignore[attr-defined]
    again = self_training(tmp_path / "parts")
    list(again.run())
    assert weights(again) == weights(whole) and again.rows == whole.rows
    assert again.stages[0].before_epoch[0].calls == 3  # type: ignore[union-attr]


def test_a_run_that_ends_while_a_callback_runs_makes_all_of_it_again(tmp_path: Path) -> None:
    def failing(path: Path) -> Any:
        def fail(session: Session, epoch: int) -> None:
            if epoch == 2 and not (path.parent / "failed").exists():
                (path.parent / "failed").touch()
                raise OSError("no space left")

        return Erase(path), "predict", fail, reread

    whole = self_training(tmp_path / "whole")
    list(whole.run())
    with pytest.raises(OSError, match="no space left") as caught:
        list(self_training(tmp_path / "parts", parts=failing).run())
    assert "before epoch 2, callback fail" in "".join(caught.value.__notes__)
    again = self_training(tmp_path / "parts", parts=failing)
    list(again.run())
    assert weights(again) == weights(whole) and again.rows == whole.rows


def test_a_callback_that_changes_data_in_memory_is_asked_to_do_it_again(tmp_path: Path) -> None:
    class Curriculum:
        """More samples in each epoch, in memory alone."""

        def __call__(self, session: Session, epoch: int) -> None:
            session.datasets["labels"].values = [0.1 * number for number in range(2 + 2 * epoch)]

        def resume(self, session: Session, epoch: int) -> None:
            self(session, epoch)

    def stop_after(session: Session, steps: int) -> None:
        for event in (events := session.run()):
            if isinstance(event, StepDone) and event.step == steps:
                break
        events.close()  # type: ignore[attr-defined]

    whole = self_training(tmp_path / "whole", parts=lambda path: (Curriculum(),))
    list(whole.run())
    stop_after(self_training(tmp_path / "parts", parts=lambda path: (Curriculum(),)), 4)
    forgetful = self_training(tmp_path / "parts", parts=lambda path: (Curriculum().__call__,))
    with pytest.raises(BadArgument, match=r"'labels' has 6 samples, and now it has 0\. A callback .* resume\(session"):
        list(forgetful.run())
    again = self_training(tmp_path / "parts", parts=lambda path: (Curriculum(),))
    list(again.run())
    assert weights(again) == weights(whole) and again.place.step == 2 + 3 + 4


def test_an_epoch_without_samples_is_refused(tmp_path: Path) -> None:
    session = self_training(tmp_path, parts=lambda path: (Erase(path), reread))
    with pytest.raises(BadArgument, match=r"'fit' has no batch for epoch 1: .* \(Erase, reread\) left too few"):
        list(session.run())


def test_workers_see_the_changed_data(tmp_path: Path) -> None:
    session = self_training(tmp_path, epochs=2)
    feed = session.feeds["labels"]
    object.__setattr__(feed.loader, "options", {"num_workers": 1})
    seen: list[int] = []
    session.models["net"].register_forward_pre_hook(lambda _, values: seen.append(len(values[0])))
    list(session.run())
    assert session.place.step == 6


def test_what_is_no_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"there is no 'predicts' among the pipelines.* Did you mean 'predict'"):
        self_training(tmp_path, parts=lambda path: ("predicts",))
    with pytest.raises(BadArgument, match=r"before_epoch: .* this is int"):
        self_training(tmp_path, parts=lambda path: (3,))


def test_the_summary_names_them(tmp_path: Path) -> None:
    assert "before each epoch: Erase, predict, reread" in str(self_training(tmp_path).summary())


# In configs


CODE = """
calls = []

class Note:
    def __init__(self, word="noted"):
        self.word = word

    def __call__(self, session, epoch):
        calls.append((self.word, epoch, sorted(session.datasets), sorted(session.models)))

def note(session, epoch):
    calls.append(("function", epoch))

def no_callback(session):
    pass
"""


def with_callbacks(**spec: Any) -> dict[str, Any]:
    data = copy.deepcopy(WHOLE)
    data["initialize"]["definitions"] += [definition("callbacks", "note", **spec)]
    data["train"]["stages"][0]["run_before_epoch"] = ["note", "validation"]
    return data


def test_a_config_has_callbacks_and_pipelines_before_epochs(project: Project) -> None:
    Path("notes.py").write_text(CODE)
    built = begin(understand(project.config(with_callbacks(class_="notes.Note", kwargs={"word": "here"}))))
    list(built.session.run())
    notes = sys.modules["notes"]
    epochs = built.session.place.epoch
    assert [call[:2] for call in notes.calls] == [("here", number + 1) for number in range(epochs)]
    assert notes.calls[0][2] == sorted(built.parts.datasets) and notes.calls[0][3] == ["net"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"class_": "notes.no_callback"}, "a callback is called with the session and the epoch"),
        ({"class_": "notes.Missing"}, "notes has no 'Missing'"),
    ],
)
def test_what_is_no_callback_is_refused(project: Project, spec: dict[str, Any], said: str) -> None:
    Path("notes.py").write_text(CODE)
    with pytest.raises(BadConfig, match=said):
        begin(understand(project.config(with_callbacks(**spec))))


def test_a_misspelt_callback_is_a_fault_with_the_nearest_name(project: Project) -> None:
    Path("notes.py").write_text(CODE)
    data = with_callbacks(class_="notes.note")
    data["train"]["stages"][0]["run_before_epoch"] = ["notes"]
    said = project.complaint(data)
    assert "there is no 'notes' among the callbacks and pipelines; there is note, training, validation" in said
    assert "Did you mean 'note'?" in said
