"""Several pipelines, models and losses, and averages of the weights: as a hand-written loop has them."""

from __future__ import annotations

import pytest
import torch
from seams import EpochDone, StepDone, WeightAverage
from torch import nn
from training_loop_cases import MSE, batches, chain, network, points, same, session, sgd, train, weights

from torcheer.training import (
    Graph,
    Input,
    Loader,
    Measure,
    Node,
    Pipeline,
    Processor,
    Session,
    Stage,
    Term,
)

pytestmark = pytest.mark.usefixtures("one_thread")


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
    one = WeightAverage(dict(model.named_parameters()), 0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    live, kept = weights(model), [value.clone() for value in one.values]
    one.swap()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), kept))
    one.swap()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), live))
