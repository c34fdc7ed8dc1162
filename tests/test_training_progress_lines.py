"""What a session prints while it trains: the seed's line, plain lines in a file, the live view."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from seams import (
    Alert,
    CheckpointSaved,
    EpochDone,
    ProgressLines,
    StageBegan,
    StageDone,
    StepDone,
    Stopped,
    live_terminal,
    make_view,
    progress_lines,
)
from seams import show_progress as show

from torcheer.training.stop_conditions import EarlyStopping, EpochsCompleted

pytestmark = pytest.mark.usefixtures("one_thread")

VALUES = {"acc": 0.09375, "loss": 2.29931}


class FakeLane:
    """A pipeline that counts how often somebody looks."""

    def __init__(self, batches: int | None = 20, values: dict[str, float] | None = None, secs: float = 0.0) -> None:
        self.batches, self.found, self.secs, self.looks = batches, values or VALUES, secs, 0
        feed = SimpleNamespace(loader=SimpleNamespace(batch_size=32))
        self.inputs = [(feed, "in", None)]

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("a stream has no length")
        return self.batches

    def values(self) -> dict[str, float]:
        self.looks += 1
        spent = time.thread_time() + self.secs
        while time.thread_time() < spent:
            pass
        return self.found


def fake_session(stop: Any = None, **lanes: FakeLane) -> Any:
    stage = SimpleNamespace(training=tuple(lanes), validation=(), stop=stop)
    place = SimpleNamespace(stage=0, step=0, epoch=0, round=0)
    return SimpleNamespace(stages=[stage], runners=lanes, place=place, rows=[[]], stop_reason="")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still unless it is moved."""
    now = SimpleNamespace(secs=100.0)
    monkeypatch.setattr("time.monotonic", lambda: now.secs)
    return now


def an_epoch(clock: Any, steps: int = 20, secs: float = 0.05, pipeline: str = "t") -> Any:
    for number in range(1, steps + 1):
        clock.secs += secs
        yield StepDone(number, 1, number, pipeline, None)


# the seed's lines


def test_an_alert_on_a_narrow_terminal_ends_between_words_and_leaves_nothing_of_the_drawn_line(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    lines = ProgressLines(fake_session(t=FakeLane()), out)
    lines(StepDone(1, 1, 1, "t", None))
    drawn = out.getvalue().removeprefix("\r")
    lines(Alert("exploding_gradient at step 1: the norm of the gradients is 1e9"))
    first, second = out.getvalue().removeprefix(f"\r{drawn}\r").splitlines()
    assert first == "exploding_gradient at step 1: the norm".ljust(len(drawn))
    assert second == "  of the gradients is 1e9"


def test_the_lines_are_the_seeds_to_the_letter(clock: Any) -> None:
    out = Terminal()
    lines = ProgressLines(fake_session(t=FakeLane()), out)
    lines(StageBegan(0))
    lines(StepDone(1, 1, 1, "t", None))
    assert out.getvalue() == (
        "Training stage 0 in progress\n\rEpoch     1 [acc 0.0938, loss 2.2993] =>................... 1 / 20"
    )
    lines(EpochDone(1, {"acc": 0.13125, "loss": 2.35562, "val acc": 0.146875, "val loss": 2.358}, 1.0))
    lines(StageDone(0))
    assert out.getvalue().split("\r")[-1].splitlines() == [
        "Epoch     1 [acc 0.1313, loss 2.3556, val acc 0.1469, val loss 2.3580]",
        "Training stage 0 is completed",
    ]


@pytest.mark.parametrize(
    ("done", "bar"), [(1, "=>..................."), (10, "==========>.........."), (20, "====================>")]
)
def test_the_bar_has_twenty_parts(done: int, bar: str) -> None:
    assert (
        progress_lines.progress_text(StepDone(1, 1, done, "t", None), VALUES, 20).split("] ")[1] == f"{bar} {done} / 20"
    )


def test_a_stream_shows_how_many_rounds_are_done() -> None:
    assert progress_lines.rounds_of(fake_session(t=FakeLane(None))) is None
    assert progress_lines.progress_text(StepDone(7, 2, 7, "t", None), VALUES, None).endswith("loss 2.2993] 7")


def test_a_line_that_is_redrawn_shorter_leaves_nothing_behind(clock: Any) -> None:
    out, lane = Terminal(), FakeLane(values={"loss": 12345.678})
    lines = ProgressLines(fake_session(t=lane), out)
    lines(StepDone(1, 1, 1, "t", None))
    lane.found, clock.secs = {"loss": 1.0}, clock.secs + 1
    lines(StepDone(2, 1, 2, "t", None))
    first, second = out.getvalue().split("\r")[1:]
    assert len(second) == len(first) and second.endswith("2 / 20    ")


def test_there_are_at_most_ten_redraws_a_second(clock: Any) -> None:
    lane = FakeLane(1000)
    lines = ProgressLines(fake_session(t=lane), Terminal())
    for event in an_epoch(clock, steps=1000, secs=0.001):
        lines(event)
    assert 9 <= lane.looks <= 11


def test_a_metric_that_is_slow_to_compute_is_looked_at_less_often(clock: Any) -> None:
    lane = FakeLane(1000, secs=0.05)
    lines = ProgressLines(fake_session(t=lane), Terminal())
    for event in an_epoch(clock, steps=1000, secs=0.002):
        lines(event)
    assert lane.looks <= 3  # 20 times its 0.05 s between two looks


def test_a_narrow_terminal_cuts_the_line_that_is_redrawn(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    ProgressLines(fake_session(t=FakeLane()), out)(StepDone(1, 1, 1, "t", None))
    assert out.getvalue() == "\rEpoch     1 [acc 0.0938, loss"


def test_several_pipelines_share_the_line(clock: Any) -> None:
    lanes = {"a": FakeLane(5, {"b loss": 2.0}), "b": FakeLane(9, {"a loss": 1.0})}
    out = Terminal()
    ProgressLines(fake_session(**lanes), out)(StepDone(1, 1, 3, "a", None))
    assert out.getvalue() == "\rEpoch     1 [b loss 2.0000, a loss 1.0000] ======>.............. 3 / 9"


def test_an_alert_stands_on_a_line_of_its_own(clock: Any) -> None:
    out = Terminal()
    with ProgressLines(fake_session(t=FakeLane()), out) as lines:
        lines(StepDone(1, 1, 1, "t", None))
        lines(Alert("the disk is nearly full"))
        lines(CheckpointSaved(1, Path("x")))
    assert out.getvalue().split("\r")[-1].rstrip() == "the disk is nearly full"


def test_leaving_ends_the_line(clock: Any) -> None:
    out = Terminal()
    with ProgressLines(fake_session(t=FakeLane()), out) as lines:
        lines(StepDone(1, 1, 1, "t", None))
    assert out.getvalue().endswith("1 / 20\n")


# off a terminal


def test_off_a_terminal_500_steps_are_at_most_ten_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_lines, "LINE_SECS", 0.0)  # however slow the steps are
    from training_cases import session as small

    session, out = small("plain", checkpoint_steps=None), io.StringIO()
    session.stages[0] = type(session.stages[0])(("one",), ("check",), EpochsCompleted(46))  # of 11 steps
    show(session, session.run(), ProgressLines(session, out))
    assert session.place.step >= 500
    redrawn = [line for line in out.getvalue().splitlines() if " / " in line]
    assert 1 <= len(redrawn) <= 10 * session.place.step / 500
    assert "\r" not in out.getvalue() and "\x1b" not in out.getvalue()


def test_off_a_terminal_a_fast_epoch_is_one_line(clock: Any) -> None:
    out = io.StringIO()
    lines = ProgressLines(fake_session(t=FakeLane(2000)), out)
    for event in an_epoch(clock, steps=2000, secs=0.001):
        lines(event)
    lines(EpochDone(1, VALUES, 2.0))
    assert out.getvalue() == "Epoch     1 [acc 0.0938, loss 2.2993]\n"


def test_the_whole_of_a_run_off_a_terminal() -> None:
    from training_cases import session as small

    session, out = small("stages"), io.StringIO()
    assert show(session, session.run(), ProgressLines(session, out)) is None
    text = re.sub(r"-?\d+\.\d{4}", "0.0000", out.getvalue())
    first = "[error 0.0000, max 0.0000, loss 0.0000, val error 0.0000, val max 0.0000, val loss 0.0000]"
    assert text.splitlines()[:5] == [
        "Training stage 0 in progress",
        f"Epoch     1 {first} lr 0.01 → 0.007",
        f"Epoch     2 {first} lr 0.007 → 0.0000",
        "Training stage 0 is completed",
        "Training stage 1 in progress",
    ]
    ended = "Training stage 1 is completed by EarlyStopping, as its max_epochs is 3"
    assert text.splitlines()[-2:] == [ended, "Training is completed"]


def test_a_run_that_stops_is_not_called_completed(clock: Any) -> None:
    out = io.StringIO()
    session = fake_session(t=FakeLane())
    assert show(session, iter([StageBegan(0), Stopped("enough")]), ProgressLines(session, out)) == Stopped("enough")
    assert out.getvalue() == "Training stage 0 in progress\n"


# a screen that is gone


class Broken(io.StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.fixture
def silenced(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(progress_lines, "silence", lambda: found.append(True))
    return found


def test_where_nobody_reads_the_session_is_asked_to_stop(silenced: list[bool]) -> None:
    session = fake_session(t=FakeLane())
    show(session, iter([StageBegan(0), Stopped("enough")]), ProgressLines(session, Broken(BrokenPipeError())))
    assert session.stop_reason == "nobody reads what it prints" and silenced == [True]


def test_a_full_disk_behind_the_screen_does_not_stop_training(silenced: list[bool]) -> None:
    session = fake_session(t=FakeLane())
    events = iter([StageBegan(0), StageDone(0), Stopped("enough")])
    show(session, events, ProgressLines(session, Broken(OSError(28, "No space left on device"))))
    assert session.stop_reason == "" and silenced == [True, True]


# which one


def test_in_a_file_the_view_is_the_seeds_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(make_view(fake_session(t=FakeLane())), ProgressLines)


def test_on_a_terminal_the_view_is_live_unless_it_is_asked_to_be_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    session = fake_session(t=FakeLane())
    assert isinstance(make_view(session), live_terminal.LiveTerminal)
    assert isinstance(make_view(session, plain=True), ProgressLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_view(session), ProgressLines)


def test_without_rich_the_view_is_the_seeds_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert isinstance(make_view(fake_session(t=FakeLane())), ProgressLines)


# the live view


def drawn(session: Any, width: int, clock: Any, **done: int) -> list[str]:
    """What the live view shows of a session after two seconds of an epoch, as lines."""
    console = pytest.importorskip("rich.console").Console(width=width, file=io.StringIO(), color_system=None)
    pace = live_terminal.TrainingPace(session)
    pace.note(StageBegan(0))
    for name in done:
        pace.step(StepDone(0, 1, 1, name, None))
    pace.mark(clock.secs)
    clock.secs += 2
    for name, count in done.items():
        pace.step(StepDone(1234, 1, count, name, None))
    pace.mark(clock.secs)
    pace.note(CheckpointSaved(1200, Path("checkpoints/1200")))
    clock.secs += 13
    console.print(live_terminal.render(pace, {name: session.runners[name].values() for name in done}, width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_live_view_shows_bars_speed_values_and_what_is_left(clock: Any) -> None:
    lanes = {"supervised": FakeLane(20), "second": FakeLane(40, {"second loss": 0.5})}
    lines = drawn(fake_session(EpochsCompleted(3), **lanes), 80, clock, supervised=10, second=10)
    assert lines[0] == "stage 0 · epoch 1 of 3 · step 1,234"
    assert re.fullmatch(r"supervised  ━+.*  10 / 20  160 samples/s", lines[1])
    assert lines[2] == "  acc 0.0938  loss 2.2993"
    assert re.fullmatch(r"second      ━+.*  10 / 40  160 samples/s", lines[3])
    assert lines[4] == "  second loss 0.5000"
    assert lines[5] == "epoch 6 s left · stage 48 s left · saved step 1,200, 13 s ago"


def test_a_narrow_terminal_has_no_room_for_speed_and_a_tiny_one_none_for_bars(clock: Any) -> None:
    session = fake_session(EpochsCompleted(3), a_pipeline_with_a_long_name=FakeLane(20))
    narrow = drawn(session, 50, clock, a_pipeline_with_a_long_name=10)
    assert re.fullmatch(r"a_pipeline_with…  ━+.*  10 / 20", narrow[1])
    tiny = drawn(session, 30, clock, a_pipeline_with_a_long_name=10)
    assert tiny[1].split() == ["a_pipeline_with_…", "10", "/", "20"]
    assert tiny[2] == "  acc 0.0938  loss 2.2993"
    assert all(len(line) <= 30 for line in tiny)


def test_an_open_end_and_a_stream_show_no_time_that_nobody_knows(clock: Any) -> None:
    lines = drawn(fake_session(EarlyStopping("loss"), t=FakeLane(None)), 80, clock, t=10)
    assert lines[0] == "stage 0 · epoch 1 · step 1,234"
    assert lines[-1] == "saved step 1,200, 13 s ago"


def test_the_end_of_an_epoch_says_that_it_is_evaluated(clock: Any) -> None:
    lines = drawn(fake_session(EpochsCompleted(1), t=FakeLane(20)), 80, clock, t=20)
    assert lines[0] == "stage 0 · epoch 1 of 1 · step 1,234 · evaluating"
    assert lines[-1] == "stage 0 s left · saved step 1,200, 13 s ago"


def test_the_live_view_leaves_the_seeds_lines_behind() -> None:
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), force_terminal=True, width=100)
    from training_cases import session as small

    session = small("plain")
    show(session, session.run(), live_terminal.LiveTerminal(session, console))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    text = re.sub(r"-?\d+\.\d{4}", "0.0000", text)
    lines = [line for line in text.replace("\r", "\n").splitlines() if line.startswith(("Training", "Epoch"))]
    values = "[error 0.0000, max 0.0000, loss 0.0000, val error 0.0000, val max 0.0000, val loss 0.0000]"
    rates = [" lr 0.01 → 0.007", " lr 0.007 → 0.0000", "", ""]
    epochs = [f"Epoch {number:5} {values}{rate}" for number, rate in enumerate(rates, 1)]
    assert lines == [
        "Training stage 0 in progress", *epochs, "Training stage 0 is completed", "Training is completed",
    ]  # fmt: skip


def test_the_live_view_looks_at_values_a_few_times_a_second(clock: Any) -> None:
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), force_terminal=True, width=80)
    lane = FakeLane(2000)
    view = live_terminal.LiveTerminal(fake_session(EpochsCompleted(1), t=lane), console)
    for event in an_epoch(clock, steps=2000, secs=0.001):
        view(event)
    assert 2 <= lane.looks <= 10
