"""Loops that a watch once misread without a word: several optimizers, passes run again, numbers that start anew."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import Schedule, choose, schedule_of
from torch import nn
from torch.utils.checkpoint import checkpoint
from watch_checks import Probed, hooks_of

import torcheer as tl
from torcheer.inspector import Every, Transport

X = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], 0.1)


def learn(model: Callable[[torch.Tensor], torch.Tensor], *optimizers: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        model(X.clone().requires_grad_()).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def steps_of(probed: Probed, layer: str, variable: str) -> list[int]:
    return [sent.sample.step for sent in probed.taken() if sent.key == (layer, variable)]


# -- optimizers


def test_each_of_two_optimizers_shows_the_gradients_of_its_weights() -> None:
    model = chain()
    with Probed(model, what=("weight_grad", "update")) as probed:
        learn(model, sgd(model[0]), sgd(model[2]))
    for layer in ("0.weight", "2.weight"):
        assert steps_of(probed, layer, "weight_grad") == steps_of(probed, layer, "update") == [0, 1, 2]


def test_layers_without_weights_are_watched_at_every_step_of_the_optimizer() -> None:
    model = chain()
    optimizer = sgd(model)
    with Probed(model, layers="1", optimizer=optimizer) as probed:
        learn(model, optimizer)
    assert steps_of(probed, "1", "output") == steps_of(probed, "1", "grad") == [0, 1, 2]


def test_one_optimizer_counts_the_steps_and_the_updates_of_all_are_seen() -> None:
    both = nn.ModuleDict({"generator": nn.Linear(4, 4), "critic": nn.Linear(4, 1)})
    first, second = sgd(both["generator"]), sgd(both["critic"])
    with Probed(both, what="update", optimizer=first) as probed:
        for _ in range(3):
            learn(both["critic"], second, steps=1)
            learn(lambda x: both["critic"](both["generator"](x)), first, steps=1)
            second.zero_grad()
    assert steps_of(probed, "critic.weight", "update") == [0, 1, 2]
    assert steps_of(probed, "generator.weight", "update") == [0, 1, 2]


def test_an_optimizer_of_other_weights_counts_where_it_was_asked_to() -> None:
    model = chain()
    optimizer = sgd(nn.Linear(2, 2))
    with Probed(model, what="output", optimizer=optimizer) as probed:
        learn(model, optimizer)
    assert steps_of(probed, "2", "output") == [0, 1, 2]
    assert hooks_of(model) == 0 and not optimizer._optimizer_step_pre_hooks


def test_an_update_is_of_the_last_watched_pass_before_it() -> None:
    model = chain()
    optimizer = sgd(model)
    with Probed(model, what=("weight_grad", "update")) as probed:
        with torch.no_grad():
            model(X)  # no step follows this one
        for _ in range(2):
            model(X).sum().backward()
            learn(model, optimizer, steps=1)
    assert steps_of(probed, "0.weight", "update") == steps_of(probed, "0.weight", "weight_grad") == [2, 4]


def test_the_passes_of_a_closure_are_one_update_the_first_time_too() -> None:
    model = chain()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(X).square().sum()
        loss.backward()
        return loss

    with Probed(model, what="update") as probed:
        before = model[0].weight.detach().clone()
        optimizer.step(closure)
        after = model[0].weight.detach().clone()
    assert np.allclose(probed.values()["0.weight", "update", 0], after - before)
    assert steps_of(probed, "0.weight", "update") == [0]


class Halving(torch.optim.SGD):
    """Does more after the step that it is made of."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.mul_(0.5)


class Around(torch.optim.Optimizer):
    """Does more after the step of another."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.mul_(0.5)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("make", [lambda model: Halving(model.parameters(), 0.1), lambda model: Around(sgd(model))])
def test_an_update_is_all_that_an_optimizer_does_around_another(make: Any, given: bool) -> None:
    model = chain()
    optimizer = make(model)
    with Probed(model, what="update", optimizer=optimizer if given else None) as probed:
        before = model[0].weight.detach().clone()
        learn(model, optimizer, steps=1)
        after = model[0].weight.detach().clone()
        learn(model, optimizer, steps=1)
    assert np.allclose(probed.values()["0.weight", "update", 0], after - before)
    assert steps_of(probed, "0.weight", "update") == [0, 1]


def test_gradients_that_were_cleared_by_hand_are_told_and_not_sent_as_zeros() -> None:
    model = chain()
    with Probed(model, what=("weight_grad", "update")) as probed:
        for _ in range(2):
            model(X).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad.zero_()
    assert steps_of(probed, "0.weight", "update") == [0, 1]
    assert not steps_of(probed, "0.weight", "weight_grad")
    assert "gone before they can be looked at" in probed.problems[0]


# -- passes


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_model_that_is_checkpointed_as_a_whole_takes_one_step_at_a_time(reentrant: bool) -> None:
    model = chain()
    optimizer = sgd(model)
    with Probed(model) as probed:
        learn(lambda x: checkpoint(model, x, use_reentrant=reentrant), optimizer)
    assert probed.probes.step == 2
    assert steps_of(probed, "0", "output") == steps_of(probed, "0.weight", "update") == [0, 1, 2]


def test_parts_that_are_called_one_by_one_are_not_seen_again_in_the_backward_pass() -> None:
    parts = nn.ModuleDict({"body": chain(), "head": nn.Linear(3, 1)})
    optimizer = sgd(parts)
    with Probed(parts, what="output") as probed:
        learn(lambda x: parts["head"](checkpoint(parts["body"], x, use_reentrant=False)), optimizer)
    assert {sent.key[0] for sent in probed.taken()} >= {"body.0", "head"}
    assert not [sent.key for sent in probed.taken() if ":" in sent.key[0]]


def test_gradients_that_a_checkpoint_hides_are_told() -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = chain(), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.body, x, use_reentrant=True))  # type: ignore[no-any-return]

    model = Saving()
    with Probed(model) as probed:
        learn(model, sgd(model), steps=1)
    assert not steps_of(probed, "body.0", "grad") and steps_of(probed, "head", "grad") == [0]
    assert probed.problems == [
        "body.0 runs without gradients inside the model (checkpoint with use_reentrant=True, or no_grad): "
        "its own are not seen; use_reentrant=False shows them"
    ]


def test_a_frozen_part_without_gradients_is_nothing_to_tell() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = chain().requires_grad_(False), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                x = self.body(x)
            return self.head(x)  # type: ignore[no-any-return]

    model = Frozen()
    with Probed(model) as probed:
        learn(model, sgd(model.head), steps=1)
    assert not probed.problems


@pytest.mark.parametrize("every", [1, 3])
def test_a_model_that_comes_in_eval_mode_has_its_validation_left_out_once_it_trains(every: int) -> None:
    model = chain().eval()  # as `from_pretrained` returns it
    optimizer = sgd(model)
    with Probed(model, every=every) as probed:
        for _ in range(4):
            model.train()
            learn(model, optimizer, steps=2)
            model.eval()
            with torch.no_grad():
                model(X)
    assert probed.probes.step == 7
    assert steps_of(probed, "0", "output") == steps_of(probed, "0.weight", "update") == list(range(0, 8, every))


# -- numbers


def test_steps_that_are_numbered_anew_in_every_epoch_are_watched_in_every_epoch() -> None:
    model, place = chain(), [0]
    optimizer = sgd(model)
    with Probed(model, what="output", every=2, step_of=lambda: place[0]) as probed:
        for _ in range(2):
            for place[0] in range(5):
                learn(model, optimizer, steps=1)
    assert steps_of(probed, "0", "output") == [0, 2, 4, 0, 2, 4]


def test_a_schedule_that_begins_anew_keeps_its_bounds() -> None:
    schedule = schedule_of(Every(steps=2, start=3, end=7))
    once = [step for step in range(9) if schedule.due(step, 0.0)]
    again = [step for step in range(9) if schedule.due(step, 0.0)]
    assert once == again == [4, 6]


def test_where_numbers_are_skipped_the_first_of_each_span_is_due() -> None:
    def due(steps: range, after: int | None = None, **every: Any) -> list[int]:
        schedule = Schedule(Every(10, **every), after)
        return [step for step in steps if schedule.due(step, float(step))]

    assert due(range(1, 60, 2)) == [11, 21, 31, 41, 51] and due(range(3, 40)) == [10, 20, 30]
    assert due(range(1, 60, 2), after=-1) == [1, 11, 21, 31, 41, 51], "a run that is captured from its first step on"
    assert due(range(25, 60, 2), after=21) == [31, 41, 51], "one that goes on before what the archive has"
    assert due(range(43, 60, 2), after=21) == [43, 51], "one that goes on behind it"
    assert due(range(1, 60, 2), secs=1.0) == [], "with seconds only multiples are"


def test_a_block_of_a_closed_watch_says_that_it_sees_nothing() -> None:
    model = chain()
    with tl.watch(model, every=1, transport=Transport(bytes=1 << 20)) as w:
        learn(model, sgd(model), steps=1)
    with pytest.warns(RuntimeWarning, match="closed before this block and looks at nothing in it"), w:
        learn(model, sgd(model), steps=1)
    w.close()
    assert len(w.problems) == 1


# -- names and modules


def test_a_part_that_is_called_like_the_models_class_is_watched_beside_it() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.Net, self.scale = nn.Linear(4, 3), nn.Parameter(torch.full((3,), 2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.Net(x) * self.scale  # type: ignore[no-any-return]

    model = Net()
    with Probed(model, what="output") as probed:
        learn(model, sgd(model), steps=1)
    found = probed.values()
    assert np.allclose(found["(Net)", "output", 0], 2 * found["Net", "output", 0])


def test_what_a_module_returns_is_not_mixed_up_with_its_parts() -> None:
    class Pair(nn.Sequential):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
            y = self[0](x)
            return y + 1, self[1](y)

    model = nn.Sequential(Pair(nn.Linear(4, 3), nn.ReLU()))
    with Probed(model, layers=["0", "0.*"], what="output") as probed:
        model(X)
    found = probed.values()
    assert {key[0] for key in found} == {"0.0", "0.1", "0[0]", "0[1]"}
    assert np.allclose(found["0[0]", "output", 0], found["0.0", "output", 0] + 1)


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_part_takes_no_hooks_and_the_rest_is_watched() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 3))
    with Probed(model) as probed:
        learn(model, sgd(model))
    assert steps_of(probed, "1", "output") == steps_of(probed, "0.weight", "update") == [0, 1, 2]
    assert not steps_of(probed, "0", "output") and not probed.problems
    assert choose(model).hidden_modules == ("0",)  # which the watch tells


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_model_is_watched_by_its_weights() -> None:
    model = torch.jit.script(chain())
    with Probed(model) as probed:
        learn(model, sgd(model))
    assert steps_of(probed, "0.weight", "weight") == steps_of(probed, "0.weight", "update") == [0, 1, 2]


def test_a_module_that_refuses_its_hook_is_left_out_alone() -> None:
    class Shy(nn.ReLU):
        def register_forward_hook(self, *_: Any, **__: Any) -> Any:
            raise TypeError("no hooks here")

    model = nn.Sequential(nn.Linear(4, 3), Shy())
    with Probed(model) as probed:
        learn(model, sgd(model))
    assert steps_of(probed, "0", "output") == steps_of(probed, "0.weight", "update") == [0, 1, 2]
    assert probed.problems == ["1 is no longer watched: TypeError: no hooks here"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_process_without_its_standard_streams_has_its_child(tmp_path: Path, closed: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
from pathlib import Path
from torcheer.monitor.child_link import Link
from torcheer.monitor.child_plan import Plan
link = Link(Plan(statistics=False), ring_bytes=1 << 20)
about = {{"layer": "a", "variable": "b", "item": -1, "type": "uint8", "shape": [0], "step": 0}}
link.ring.offer(about, 0, lambda view: None)
account = link.stop(20.0)
Path({str(tmp_path / "account")!r}).write_text(f"{{account.handled}} {{account.restarts}}")
""")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180)
    assert done.stderr == "" and (tmp_path / "account").read_text() == "1 0"


def test_a_layer_that_is_replaced_is_told_and_its_old_numbers_are_not_sent_on() -> None:
    model = chain()
    with Probed(model) as probed:
        learn(model, sgd(model), steps=2)
        model[2] = nn.Linear(8, 3)
        learn(model, sgd(model), steps=2)
    assert steps_of(probed, "2", "output") == steps_of(probed, "2.weight", "weight") == [0, 1]
    assert steps_of(probed, "0", "output") == steps_of(probed, "0.weight", "update") == [0, 1, 2, 3]
    assert probed.problems == [
        "2, 2.weight, 2.bias: no longer part of the model; what is there instead is not watched. Begin another watch"
    ]


def test_a_weight_that_is_replaced_is_told_and_its_old_numbers_are_not_sent_on() -> None:
    model = chain()
    with Probed(model) as probed:
        learn(model, sgd(model), steps=2)
        model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)
        learn(model, sgd(model), steps=3)
    assert steps_of(probed, "2.weight", "weight") == [0, 1, 2] and steps_of(probed, "2.weight", "update") == [0, 1]
    assert steps_of(probed, "2", "output") == [0, 1, 2, 3, 4]
    (told,) = probed.problems
    assert told.startswith("0.weight, 0.bias, 2.weight, …: no longer part of the model; what is there instead is not")


@pytest.mark.parametrize("kind", [lambda one: one, nn.Parameter], ids=["tensors", "parameters"])
def test_a_pass_with_other_parameters_for_once_is_no_replacement(kind: Any) -> None:
    model = chain()
    other = {name: kind(torch.zeros_like(parameter)) for name, parameter in model.named_parameters()}
    with Probed(model) as probed:
        torch.func.functional_call(model, other, X)
        learn(model, sgd(model), steps=2)
    assert steps_of(probed, "2.weight", "weight") == [0, 1, 2] and not probed.problems
    assert steps_of(probed, "2.weight", "update") == [1, 2]
