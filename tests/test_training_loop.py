"""What a session trains is what a loop written by hand trains, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as rates
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

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
    Node,
    Options,
    Pipeline,
    Processor,
    Schedule,
    Session,
    Stage,
    Term,
    loop,
)
from torcheer.training.events import CheckpointSaved, EpochDone, StepDone, Stopped
from torcheer.training.feeding import Feed
from torcheer.training.meters import Mean
from torcheer.training.simple import as_loader
from torcheer.training.updates import Average, Update

pytestmark = pytest.mark.usefixtures("one_thread")

MSE = Measure(nn.MSELoss(), ("y_hat", "y"))


def points(count: int, seed: int = 0) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 4, generator=draw), torch.randn(count, 1, generator=draw))


def batches(count: int, seed: int = 0, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    x, y = points(count, seed).tensors
    return list(zip(x.split(size), y.split(size)))


def network(*layers: nn.Module) -> nn.Module:
    found = nn.Sequential(*(layers or (nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))))
    torch.manual_seed(3)
    for one in found.modules():
        if isinstance(one, nn.Linear):
            one.reset_parameters()
    return found


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def chain(*models: str, optimizer: str | None = "o", **optimizers: str | None) -> Processor:
    """Models one behind the other, from x to y_hat."""
    names = ["x", *(f"h{number}" for number in range(1, len(models))), "y_hat"]
    return Processor(
        tuple(
            Node(model, (names[number],), (names[number + 1],), optimizers.get(model, optimizer))
            for number, model in enumerate(models)
        )
    )


def session(
    models: dict[str, nn.Module],
    optimizers: dict[str, torch.optim.Optimizer] | None = None,
    *,
    processors: dict[str, Processor] | None = None,
    data: dict[str, Any] | None = None,
    epochs: int = 2,
    losses: dict[str, Measure] | None = None,
    validation: tuple[str, ...] = (),
    others: dict[str, Any] | None = None,
    **options: Any,
) -> Session:
    """A pipeline for each processor, or for each of the data where there is one processor; all of them are trained."""
    data = data or {"data": points(20)}
    optimizers = optimizers or {"o": sgd(next(iter(models.values())))}
    processors = processors or {"p": chain(*models)}
    loaders = {
        name: one if isinstance(one, Loader | DataLoader) else Loader(one, 4, shuffle=False)
        for name, one in data.items()
    }
    losses = losses or {"mse": MSE}
    pairs = [(name, loader) for name in processors for loader in loaders]
    pipelines = {
        f"{name} {loader}": Pipeline(
            name,
            (Input(loader, ("x", "y")),),
            tuple(Term(loss, name, f"{name} {loader} {loss}") for loss in losses),
            tuple(Term(metric, name, f"{name} {loader} {metric}") for metric in (others or {}).get("metrics", ())),
        )
        for name, loader in pairs
    }
    trained = tuple(name for name in pipelines if name not in validation)
    return Session(
        models=models,
        optimizers=optimizers,
        loaders=loaders,
        losses=losses,
        processors=processors,
        graphs={name: Graph((name,), ("in",), {name: ("in",)}) for name in processors},
        pipelines=pipelines,
        stages=[Stage(trained, validation, EpochsCompleted(epochs))],
        options=Options(**options),
        **(others or {}),
    )


def train(one: Session) -> list[Any]:
    return list(one.run())


def weights(model: nn.Module) -> list[Tensor]:
    return [one.detach().clone() for one in model.state_dict().values()]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int = 2, count: int = 20) -> None:
    for _ in range(epochs):
        for x, y in batches(count):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


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
    call = Feed._made
    monkeypatch.setattr(Feed, "_made", lambda self: (made.append(self), call(self))[1])
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


# Accumulation


@pytest.mark.parametrize("count", [16, 18, 13])
def test_gathered_batches_of_any_size_are_one_large_batch(count: int) -> None:
    mine, hers = network().double(), network().double()
    data = TensorDataset(*(one.double() for one in points(count).tensors))
    train(session({"m": mine}, data={"data": data}, accumulate=3, epochs=2))
    optimizer, (x, y) = sgd(hers), data.tensors
    for _ in range(2):
        for large, wanted in zip(x.split(12), y.split(12)):
            optimizer.zero_grad()
            nn.functional.mse_loss(hers(large), wanted).backward()
            optimizer.step()
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(weights(mine), weights(hers)))


def test_gathered_batches_of_one_size_are_halved_to_the_bit() -> None:
    mine, hers = network(), network()
    train(session({"m": mine}, data={"data": points(16)}, accumulate=2, epochs=1))
    optimizer = sgd(hers)
    for number, (x, y) in enumerate(batches(16)):
        (nn.functional.mse_loss(hers(x), y) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    assert same(mine, hers)


def masked(y_hat: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    return (((y_hat - y) ** 2).squeeze(-1) * mask).sum() / mask.sum()


@pytest.mark.parametrize("kind", [torch.bool, torch.long, torch.float32, torch.float64, list])
def test_items_are_counted_by_a_mask_of_any_type(kind: Any) -> None:
    mask = torch.tensor([1, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1])
    x, y = (one.double() for one in points(12).tensors)
    mine, hers = network().double(), network().double()

    def frame(samples: list[Any]) -> dict[str, Any]:
        columns = [torch.stack(column) for column in zip(*samples)]
        return {"x": columns[0], "y": columns[1], "mask": columns[2], "count": columns[2].tolist()}

    typed = mask if kind is list else mask.to(kind)
    counted = {"loss": Measure(masked, ("y_hat", "y", "mask"), items="count" if kind is list else "mask")}
    one = Session(
        models={"m": mine},
        optimizers={"o": sgd(mine)},
        loaders={"data": Loader(TensorDataset(x, y, typed), 4, shuffle=False, collate=frame)},
        losses=counted,
        metrics={"metric": counted["loss"]},
        processors={"p": chain("m")},
        graphs={"g": Graph(("p",), ("in",), {"p": ("in",)})},
        pipelines={
            "a": Pipeline("g", (Input("data", ()),), (Term("loss", "p", "loss"),), (Term("metric", "p", "metric"),))
        },
        stages=[Stage(("a",), ())],
        options=Options(accumulate=3),
    )
    loss = masked(hers(x), y, mask)
    (row,) = [event.values for event in train(one) if isinstance(event, EpochDone)]
    optimizer = sgd(hers)
    loss.backward()
    optimizer.step()
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(weights(mine), weights(hers)))
    assert row["loss"] == row["metric"] == pytest.approx(loss.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("items", "said"), [("masks", "counts 'masks'; the frame only has x, y, y_hat"), ("y", "'y', which add up to -")]
)
def test_a_column_that_counts_no_items_is_told(items: str, said: str) -> None:
    x, y = points(8).tensors
    losses = {"mse": Measure(nn.MSELoss(), ("y_hat", "y"), items=items)}
    with pytest.raises(BadArgument, match=said):
        train(session({"m": network()}, data={"data": TensorDataset(x, -y.abs())}, losses=losses, accumulate=2))


def test_losses_that_count_differently_are_not_accumulated_together() -> None:
    losses = {"mse": MSE, "counted": Measure(nn.MSELoss(), ("y_hat", "y"), items="y")}
    with pytest.raises(BadArgument, match="'p data' count different items"):
        train(session({"m": network()}, losses=losses, accumulate=2))


@pytest.mark.parametrize("autocast", ["", "float16"])
def test_pipelines_that_share_a_model_gather_their_gradients_apart(autocast: str) -> None:
    mine, hers = network(), network()
    one = session({"m": mine}, data={"one": points(20), "two": points(12, 1)}, accumulate=2, autocast=autocast)
    for scaler in one.scalers.values():
        scaler.set_growth_interval(1)  # a new scale after every update
    train(one)

    def turns(seed: int, count: int, scaler: Any) -> Iterator[None]:
        held: list[Any] = [None] * 4
        for number, (x, y) in enumerate(batches(count, seed)):
            with torch.autocast("cpu", torch.float16, enabled=bool(autocast)):
                loss = nn.functional.mse_loss(hers(x), y)
            put(held)
            scaler.scale(loss).backward()
            held = [parameter.grad for parameter in hers.parameters()]
            if number % 2:
                torch._foreach_div_(held, 2.0)
                step(scaler)
                held = [None] * 4
            yield
        if held[0] is not None:  # it has run out with one batch left over
            put(held)
            step(scaler)

    def put(gradients: list[Any]) -> None:
        for parameter, gradient in zip(hers.parameters(), gradients):
            parameter.grad = gradient

    def step(scaler: Any) -> None:
        scaler.step(optimizer)
        scaler.update()

    optimizer = sgd(hers)
    scalers = [torch.amp.GradScaler("cpu", growth_interval=1, enabled=bool(autocast)) for _ in range(2)]
    for _ in range(2):
        running = [turns(0, 20, scalers[0]), turns(1, 12, scalers[1])]
        while running:
            running = [one for one in running if next(one, running) is None]
    assert same(mine, hers)


def test_a_schedule_waits_where_the_scaler_skips_a_step() -> None:
    model = network()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    update = Update([optimizer], schedules=[Schedule(scheduler, "step")], scaler=scaler)
    x, y = next(iter(batches(4)))
    rates = []
    for factor in (1.0, float("inf"), 1.0):
        update.backward(nn.functional.mse_loss(model(x), y) * factor, 4)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] == rates[1] == 2 * rates[2] and all(one.isfinite().all() for one in model.parameters())


def test_a_parameter_of_two_optimizers_is_divided_once() -> None:
    mine, hers = network(), network()
    several = {"a": torch.optim.SGD(mine.parameters(), 0.1), "b": torch.optim.SGD(mine.parameters(), 0.2)}
    both = Processor((Node("m", ("x",), ("first",), "a"), Node("m", ("x",), ("y_hat",), "b")))
    train(session({"m": mine}, several, processors={"p": both}, data={"data": points(8)}, accumulate=2, epochs=1))
    optimizers = [torch.optim.SGD(hers.parameters(), lr) for lr in (0.1, 0.2)]
    for x, y in batches(8):
        (nn.functional.mse_loss(hers(x), y) / 2).backward()
    for optimizer in optimizers:
        optimizer.step()
    assert same(mine, hers)


def test_whoever_leaves_while_gradients_are_gathered_goes_on_with_them() -> None:
    whole, left = network(), network()
    train(session({"m": whole}, accumulate=3))
    one, steps = session({"m": left}, accumulate=3), 0
    while steps < 10:
        for event in one.run():
            if isinstance(event, StepDone) and event.round <= 5:
                steps += 1
                break
        else:
            break
    train(one)
    assert same(whole, left)


def test_a_session_that_was_torn_inside_a_step_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole, torn = network(), network()
    train(session({"m": whole}))
    optimizer, calls = sgd(torn), [0]

    def interrupt(*_: Any) -> None:
        calls[0] += 1
        if calls[0] in (3, 8):  # Ctrl-C in a notebook, the weights already changed
            raise KeyboardInterrupt

    optimizer.register_step_post_hook(interrupt)
    one = session({"m": torn}, {"o": optimizer}, checkpoint_steps=1, others={"directory": tmp_path})
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(one)
    train(one)
    assert same(whole, torn)
    other = session({"m": torn}, {"o": optimizer})
    calls[0] = 2
    with pytest.raises(KeyboardInterrupt):
        train(other)
    with pytest.raises(BadArgument, match="ended inside a step"):
        train(other)


def test_every_update_is_told_once_also_that_of_the_batches_left_over(tmp_path: Path) -> None:
    model = network()
    one = session({"m": model}, accumulate=2, steps_csv=1, others={"directory": tmp_path})
    told = [(event.step, event.epoch) for event in train(one) if isinstance(event, StepDone)]
    assert told == [(0, 1), (1, 1), (1, 1), (2, 1), (2, 1), (3, 1), (3, 2), (4, 2), (4, 2), (5, 2), (5, 2), (6, 2)]
    rows = (tmp_path / "metrics" / "steps.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [
        ["1", "1"],
        ["2", "1"],
        ["3", "1"],
        ["4", "2"],
        ["5", "2"],
        ["6", "2"],
    ]


# Several pipelines and models


def test_pipelines_take_turns_and_the_shorter_one_drops_out() -> None:
    mine, hers = network(), network()
    events = train(session({"m": mine}, data={"one": points(20), "two": points(9, 1)}, epochs=1))
    told = [event.pipeline[-3:] for event in events if isinstance(event, StepDone)]
    assert told == ["one", "two"] * 3 + ["one"] * 2
    optimizer = sgd(hers)
    one, two = iter(batches(20)), iter(batches(9, 1))
    for name in told:
        x, y = next(one if name == "one" else two)
        optimizer.zero_grad()
        nn.functional.mse_loss(hers(x), y).backward()
        optimizer.step()
    assert same(mine, hers)


def test_several_losses_are_one_backward_pass_and_one_step() -> None:
    mine, hers = network(), network()
    optimizer = sgd(mine)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    losses = {"mse": MSE, "l1": Measure(nn.L1Loss(), ("y_hat", "y"))}
    nodes = Processor((Node("m", ("x",), ("y_hat",), "o"), Node("m", ("x",), ("again",), "o")))
    train(session({"m": mine}, {"o": optimizer}, losses=losses, processors={"p": nodes}, epochs=1))
    optimizer = sgd(hers)
    for x, y in batches(20):
        optimizer.zero_grad()
        (nn.functional.mse_loss(hers(x), y) + nn.functional.l1_loss(hers(x), y)).backward()
        optimizer.step()
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(weights(mine), weights(hers))) and len(calls) == 5


def test_a_frozen_model_stays_also_where_an_optimizer_has_it_besides() -> None:
    body, head = network(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), network(nn.Linear(4, 1))
    before, moved = weights(body), weights(head)
    both = torch.optim.AdamW([*body.parameters(), *head.parameters()], 0.1, weight_decay=0.1)
    train(session({"body": body, "head": head}, {"o": both}, processors={"p": chain("body", "head", body=None)}))
    assert all(torch.equal(a, b) for a, b in zip(before, weights(body)))
    assert not torch.equal(moved[0], weights(head)[0])
    assert all(parameter.grad is None for parameter in body.parameters())


def test_gradients_of_one_pipeline_do_not_reach_what_another_one_trains() -> None:
    """A GAN in short: each half passes through the other one, which is frozen there."""

    def made() -> tuple[nn.Module, nn.Module]:
        return network(nn.Linear(4, 4)), network(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

    (one, two), (first, second) = made(), made()
    halves = {"p": chain("one", "two", two=None), "q": chain("one", "two", optimizer="b", one=None)}
    train(session({"one": one, "two": two}, {"o": sgd(one), "b": sgd(two)}, processors=halves, epochs=1))
    optimizers = sgd(first), sgd(second)
    for x, y in batches(20):
        for model, optimizer in zip((first, second), optimizers):
            for parameter in (*first.parameters(), *second.parameters()):
                parameter.grad = None
            nn.functional.mse_loss(second(first(x)), y).backward(inputs=list(model.parameters()))
            optimizer.step()
    assert same(one, first) and same(two, second)


def test_a_part_that_two_models_share_trains_where_either_does() -> None:
    body = nn.Dropout(0.5)
    models = {"trained": nn.Sequential(nn.Linear(4, 1), body), "resting": nn.Sequential(body, nn.Linear(4, 1))}
    one = session(models, processors={"p": chain("trained")})
    with one.training(one.stages[0]):
        assert body.training and models["trained"].training and not models["resting"].training


def test_zipped_loaders_end_with_the_shortest() -> None:
    mine, hers = network(), network(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    one = Session(
        models={"m": mine},
        optimizers={"o": sgd(mine)},
        loaders={"one": Loader(points(20), 4, shuffle=False), "two": Loader(points(5, 1), 2, shuffle=False)},
        losses={"mse": MSE},
        metrics={"size": Measure(lambda y_hat, y: len(y), ("y_hat", "y"))},
        processors={"p": chain("m")},
        graphs={"g": Graph(("p",), ("a", "b"), {"p": ("a", "b")})},
        pipelines={
            "both": Pipeline(
                "g",
                (Input("one", ("x", "y"), "a"), Input("two", ("x", "y"), "b")),
                (Term("mse", "p", "loss"),),
                (Term("size", "p", "size"),),
            )
        },
        stages=[Stage(("both",))],
    )
    (row,) = [event.values for event in train(one) if isinstance(event, EpochDone)]
    optimizer, values = sgd(hers), []
    for (x, y), (other, more) in zip(batches(20), batches(5, 1, 2)):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(hers(torch.cat([x, other])), torch.cat([y, more]))
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert same(mine, hers) and len(values) == 3
    wanted = (6 * values[0] + 6 * values[1] + 5 * values[2]) / 17
    assert row == {"loss": pytest.approx(wanted, rel=1e-6), "size": pytest.approx((36 + 36 + 25) / 17)}


# Averages


def test_the_average_is_that_of_the_weights_after_each_update() -> None:
    mine, hers = network(), network()
    one = session({"m": mine}, data={"data": points(20), "check": points(8, 1)}, validation=("p check",), ema=0.8)
    rows = [event.values for event in train(one) if isinstance(event, EpochDone)]
    optimizer, average = sgd(hers), [parameter.detach().clone() for parameter in hers.parameters()]
    for row in rows:
        for x, y in batches(20):
            optimizer.zero_grad()
            nn.functional.mse_loss(hers(x), y).backward()
            optimizer.step()
            average = [old.lerp(new.detach(), 1 - 0.8) for old, new in zip(average, hers.parameters())]
        state = dict(zip((name for name, _ in hers.named_parameters()), average))
        x, y = points(8, 1).tensors
        losses = [torch.func.functional_call(hers, state, part) for part in x.split(4)]
        wanted = sum(float(nn.functional.mse_loss(a, b)) for a, b in zip(losses, y.split(4))) / 2
        assert row["p check mse"] == pytest.approx(wanted, rel=1e-6)
    assert same(mine, hers)
    assert all(torch.equal(a, b) for a, b in zip(one.averages["m"].values, average))


def test_what_models_share_is_averaged_once_whichever_of_them_is_trained() -> None:
    shared = nn.Linear(4, 4)
    models = {"resting": nn.Sequential(shared, nn.Linear(4, 2)), "trained": nn.Sequential(shared, nn.Linear(4, 1))}
    one = session(models, {"o": sgd(models["trained"])}, processors={"p": chain("trained")}, ema=0.5)
    began = shared.weight.detach().clone()
    train(one)
    live = {name: weights(model) for name, model in models.items()}
    with one.evaluation_mode():
        assert not torch.equal(shared.weight, began) and not torch.equal(shared.weight, live["trained"][0])
        with pytest.raises(RuntimeError, match="midway"):
            raise RuntimeError("midway")
    one.evaluate()
    assert all(torch.equal(a, b) for name in models for a, b in zip(live[name], weights(models[name])))


def test_an_average_that_is_swapped_twice_is_as_it_was() -> None:
    model = network()
    one = Average(dict(model.named_parameters()), 0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    live, kept = weights(model), [value.clone() for value in one.values]
    one.swap()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), kept))
    one.swap()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), live))


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
    one.stages[0] = Stage(one.stages[0].training, (), EarlyStopping("p data told", patience=3))
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
        one = session({"m": limited}, epochs=3, limit_secs=1e-9, others={"directory": tmp_path})
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
    one.each_round.append(lambda place: seen.append(torch.are_deterministic_algorithms_enabled()))
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
    assert len(Path(loop.__file__).read_text().splitlines()) <= 300


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
