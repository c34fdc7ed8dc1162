"""Values of a pass, while somebody looks: the right ones, and no number of the model changes."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from host_viewer import ALL, Viewer
from models import SkipBlock
from seams import EACH_TRIAL, FOLDED, Every, Host, LayerProbes, PageFollower, PassCounter, Wants
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(title="probed") as made:
        yield made


def conv() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 10), nn.Linear(10, 3))


def follow(probing: LayerProbes, **settings: Any) -> PageFollower:
    return PageFollower(probing, settings.pop("boundary", lambda step, test: False), counters=dict, **settings)


X = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(2))


def looked_at(host: Host, model: nn.Module, wants: Wants = ALL, x: Any = X) -> tuple[Viewer, int, LayerProbes]:
    """One pass with its gradients, recorded."""
    viewer, probing = Viewer(host, wants), LayerProbes(model, host)
    assert not probing.begin(0) and model(x) is not None  # tells what the network is
    assert probing.begin(1, {"Step": 1})
    out = model(x)
    if isinstance(out, Tensor) and out.requires_grad:
        out.square().sum().backward()
    probing.finish()
    number = viewer.moments()[0]["id"]
    return viewer, number, probing


def test_activations_gradients_and_weights_are_those_of_the_pass(host: Host) -> None:
    model = conv()
    viewer, number, _ = looked_at(host, model)
    before = model[0](X)
    after = torch.relu(before)
    after.retain_grad()
    out = model[4](model[3](after.flatten(1)))
    out.square().sum().backward()
    values = {key[1:]: sample.array for key, sample in viewer.values.items()}
    assert np.array_equal(values["Input", "Act"], X.numpy())
    assert np.array_equal(values["0", "Net"], before.detach().numpy())  # although it was overwritten since
    assert np.array_equal(values["0", "Act"], after.detach().numpy())
    assert after.grad is not None and np.allclose(values["0", "Grad"], after.grad.numpy())
    assert np.array_equal(values["4", "Act"], out.detach().numpy())
    assert np.allclose(values["4", "Grad"], 2 * out.detach().numpy())
    assert np.array_equal(values["3.weight", "Wt"], model[3].weight.detach().numpy())
    assert {key[0] for key in viewer.values} == {number}
    assert viewer.moments()[0]["counters"] == {"Step": 1}


def test_of_weights_that_are_large_only_those_of_the_wanted_units_travel(host: Host) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1100, 1200), nn.Linear(1200, 3))  # 5 MB, and 14 kB
    wants = Wants(("Act",), weights=True, units=(("0", 7), ("Input", 11), ("1", 2)))
    viewer, _, _ = looked_at(host, model, wants, torch.rand(2, 1100))
    arrays = {key[1:]: sample.array for key, sample in viewer.values.items() if key[2].startswith("Wt")}
    assert set(arrays) == {("0.weight", "Wt[in:7]"), ("0.weight", "Wt[out:11]"), ("1.weight", "Wt")}
    weight = model[0].weight.detach().numpy()
    assert np.array_equal(arrays["0.weight", "Wt[in:7]"], weight[7])
    assert np.array_equal(arrays["0.weight", "Wt[out:11]"], weight[:, 11])


def test_the_kernels_of_a_large_convolution_are_those_of_the_units_map(host: Host) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(512, 512, 3, groups=2, padding=1), nn.Flatten(), nn.Linear(2048, 2))
    assert model[0].weight.nbytes > 4 << 20
    wants = Wants(("Act",), weights=True, units=(("0", 300 * 4 + 2), ("Input", 260 * 4)))
    viewer, _, _ = looked_at(host, model, wants, torch.rand(1, 512, 2, 2))
    arrays = {key[2]: sample.array for key, sample in viewer.values.items() if key[1] == "0.weight"}
    weight = model[0].weight.detach().numpy()
    assert np.array_equal(arrays["Wt[in:1202]"], weight[300])
    assert np.array_equal(arrays["Wt[out:1040]"], weight[256:, 4])  # the second group's maps, its fourth input


def test_each_head_of_attention_shows_what_it_looked_at(host: Host) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0)
    x = torch.rand(7, 3, 16)
    viewer, number, _ = looked_at(host, model, Wants(("Act",)), x)
    expected = model.self_attn(x, x, x, average_attn_weights=False)[1].detach().numpy()
    assert np.allclose(viewer.values[number, "self_attn.weights", "Act"].array, expected, atol=1e-6)
    assert viewer.values[number, "self_attn", "Act"].array.shape == (3, 7, 16)  # the batch first


@pytest.mark.parametrize("causal", [True, False])
def test_what_may_not_be_looked_at_is_not(host: Host, causal: bool) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1) if causal else None
            padding = torch.zeros(len(x), 5, dtype=torch.bool)
            padding[:, 4] = True
            out: Tensor = self.attention(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]
            return out

    torch.manual_seed(0)
    viewer, number, _ = looked_at(host, Masked(), Wants(("Act",)), torch.rand(2, 5, 8))
    found = viewer.values[number, "attention.weights", "Act"].array
    assert (found[..., 4] == 0).all() and np.allclose(found.sum(-1), 1)
    assert (found[:, :, 0, 1] == 0).all() == causal


def test_a_block_shows_what_it_returned_and_its_gradient(host: Host) -> None:
    model, x = nn.Sequential(SkipBlock(4), nn.Linear(4, 2)), torch.rand(3, 4)
    viewer, number, _ = looked_at(host, model, ALL, x)
    between = model[0](x).detach().requires_grad_()
    model[1](between).square().sum().backward()
    assert np.array_equal(viewer.values[number, "0", "Act"].array, between.detach().numpy())
    assert between.grad is not None
    assert np.array_equal(viewer.values[number, "0", "Grad"].array, between.grad.numpy())


def test_of_what_every_page_has_folded_nothing_is_copied(host: Host) -> None:
    viewer, _, _ = looked_at(host, SkipBlock(4), Wants(("Act", "Grad"), layers=("second",)), torch.rand(3, 4))
    assert {key[1] for key in viewer.values} == {"second", "Input"}
    absences = {(layer, variable): why for layer, variable, why in viewer.last("moment_came")["absences"]}
    assert absences["first", "Act"] == absences["first", "Grad"] == FOLDED


def test_several_models_are_one_network(host: Host) -> None:
    encoder, decoder = nn.Linear(4, 3), nn.Linear(3, 2)
    with Viewer(host, ALL) as viewer:
        probing = LayerProbes({"encoder": encoder, "decoder": decoder}, host)
        for step in range(2):
            probing.begin(step)
            decoder(torch.relu(encoder(torch.rand(5, 4)))).sum().backward()
            probing.finish()
        number = viewer.moments()[0]["id"]
        network = viewer.last("network_came")["network"]
        assert [layer["name"] for layer in network["layers"]] == ["Input", "encoder", "decoder"]
        assert [(one["name"], one["kind"]) for one in network["projections"]] == [
            ("encoder.weight", "linear"), ("decoder.weight", "linear"),
        ]  # fmt: skip
        assert {key[1:] for key in viewer.values if key[0] == number} >= {
            ("Input", "Act"), ("encoder", "Act"), ("decoder", "Act"), ("encoder", "Grad"), ("encoder.weight", "Wt"),
        }  # fmt: skip


def test_nothing_is_left_on_the_model_and_copies_do_without(host: Host) -> None:
    model = conv()
    viewer, probing = Viewer(host, ALL), LayerProbes(model, host)
    for step in range(2):
        probing.begin(step)
        model(X)
        copied = copy.deepcopy(model)
        again = pickle.loads(pickle.dumps(model))
        probing.finish()
        count = len(viewer.states())
        copied(X), again(X)
        assert len(viewer.states()) <= count + 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    viewer.close()


def test_a_module_whose_output_changes_its_length_is_cut_or_filled_and_described_again(host: Host) -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    viewer, number, probing = looked_at(host, model, Wants(("Act",)), torch.rand(2, 5, 4))
    for length in (3, 9):
        probing.begin(2)
        model(torch.rand(2, length, 4))
        probing.finish()
    viewer.moments(3)
    shapes = [sample.array.shape for key, sample in sorted(viewer.values.items()) if key[1] == "0"]
    assert shapes == [(2, 5, 3)] * 3
    assert np.isnan(viewer.values[number + 1, "0", "Act"].array[:, 3:]).all()


def test_an_empty_batch_tells_nothing_and_takes_no_layer_away(host: Host) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    probing = LayerProbes(model, host)
    for x in (torch.rand(0, 2, 2), torch.rand(2, 2, 2), torch.rand(0, 2, 2)):
        probing.begin(0)
        model(x)
        probing.finish()
    assert probing.is_described and probing.notes == []
    viewer, number, probing = looked_at(host, model, Wants(("Act",)), torch.rand(2, 2, 2))
    for x in (torch.rand(0, 4, 1), torch.rand(2, 2, 2)):
        probing.begin(2)
        model(x)
        probing.finish()
    viewer.moments(2)
    assert viewer.values[number + 2, "1", "Act"].array.shape == (2, 3) and probing.notes == []


# -- any loop --------------------------------------------------------------------------------------------------------


def train(model: nn.Module, steps: int, after: Callable[[int], Any] = lambda step: None) -> list[float]:
    torch.manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(X + 0.01 * torch.rand_like(X)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after(step)
    return losses


@pytest.mark.parametrize("wants", [None, Wants(("Act",)), ALL], ids=["nobody", "auto", "everything"])
def test_a_loop_computes_bit_for_bit_the_same_whoever_looks(host: Host, wants: Wants | None) -> None:
    expected = train(conv(), 60)
    model = conv()
    probing = LayerProbes(model, host)
    following = follow(probing)
    viewer = Viewer(host, wants)
    assert train(model, 60) == expected
    following.close()
    assert following.step == 59 and not probing.notes and not host.problems
    if wants is ALL:
        assert [one["step"] for one in viewer.moments(59)] == list(range(1, 60))  # the first one tells what there is
    assert not model._forward_pre_hooks and "forward" not in vars(model)


def test_steps_are_counted_though_nobody_looks_and_somebody_who_comes_is_seen(host: Host) -> None:
    model = conv()
    following = follow(LayerProbes(model, host))
    train(model, 300)
    assert following.step == 299
    with Viewer(host, ALL) as viewer:
        wait_until(lambda: (train(model, 20), viewer.states())[1], "a state")
        assert viewer.states()[0]["step"] > 299
    steps = following.step
    train(model, 200)
    assert following.step == steps + 200 and host.wants == Wants()
    following.close()


def test_passes_in_evaluation_mode_are_tests_and_paced_apart(host: Host) -> None:
    model = conv()
    following = follow(LayerProbes(model, host))
    train(model, 3)
    with Viewer(host, Wants(("Act",), train=Every("off"), test=EACH_TRIAL)) as viewer:
        train(model, 3)
        model.eval()
        assert following.step == 5
        with torch.no_grad():
            for _ in range(4):
                model(X)
        model.train()
        train(model, 1)
        assert [one["test"] for one in viewer.moments(4)] == [True] * 4 and following.step == 6
    following.close()


def test_a_test_of_a_single_pass_is_seen_though_steps_are_only_counted_meanwhile(host: Host) -> None:
    model, steps = conv(), 0
    following = follow(LayerProbes(model, host))
    with Viewer(host, Wants(("Act",), test=EACH_TRIAL)) as viewer:
        for tests in (1, 2):
            model.train()
            while (
                type(vars(model).get("forward")) is not PassCounter
            ):  # while that counts, nothing is to be done at a step
                train(model, 1)
                steps += 1
            model.eval()
            with torch.no_grad():
                expected = model(X)
            found = wait_until(
                lambda tests=tests: [one for one in viewer.states() if one["test"]][tests - 1 :], "a test"
            )
            assert len(found) == 1 and following.step == steps - 1
            assert np.array_equal(viewer.values[found[0]["id"], "4", "Act"].array, expected.numpy())
    following.close()
    assert not model._forward_hooks and not model._forward_pre_hooks and "forward" not in vars(model)


def test_a_model_that_only_ever_runs_in_evaluation_mode_has_steps_too(host: Host) -> None:
    model = conv().eval()
    following = follow(LayerProbes(model, host))
    with Viewer(host, Wants(("Act",), train=EACH_TRIAL)) as viewer, torch.no_grad():
        for _ in range(5):
            model(X)
        assert [one["step"] for one in viewer.moments(4)] == [1, 2, 3, 4]
    following.close()


def test_a_pass_that_fails_leaves_no_hook_and_the_next_is_looked_at(host: Host) -> None:
    model = conv()
    following = follow(LayerProbes(model, host))
    train(model, 2)
    with Viewer(host, ALL) as viewer:
        wait_until(lambda: (train(model, 1), viewer.states())[1], "it to be seen that somebody looks")
        for _ in range(3):
            with pytest.raises(RuntimeError):
                model(torch.rand(6, 2, 8, 8))
            assert not model[0]._forward_hooks
        failed = following.step
        train(model, 2)
        wait_until(lambda: any(one["step"] > failed for one in viewer.states()), "a later step")
    following.close()


def test_ctrl_c_in_a_pass_does_no_harm(host: Host) -> None:
    class Stops(nn.Module):
        on = False

        def forward(self, x: Tensor) -> Tensor:
            if self.on:
                raise KeyboardInterrupt
            return x

    stops = Stops()
    model = nn.Sequential(*conv(), stops)
    following = follow(LayerProbes(model, host))
    train(model, 2)
    with Viewer(host, ALL) as viewer:
        wait_until(lambda: (train(model, 1), viewer.states())[1], "it to be seen that somebody looks")
        stops.on = True
        with pytest.raises(KeyboardInterrupt):
            model(X)
        stops.on, stopped = False, following.step
        train(model, 3)
        wait_until(lambda: [one["step"] for one in viewer.states()][-1:] >= [stopped + 2], "the steps after it")
    following.close()
    assert not any(module._forward_hooks for module in model.modules())


class Wrapped(nn.Module):
    """Recomputes a part of itself in the backward pass, and calls a part twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.first, x, use_reentrant=False)
        return self.second(self.second(y))


def test_recomputed_and_repeated_modules_are_recorded_once_each(host: Host) -> None:
    model = Wrapped()
    following = follow(LayerProbes(model, host))
    with Viewer(host, ALL) as viewer:
        for _ in range(3):
            model(torch.rand(2, 4)).sum().backward()
        following.close()
        number = viewer.moments(2)[0]["id"]
        found = sorted(key[1:] for key in viewer.values if key[0] == number and key[2] in ("Act", "Grad"))
        assert found == [(layer, variable) for layer in ("Input", "first", "second", "second:2")
                         for variable in ("Act", "Grad") if (layer, variable) != ("Input", "Grad")]  # fmt: skip


def test_inside_compiled_code_the_values_are_those_of_the_eager_program_which_is_said_once(host: Host) -> None:
    model = torch.compile(conv(), backend="eager")
    assert isinstance(model, nn.Module)
    probing = LayerProbes(model, host)
    following = follow(probing)
    with Viewer(host, ALL) as viewer:
        for _ in range(4):
            model(X).sum().backward()
        following.close()
        assert sum("compiled code" in note for note in probing.notes) == 1
        layers = {layer["name"] for layer in viewer.last("network_came")["network"]["layers"]}
        wait_until(lambda: any(key[2] == "Wt" for key in (viewer.hear(), viewer.values)[1]), "weights")
        number = viewer.moments(2)[0]["id"]
        for variable, shown in (("Act", layers), ("Grad", layers - {"Input"})):
            assert {key[1] for key in viewer.values if key[0] == number and key[2] == variable} == shown


def test_a_lightning_like_module_counts_the_steps_of_its_optimizer(host: Host) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, x: Tensor) -> Tensor:
            return self.net(x).sum() + self.net(2 * x).sum()

    model = Module()
    following, optimizer = follow(LayerProbes(model, host)), torch.optim.SGD(model.parameters(), 0.1)
    with Viewer(host, ALL) as viewer:
        for _ in range(4):
            optimizer.zero_grad()
            model.training_step(torch.rand(3, 4)).backward()
            optimizer.step()
        following.close()
        assert [one["step"] for one in viewer.moments(3)] == [1, 2, 3] and following.step == 3


def test_a_loop_that_numbers_its_steps_is_believed(host: Host) -> None:
    model, numbers = conv(), iter(range(100, 1000, 10))
    following = follow(LayerProbes(model, host), step_of=lambda: next(numbers))
    with Viewer(host, ALL) as viewer:
        train(model, 3)
        following.close()
        assert [one["step"] for one in viewer.moments(2)] == [110, 120]


class Waits(dict[str, Tensor]):
    """An output that takes its time, as everything does on a busy machine."""

    def items(self) -> Any:
        time.sleep(0.3)
        return super().items()


class Waiting(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        return Waits(out=super().forward(x))


@pytest.mark.timing
def test_a_state_costs_its_work_and_no_waiting(host: Host) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Waiting(4, 4))
    viewer, _, probing = looked_at(host, model, Wants(("Act",), train=EACH_TRIAL), torch.rand(2, 4))
    began = time.monotonic()
    assert probing.begin(2)
    model(torch.rand(2, 4))
    secs, waited = probing.finish(), time.monotonic() - began
    assert viewer.moments(2) and secs < 0.2 < waited  # or the next would be due in half a minute


@pytest.mark.timing
def test_automatic_recording_keeps_to_its_share_of_the_time(host: Host) -> None:
    model = conv()
    probing = LayerProbes(model, host)
    spent: list[float] = []
    finish = probing.finish
    probing.finish = lambda: spent.append(finish()) or spent[-1]  # type: ignore[method-assign, func-returns-value]
    following = follow(probing)
    with Viewer(host, Wants(("Act", "Grad"), weights=True)) as viewer:
        wait_until(lambda: (train(model, 1), viewer.states())[1], "it to be seen that somebody looks")
        spent.clear()
        began = time.monotonic()
        while time.monotonic() - began < 1.0 or len(viewer.states()) < 5:
            train(model, 5, lambda step: viewer.hear())
            assert time.monotonic() - began < 60
        taken = time.monotonic() - began
        following.close()
        assert sum(spent) <= 0.02 * taken + 2 * max(spent)


def test_the_parameters_of_an_inspected_layer_travel_with_their_gradients(host: Host) -> None:
    model = conv()
    viewer, _, _ = looked_at(host, model, Wants(("Act",), inspected=("0",)))
    arrays = {key[1:]: sample.array for key, sample in viewer.values.items() if key[2] in ("Wt", "WtGrad")}
    assert set(arrays) == {(f"0.{name}", variable) for name in ("weight", "bias") for variable in ("Wt", "WtGrad")}
    for name, parameter in model[0].named_parameters():
        assert np.array_equal(arrays[f"0.{name}", "Wt"], parameter.detach().numpy())
        assert parameter.grad is not None and np.allclose(arrays[f"0.{name}", "WtGrad"], parameter.grad.numpy())
        assert not parameter._backward_hooks  # none stays


def test_a_parameter_too_large_for_a_live_page_says_where_it_can_be_seen(host: Host) -> None:
    model = nn.Sequential(nn.Linear(1100, 1200), nn.Linear(1200, 3))  # 5 MB
    viewer, _, _ = looked_at(host, model, Wants(("Act",), inspected=("0",)), torch.rand(2, 1100))
    assert ("0.weight", "Wt") not in {key[1:] for key in viewer.values} and viewer.moments()
    reasons = {(layer, variable): why for layer, variable, why in viewer.last("moment_came")["absences"]}
    assert "tl.show(model, inputs), has all of it" in reasons["0.weight", "Wt"]
