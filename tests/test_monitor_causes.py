"""Mistakes that are named for what they are, once, with what follows from them; and loops that only look like them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fast_cases import fast_first
from inspector_runs import blobs
from models import mlp
from seams import Rules, resolve_rules
from torch import Tensor, nn
from torch.nn import functional as F
from watch_checks import Probed

from torcheer.samples import Alert, Delivery, summarise

pytestmark = pytest.mark.usefixtures("one_thread")
WHAT = ("output", "grad", "weight", "update")  # what `tl.watch` looks at where nothing is said
SGD, Adam = torch.optim.SGD, torch.optim.Adam
LOADER = {"stalled_loader": False}  # a busy machine is no matter here


def judged(probed: Probed, rules: Any = LOADER) -> list[Alert]:
    problems: list[str] = []
    judge = Rules(resolve_rules(rules), problems.append)
    alerts = [alert for one in probed.taken() for alert in judge.judge(one, summarise(one))] + judge.close()
    assert problems == probed.problems == []
    return alerts


def told(
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    *,
    steps: int = 30,
    optimizer: torch.optim.Optimizer | None = None,
    batches: Any = None,
    every: int = 1,
    clear: Callable[[torch.optim.Optimizer, int], Any] = lambda optimizer, step: optimizer.zero_grad(),
    update: Callable[[torch.optim.Optimizer, int], Any] = lambda optimizer, step: optimizer.step(),
    log: Callable[[Tensor], Tensor] = lambda loss: loss,
    device: str = "cuda",
    whole: tuple[str, ...] = (),
) -> list[Alert]:
    """Train as people do, with real probes; what the rules tell. Values on `device` are summed up where they are."""
    place = next(model.parameters()).device
    optimizer, batches = optimizer or Adam(model.parameters(), 1e-3), batches or blobs()
    with Probed(model, what=WHAT, every=every, whole=whole) as probed:
        probed.sender.limits.devices = frozenset({device})
        for step in range(steps):
            x, y = (one.to(place) for one in batches(step))
            output = model(x)
            clear(optimizer, step)
            loss = loss_of(output, y)
            loss.backward()
            update(optimizer, step)
            probed.sender.send_metric("loss", log(loss).detach(), probed.probes.current_step)
            probed.taken()
    return judged(probed)


def names(alerts: list[Alert]) -> list[str]:
    return [alert.rule for alert in alerts]


# -- a loss that is scaled


@pytest.mark.parametrize("factor", [1e4, 1e6, 1e8, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("make", [lambda weights: SGD(weights, 0.05), lambda weights: Adam(weights, 1e-3)])
def test_a_loss_that_is_scaled_is_named_and_nothing_else_but_the_end(factor: float, make: Any) -> None:
    model = mlp()
    first, *rest = told(model, lambda z, y: F.cross_entropy(z, y) * factor, optimizer=make(model.parameters()))
    assert (first.rule, first.step) == ("loss_scale", 0) and first.values["factor"] == pytest.approx(factor, rel=1e-3)
    assert "the loss is scaled" in first.what and first.severity == "warning"
    assert names(rest) in ([], ["nan_inf"])  # which ends the run, and says from what it follows
    assert all(alert.values["causes"] == ["loss_scale"] and "loss_scale" in alert.follows for alert in rest)


def test_nan_is_told_though_it_follows_from_a_cause() -> None:
    model = mlp()
    found = told(model, lambda z, y: F.cross_entropy(z, y) * 1e6, optimizer=SGD(model.parameters(), 0.05))
    assert not all(weight.isfinite().all() for weight in model.parameters())
    assert names(found) == ["loss_scale", "nan_inf"] and found[1].values["causes"] == ["loss_scale"]


def test_a_cause_is_told_before_what_follows_from_it_between_two_looks() -> None:
    model = mlp()
    found = told(model, lambda z, y: F.cross_entropy(z, y) * 1e6, optimizer=SGD(model.parameters(), 0.05), every=20)
    assert names(found) == ["loss_scale", "nan_inf"] and found[1].variable == "metric"
    assert found[1].values["causes"] == ["loss_scale"]


@pytest.mark.parametrize("factor", [1e4, 1e6, 1e8, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("logs", [lambda factor: lambda loss: loss, lambda factor: lambda loss: loss / factor])
def test_a_loss_of_squares_that_is_scaled_is_named_by_the_loss_that_is_logged(factor: float, logs: Any) -> None:
    found = told(regressor(), lambda z, y: F.mse_loss(z, y) * factor, batches=curve, log=logs(factor))
    assert names(found)[:1] == ["loss_scale"] and set(names(found)) <= {"loss_scale", "nan_inf"}


def test_a_scaled_loss_on_yes_and_no_is_named() -> None:
    for model in (mlp(), Functional(nn.Flatten(0), 1)):  # of the first, one number of four is used
        found = told(model, lambda z, y: F.binary_cross_entropy_with_logits(*yes(z.reshape(32, -1)[:, 0], y)) * 1e5)
        assert names(found) == ["loss_scale"] and found[0].values["factor"] == pytest.approx(1e5, rel=1e-2)


def test_what_follows_from_a_cause_is_folded_into_it() -> None:
    def found(rules: Any) -> list[Alert]:
        model = mlp()
        with Probed(model, what=WHAT, every=1) as probed:
            optimizer = SGD(model.parameters(), 0.05)
            for step in range(30):
                x, y = blobs()(step)
                optimizer.zero_grad()
                (F.cross_entropy(model(x), y) * 1e-6).backward()
                optimizer.step()
                probed.taken()
        return judged(probed, rules)

    alone = found({**LOADER, "loss_scale": False})
    assert names(alone) == ["update_ratio"]  # the symptom, where its cause is not looked for
    assert names(found(LOADER)) == ["loss_scale"]


def test_symptoms_that_show_when_a_cause_is_told_are_listed_with_it() -> None:
    model = mlp()
    found = told(
        model, optimizer=SGD(model.parameters(), 0.3), clear=lambda optimizer, step: None, steps=60,
        every=5, loss_of=lambda z, y: F.cross_entropy(z, y) * 5,
    )  # fmt: skip
    alert, *rest = found
    assert names(rest) in ([], ["nan_inf"])
    assert alert.rule == "forgotten_zero_grad" and alert.values["symptoms"]
    assert f"{len(alert.values['symptoms'])} other finding" in alert.what and "may follow from it: " in alert.what


# -- one cause, one voice


def learning(rate: float, **more: Any) -> list[Alert]:
    """What is told of a net that is trained with a rate, on blobs, and tested on labels that say nothing."""
    model, held_out = more.pop("model", None) or mlp(), blobs()(1000)[0]
    optimizer, found = more.pop("optimizer", SGD)(model.parameters(), rate), list[Delivery]()
    random = torch.randint(0, 4, (32,), generator=torch.Generator().manual_seed(3))
    with Probed(model, what=WHAT, every=1) as probed:
        for step in range(more.pop("steps", 150)):
            x, y = blobs()(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            probed.sender.send_metric("loss", loss.detach(), step)
            if step % 5 == 4:
                model.eval()
                with torch.no_grad():
                    probed.sender.send_metric("val_loss", F.cross_entropy(model(held_out), random), step)
                model.train()
            found += probed.taken()
    return judged(probed, LOADER | {"loss_plateau": {"window": 20}})


@pytest.mark.parametrize(("rate", "optimizer"), [(5.0, SGD), (5.0, Adam), (1e-9, SGD)])
def test_alerts_of_a_wrong_learning_rate_name_the_first_as_their_cause_and_give_its_advice(
    rate: float, optimizer: Any
) -> None:
    found = learning(rate, optimizer=optimizer)
    roots = {f"{alert.rule} at step {alert.step}": alert for alert in found if not alert.follows}
    consequences = [alert for alert in found if alert.follows]
    assert {alert.rule for alert in roots.values()} <= {"exploding_gradient", "dead_relu", "unchanged"}
    assert len({alert.rule for alert in roots.values()}) == 1 and consequences and not found[0].follows
    for alert in consequences:
        assert alert.advice == roots[alert.follows].advice and f"it may follow from {alert.follows}. Try" in str(alert)
    wrong = "raise the learning rate" if rate > 1 else "lower the learning rate"
    assert not any(wrong in alert.advice for alert in found) and "overfitting" not in names(found)
    assert len({(alert.rule, alert.follows) for alert in consequences}) == len(consequences)  # each once


def test_a_sigmoid_that_is_saturated_from_the_beginning_is_not_said_to_need_larger_weights() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(5) for part in (nn.LazyLinear(32), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.LazyLinear(4))
    model(torch.zeros(1, 20))
    found = told(model, batches=lambda step: (blobs()(step)[0] * 1000, blobs()(step)[1]), steps=8)
    assert names(found) == ["saturation"] and "begin with smaller weights" in found[0].advice


def test_weights_whose_steps_are_lost_in_rounding_are_said_to_be_stepped() -> None:
    model = mlp()
    found = told(model, optimizer=SGD(model.parameters(), 1e-12), steps=140)
    unchanged = next(alert for alert in found if alert.rule == "unchanged")
    assert "though an optimizer steps" in unchanged.what and "raise the learning rate" in unchanged.advice


# -- gradients that are not cleared


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("make", [lambda weights: SGD(weights, 0.01), lambda weights: Adam(weights, 1e-3)])
def test_a_forgotten_zero_grad_is_named(make: Any, every: int) -> None:
    model = mlp()
    found = told(model, optimizer=make(model.parameters()), clear=lambda optimizer, step: None, every=every, steps=40)
    assert names(found) == ["forgotten_zero_grad"] and "optimizer.zero_grad()" in found[0].advice


def test_gradients_that_are_accumulated_for_ever_are_named_too() -> None:
    def update(optimizer: torch.optim.Optimizer, step: int) -> None:
        if step % 3 == 2:
            optimizer.step()

    found = told(mlp(), clear=lambda optimizer, step: None, update=update, steps=60)
    assert names(found) == ["forgotten_zero_grad"]


@pytest.mark.parametrize("every", [1, 4, 5])
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("passes", [1, 4])
def test_gradients_that_are_accumulated_on_purpose_are_not_told(passes: int, to_none: bool, every: int) -> None:
    def clear(optimizer: torch.optim.Optimizer, step: int) -> None:
        if step % passes == 0:
            optimizer.zero_grad(set_to_none=to_none)

    def update(optimizer: torch.optim.Optimizer, step: int) -> None:
        if step % passes == passes - 1:
            optimizer.step()

    assert told(mlp(), lambda z, y: F.cross_entropy(z, y) / passes, clear=clear, update=update, every=every) == []


def test_a_gan_whose_critic_gets_gradients_from_the_generators_pass_is_not_told() -> None:
    torch.manual_seed(0)
    parts = nn.ModuleDict({
        "generator": nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)),
        "critic": nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)),
    })  # fmt: skip
    makes, judges = parts["generator"], parts["critic"]
    of_makes, of_judges = Adam(makes.parameters(), 1e-3), Adam(judges.parameters(), 1e-3)
    for optimizer in (of_makes, of_judges):
        with Probed(parts, what=WHAT, every=1, optimizer=optimizer) as probed:
            for _ in range(30):
                real, fake = torch.randn(32, 2) + 2, makes(torch.randn(32, 4))
                of_makes.zero_grad()
                F.binary_cross_entropy_with_logits(judges(fake), torch.ones(32, 1)).backward()
                of_makes.step()
                of_judges.zero_grad()
                for x, y in ((real, 1.0), (fake.detach(), 0.0)):
                    F.binary_cross_entropy_with_logits(judges(x), torch.full((32, 1), y)).backward()
                of_judges.step()
                probed.taken()
        assert judged(probed) == []


def test_what_follows_a_gradient_leaves_no_hook_and_changes_no_number() -> None:
    def losses(watched: bool) -> list[float]:
        model, found = mlp(), list[float]()
        optimizer = Adam(model.parameters(), 1e-2)
        probed = Probed(model, what=WHAT, every=2) if watched else None
        for step in range(12):
            x, y = blobs()(step)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=step % 3 == 0)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            copy.deepcopy(model)
        if probed is not None:
            probed.__exit__()
        assert not any(parameter._backward_hooks for parameter in model.parameters())
        return found

    assert losses(True) == losses(False)


# -- an activation that the loss has in itself


class Functional(nn.Module):
    """Returns what a function makes of the last layer's output: no module shows it."""

    def __init__(self, last: Callable[[Tensor], Tensor], outputs: int = 4) -> None:
        super().__init__()
        self.body, self.last = nn.Sequential(*mlp()[:-1], nn.Linear(32, outputs)), last

    def forward(self, x: Tensor) -> Any:
        return self.last(self.body(x))


def yes(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return z.reshape(-1), (y % 2).float()


def shares(z: Tensor) -> Tensor:
    return F.softmax(z, 1)


TWICE = {
    "softmax module": (lambda: mlp().append(nn.Softmax(1)), F.cross_entropy, "cross_entropy the numbers before"),
    "softmax function": (lambda: Functional(shares), F.cross_entropy, "cross_entropy the numbers before"),
    "class weights": (
        lambda: Functional(shares),
        lambda p, y: F.cross_entropy(p, y, torch.tensor([1.0, 2.0, 0.5, 3.0])),
        "cross_entropy the numbers before",
    ),
    "sigmoid module": (
        lambda: nn.Sequential(Functional(nn.Flatten(0), 1), nn.Sigmoid()),
        lambda p, y: F.binary_cross_entropy_with_logits(*yes(p, y)),
        "the numbers before the sigmoid",
    ),
    "sigmoid function": (
        lambda: Functional(torch.sigmoid, 1),
        lambda p, y: F.binary_cross_entropy_with_logits(*yes(p, y)),
        "the numbers before the sigmoid",
    ),
    "no log": (lambda: mlp().append(nn.Softmax(1)), F.nll_loss, "log_softmax before nll_loss"),
}  # fmt: skip


@pytest.mark.parametrize("name", TWICE)
def test_an_activation_before_a_loss_that_has_it_in_itself_is_named(name: str) -> None:
    make, loss_of, advice = TWICE[name]
    found = told(make(), loss_of, steps=60)
    assert names(found) == ["activation_twice"] and advice in found[0].advice, list(map(str, found))


# -- a layer that is frozen


def test_a_layer_that_its_neighbours_train_past_is_named_with_a_note() -> None:
    model = mlp()
    model[2].requires_grad_(False)
    (alert,) = told(model)
    assert (alert.rule, alert.layer, alert.severity) == ("frozen_layer", "2.weight", "note")
    assert "3 of 4 weight matrices" in alert.what and "this may be meant" in alert.what


class Lora(nn.Module):
    """A frozen layer with a trained one of low rank beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.a = base.requires_grad_(False), nn.Linear(base.in_features, 4, bias=False)
        self.b = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Any:
        return self.base(x) + self.b(self.a(x))


def lora() -> nn.Module:
    return nn.Sequential(*(Lora(part) if isinstance(part, nn.Linear) else part for part in mlp()))


def fine_tuned(behind: int) -> nn.Module:
    model = mlp()
    model[:behind].requires_grad_(False)
    return model


class Embedded(nn.Module):
    """Words that are learned, places that are given, and a net behind both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(50, 16)
        self.places = nn.Embedding.from_pretrained(torch.randn(8, 16))
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> Any:
        words = self.words((x[:, :8].abs() * 10).long().clamp(max=49))
        return self.body((words + self.places(torch.arange(8))).mean(1))


@pytest.mark.parametrize("make", [lora, lambda: fine_tuned(2), lambda: fine_tuned(5), Embedded])
def test_layers_that_are_frozen_by_design_are_not_told(make: Any) -> None:
    model = make()
    assert told(model, optimizer=Adam([one for one in model.parameters() if one.requires_grad], 1e-3)) == []


# -- NaN in the batch


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_batch_with_nan_is_named_and_no_layer(value: float) -> None:
    def batches(step: int) -> tuple[Tensor, Tensor]:
        x, y = blobs()(step)
        if step >= 6:
            x[3, 2] = value
        return x, y

    (alert,) = told(mlp(), batches=batches)
    assert (alert.rule, alert.layer, alert.variable, alert.step) == ("nan_inf", "0", "input", 6)
    assert "it is in the batch" in alert.what and "data" in alert.advice and alert.severity == "error"


DEVICES = ["cpu"]  # the road of values on a GPU, taken by some on the CPU; and by some on a GPU, where there is one
DEVICES += ["cuda"] * torch.cuda.is_available()


def stained(step: int, value: float = float("nan"), rows: int = 32) -> tuple[Tensor, Tensor]:
    """A batch that has a number which is none, from the sixth step on."""
    x, y = blobs(size=rows)(step)
    if step >= 6:
        x[3, 2] = value
    return x, y


@pytest.mark.parametrize("whole", fast_first([(), ["0/*"], ["*/output"], ["6/output"]]))
@pytest.mark.parametrize("value", fast_first([float("nan"), float("inf")]))
@pytest.mark.parametrize("device", DEVICES)
def test_on_a_device_too_a_batch_with_nan_is_named_and_no_layer(device: str, value: float, whole: Any) -> None:
    (alert,) = told(
        mlp().to(device), batches=lambda step: stained(step, value), device=device, whole=whole
    )  # fmt: skip
    assert (alert.rule, alert.layer, alert.variable, alert.step) == ("nan_inf", "0", "input", 6)
    assert "it is in the batch" in alert.what


@pytest.mark.parametrize("device", DEVICES)
def test_on_a_device_one_bad_number_in_a_large_batch_is_found(device: str) -> None:
    def batches(step: int) -> tuple[Tensor, Tensor]:
        x, y = torch.randn(4096, 64), torch.randint(0, 4, (4096,))  # more numbers than are looked at one by one
        if step >= 2:
            x[4001, 33] = float("nan")
        return x, y

    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4)).to(device)
    (alert,) = told(model, batches=batches, steps=4, device=device)
    assert (alert.rule, alert.variable, alert.step) == ("nan_inf", "input", 2)


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_that_are_finite_are_not_sent_from_a_device(device: str) -> None:
    model = mlp().to(device)
    with Probed(model, what=WHAT, every=1) as probed:
        probed.sender.limits.devices = frozenset({device})
        for step in range(3):
            model(blobs()(step)[0].to(device)).sum().backward()
    kinds = {one.sample.variable for one in probed.taken()}
    assert {"output", "grad"} <= kinds and "input" not in kinds


@pytest.mark.parametrize("device", DEVICES)
def test_values_from_a_device_come_in_the_order_in_which_they_were_made(device: str) -> None:
    def order(place: str, devices: set[str], whole: tuple[str, ...]) -> list[tuple[str, str]]:
        model = nn.Sequential(mlp(), nn.Linear(4, 4).double()).to(place)  # a sheet has no room for double
        model[0].register_forward_hook(lambda module, given, output: output.double())
        with Probed(model, what=("output", "grad"), every=1, whole=whole) as probed:
            probed.sender.limits.devices = frozenset(devices)
            model(blobs()(0)[0].to(place)).sum().backward()
        return [one.key for one in probed.taken() if one.sample.variable != "metric"]

    plainly = order("cpu", set(), ())
    for whole in ((), ("1/*",), ("0.2/*",)):
        assert order(device, {device}, whole) == plainly


@pytest.mark.parametrize("rows", fast_first([8000, 32]))  # of 8,000 a sample is fetched, but for the last layer's
@pytest.mark.parametrize("device", DEVICES)
def test_on_a_device_too_a_scaled_loss_and_an_activation_twice_are_named(device: str, rows: int) -> None:
    batches = blobs(size=rows)
    scaled = told(mlp().to(device), lambda z, y: F.cross_entropy(z, y) * 1e6, batches=batches, steps=8, device=device)
    assert names(scaled)[:1] == ["loss_scale"] and scaled[0].values["factor"] == pytest.approx(1e6, rel=1e-2)
    twice = told(mlp().append(nn.Softmax(1)).to(device), batches=batches, steps=20, device=device)
    assert names(twice) == ["activation_twice"]
    sigmoid, loss_of, _ = TWICE["sigmoid module"]
    twice = told(sigmoid().to(device), loss_of, batches=batches, steps=20, device=device)
    assert names(twice) == ["activation_twice"]


@pytest.mark.parametrize("device", DEVICES)
def test_on_a_device_a_healthy_run_is_not_told(device: str) -> None:
    assert told(mlp().to(device), steps=60, device=device) == []


def test_nan_in_the_targets_is_said_to_come_from_the_loss() -> None:
    def batches(step: int) -> tuple[Tensor, Tensor]:
        x, y = curve(step)
        y[0] = float("nan") if step >= 6 else y[0]
        return x, y

    (alert,) = told(regressor(), F.mse_loss, batches=batches)
    assert (alert.rule, alert.variable, alert.step) == ("nan_inf", "grad", 6)
    assert "comes from the loss or its targets" in alert.what


def test_a_first_layer_that_makes_nan_of_good_numbers_is_named_itself() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sqrt()

    (alert,) = told(nn.Sequential(Root(), *mlp()))
    assert (alert.rule, alert.layer, alert.variable) == ("nan_inf", "0", "output")


# -- what only looks like it


def regressor() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


def curve(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(step))
    return x, torch.stack([x.sum(1), x[:, 0] * x[:, 1], x[:, 2] ** 2], 1)


def prices(step: int) -> tuple[Tensor, Tensor]:
    x, y = curve(step)
    return x, 1e5 + 1e3 * y


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.lstm, self.head = nn.Embedding(12, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 12)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.lstm(self.words(x))[0])


def letters(step: int) -> tuple[Tensor, Tensor]:
    first = torch.randint(12, (16, 1), generator=torch.Generator().manual_seed(step))
    text = (first + torch.arange(9)) % 12
    target = text[:, 1:].clone()
    target[:, 5:] = -100  # padding
    return text[:, :-1], target


def mixed(z: Tensor, y: Tensor) -> Tensor:
    soft = 0.7 * F.one_hot(y, 4) + 0.3 * F.one_hot(y.flip(0), 4)
    return F.cross_entropy(z, soft)


def distilled(z: Tensor, y: Tensor) -> Tensor:
    teacher = F.one_hot(y, 4) * 3.0 + torch.linspace(0, 1, 4)
    return 9 * F.kl_div(F.log_softmax(z / 3, 1), F.softmax(teacher / 3, 1), reduction="batchmean")


def rewarded(z: Tensor, y: Tensor) -> Tensor:
    rewards = torch.linspace(20, 500, len(y))
    return (rewards * F.cross_entropy(z, y, reduction="none")).sum()


def focal(z: Tensor, y: Tensor) -> Tensor:
    each = F.cross_entropy(z, y, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def hot(y: Tensor) -> Tensor:
    return F.one_hot(y, 4).float()


HEALTHY: dict[str, tuple[Any, Any, Any]] = {
    "sum": (mlp, lambda z, y: F.cross_entropy(z, y, reduction="sum"), None),
    "label smoothing": (mlp, lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1), None),
    "class weights": (mlp, lambda z, y: F.cross_entropy(z, y, torch.tensor([0.1, 1.0, 5.0, 20.0])), None),
    "mixup": (mlp, mixed, None),
    "distillation": (mlp, distilled, None),
    "rewards": (mlp, rewarded, None),
    "focal": (mlp, focal, None),
    "weighted by 0.01": (mlp, lambda z, y: 0.01 * F.cross_entropy(z, y), None),
    "nll of log softmax": (lambda: mlp().append(nn.LogSoftmax(1)), F.nll_loss, None),
    "cross entropy of log softmax": (lambda: mlp().append(nn.LogSoftmax(1)), F.cross_entropy, None),
    "nll of the log of softmax": (lambda: mlp().append(nn.Softmax(1)), lambda p, y: F.nll_loss(p.log(), y), None),
    "squares of softmax": (lambda: mlp().append(nn.Softmax(1)), lambda p, y: F.mse_loss(p, hot(y)), None),
    "binary of softmax": (lambda: mlp().append(nn.Softmax(1)), lambda p, y: F.binary_cross_entropy(p, hot(y)), None),
    "sigmoid and its loss": (
        lambda: nn.Sequential(Functional(nn.Flatten(0), 1), nn.Sigmoid()),
        lambda p, y: F.binary_cross_entropy(*yes(p, y)), None,
    ),
    "sigmoid and squares": (lambda: mlp().append(nn.Sigmoid()), lambda p, y: F.mse_loss(p, hot(y)), None),
    "with logits": (
        lambda: Functional(nn.Flatten(0), 1), lambda z, y: F.binary_cross_entropy_with_logits(*yes(z, y)), None,
    ),
    "several yes or no": (mlp, lambda z, y: F.binary_cross_entropy_with_logits(z, hot(y)), None),
    "weight of yes": (
        lambda: Functional(nn.Flatten(0), 1),
        lambda z, y: F.binary_cross_entropy_with_logits(*yes(z, y), pos_weight=torch.tensor(0.608)), None,
    ),
    "two classes": (lambda: Functional(lambda z: z, 2), lambda z, y: F.cross_entropy(z, y % 2), None),
    "two weighted classes": (
        lambda: Functional(lambda z: z, 2), lambda z, y: F.cross_entropy(z, y % 2, torch.tensor([1.0, 0.4])), None,
    ),
    "squares": (regressor, F.mse_loss, curve),
    "sum of squares": (regressor, lambda z, y: F.mse_loss(z, y, reduction="sum"), curve),
    "prices": (regressor, F.mse_loss, prices),
    "distance of prices": (regressor, F.l1_loss, prices),
    "huber": (regressor, F.smooth_l1_loss, prices),
    "text": (Recurrent, lambda z, y: F.cross_entropy(z.transpose(1, 2), y), letters),
    "text, sum": (Recurrent, lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum"), letters),
    "margins": (mlp, F.multi_margin_loss, None),
}  # fmt: skip


@pytest.mark.parametrize("rate", fast_first([1e-2, 1e-3]))
@pytest.mark.parametrize("name", HEALTHY)
def test_of_losses_that_are_meant_nothing_is_told(name: str, rate: float) -> None:
    make, loss_of, batches = HEALTHY[name]
    model = make()
    found = told(model, loss_of, batches=batches, optimizer=Adam(model.parameters(), rate), steps=40)
    new = {"loss_scale", "activation_twice", "forgotten_zero_grad", "frozen_layer", "nan_inf"}
    assert [str(alert) for alert in found if alert.rule in new] == []


def test_the_scale_of_a_grad_scaler_is_not_told() -> None:
    def scaled(scale: float) -> Iterator[str]:
        model = mlp()
        optimizer, scaler = SGD(model.parameters(), 0.05), torch.amp.GradScaler("cpu", init_scale=scale)
        with Probed(model, what=WHAT, every=1) as probed:
            for step in range(20):
                x, y = blobs()(step)
                loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                probed.taken()
        assert any(one.scaled for one in probed.taken())
        yield from map(str, judged(probed))

    assert [*scaled(65536.0), *scaled(3e5)] == []
