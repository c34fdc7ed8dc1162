"""What a session trains is what a loop written by hand trains, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import CheckpointSaved, EpochDone, Feed, Mean, Stopped, Update, as_loader, training_loop
from torch import Tensor, nn
from torch.optim import lr_scheduler as rates
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from training_loop_cases import MSE, batches, by_hand, chain, network, points, same, session, sgd, train

from torcheer.errors import BadArgument
from torcheer.training import (
    Clip,
    DebugPipeline,
    EarlyStopping,
    EpochsCompleted,
    Graph,
    Input,
    Loader,
    Measure,
    Pipeline,
    Schedule,
    Session,
    Stage,
    Term,
)

pytestmark = pytest.mark.usefixtures("one_thread")


# One pipeline


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_session_is_the_loop_that_people_write(name: str) -> None:
    mine, hers = network(), network()
    kind = getattr(torch.optim, name)
    train(session({"m": mine}, {"o": kind(mine.parameters(), 0.01)}))
    by_hand(hers, kind(hers.parameters(), 0.01))
    assert same(mine, hers)


def test_dropout_and_batch_norm_draw_and_count_as_by_hand() -> None:
    layers = (nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 1))
    mine, hers = network(*layers), network(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 1))
    one = session({"m": mine}, data={"data": points(20), "check": points(8, 1)}, validation=("p check",), seed=5)
    train(one)
    torch.manual_seed(5)
    hers.train()
    optimizer = sgd(hers)
    for _ in range(2):
        by_hand(hers, optimizer, 1)
    assert same(mine, hers) and all(module.training for module in mine.modules())


def test_the_order_of_batches_is_that_of_the_feed_and_another_one_each_epoch() -> None:
    mine, hers = network(), network()
    one = session({"m": mine}, data={"data": Loader(points(20), 4)}, epochs=3)
    train(one)
    optimizer, orders = sgd(hers), []
    for epoch in range(3):
        found = list(one.feeds["data"].epoch(epoch))
        orders.append(torch.cat([x for x, _ in found]))
        for x, y in found:
            optimizer.zero_grad()
            nn.functional.mse_loss(hers(x), y).backward()
            optimizer.step()
    assert same(mine, hers)
    assert not torch.equal(orders[0], orders[1]) and torch.equal(orders[0].sort(0)[0], orders[1].sort(0)[0])


def test_loaders_are_made_once_and_not_for_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    call = Feed._make_loader
    monkeypatch.setattr(Feed, "_make_loader", lambda self: (made.append(self), call(self))[1])
    data = {"data": points(20), "check": points(8, 1)}
    train(session({"m": network()}, data=data, validation=("p check",), epochs=5))
    assert len(made) == 2


class Whose(Dataset[Any]):
    """The number of the process that asks."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def test_workers_live_from_epoch_to_epoch() -> None:
    given = as_loader(DataLoader(Whose(), 2, num_workers=2), "data")
    feed = Feed(given, 0)
    first, second = ({int(pid) for batch in feed.epoch(epoch) for pid in batch} for epoch in range(2))
    assert first == second and len(first) == 2 and os.getpid() not in first


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(points(16))


@pytest.mark.parametrize("data", [points(16), Stream()], ids=["dataset", "stream"])
def test_workers_end_with_their_run_not_when_the_garbage_collector_finds_them(data: Any) -> None:
    """It ends their queues first, and torch then waits 5 s for each worker."""
    before, during = multiprocessing.active_children(), []
    trained = session({"m": network()}, data={"data": Loader(data, 4, options={"num_workers": 2})}, epochs=2)
    trained.round_callbacks.append(lambda place: during.append(len(multiprocessing.active_children())))
    train(trained)
    trained.evaluate()
    assert max(during) >= len(before) + 2
    assert set(multiprocessing.active_children()) <= set(before)


def test_a_loader_without_a_single_batch_is_refused() -> None:
    loader = Loader(points(20), 32, drop_last=True)
    with pytest.raises(BadArgument, match="'p data' has no batch to train with"):
        train(session({"m": network()}, data={"data": loader}))


def drawn(sampler: Callable[[Any], Any], **options: Any) -> Any:
    data = points(20)
    return DataLoader(data, 4, sampler=sampler(data), **options)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda data: WeightedRandomSampler([1.0] * 20, 20),
        lambda data: SubsetRandomSampler(range(10)),
        lambda data: RandomSampler(data, replacement=True),
        lambda data: RandomSampler(data, num_samples=8),
    ],
)
def test_a_sampler_of_somebodys_own_is_refused_and_not_left_out(sampler: Any) -> None:
    with pytest.raises(BadArgument, match=r"'data' has a \w+Sampler of its own"):
        session({"m": network()}, data={"data": drawn(sampler)})


def test_a_data_loader_of_torch_keeps_its_batches_and_whether_it_shuffles() -> None:
    for shuffle in (False, True):
        loader = DataLoader(points(20), 6, shuffle=shuffle, drop_last=True)
        found = session({"m": network()}, data={"data": loader}).feeds["data"].loader
        assert (found.batch_size, found.shuffle, found.drop_last) == (6, shuffle, True)


@pytest.mark.parametrize("clip", [{"norm": 0.05}, {"value": 0.01}, {"value": 0.01, "norm": 0.02}])
def test_gradients_are_clipped_as_by_hand(clip: dict[str, float]) -> None:
    mine, hers = network(), network()
    train(session({"m": mine}, others={"clips": [Clip("m", **clip)]}))
    optimizer = sgd(hers)
    for _ in range(2):
        for x, y in batches(20):
            optimizer.zero_grad()
            nn.functional.mse_loss(hers(x), y).backward()
            if "value" in clip:
                nn.utils.clip_grad_value_(hers.parameters(), clip["value"])
            if "norm" in clip:
                nn.utils.clip_grad_norm_(hers.parameters(), clip["norm"])
            optimizer.step()
    assert same(mine, hers)


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_a_schedule_steps_after_every_update_or_every_epoch(every: str) -> None:
    mine, hers = network(), network()
    optimizer = sgd(mine)
    schedule = Schedule(rates.ExponentialLR(optimizer, 0.9), every)
    train(session({"m": mine}, {"o": optimizer}, epochs=3, others={"schedules": {"o": schedule}}))
    optimizer = sgd(hers)
    schedule = rates.ExponentialLR(optimizer, 0.9)
    for _ in range(3):
        for x, y in batches(20):
            optimizer.zero_grad()
            nn.functional.mse_loss(hers(x), y).backward()
            optimizer.step()
            if every == "step":
                schedule.step()
        if every == "epoch":
            schedule.step()
    assert same(mine, hers)


def test_a_plateau_without_its_column_is_told_before_anything_is_trained() -> None:
    model = network()
    optimizer = sgd(model)
    schedule = Schedule(rates.ReduceLROnPlateau(optimizer), "epoch", "p data mes")
    with pytest.raises(BadArgument, match=r"'o' looks at 'p data mes'.*Did you mean 'p data mse'"):
        session({"m": model}, {"o": optimizer}, others={"schedules": {"o": schedule}})


def test_bfloat16_is_the_autocast_of_torch() -> None:
    mine, hers = network(), network()
    train(session({"m": mine}, autocast="bfloat16"))
    optimizer = sgd(hers)
    for _ in range(2):
        for x, y in batches(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.mse_loss(hers(x), y)
            loss.backward()
            optimizer.step()
    assert same(mine, hers)
    plain = network()
    train(session({"m": plain}))
    assert not same(mine, plain)


def test_float16_is_clipped_after_it_is_unscaled() -> None:
    mine, hers = network(), network()
    train(session({"m": mine}, autocast="float16", others={"clips": [Clip("m", norm=0.05)]}))
    optimizer, scaler = sgd(hers), torch.amp.GradScaler("cpu")
    for _ in range(2):
        for x, y in batches(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.mse_loss(hers(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(hers.parameters(), 0.05)
            scaler.step(optimizer)
            scaler.update()
    assert same(mine, hers)


class Says(nn.Module):
    """A model that returns its prediction in one of the ways that people do."""

    def __init__(self, how: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.how = network(), how

    def forward(self, x: Tensor) -> Any:
        return self.how(self.layer(x))


@pytest.mark.parametrize("how", [lambda y: y, lambda y: [y], lambda y: (y,), lambda y: {"y_hat": y, "more": y + 1}])
def test_a_model_may_return_a_tensor_a_list_a_tuple_or_a_dict(how: Any) -> None:
    mine, hers = Says(how), network()
    train(session({"m": mine}))
    by_hand(hers, sgd(hers))
    assert same(mine.layer, hers)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.out, self.into = nn.Linear(4, 4), nn.Linear(4, 4)
        self.into.weight = self.out.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.into(torch.tanh(self.out(x))).sum(-1, keepdim=True)


def test_tied_weights_are_one_also_in_their_average() -> None:
    mine, hers = Tied(), Tied()
    one = session({"m": mine}, ema=0.5, accumulate=2, data={"data": points(16)})
    train(one)
    optimizer = sgd(hers)
    for _ in range(2):
        for number, (x, y) in enumerate(batches(16)):
            (nn.functional.mse_loss(hers(x), y) / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    assert same(mine, hers) and mine.into.weight is mine.out.weight
    with one.evaluation_mode():
        assert mine.into.weight is mine.out.weight and not torch.equal(mine.into.weight, hers.into.weight)
    assert same(mine, hers)


# Numbers in the columns


def test_metrics_are_means_over_samples_and_begin_anew_each_epoch() -> None:
    seen: list[float] = []

    def largest(y_hat: Tensor, y: Tensor) -> Tensor:
        seen.append(float(y.max()))
        return y.max()

    metric = {"metrics": {"largest": Measure(largest, ("y_hat", "y"))}}
    one = session({"m": network()}, data={"data": points(10)}, others=metric, epochs=3)
    rows = [event.values["p data largest"] for event in train(one) if isinstance(event, EpochDone)]
    wanted = (4 * seen[0] + 4 * seen[1] + 2 * seen[2]) / 10
    assert rows == [pytest.approx(wanted, rel=1e-12)] * 3 and len(seen) == 9


def test_a_mean_takes_tensors_and_numbers_in_turn() -> None:
    mean = Mean()
    for value in (torch.tensor(1.0), 2, torch.tensor(3), 4.0):
        mean.add(value, 1)
    assert mean.value() == 2.5


def test_two_columns_of_one_name_are_refused() -> None:
    terms = (Term("mse", "m", "loss"), Term("mse", "m", "loss"))
    shared = {"models": {"m": network()}, "loaders": {"a": Loader(points(8), 4)}, "losses": {"mse": MSE}}
    parts = {"processors": {"m": chain("m")}, "graphs": {"m": Graph(("m",), ("in",), {"m": ("in",)})}}
    optimizers = {"o": sgd(shared["models"]["m"])}
    for losses, stage in ((terms, ("a",)), (terms[:1], ("a", "b"))):
        pipelines = {name: Pipeline("m", (Input("a", ("x", "y")),), losses) for name in stage}
        with pytest.raises(BadArgument, match="'loss'"):
            Session(**shared, **parts, optimizers=optimizers, pipelines=pipelines, stages=[Stage(stage)])


def test_a_pipeline_that_is_also_validated_reports_its_evaluation() -> None:
    mine = network(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    one = session({"m": mine}, epochs=1)
    one.stages[0] = Stage(("p data",), ("p data",), EpochsCompleted(1))
    (row,) = [event.values for event in train(one) if isinstance(event, EpochDone)]
    mine.eval()
    losses = [nn.functional.mse_loss(mine(x), y).item() for x, y in batches(20)]
    assert row == {"p data mse": pytest.approx(sum(losses) / 5, rel=1e-6)}


def test_debug_pipelines_run_in_evaluation_mode_and_change_nothing() -> None:
    def made(looks: list[Any]) -> nn.Module:
        model = network(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

        def look(values: dict[str, Tensor]) -> None:
            looks.append((model.training, torch.is_grad_enabled(), len(values["y_hat"])))

        debug = DebugPipeline("p", (Input("data", ("x", "y")),), iterations=2, interval=2, output_device=look)
        one = session({"m": model}, epochs=4, others={"debug_pipelines": {"look": debug}})
        if looks is not None:
            one.stages[0] = Stage(one.stages[0].training, (), EpochsCompleted(4), debug=("look",) * (looks == []))
        train(one)
        return model

    looks: list[Any] = []
    assert same(made(looks), made([None])) and looks == [(False, False, 4)] * 4


# Ends


def test_a_stage_ends_when_its_best_is_too_long_ago() -> None:
    values = iter([3.0, 2.0, 2.5, 2.4, 2.3, 1.0, 1.0])
    now = [0.0]

    def told(y_hat: Tensor, y: Tensor) -> float:
        return now[0]

    one = session({"m": network()}, others={"metrics": {"told": Measure(told, ("y_hat", "y"))}})
    one.stages[0] = Stage(one.stages[0].training, (), EarlyStopping("p data told", patience=2))
    now[0], rows = next(values), 0
    for event in one.run():
        if isinstance(event, EpochDone):
            rows, now[0] = rows + 1, next(values)
    assert rows == 5  # neighbours alone would say so after the third


def test_a_time_limit_stops_where_it_can_go_on(tmp_path: Path) -> None:
    whole, limited = network(), network()
    train(session({"m": whole}, epochs=3))
    stops = 0
    while True:
        limited = network()
        one = session({"m": limited}, epochs=3, limit_secs=1e-9, others={"to": tmp_path})
        events = train(one)
        if not isinstance(events[-1], Stopped):
            break
        stops += 1
        assert events[-1].reason == "the time limit of 1e-09 s is reached"
        assert isinstance(events[-2], CheckpointSaved)
    assert stops >= 14 and same(whole, limited)


def test_deterministic_is_for_the_run_alone() -> None:
    seen = []
    one = session({"m": network()}, deterministic=True)
    one.round_callbacks.append(lambda place: seen.append(torch.are_deterministic_algorithms_enabled()))
    train(one)
    assert all(seen) and len(seen) > 9 and not torch.are_deterministic_algorithms_enabled()


def test_the_device_is_found_where_it_is_to_be_found() -> None:
    one = session({"m": network()}, device="auto")
    assert one.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert next(one.models["m"].parameters()).device.type == one.device.type


def test_an_update_with_nothing_gathered_is_none() -> None:
    model = network()
    update = Update([sgd(model)], accumulate=2)
    assert not update.flush() and not update.is_pending


def test_the_loop_reads_in_one_sitting() -> None:
    assert len(Path(training_loop.__file__).read_text().splitlines()) <= 300


@pytest.mark.slow
def test_a_compiled_model_trains_evaluates_and_saves_under_its_own_names() -> None:
    mine = network(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    data = {"data": points(20), "check": points(8, 1)}
    events = train(session({"m": mine}, data=data, validation=("p check",), compile=True))
    assert list(mine.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    x, y = points(8, 1).tensors
    mine.eval()
    wanted = sum(nn.functional.mse_loss(mine(a), b).item() for a, b in zip(x.split(4), y.split(4))) / 2
    assert events[-2].values["p check mse"] == pytest.approx(wanted, rel=1e-5)
