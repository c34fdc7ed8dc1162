"""Recording without structure: what modules return, for what hooks cost, and never a wrong value."""

import copy
import gc
import sys
import weakref
from collections import namedtuple
from typing import Any

import pytest
import torch
from models import TanhLoop
from torch import Tensor, nn

import torcheer as tl
from torcheer.errors import BadArgument, CannotReplay, UnknownLayer, ValueUnavailable, WrongInputs

X = torch.rand(3, 4)
Pair = namedtuple("Pair", "left right")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))


class Twice(nn.Module):
    """Calls a layer twice and returns what it computed in several containers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.split = nn.Linear(4, 4), Split()

    def forward(self, x: Tensor) -> Tensor:
        return self.split(self.inner(self.inner(x)))["pair"].left


class Split(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"pair": Pair(x + 1, x + 2), "list": [x + 3]}


def flat(model, layers, x=X, **options):
    return tl.log_forward_pass(model, x, layers_to_save=layers, structure=False, **options)


def test_values_are_those_of_a_full_capture_under_the_same_names():
    model = net()
    full, some = tl.log_forward_pass(model, X), flat(model, ["0", "2.1", "3"])
    assert [op.output_of[-1].address for op in some] == ["0", "2.1", "3"]
    for path in ("0", "2.1", "3"):
        assert torch.equal(some[path].tensor_contents, full[path].tensor_contents)
        assert some[path].outputs == full[path].outputs and some[path].grad_fn == full[path].grad_fn
    assert "structure: not recorded" in str(some) and some.find(nn.Linear).labels == ["linear_1_0", "linear_2_2"]
    assert some.modules["2.1"].outputs and list(some.to_pandas()["label"]) == some.layer_labels


def test_a_module_called_twice_has_two_passes_and_containers_several_values():
    model = Twice()
    history = flat(model, ["inner", "split"])
    full = tl.log_forward_pass(model, X)
    assert len(history["inner"]) == 2
    assert torch.equal(history["inner:2"].tensor_contents, full["inner:2"].tensor_contents)
    expected = model.split(model.inner(model.inner(X)))
    for value, other in zip(history["split"].tensor_contents, (*expected["pair"], *expected["list"]), strict=True):
        assert torch.equal(value, other)


def test_the_archive_keeps_it(tmp_path):
    history = flat(net(), ["0", "3"])
    history.save(tmp_path / "a")
    loaded = tl.load(tmp_path / "a")
    assert torch.equal(torch.as_tensor(loaded["3"].tensor_contents), history["3"].tensor_contents)
    with pytest.raises(BadArgument, match="nothing to draw: this history was recorded with structure=False"):
        loaded.draw()


def test_what_needs_operations_says_so(tmp_path):
    model, history = net(), flat(net(), "0")
    with pytest.raises(CannotReplay, match="structure=False"):
        tl.validate(history)
    with pytest.raises(BadArgument, match="nothing to draw"):
        tl.draw(history, tmp_path / "a.svg")
    with pytest.raises(BadArgument, match="edits needs the operations"):
        flat(model, "0", edits={"1": tl.edits.zero()})
    with pytest.raises(BadArgument, match="level='aten' needs the operations"):
        flat(model, "0", level="aten")
    with pytest.raises(BadArgument, match="vis_opt='rolled'"):
        flat(model, "0", vis_opt="rolled")
    with pytest.raises(BadArgument, match="give the model"), tl.recording(structure=False):
        pass


def test_wrong_layers_and_inputs_are_refused_by_name():
    with pytest.raises(BadArgument, match="cannot take an operation's label, 'relu_1': it follows modules"):
        flat(net(), "relu_1")
    with pytest.raises(UnknownLayer, match="Did you mean"):
        flat(Twice(), "iner")
    with pytest.raises(UnknownLayer, match=r"nothing among 6 modules matches 'Conv\*'"):
        flat(net(), "Conv*")
    with pytest.raises(WrongInputs, match="forward"):
        flat(net(), "0", (X, X, X))
    with pytest.raises(BadArgument, match="structure='no': give True, or False to record only"):
        tl.log_forward_pass(net(), X, layers_to_save="0", structure="no")


def test_a_module_that_was_not_called_is_named():
    model = net()
    model.spare = nn.Linear(2, 2)
    model.forward = lambda x: model[0](x)
    with pytest.raises(UnknownLayer, match="'spare' was not reached") as caught:
        flat(model, ["0", "spare"])
    assert len(caught.value.history) == 1


def test_a_value_that_is_overwritten_later_raises_and_is_kept_by_cloning():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    with torch.no_grad():
        history = flat(model, ["0", "1", "2"], X - 0.5)
        with pytest.raises(ValueUnavailable, match="wrote to it in place"):
            _ = history["0"].tensor_contents
        assert not history["0"].is_saved and history["1"].is_saved
        assert torch.equal(history["1"].tensor_contents, model[0](X - 0.5).relu())
        cloned = flat(model, tl.Save(["0"], guard="clone"), X - 0.5)
        assert torch.equal(cloned["0"].tensor_contents, model[0](X - 0.5))


def test_a_view_or_a_detached_value_that_is_overwritten_raises_too():
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).view(-1)[2:].zero_()

    for save in (["inner"], tl.Save(["inner"], detach=True)):
        with torch.no_grad(), pytest.raises(ValueUnavailable, match="wrote to it in place"):
            _ = flat(Views(), save)["inner"].tensor_contents


def test_under_inference_mode_values_are_copied_as_they_have_no_version():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with torch.inference_mode():
        history = flat(model, ["0"], X - 0.5)
        assert torch.equal(history["0"].tensor_contents, model[0](X - 0.5))


def test_every_form_of_save_works():
    model = net()
    plain = model[0](X)
    assert flat(model, tl.Save("0", dtype=torch.float64))["0"].tensor_contents.dtype is torch.float64
    assert flat(model, tl.Save("0", device="meta"))["0"].tensor_contents.is_meta
    assert torch.equal(flat(model, tl.Save("0", transform=lambda y: y.mean(0)))["0"].tensor_contents, plain.mean(0))
    assert not flat(model, tl.Save("0", detach=True))["0"].tensor_contents.requires_grad
    assert flat(model, tl.Save("0", dtype=torch.float64))["0"].dtype == "torch.float32", "what ran, not what is kept"


def test_stopping_early_runs_no_further_than_needed():
    ran = []
    model = net()
    model[3].register_forward_hook(lambda *_: ran.append(True))
    history = flat(model, tl.Save(["0", nn.ReLU], stop_early=True))
    assert not ran and "stopped early" in history.info.stopped and history["1"].is_saved


def test_gradients_reach_what_was_kept():
    model = net().train()
    history = flat(model, ["0"], save_gradients=True)
    output = model[3](model[2](model[1](history["0"].tensor_contents)))
    output.sum().backward()
    assert history["0"].grad_contents is not None and history["0"].grad_contents.shape == (3, 4)
    assert model[0].weight.grad is not None


def test_a_block_of_code_is_recorded_without_structure():
    model, seen = net(), []
    with tl.recording(model, layers_to_save="3", structure=False) as history:
        history.follow(lambda op: seen.append(op.index))
        model(X), model(X + 1)
    model(X)
    assert len(history) == 2 and seen == [0, 1]
    assert torch.equal(history["3:2"].tensor_contents, model(X + 1))


def test_an_error_brings_what_was_recorded_until_then():
    model = net()
    model.append(nn.Linear(9, 9))
    with pytest.raises(RuntimeError) as caught:
        flat(model, ["0", "3"])
    assert len(caught.value.history) == 2 and "RuntimeError" in caught.value.history.info.stopped
    assert not any(module._forward_hooks for module in model.modules())


def test_hooks_leave_no_trace_and_do_not_travel_with_copies():
    model = net()
    copies = []
    model[1].register_forward_hook(lambda *_: copies.append(copy.deepcopy(model[0])))
    with tl.recording(model, layers_to_save="0", structure=False) as history:
        model(X)
    copies[0](X)
    assert len(history) == 1
    assert not copies[0]._forward_hooks and not model[0]._forward_hooks


def test_checkpointing_does_not_record_a_pass_twice():
    from torch.utils.checkpoint import checkpoint

    model = net()
    with tl.recording(model, layers_to_save="0", structure=False) as history:
        checkpoint(model, X.clone().requires_grad_(), use_reentrant=False).sum().backward()
    assert len(history) == 1


def test_nothing_is_alive_once_the_history_is_dropped():
    gc.collect()
    gc.disable()
    try:
        for layers in (["0", "3"], tl.Save(["0"], detach=True)):
            history = flat(net(), layers)
            tensor = weakref.ref(history["0"].tensor_contents)
            del history
            assert tensor() is None
    finally:
        gc.enable()


def test_a_path_inside_wrappers_and_a_shared_module_are_found():
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    assert len(flat(model, "2")["2"]) == 2
    wrapped = nn.Sequential(torch.compile(net(), backend="eager"))
    assert len(flat(wrapped, "0")) == 1


def test_a_loop_over_one_layer_is_its_passes():
    history = flat(TanhLoop(), "all")
    assert {op.module for op in history} == {op.output_of[-1].address for op in history}


def test_less_structure_makes_no_more_python_calls_than_hooks_that_are_put_on_and_taken_off() -> None:
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(4, 4), nn.ReLU())]).eval()
    x, names = torch.rand(2, 4), [str(number) for number in range(16)]

    def hooks() -> None:
        kept: dict[str, Any] = {}

        def keep(name: str) -> Any:
            return lambda module, inputs, output: kept.update({name: output})

        handles = [module.register_forward_hook(keep(name)) for name, module in model.named_children()]
        model(x)
        for handle in handles:
            handle.remove()

    def count(function: Any) -> int:
        function()
        calls: list[str] = []
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        try:
            function()
        finally:
            sys.setprofile(None)
        return calls.count("call")

    with torch.no_grad():
        ours = count(lambda: tl.log_forward_pass(model, x, layers_to_save=names, structure=False))
        assert ours <= 1.1 * count(hooks)
