"""What a run leaves behind besides its CSV: TensorBoard, W&B, traces of the profiler, capture_events layers."""

from __future__ import annotations

import errno
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from seams import Alert, Segment, StepDone, capture_events, tracker_writers, write_metrics
from training_cases import session as small

from torcheer.archive import Archive
from torcheer.errors import BadArgument, UnknownLayer

pytestmark = pytest.mark.usefixtures("one_thread")


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self, folder: Path, step: int) -> None:
        self.begun, self.rows, self.closed = step, [], False
        MADE.append(self)

    def write(self, values: Any, step: int) -> None:
        self.rows.append((step, dict(values)))

    def close(self) -> None:
        self.closed = True


class Failing(Kept):
    def write(self, values: Any, step: int) -> None:
        if len(self.rows) == 1:
            raise ConnectionError("the server is gone")
        super().write(values, step)


MADE: list[Any] = []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Writers of our own under two names."""
    monkeypatch.setattr(tracker_writers, "WRITERS", {"kept": ("json", Kept), "failing": ("json", Failing)})
    MADE.clear()
    return MADE


def alerts(events: Any) -> list[str]:
    return [event.message for event in events if isinstance(event, Alert)]


# writers


def test_without_writers_events_pass_as_they_are() -> None:
    events = iter([])
    assert write_metrics(small("plain"), events) is events


def test_a_writer_is_given_every_epochs_columns_at_their_step(tmp_path: Path, made: list[Any]) -> None:
    session = small("plain", tmp_path, writers=("kept",), steps_csv=0)
    assert alerts(session.run()) == []
    rows = made[0].rows
    assert [step for step, _ in rows] == [11, 22, 33, 44]
    assert [values | {"epoch": number + 1} for number, (_, values) in enumerate(rows)] == session.rows[0]
    assert made[0].closed


def test_a_writer_is_given_the_loss_of_every_nth_step_without_anybody_waiting(tmp_path: Path, made: list[Any]) -> None:
    session = small("pipelines", tmp_path, writers=("kept",), steps_csv=10)
    expected = {}
    for event in session.run():
        if isinstance(event, StepDone) and event.step % 10 == 0:
            expected[event.step] = (f"steps/{event.pipeline} loss", float(event.loss))
    found = {step: next(iter(values.items())) for step, values in made[0].rows if "epoch" not in values}
    assert found == expected and len(found) > 3


def test_losses_of_steps_are_looked_at_together(tmp_path: Path, made: list[Any]) -> None:
    session = small("plain", tmp_path, writers=("kept",), steps_csv=1)
    numbers, looks = tracker_writers._EventValues(session), []
    for step in range(1, 300):
        looks += [step for _ in numbers.values_in(StepDone(step, 1, step, "one", torch.tensor(1.0)))]
    assert set(looks) == {tracker_writers.MAX_PENDING}


def test_a_writer_that_fails_is_reported_once_and_training_goes_on(tmp_path: Path, made: list[Any]) -> None:
    session = small("plain", tmp_path, writers=("failing", "kept"), steps_csv=0)
    assert alerts(session.run()) == [
        "failing is left out from here on, training goes on without it: ConnectionError: the server is gone"
    ]
    assert session.place.epoch == 4 and [len(one.rows) for one in made] == [1, 4]


def test_a_writer_that_cannot_be_opened_is_reported_and_training_goes_on(
    tmp_path: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, step: int) -> None:
        raise PermissionError("sign in first")

    monkeypatch.setitem(tracker_writers.WRITERS, "kept", ("json", refuse))
    session = small("plain", tmp_path, writers=("kept",))
    assert alerts(session.run()) == [
        "kept is left out from here on, training goes on without it: PermissionError: sign in first"
    ]


def test_a_run_that_goes_on_tells_its_writer_from_where(tmp_path: Path, made: list[Any]) -> None:
    session = small("plain", tmp_path, writers=("kept",))
    events = session.run()
    for event in events:
        if isinstance(event, StepDone) and event.step == 16:
            break
    events.close()  # type: ignore[attr-defined]
    again = small("plain", tmp_path, writers=("kept",))
    assert alerts(again.run()) == []
    assert [one.begun for one in made] == [0, 14] and all(one.closed for one in made)


def test_a_missing_package_is_named_before_anything_is_trained(
    tmp_path: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tracker_writers.WRITERS, "kept", ("no_such_package", Kept))
    session = small("plain", tmp_path, writers=("kept",))
    message = "the writer 'kept' needs no_such_package, which is not installed: pip install no_such_package"
    with pytest.raises(BadArgument, match=message):
        list(session.run())
    assert not (tmp_path / "checkpoints").exists()


def test_an_unknown_writer_is_told_with_the_nearest(tmp_path: Path) -> None:
    session = small("plain", tmp_path, writers=("tensorbord",))
    with pytest.raises(BadArgument, match=r"there are tensorboard, wandb, mlflow\. Did you mean 'tensorboard'\?"):
        list(session.run())


def test_a_writer_needs_a_directory(made: list[Any]) -> None:
    session = small("plain", writers=("kept",))
    with pytest.raises(BadArgument, match="needs a directory to write to"):
        list(session.run())


def test_tensorboard_reads_what_was_written_also_after_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = {"writers": ("tensorboard",), "steps_csv": 2}
    session = small("plain", tmp_path, **options)
    events = session.run()
    for event in events:
        if isinstance(event, StepDone) and event.step == 31:
            break
    events.close()  # type: ignore[attr-defined]
    again = small("plain", tmp_path, **options)
    list(again.run())
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in board.Scalars("val_loss")] == [11, 22, 33, 44]
    assert [event.step for event in board.Scalars("steps/one_loss")] == list(range(2, 45, 2))
    assert board.Scalars("loss")[3].value == pytest.approx(again.rows[0][3]["loss"])


@pytest.mark.slow
@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed")
def test_wandb_takes_numbers_offline_and_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for _ in range(2):
        session = small("plain", tmp_path, writers=("wandb",))
        assert alerts(session.run()) == []
    runs = {path.suffixes[-1]: path.stem for path in (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")}
    assert runs == {".wandb": f"run-{(tmp_path / 'wandb' / 'id').read_text()}"}


def test_a_wandb_that_fails_does_not_end_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a minimal fake: only what happens when W&B refuses is tested here, not W&B."""
    fake = ModuleType("wandb")
    fake.__spec__ = SimpleNamespace(name="wandb")  # type: ignore[assignment]
    fake.Settings = lambda **_: None  # type: ignore[attr-defined]
    fake.login = lambda prompt: False  # type: ignore[attr-defined]

    def init(**_: Any) -> None:
        raise RuntimeError("no route to host")

    fake.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    session = small("plain", tmp_path, writers=("wandb",))
    assert alerts(session.run()) == [
        "wandb is left out from here on, training goes on without it: RuntimeError: no route to host"
    ]
    assert session.place.epoch == 4


# the profiler


def test_the_profiler_writes_a_trace_for_each_cycle_and_says_where(tmp_path: Path) -> None:
    session = small("plain", tmp_path, profile={"wait": 1, "warmup": 1, "active": 2, "repeat": 2})
    said = alerts(session.run())
    files = [tmp_path / "profile" / f"step-{step}.json" for step in (4, 8)]
    assert said == [
        f"profiled up to step {path.stem[5:]}: {path}; open it in https://ui.perfetto.dev or chrome://tracing"
        for path in files
    ]
    names = {event.get("name") for event in json.loads(files[0].read_text())["traceEvents"]}
    assert {"aten::linear", "ProfilerStep#2", "ProfilerStep#3"} <= names
    assert session.round_callbacks == []


def test_a_run_that_is_too_short_for_its_profile_says_so(tmp_path: Path) -> None:
    session = small("plain", tmp_path, profile={"wait": 1000})
    said = alerts(session.run())
    assert said == ["the run ended before the profiler's rounds; give it fewer: wait, warmup, active"]


def test_profiling_changes_nothing_that_is_computed(tmp_path: Path) -> None:
    plain, looked = small("plain"), small("plain", tmp_path, profile={"wait": 1, "active": 3})
    for session, events in ((plain, plain.run()), (looked, looked.run())):
        list(events)
        assert session.place.epoch == 4
    assert same_weights(plain, looked)


def test_a_trace_that_cannot_be_written_does_not_end_training(tmp_path: Path) -> None:
    session = small("plain", tmp_path, profile={"wait": 1, "warmup": 1, "active": 1, "repeat": 3})
    (tmp_path / "profile").write_text("a file where the folder would be")
    (said,) = alerts(session.run())
    assert said.startswith("profiling ends here, training goes on: ") and session.place.epoch == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"waits": 1}, "profile: there is no 'waits'; there are wait, .* Did you mean 'wait'?"),
        ({"active": 0}, "profile: active=0 is a number of rounds, 1 or more"),
        ({"wait": "1"}, "profile: wait='1' is a number of rounds, 0 or more"),
    ],
)
def test_what_is_wrong_with_a_profile_is_told(tmp_path: Path, settings: Any, message: str) -> None:
    session = small("plain", tmp_path, profile=settings)
    with pytest.raises(BadArgument, match=message):
        list(session.run())


# capture_events layers


def same_weights(one: Any, other: Any) -> bool:
    states = [[*session.models.items()] for session in (one, other)]
    return all(
        torch.equal(value, theirs[name])
        for (_, model), (_, another) in zip(*states)
        for theirs in [another.state_dict()]
        for name, value in model.state_dict().items()
    )


def frames(directory: Path) -> list[tuple[int, str, tuple[str, ...]]]:
    archive = Archive(directory / "captures")
    return [
        (one["step"], one["about"]["pipeline"], tuple(entry.layer for entry in one["entries"]))
        for one in archive.frames
    ]


def test_every_nth_step_the_chosen_layers_are_kept(tmp_path: Path) -> None:
    session = small("plain", tmp_path, capture={"layers": ["body.0", "relu_1", "head"], "every": 20})
    said = alerts(session.run())
    assert said == [] and session.capture is None
    assert frames(tmp_path) == [(step, "one", ("body.0", "relu_1", "head")) for step in (0, 20, 40)]
    archive = Archive(tmp_path / "captures")
    assert {entry.layer: entry.shape for entry in archive.entries} == {
        "body.0": (4, 8), "relu_1": (4, 8), "head": (4, 1),
    }  # fmt: skip
    assert {entry.variable for entry in archive.entries} == {"value"} and archive.verify() == 9


@pytest.mark.parametrize("case", ["plain", "pipelines", "accumulation"])
def test_capturing_changes_no_bit_of_what_is_trained(tmp_path: Path, case: str) -> None:
    plain, looked = small(case), small(case, tmp_path, capture={"layers": "all", "every": 5})
    list(plain.run())
    assert alerts(capture_events(looked, looked.run())) == []
    assert same_weights(plain, looked) and plain.rows == looked.rows


def test_each_pipeline_is_captured_at_its_first_step_of_each_span(tmp_path: Path) -> None:
    session = small("pipelines", tmp_path, capture={"layers": ["body.0", "other"], "every": 30})
    assert alerts(session.run()) == []
    found = frames(tmp_path)
    assert [(step, name) for step, name, _ in found][:4] == [(0, "one"), (1, "two"), (2, "three"), (30, "one")]
    layers = {name: kept for _, name, kept in found}
    assert layers["one"] == ("body.0",) and layers["three"] == ("body.0", "other")  # the first does not run `other`


def test_a_run_that_goes_on_keeps_no_step_twice_and_none_less(tmp_path: Path) -> None:
    settings = {"layers": ["relu_1"], "every": 4}
    whole = small("pipelines", tmp_path / "whole", capture=settings)
    list(capture_events(whole, whole.run()))
    first = small("pipelines", tmp_path / "killed", checkpoint_steps=25, capture=settings)
    events = capture_events(first, first.run())
    for event in events:
        if isinstance(event, StepDone) and event.step == 40:  # behind its checkpoint
            break
    events.close()  # type: ignore[attr-defined]
    again = small("pipelines", tmp_path / "killed", checkpoint_steps=25, capture=settings)
    list(capture_events(again, again.run()))
    assert frames(tmp_path / "killed") == frames(tmp_path / "whole")


def test_a_full_disk_ends_capturing_and_not_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Segment.write_values

    def full(segment: Any, *values: Any, **options: Any) -> Any:
        if segment._path.name == "captures":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(segment, *values, **options)

    session = small("plain", tmp_path, capture={"layers": ["relu_1"], "every": 10})
    events = session.run()
    said = []
    for event in events:
        said += alerts([event])
        if isinstance(event, StepDone) and event.step == 15:
            monkeypatch.setattr(Segment, "write_values", full)
    assert len(said) == 1 and session.place.epoch == 4
    assert said[0].startswith("nothing is captured from here on, training goes on: ")
    assert "No space left on device" in said[0] and [step for step, _, _ in frames(tmp_path)] == [0, 10]


def test_a_damaged_archive_ends_capturing_and_not_training(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "archive.json").write_text("{")
    session = small("plain", tmp_path, capture={"layers": ["relu_1"], "every": 10})
    (said,) = alerts(session.run())
    assert said.startswith("nothing is captured from here on, training goes on: ") and session.place.epoch == 4


def test_an_operation_that_does_not_run_is_told_once_and_the_others_are_kept(tmp_path: Path) -> None:
    session = small("plain", tmp_path, capture={"layers": ["relu_7", "relu_1"], "every": 10})
    said = alerts(session.run())
    assert len(said) == 1 and said[0].startswith("capture of 'relu_7' in 'one': no layer")
    assert {kept for _, _, kept in frames(tmp_path)} == {("relu_1",)}


def test_patterns_name_many_layers(tmp_path: Path) -> None:
    session = small("plain", tmp_path, capture={"layers": ["dropout_*"], "every": 1000})
    assert alerts(session.run()) == []
    ((_, _, kept),) = frames(tmp_path)
    assert len(kept) == 2 and all(name.startswith("dropout_") for name in kept)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"layers": ["body.00"]}, UnknownLayer, "no layer or module named 'body.00' among .* Did you mean 'body.0'"),
        ({"layers": []}, BadArgument, "give names such as"),
        ({"layers": ["head"], "every": 0}, BadArgument, "every=0 is a number of steps, 1 or more"),
        ({"layer": ["head"]}, BadArgument, "there is no 'layer'; there are layers, every. Did you mean 'layers'?"),
    ],
)
def test_what_is_wrong_with_a_capture_is_told_before_training(
    tmp_path: Path, settings: Any, error: type, message: str
) -> None:
    session = small("plain", tmp_path, capture=settings)
    with pytest.raises(error, match=message):
        list(session.run())


def test_a_layer_of_several_models_must_be_said_with_its_model(tmp_path: Path) -> None:
    session = small("plain", tmp_path, capture={"layers": ["0"]})
    session.models["twin"] = torch.nn.Sequential(torch.nn.Linear(6, 8))
    with pytest.raises(BadArgument, match=r"'0' is a layer of several models; say which: 'body.0', 'twin.0'"):
        list(session.run())
