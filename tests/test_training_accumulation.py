"""Batches that are gathered before an update: as one large batch, whatever else shares the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import EpochDone, StepDone, Update
from torch import Tensor, nn
from torch.utils.data import (
    TensorDataset,
)
from training_loop_cases import MSE, batches, chain, network, points, same, session, sgd, train, weights

from torcheer.errors import BadArgument
from torcheer.training import (
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
)

pytestmark = pytest.mark.usefixtures("one_thread")


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
    one = session({"m": torn}, {"o": optimizer}, checkpoint_steps=1, others={"to": tmp_path})
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
    one = session({"m": model}, accumulate=2, steps_csv=1, others={"to": tmp_path})
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
