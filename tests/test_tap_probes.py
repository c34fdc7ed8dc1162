"""Hooks on a model: what they see, what they cost, what they leave."""

from __future__ import annotations

import copy
import gc
import io
import time
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from models import small
from torch import nn
from watch_checks import EVERYTHING, Probed, batch, hooks_of, train

from torcheer.samples import summarise


def reference(model: nn.Sequential, x: torch.Tensor, y: torch.Tensor) -> dict[tuple[str, str], torch.Tensor]:
    """Outputs and gradients of a chain of modules, by hand."""
    found, outputs = {}, []
    for name, module in model.named_children():
        x = module(x)
        found[name, "output"] = x.detach().clone()
        x.retain_grad()
        outputs.append((name, x))
    nn.functional.cross_entropy(x, y).backward()
    for name, output in outputs:
        found[name, "grad"] = output.grad.clone()
    return found


# -- what they see


@pytest.mark.parametrize("inplace", [False, True])
def test_outputs_and_gradients_are_those_of_a_model_without_in_place_modules(inplace: bool) -> None:
    x, y = batch()
    plain, model = small(inplace=False), small(inplace)
    torch.manual_seed(5)  # for dropout
    expected = reference(plain, x, y)
    torch.manual_seed(5)
    with Probed(model, what=("output", "grad")) as probed:
        nn.functional.cross_entropy(model(x), y).backward()
    found = probed.values()
    assert {key[:2] for key in found} == set(expected)
    for key, value in expected.items():
        assert np.array_equal(found[(*key, 0)], value.numpy()), key


def test_an_output_is_a_snapshot() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).zero_()

    model = Writes()
    with Probed(model, what="output") as probed:
        model(torch.ones(3))
    assert probed.values()["inner", "output", 0].tolist() == [1, 1, 1]


def test_weights_gradients_and_updates_are_those_around_the_optimizer_step() -> None:
    model = small()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with Probed(model, what=EVERYTHING) as probed:
        train(model, 1)
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    found = probed.values()
    for name, parameter in model.named_parameters():
        assert np.array_equal(found[name, "weight", 0], before[name].numpy())
        assert np.array_equal(found[name, "weight_grad", 0], gradients[name].numpy())
        assert np.array_equal(found[name, "update", 0], (parameter.detach() - before[name]).numpy())


def test_a_look_leaves_no_hook_on_a_parameter() -> None:
    model = small()
    with Probed(model, every=1000):
        train(model, 3)
        assert [parameter._backward_hooks for parameter in model.parameters()] == [None] * len(list(model.parameters()))


def test_only_steps_that_are_due_are_looked_at() -> None:
    model = small()
    with Probed(model, every=4) as probed:
        train(model, 10)
    assert {key[2] for key in probed.values()} == {0, 4, 8}


def test_validation_in_between_is_neither_watched_nor_counted() -> None:
    model = small()
    with Probed(model, every=2) as probed:

        def validate(loss: torch.Tensor) -> None:
            model.eval()
            with torch.no_grad():
                model(batch()[0])
            model.train()

        train(model, 4, after=validate)
        assert probed.probes.step == 3
    found = probed.values()
    assert {key[2] for key in found} == {0, 2}
    assert len([key for key in found if key[1] == "output"]) == 2 * len(model)


def test_a_model_in_eval_mode_from_the_start_is_watched_in_it() -> None:
    model = small().eval()
    with Probed(model, what="output", every=2) as probed, torch.no_grad():
        for _ in range(3):
            model(batch()[0])
    assert {key[2] for key in probed.values()} == {0, 2}


def test_a_module_called_twice_has_its_calls_numbered() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 2), relu, nn.Linear(2, 2), relu)
    with Probed(model, what=("output", "grad")) as probed:
        for _ in range(2):
            model(torch.rand(3, 2)).sum().backward()
    found = probed.values()
    assert {("1", "output", 1), ("1:2", "output", 1), ("1", "grad", 1), ("1:2", "grad", 1)} <= set(found)
    assert not np.array_equal(found["1", "grad", 0], found["1:2", "grad", 0])


Pair = namedtuple("Pair", "left right")


@dataclass
class Answer:
    logits: Any
    hidden: Any = None


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: (x, 2 * x), ["inner.0", "inner.1"]),
        (lambda x: [x, (x, None)], ["inner.0", "inner.1.0"]),
        (lambda x: {"a": x, "b": {"c": x}}, ["inner.a", "inner.b.c"]),
        (lambda x: OrderedDict(logits=x), ["inner.logits"]),
        (lambda x: Pair(x, x), ["inner.left", "inner.right"]),
        (lambda x: Answer(x), ["inner.logits"]),
        (lambda x: None, []),
        (lambda x: "text", []),
    ],
)
def test_every_tensor_of_a_structured_output_has_a_name(make: Any, names: list[str]) -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return make(x)

    model = nn.Sequential(OrderedDict(inner=Inner()))
    with Probed(model, what="output") as probed:
        model(torch.ones(2))
    assert [key[0] for key in probed.values()] == names
    assert probed.problems == []


def test_a_recurrent_layer_has_all_its_outputs() -> None:
    model = nn.Sequential(OrderedDict(lstm=nn.LSTM(2, 3)))
    with Probed(model, what=("output", "grad")) as probed:
        model(torch.rand(4, 2))[0].sum().backward()
    assert {key[0] for key in probed.values() if key[1] == "output"} == {"lstm.0", "lstm.1.0", "lstm.1.1"}
    assert ("lstm.0", "grad", 0) in probed.values()


def test_accumulated_gradients_are_waited_for() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Probed(model, what=("weight_grad", "update"), every=100) as probed:
        before = model[5].weight.detach().clone()
        for step in range(4):
            x, y = batch(step)
            nn.functional.cross_entropy(model(x), y).backward()
        assert not probed.values()
        gradient = model[5].weight.grad.clone()
        optimizer.step()
    found = probed.values()
    assert np.array_equal(found["5.weight", "weight_grad", 0], gradient.numpy())
    assert np.array_equal(found["5.weight", "update", 0], (model[5].weight.detach() - before).numpy())


@pytest.mark.parametrize("way", ["in place", "data"])
def test_weights_that_are_changed_by_hand_are_noticed_at_the_next_pass(way: str) -> None:
    model = small()
    with Probed(model, what="update", every=3) as probed:
        for step in range(2):
            x, y = batch(step)
            nn.functional.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    (parameter.data if way == "data" else parameter).sub_(0.5)
    found = probed.values()
    assert {key[2] for key in found} == {0}
    assert np.allclose(found["5.weight", "update", 0], -0.5)


def test_a_closure_is_run_before_its_gradients_are_looked_at() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    with Probed(model, what=("weight_grad", "update"), optimizer=optimizer) as probed:
        for _ in range(3):
            optimizer.step(closure)
    found = probed.values()
    assert [key[2] for key in found if key[:2] == ("0.weight", "update")] == [0, 1, 2]
    assert found["0.weight", "weight_grad", 0].tolist() == [[1, 1]]


def test_with_an_optimizer_its_steps_are_counted_and_their_first_pass_is_watched() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Probed(model, optimizer=optimizer, every=2) as probed:
        for step in range(6):
            for part in range(3):
                x, y = batch(part)
                nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            assert probed.probes.step == step
            optimizer.zero_grad()
    found = probed.values()
    assert {key[2] for key in found} == {0, 2, 4}
    assert not any(":" in key[0] for key in found)
    assert {key[1] for key in found} == set(EVERYTHING)


def test_a_model_whose_parts_are_called_is_watched_by_the_steps_of_its_optimizers() -> None:
    parts = nn.ModuleDict({"maker": nn.Linear(2, 2), "judge": nn.Linear(2, 1)})
    optimizer = torch.optim.SGD(parts.parameters(), 0.1)
    with Probed(parts, every=2) as probed:
        for _ in range(4):
            optimizer.zero_grad()
            parts["judge"](parts["maker"](torch.rand(3, 2))).sum().backward()
            optimizer.step()
    found = probed.values()
    assert {key[2] for key in found} == {0, 2}
    assert {key[0] for key in found if key[1] == "grad"} == {"maker", "judge"}


def test_another_models_optimizer_is_none_of_ours() -> None:
    model, other = small(), small()
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    with Probed(model, what="update") as probed:
        nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
        train(other, 2, optimizer=optimizer)
        assert not probed.values()


def test_a_frozen_weight_has_no_update() -> None:
    model = small()
    model[0].requires_grad_(False)
    with Probed(model, what=("weight", "update")) as probed:
        train(model, 2)
    assert {key[1] for key in probed.values() if key[0].startswith("0.")} == {"weight"}


@pytest.mark.timing
def test_the_time_of_a_step_and_of_the_wait_after_it_are_sent() -> None:
    model, began = small(), list[float]()
    model[0].register_forward_pre_hook(lambda *_: began.append(time.monotonic()))
    with Probed(model, what="weight", every=2) as probed:
        train(model, 5, after=lambda loss: time.sleep(0.25))
    times = {(one.sample.layer, one.sample.step): float(one.sample.array) for one in probed.taken()
             if one.sample.variable == "metric"}  # fmt: skip
    assert set(times) == {(name, step) for name in ("step_secs", "wait_secs") for step in (0, 2)}
    for step in (0, 2):
        whole_secs = times["step_secs", step] + times["wait_secs", step]
        assert times["wait_secs", step] >= 0.25 and times["step_secs", step] > 0
        assert whole_secs == pytest.approx(began[step + 1] - began[step], abs=0.2)  # the one is no part of the other


def test_an_evaluation_between_two_steps_is_no_wait() -> None:
    model = small()

    def evaluate(loss: torch.Tensor) -> None:
        model.eval()
        model(batch()[0])
        model.train()

    with Probed(model, what="weight", every=2) as probed:
        train(model, 5, after=evaluate)
    assert not [one for one in probed.taken() if one.sample.variable == "metric"]


# -- what they change: nothing


@pytest.mark.parametrize("every", [1, 3])
def test_losses_are_the_same_bit_for_bit(every: int) -> None:
    expected = train(small(), 8)
    model = small()
    with Probed(model, every=every):
        assert train(model, 8) == expected


def test_the_random_numbers_are_the_same() -> None:
    model = small()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with Probed(model.eval()):
        model(batch()[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_hooks_are_there_for_watched_passes_only() -> None:
    model = small()
    with Probed(model, every=5) as probed:
        assert hooks_of(model) == 1
        seen = []
        model[2].register_forward_hook(lambda *_: seen.append(hooks_of(model)))
        train(model, 3)
        assert seen[0] > seen[1] == 3 and seen[2] == 2  # one parameter is followed to the optimizer's next step
        assert hooks_of(model) == 2
        assert probed.problems == []
    assert hooks_of(model) == 1


def test_nothing_of_a_pass_is_kept() -> None:
    model = small()
    with Probed(model, what=("output", "grad")):
        x = batch()[0].requires_grad_()
        output = model(x)
        alive = weakref.ref(output)
        output.sum().backward()
        del output
        gc.collect()
        assert alive() is None
        model(batch()[0])
        assert not x._backward_hooks


def test_no_hook_stays_on_a_tensor_of_the_users() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(2, 2))
    x = torch.rand(1, 2, requires_grad=True)  # the identity returns it as it is
    with Probed(model, every=2) as probed:
        for _ in range(2):
            model(x).sum().backward()
        assert not x._backward_hooks
    assert [key for key in probed.values() if key[:2] == ("0", "grad")] == [("0", "grad", 0)]


def test_a_pass_that_fails_leaves_no_hooks() -> None:
    model = small()
    with Probed(model, every=1) as probed:
        with pytest.raises(RuntimeError):
            model(torch.rand(3, 7))
        assert hooks_of(model) == 1
        train(model, 1)
    assert ("5", "grad", 1) in probed.values()


def test_a_pass_that_is_interrupted_does_not_stop_the_count() -> None:
    model = small()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = model[3].register_forward_hook(interrupt)
    with Probed(model, every=1) as probed:
        with pytest.raises(KeyboardInterrupt):
            model(batch()[0])
        handle.remove()
        train(model, 2)
        assert probed.probes.step == 2
    assert hooks_of(model) == 0
    assert ("5", "output", 2) in probed.values()


def test_a_model_that_calls_itself_is_one_step() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
            x = self.linear(x)
            return self(x, depth - 1) if depth else x

    model = Deep()
    with Probed(model, what="output") as probed:
        model(torch.rand(1, 2))
        assert probed.probes.step == 0
    assert {key[0] for key in probed.values()} >= {"linear", "linear:2", "linear:3"}


def test_a_copy_of_a_watched_model_is_a_plain_one() -> None:
    model = small()
    with Probed(model) as probed:
        train(model, 1)
        twin = copy.deepcopy(model)
        twin(batch()[0])
        assert hooks_of(twin) == 0
        assert probed.probes.step == 0
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        loaded(batch()[0])
        assert hooks_of(loaded) == 0
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        assert torch.load(file, weights_only=True).keys() == model.state_dict().keys()
        torch.optim.swa_utils.AveragedModel(model)
        assert probed.probes.step == 0 and probed.problems == []


def test_an_output_with_our_hook_is_saved_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with Probed(model):
        torch.save(model(torch.rand(1, 2)), io.BytesIO())
    assert [str(one.message) for one in recwarn] == []


class Overwriting(nn.Module):
    """A batch norm whose output is overwritten at once, a linear layer whose output is overwritten much later."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.act = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True)
        self.skip, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        skip = self.skip(x)
        y = self.act(self.norm(self.first(x)))
        return self.last(skip.add_(y))


def test_values_that_are_taken_together_on_a_device_are_those_of_their_time() -> None:
    """Values of a GPU wait to be taken with others; one that is overwritten meanwhile is taken at once from then on."""
    sent: dict[bool, dict[Any, Any]] = {}
    for on_device in (False, True):
        torch.manual_seed(0)
        model = Overwriting()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with Probed(model) as probed:
            if on_device:
                probed.sender.limits.devices = frozenset({"cpu"})
            for _ in range(6):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
        assert probed.problems == []
        sent[on_device] = {
            (*one.key, one.sample.step): summarise(one) for one in probed.taken() if one.key[1] != "metric"
        }
    missing = {key[:2] for key in sent[False].keys() - sent[True].keys()}
    assert not missing and sent[True].keys() == sent[False].keys()
    for key, plain in sent[False].items():
        fetched = sent[True][key]
        assert (fetched.count, fetched.zeros, fetched.nans) == (plain.count, plain.zeros, plain.nans), key
        assert (fetched.minimum, fetched.maximum) == pytest.approx((plain.minimum, plain.maximum), rel=1e-6), key
        assert (fetched.mean, fetched.std) == pytest.approx((plain.mean, plain.std), rel=1e-4, abs=1e-7), key


def test_the_weights_of_a_step_and_their_updates_are_a_record_each() -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Probed(model, what=("weight", "update")) as probed:
        before = model[-1].weight.detach().clone()
        train(model, 1, optimizer=optimizer)
        records, take = [], probed.reader._reader.take
        probed.reader._reader.take = lambda: records.append(take()) or records[-1]  # type: ignore[method-assign]
        taken = [sent for sent in probed.taken() if sent.sample.variable != "metric"]
    counts = [record[2] for record in records if record is not None]
    parameters = len(list(model.parameters()))
    assert counts[:2] == [parameters, parameters] and len(taken) == 2 * parameters
    update = next(sent for sent in taken if sent.key == ("5.weight", "update"))
    assert np.array_equal(update.sample.array, (model[-1].weight.detach() - before).numpy())
