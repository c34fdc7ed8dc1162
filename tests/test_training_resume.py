"""A run that was stopped or killed anywhere ends as one that nobody disturbed: bit for bit, in every file."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast_cases import fast_first
from seams import Alert, CheckpointSaved, CheckpointStore, EpochDone, Feed, Resumed, StepDone, Stopped, stop_on_signals
from seams import pack_state as pack
from seams import unpack_state as unpack
from torch import nn
from torch.optim import lr_scheduler as rates
from training_cases import CASES, Noisy, Nursery, results, run, session
from waiting import wait_until

from torcheer.errors import ArchiveBusy, BadArgument, CannotWrite
from torcheer.training import Session
from torcheer.training.session_parts import (
    Graph,
    Input,
    Loader,
    Measure,
    Node,
    Options,
    Pipeline,
    Processor,
    Schedule,
    Stage,
    Term,
)
from torcheer.training.stop_conditions import EpochsCompleted

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power cuts, and thousands of waits for the disk are."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


def steps_of(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in (directory / "checkpoints").glob("[0-9]*"))


def cut_back(directory: Path, to: Path, step: int) -> Path:
    """A copy of a run as it was when step's checkpoint was its last, its tables further on."""
    for part in ("metrics", f"checkpoints/{step}"):
        shutil.copytree(directory / part, to / part)
    return to


# From every place


@pytest.mark.parametrize("case", fast_first(CASES))
def test_a_run_resumed_from_any_checkpoint_ends_the_same_in_every_byte(case: str, tmp_path: Path) -> None:
    every = {"checkpoint_secs": 0, "keep_last": 1000}
    run(case, tmp_path / "whole", **every)
    steps, whole = steps_of(tmp_path / "whole"), results(tmp_path / "whole")
    assert len(steps) > 15
    for step in {*steps[:: 14 if case == "workers" else 3], steps[-1]}:
        again = cut_back(tmp_path / "whole", tmp_path / f"{step}", step)
        run(case, again, **every)
        assert results(again) == whole, f"resumed at step {step}"


@pytest.mark.parametrize("case", fast_first(["pipelines", "accumulation"]))
def test_a_run_that_is_stopped_in_any_round_ends_the_same(case: str, tmp_path: Path) -> None:
    run(case, tmp_path / "whole", checkpoint_steps=None)
    whole, stops = results(tmp_path / "whole"), 0
    while True:
        one = session(case, tmp_path / "stopped", checkpoint_steps=None)
        one.round_callbacks.append(lambda place, one=one: setattr(one, "stop_reason", "enough"))
        events = list(one.run())
        if not isinstance(events[-1], Stopped):
            break
        stops += 1
        assert isinstance(events[-2], CheckpointSaved)
    assert stops > 12 and results(tmp_path / "stopped") == whole


def test_a_run_without_a_directory_ends_the_same(tmp_path: Path) -> None:
    run("plain", tmp_path / "kept")
    one = session("plain")
    for _ in one.run():
        pass
    tensors, plain = pack({**one.state(), "models": {}})
    kept = session("plain", tmp_path / "kept")
    assert kept.resume() == []
    found, other = pack({**kept.state(), "models": {}})
    assert other == plain and all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_how_often_is_saved_changes_nothing(tmp_path: Path) -> None:
    for name, every in (("often", 1), ("seldom", 1000)):
        run("stages", tmp_path / name, checkpoint_steps=every)
    assert results(tmp_path / "often") == results(tmp_path / "seldom")


@pytest.mark.parametrize("case", ["plain", "pipelines"])
def test_whoever_listens_may_save_or_leave_at_any_event(case: str, tmp_path: Path) -> None:
    run(case, tmp_path / "whole", checkpoint_steps=None)
    done = False
    while not done:
        done, seen = True, 0
        one = session(case, tmp_path / "left", checkpoint_steps=None)
        for event in one.run():
            seen += isinstance(event, StepDone)
            if seen == 5 and one.place.step > 3:
                list(one.save())
                done = False
                break
    assert results(tmp_path / "left") == results(tmp_path / "whole")


def test_saving_is_refused_while_gradients_are_half_gathered(tmp_path: Path) -> None:
    one = session("accumulation", tmp_path)
    events = one.run()
    while not isinstance(next(events), StepDone):
        pass
    with pytest.raises(BadArgument, match="half gathered"):
        list(one.save())


def test_two_pipelines_with_one_loader_and_workers_have_all_its_batches_each() -> None:
    feed = Feed(Loader(Noisy(12, 1), 4, options={"num_workers": 2}), 1)
    for epoch in range(2):
        pairs = list(zip(feed.epoch(epoch), feed.epoch(epoch)))
        assert len(pairs) == 3 and all(torch.equal(one[0], other[0]) for one, other in pairs)
    next(feed.epoch(0))  # some of them only
    assert len(list(feed.epoch(1))) == 3


def test_a_session_that_is_done_has_nothing_to_do(tmp_path: Path) -> None:
    run("stages", tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("checkpoints/*/*")}
    (resumed,) = session("stages", tmp_path).run()
    assert isinstance(resumed, Resumed) and resumed.is_complete
    assert str(resumed).startswith("nothing is left to train: checkpoint 31 (step 31, ")
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("checkpoints/*/*")} == before


def test_a_session_writes_its_first_checkpoint_before_its_first_step(tmp_path: Path) -> None:
    events = session("plain", tmp_path).run()
    assert next(events) == CheckpointSaved(0, tmp_path / "checkpoints" / "0")


def test_rows_that_came_after_the_last_checkpoint_are_not_doubled(tmp_path: Path) -> None:
    run("stages", tmp_path / "whole", keep_last=1000)
    rows = {name: text for name, text in results(tmp_path / "whole").items() if name.endswith(".csv")}
    for step in steps_of(tmp_path / "whole")[:4]:
        again = cut_back(tmp_path / "whole", tmp_path / f"{step}", step)
        events = session("stages", again).run()
        while not isinstance(next(events), StepDone):
            pass
        events.close()
        assert not (again / "metrics" / "1.csv").exists()
        run("stages", again)
        assert {name: text for name, text in results(again).items() if name.endswith(".csv")} == rows


def test_a_stage_may_be_added_to_a_session_that_is_done(tmp_path: Path) -> None:
    run("plain", tmp_path)
    more = session("plain", tmp_path)
    more.stages.append(Stage(("two",), ("check",), EpochsCompleted(1)))
    more.rows.append([])
    events = list(more.run())
    assert [event.epoch for event in events if isinstance(event, EpochDone)] == [5]
    fewer = session("plain", tmp_path)
    with pytest.raises(BadArgument, match="1 stages, and had 2"):
        fewer.resume()


def test_a_session_goes_on_in_the_same_process_after_the_disk_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("plain", tmp_path / "whole")
    one, saved, call = session("plain", tmp_path / "full"), 0, os.rename

    def refuse(*arguments: Any) -> None:
        nonlocal saved
        saved += 1
        if saved % 4 == 3:
            raise OSError(28, "No space left on device")
        call(*arguments)

    monkeypatch.setattr(os, "rename", refuse)
    refusals = 0
    while True:
        try:
            for _ in one.run():
                pass
            break
        except CannotWrite:
            refusals += 1
    assert refusals > 3 and results(tmp_path / "full") == results(tmp_path / "whole")


def test_the_last_checkpoint_is_written_by_the_next_run_where_the_disk_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("plain", tmp_path / "whole")
    one, call = session("plain", tmp_path / "full"), os.rename

    def refuse(*arguments: Any) -> None:
        if one.place.stage == len(one.stages):
            raise OSError(28, "No space left on device")
        call(*arguments)

    monkeypatch.setattr(os, "rename", refuse)
    for _ in range(2):  # the second has nothing left to train
        with pytest.raises(CannotWrite):
            list(one.run())
    monkeypatch.undo()
    list(one.run())
    assert results(tmp_path / "full") == results(tmp_path / "whole")


# Killed


def test_a_reader_finds_a_whole_checkpoint_at_any_time(nursery: Nursery, tmp_path: Path) -> None:
    list(session("stages", tmp_path).save())
    nursery.start("stages", tmp_path, checkpoint_steps=1, keep_last=1, keep_best="")
    found: list[tuple[int, int]] = []

    def read_on() -> bool:
        state, _, problems = CheckpointStore(tmp_path).newest()
        assert state is not None and not problems
        found.append((state["place"]["stage"], state["place"]["step"]))
        return found[-1][0] == 2  # there are two stages

    wait_until(read_on, "the end of both stages")
    assert nursery.wait() == 0 and found == sorted(found) and len(set(found)) > 2


# Asked to stop


def test_a_signal_to_the_whole_group_saves_and_ends_with_130(nursery: Nursery, tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches the workers, too; so does the SIGTERM of most schedulers."""
    nursery.finish("workers", tmp_path / "whole", checkpoint_steps=None)
    asked = tmp_path / "asked"
    for number, step in ((signal.SIGTERM, 7), (signal.SIGINT, 15), (signal.SIGHUP, 20)):
        process = nursery.start("workers", asked, checkpoint_steps=None, waits_at=step)
        wait_until((asked / f"at-{step}").exists, f"step {step}")
        os.killpg(process, number)
        assert nursery.wait() == 130
        assert steps_of(asked)[-1] == step
    nursery.finish("workers", asked, checkpoint_steps=None)
    assert results(asked) == results(tmp_path / "whole")


class Asked:
    stop_reason = ""


def test_the_first_signal_asks_the_second_ctrl_c_ends_and_handlers_are_put_back() -> None:
    before, asked = signal.getsignal(signal.SIGINT), Asked()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(asked):
        signal.raise_signal(signal.SIGTERM)
        assert asked.stop_reason == "SIGTERM was received"
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_sighup_asks_and_one_that_nohup_ignores_stays_ignored() -> None:
    asked, before = Asked(), signal.getsignal(signal.SIGHUP)
    with stop_on_signals(asked):
        signal.raise_signal(signal.SIGHUP)
    assert asked.stop_reason == "SIGHUP was received" and signal.getsignal(signal.SIGHUP) == before
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ignored = Asked()
        with stop_on_signals(ignored):
            signal.raise_signal(signal.SIGHUP)
        assert ignored.stop_reason == ""
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_sets_no_handlers() -> None:
    found = []

    def look() -> None:
        with stop_on_signals(Asked()):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


# What changed meanwhile


def half_done(path: Path) -> None:
    """A session that stands inside an epoch."""
    one = session("plain", path)
    one.round_callbacks.append(lambda place: setattr(one, "stop_reason", "x" if place.step >= 13 else ""))
    list(one.run())


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("standing")
    half_done(path)
    return path


def with_loader(name: str, **changes: Any) -> Any:
    def change(one: Session) -> None:
        feed = one.feeds[name]
        one.feeds[name] = Feed(replace(feed.loader, **changes), 1)

    return change


def with_model(name: str, model: nn.Module) -> Any:
    return lambda one: one.models.__setitem__(name, model)


CHANGES: dict[str, tuple[Any, str]] = {
    "samples": (with_loader("validation", dataset=Noisy(9, 3)), "'validation' has 9 samples, and had 10"),
    "batch size": (with_loader("long", batch_size=5), r"inside an epoch.*loaders\.long\.batch_size is 5 and was 4"),
    "shuffle": (with_loader("long", shuffle=False), "shuffle is False and was True"),
    "shapes": (with_model("head", nn.Linear(6, 2)), "model 'head' is not the one of this session: size mismatch"),
    "missing": (with_model("head", nn.Linear(6, 1, bias=False)), "'head'.*Unexpected key"),
    "new": (with_model("third", nn.Linear(6, 1)), "no 'third' among its models; it has body, head, other"),
    "optimizer": (
        lambda one: one.optimizers.__setitem__("sgd", torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))]}])),
        "optimizer 'sgd' is not the one of this session",
    ),
    "optimizer's class": (
        lambda one: one.optimizers.__setitem__("sgd", torch.optim.Adam(one.models["other"].parameters())),
        "optimizer 'sgd' is Adam, and was SGD when this session began",
    ),
    "schedule's class": (
        lambda one: one.schedules.__setitem__("sgd", Schedule(rates.StepLR(one.optimizers["sgd"], 1))),
        "schedule 'sgd' is StepLR, and was ReduceLROnPlateau when this session began",
    ),
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_session_that_is_another_by_now_is_refused(key: str, standing: Path) -> None:
    change, message = CHANGES[key]
    one = session("plain", standing)
    change(one)
    with pytest.raises(BadArgument, match=message):
        one.resume()


def test_settings_that_are_given_anew_hold_from_there_on() -> None:
    def made(lr: float, step_size: int, betas: tuple[float, float] = (0.9, 0.99)) -> Session:
        model = nn.Linear(6, 1)
        groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": lr / 10}]
        optimizer = torch.optim.Adam(groups, lr, betas)
        return Session(
            models={"m": model},
            optimizers={"o": optimizer},
            loaders={"data": Loader(Noisy(8, 1), 4)},
            losses={"loss": nn.MSELoss()},
            schedules={"o": Schedule(rates.StepLR(optimizer, step_size, 0.5))},
            stages=[Stage(("data",), (), EpochsCompleted(3))],
        )

    def rates_of(one: Session) -> list[float]:
        return [group["lr"] for group in one.optimizers["o"].param_groups]

    one = made(0.1, 1)
    for _ in one.run():
        pass
    assert rates_of(one) == pytest.approx([0.1 / 8, 0.01 / 8])
    other = made(0.2, 5, (0.5, 0.6))
    other.restore(unpack(*pack(one.state())))
    scheduler = other.schedules["o"].scheduler
    assert rates_of(other) == pytest.approx([0.2 / 8, 0.02 / 8])
    assert scheduler.base_lrs == pytest.approx([0.2, 0.02]) and scheduler.step_size == 5 and scheduler.last_epoch == 3
    assert other.optimizers["o"].param_groups[0]["betas"] == (0.5, 0.6)
    scheduler.step()
    assert rates_of(other) == pytest.approx([0.2 / 8, 0.02 / 8])
    scheduler.step()  # the fifth epoch
    assert rates_of(other) == pytest.approx([0.2 / 16, 0.02 / 16])


def small(path: Path, lr: float = 0.003, bias_lr: float = 0.1, batch_size: int = 4, seed: int = 0) -> Session:
    model = nn.Linear(6, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": bias_lr}]
    return Session(
        models={"m": model}, optimizers={"o": torch.optim.Adam(groups, lr)},
        loaders={"data": Loader(Noisy(8, 1), batch_size)}, losses={"loss": nn.MSELoss()},
        options=Options(seed=seed), to=path,
    )  # fmt: skip


def run_some_of(one: Session) -> list[Any]:
    """The events of an epoch, the session's own stop included."""
    one.stages[0] = replace(one.stages[0], stop=EpochsCompleted(9))
    events = []
    for event in one.run():
        events.append(event)
        if isinstance(event, EpochDone):
            one.stop_reason = "enough"
    return events


def test_values_that_a_resumed_python_session_has_changed_are_said_once_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not any(isinstance(event, Resumed) for event in run_some_of(small(tmp_path)))
    assert capsys.readouterr().err == ""
    run_some_of(small(tmp_path, lr=0.01, batch_size=8, seed=3))
    said = " ".join(capsys.readouterr().err.split())
    assert re.fullmatch(
        r"torcheer: resumed from checkpoint 2 \(step 2, [0-9]+ s old\) changed since then: batch_size 4 → 8, "
        r"seed 0 → 3, lr\[0\] 0\.003 → 0\.01",
        said,
    )
    run_some_of(small(tmp_path, lr=0.01, batch_size=8, seed=3))
    assert "changed" not in capsys.readouterr().err


def test_the_rate_of_a_group_of_parameters_may_be_changed_for_a_run_that_resumes(tmp_path: Path) -> None:
    run_some_of(small(tmp_path))
    again = small(tmp_path, bias_lr=0.5)
    (resumed,) = (event for event in run_some_of(again) if isinstance(event, Resumed))
    assert dict(resumed.changes) == {"lr[1]": (0.1, 0.5)}
    assert [group["lr"] for group in again.optimizers["o"].param_groups] == [0.003, 0.5]


def test_a_resumed_run_whose_folder_was_fetched_says_no_age_that_it_does_not_know() -> None:
    assert str(Resumed(30, None, None, {})) == "resumed from checkpoint 30 (step 30)"
    assert str(Resumed(30, 120.2, 6, {})) == "resumed from checkpoint 30 (step 30, 2 min old): 6 steps run again"


def test_batches_may_be_cut_otherwise_between_epochs(tmp_path: Path) -> None:
    one = session("plain", tmp_path)
    for event in one.run():
        if isinstance(event, EpochDone):
            one.stop_reason = "enough"
    again = session("plain", tmp_path)
    with_loader("long", batch_size=11)(again)
    assert again.resume() == [] and again.place.epoch == 1


def test_a_damaged_checkpoint_is_an_alert_and_the_run_ends_the_same(tmp_path: Path) -> None:
    run("plain", tmp_path / "whole")
    half_done(tmp_path / "hurt")
    newest = tmp_path / "hurt" / "checkpoints" / str(steps_of(tmp_path / "hurt")[-1])
    (newest / "model.safetensors").write_bytes(b"")
    events = list(session("plain", tmp_path / "hurt").run())
    assert isinstance(events[0], Alert) and str(newest) in events[0].message
    assert results(tmp_path / "hurt") == results(tmp_path / "whole")


def test_two_trainers_on_one_directory_are_refused(tmp_path: Path) -> None:
    events = session("plain", tmp_path).run()
    next(events)
    with pytest.raises(ArchiveBusy, match="is being trained by this process"):
        next(session("plain", tmp_path).run())
    events.close()
    next(session("plain", tmp_path).run())


def test_weights_alone_are_taken_for_evaluation(standing: Path) -> None:
    state, _, _ = session("plain", standing).checkpoints.newest()
    one = session("plain")
    one.restore_weights(state)
    assert one.place.step == 0
    other = session("plain", standing)
    other.resume()
    assert all(torch.equal(a, b) for a, b in zip(one.models["body"].parameters(), other.models["body"].parameters()))


def test_a_state_that_cannot_be_saved_is_refused_before_training(tmp_path: Path) -> None:
    class Odd(nn.Linear):
        def get_extra_state(self) -> Any:
            return lambda: 1

        def set_extra_state(self, state: Any) -> None: ...

    one = session("plain", tmp_path)
    one.models["head"] = Odd(6, 1)
    with pytest.raises(BadArgument, match=r"head\._extra_state is a builtins\.function"):
        next(one.run())


# Other things that have a place or a state


class Shards(torch.utils.data.IterableDataset[Any]):
    """A stream that shuffles and draws noise from every generator."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        numbers = list(range(20))[info.id :: info.num_workers] if info is not None else list(range(20))
        random.shuffle(numbers)
        for number in numbers:
            noise = random.random() + float(np.random.rand()) + torch.rand(6)
            yield number / 20 + 0.1 * noise, torch.tensor([number / 20])


class Remembering(torch.utils.data.IterableDataset[Any]):
    """A stream that knows its place and would rather not be passed through."""

    def __init__(self) -> None:
        self.position, self.epoch, self.read = 0, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        while self.position < 20:
            self.position += 1
            self.read += 1
            value = (self.position * 7 + self.epoch) % 20 / 20
            yield torch.full((6,), value) + 0.1 * torch.rand(6), torch.tensor([value])
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def streaming(data: Any, path: Path | None, workers: int = 0, **options: Any) -> Session:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    return Session(
        models={"m": model},
        optimizers={"o": torch.optim.Adam(model.parameters())},
        loaders={"data": Loader(data, 3, options={"num_workers": workers} if workers else {})},
        losses={"mse": Measure(nn.MSELoss(), ("y_hat", "y"))},
        processors={"p": Processor((Node("m", ("x",), ("y_hat",), "o"),))},
        graphs={"g": Graph(("p",), ("in",), {"p": ("in",)})},
        pipelines={"t": Pipeline("g", (Input("data", ("x", "y")),), (Term("mse", "p", "loss"),))},
        stages=[Stage(("t",), (), EpochsCompleted(2))],
        options=Options(checkpoint_secs=0, keep_last=1000, **options),
        to=path,
    )


class ProgressLines:
    """Nothing but an iterable."""

    def __iter__(self) -> Iterator[Any]:
        return iter(Shards())


@pytest.mark.parametrize(("kind", "workers"), [(Shards, 0), (Shards, 2), (Remembering, 0), (ProgressLines, 0)])
def test_a_stream_is_resumed_from_any_of_its_places(kind: Any, workers: int, tmp_path: Path) -> None:
    for _ in streaming(kind(), tmp_path / "whole", workers).run():
        pass
    steps, whole = steps_of(tmp_path / "whole"), results(tmp_path / "whole")
    assert len(steps) > 10
    for step in steps[:: 5 if workers else 1]:
        again, data = cut_back(tmp_path / "whole", tmp_path / f"{step}", step), kind()
        for _ in streaming(data, again, workers).run():
            pass
        assert results(again) == whole, f"resumed at step {step}"
        if kind is Remembering:
            assert data.read == 40 - min(3 * step, 20) - max(0, min(3 * (step - 7), 20))


def test_a_scaler_goes_on_from_its_state(tmp_path: Path) -> None:
    one = streaming(Noisy(20, 1), tmp_path / "whole", autocast="float16")
    for scaler in one.scalers.values():
        scaler.set_growth_interval(3)
    for _ in one.run():
        pass
    whole = results(tmp_path / "whole")
    for step in steps_of(tmp_path / "whole")[::4]:
        again = cut_back(tmp_path / "whole", tmp_path / f"{step}", step)
        for _ in streaming(Noisy(20, 1), again, autocast="float16").run():
            pass
        assert results(again) == whole


class Doubles(torch.optim.SGD):
    """An optimizer that sums in double precision, which torch's own loading would round."""

    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            total = state.setdefault("total", torch.zeros_like(parameter, dtype=torch.float64))
            total += parameter.grad.double() / 3
            parameter.data.sub_((0.1 * total).float())


def test_an_optimizer_keeps_the_precision_of_its_state(tmp_path: Path) -> None:
    def made() -> Session:
        one = streaming(Noisy(20, 1), None)
        one.optimizers["o"] = Doubles(one.models["m"].parameters(), 0.1)
        return one

    one, other = made(), made()
    for event in one.run():
        if isinstance(event, StepDone) and event.step == 5:
            break
    other.restore(unpack(*pack(one.state())))
    total = other.optimizers["o"].state[next(other.models["m"].parameters())]["total"]
    assert total.dtype == torch.float64
    assert torch.equal(total, one.optimizers["o"].state[next(one.models["m"].parameters())]["total"])


def test_a_restored_session_shares_no_memory_with_the_state() -> None:
    one, other = session("plain"), session("plain")
    for event in one.run():
        if isinstance(event, StepDone) and event.step == 5:
            break
    state = one.state()
    other.restore(state)
    before = {name: tensor.clone() for name, tensor in pack(state)[0].items()}
    for event in other.run():
        if isinstance(event, StepDone) and event.step == 9:
            break
    assert all(torch.equal(tensor, before[name]) for name, tensor in pack(state)[0].items() if "optimizers" in name)


class Modules(nn.Module):
    """A metric as torchmetrics has them: tables of states in each of its modules."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self._defaults, self.inner, self._update_count = {"total": torch.tensor(0.0), "parts": []}, inner, 0
        self.reset()

    def reset(self) -> None:
        self.total, self.parts = torch.tensor(0.0), []
        if self.inner is not None:
            self.inner.reset()

    def update(self, found: Any, wanted: Any) -> None:
        self.total = self.total + found.sum()
        self.parts.append(wanted.mean())
        if self.inner is not None:
            self.inner.update(found, wanted)

    def compute(self) -> Any:
        return self.total + sum(self.parts) + (self.inner.compute() if self.inner is not None else 0)


class Buffers(nn.Module):
    """A metric that is a module with a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor(0.0))

    def reset(self) -> None:
        self.total.zero_()

    def update(self, found: Any, wanted: Any) -> None:
        self.total += found.sum()

    def compute(self) -> Any:
        return self.total


class Ordinary:
    """A metric that says nothing of its state."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.sums = {"a": 0.0}

    def update(self, found: Any, wanted: Any) -> None:
        self.sums["a"] += float(found.sum())

    def compute(self) -> float:
        return self.sums["a"]


@pytest.mark.parametrize("made", [lambda: Modules(Modules()), Buffers, Ordinary], ids=["modules", "buffers", "any"])
def test_metrics_with_a_state_of_any_kind_go_on(made: Any, tmp_path: Path) -> None:
    def measured(path: Path) -> Session:
        one = session("plain", path, checkpoint_secs=0, keep_last=1000)
        for lanes in (one.runners, one._eval_runners):
            for lane in lanes.values():
                for _, measure, meter in lane.metrics:
                    if hasattr(meter, "metric"):
                        meter.metric = measure.function = made()
        return one

    for _ in measured(tmp_path / "whole").run():
        pass
    whole = results(tmp_path / "whole")
    for step in (3, 15, 22):
        again = cut_back(tmp_path / "whole", tmp_path / f"{step}", step)
        for _ in measured(again).run():
            pass
        assert results(again) == whole
