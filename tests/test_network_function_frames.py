"""Frames of functions: which operations belong to one call of a function."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from fake_trace import FakeTrace
from seams import paths_with_functions, walk
from torch import nn

import torcheer as tl
from torcheer.records import Source


def run(trace: FakeTrace, function: str, *instructions: int, **fields: Any) -> None:
    """Append an operation for each instruction of a function."""
    for at in instructions:
        trace.add("sin", source=Source("lib.py", at, function), site=("lib.py", function, at), **fields)


def frames(trace: FakeTrace) -> list[str]:
    """The frames around each operation, as text."""
    history = trace.history()
    paths = paths_with_functions(history.ops, history.info)
    return [" ".join(f"{call.address}:{call.call}" for call in paths.get(op.index, ())) for op in history.ops]


def test_operations_of_one_call_are_a_frame() -> None:
    trace = FakeTrace()
    run(trace, "Scheduler.step", 1, 2, 3)
    run(trace, "blend", 1, 2)
    assert frames(trace) == ["Scheduler.step:1"] * 3 + ["blend:1"] * 2


def test_a_single_operation_needs_no_frame() -> None:
    trace = FakeTrace()
    run(trace, "blend", 1)
    run(trace, "Scheduler.step", 1, 2)
    assert frames(trace) == ["", "Scheduler.step:1", "Scheduler.step:1"]


def test_neither_a_script_nor_a_forward_nor_the_function_that_records_is_a_frame() -> None:
    trace = FakeTrace()
    trace.facts["caller"] = "main"
    for function in ("<module>", "<lambda>", "main", "main.<locals>.<listcomp>", "UNet.forward", "forward"):
        run(trace, function, 1, 2)
    assert set(frames(trace)) == {""}


def test_a_function_that_goes_on_stands_around_what_it_called() -> None:
    trace = FakeTrace()
    run(trace, "outer", 1, 2)
    run(trace, "inner", 1, 2)
    run(trace, "outer", 3)
    run(trace, "after", 1, 2)
    assert frames(trace) == ["outer:1"] * 2 + ["outer:1 inner:1"] * 2 + ["outer:1"] + ["after:1"] * 2


def test_a_call_begins_at_its_first_instruction_and_a_loop_in_it_does_not_end_it() -> None:
    trace = FakeTrace()
    run(trace, "twice", 1, 2, 3)
    run(trace, "twice", 1, 2, 3)
    run(trace, "loop", 1, 2, 3, 2, 3, 2, 3)
    assert frames(trace) == ["twice:1"] * 3 + ["twice:2"] * 3 + ["loop:1"] * 7


def test_a_function_may_call_again_what_was_called_before_it() -> None:
    trace = FakeTrace()
    run(trace, "previous", 1, 2)
    run(trace, "step", 1, 2)
    run(trace, "previous", 1, 2)
    run(trace, "step", 3)
    assert frames(trace) == ["previous:1"] * 2 + ["step:1"] * 2 + ["step:1 previous:2"] * 2 + ["step:1"]


def test_a_comprehension_belongs_to_its_function_and_a_local_function_has_its_own_name() -> None:
    trace = FakeTrace()
    run(trace, "blend", 1)
    run(trace, "blend.<locals>.<listcomp>", 2, 2, 2)
    run(trace, "blend.<locals>.mix", 1, 2)
    assert frames(trace) == ["blend:1"] * 4 + ["mix:1"] * 2


def test_a_call_of_the_model_ends_all_frames() -> None:
    trace = FakeTrace()
    run(trace, "sample", 1, 2)
    run(trace, "UNet.forward", 1, root_call=1)
    run(trace, "sample", 3, 4)
    trace.linear("fc", 0)
    run(trace, "sample", 5, 6)
    assert frames(trace) == ["sample:1"] * 2 + [""] + ["sample:2"] * 2 + [""] + ["sample:3"] * 2


class Schedule:
    """What a scheduler does between two calls of a model, some of it by torch's own Python."""

    def step(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """The first operation is `__rsub__`, which torch calls from its own file."""
        scale = 1 - x.mean()
        rest = 1 - scale
        return self.mix(x, noise, scale, rest) * 2

    def mix(self, x: torch.Tensor, noise: torch.Tensor, scale: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return scale * x + rest * noise


def test_real_calls_are_told_apart_and_nested() -> None:
    model, schedule, x = nn.Linear(3, 3), Schedule(), torch.rand(2, 3)
    with tl.recording(model) as history:
        for _ in range(3):
            x = schedule.step(x, model(x)) + 1
    found = paths_with_functions(history.ops, history.info)
    outside = [op.index for op in history.ops if op.kind == "op" and not op.root_call]
    names = ["/".join(call.address for call in found.get(index, ())) for index in outside]
    step, mix = "Schedule.step", "Schedule.step/Schedule.mix"
    assert names == [*[step] * 3, *[mix] * 3, step, ""] * 3
    calls = [found[op.index][0].call for op in history.ops if op.index in found]
    assert calls[0] == 1 and calls[-1] == 3 and all(after - before in (0, 1) for before, after in pairwise(calls))


def paths(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    """The modules and functions around each operation of a pass, as text."""
    history = tl.log_forward_pass(model, inputs)
    found = paths_with_functions(history.ops, history.info)
    names = [[f"{call.address}:{call.call}" for call in found.get(op.index, op.modules)] for op in history.ops]
    return [" ".join(calls) for op, calls in zip(history.ops, names) if op.kind == "op"]


def rotate(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([-x[..., 2:], x[..., :2]], -1)


class Rotary(nn.Module):
    """Calls a function twice, a method with a module in it, and one that only reshapes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = x + rotate(x), x - rotate(x)
        return self.heads(self.mix(q, k)) * 2

    def mix(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.fc(q * k) + k)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).transpose(0, 1)


def test_functions_in_a_model_are_frames_with_the_modules_they_call() -> None:
    found = paths(Rotary(), torch.rand(2, 4))
    rotations = [*["rotate:1"] * 4, "", *["rotate:2"] * 4, ""]
    assert found == [*rotations, "mix:1", "mix:1 fc:1", "mix:1", "mix:1", "", "", ""]


def test_functions_in_a_submodule_are_frames_in_it_named_as_its_parts_are() -> None:
    found = paths(nn.Sequential(Rotary(), nn.ReLU(), Rotary()), torch.rand(2, 4))
    assert "0:1 0.mix:1 0.fc:1" in found and "2:1 2.rotate:2" in found and found.count("1:1") == 1


def test_a_function_that_does_all_that_its_module_does_is_no_frame() -> None:
    class Wrapped(Rotary):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self._forward(x)

        def _forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mix(x.exp() + 1, x) * 2

    mix = "Rotary.mix:1"  # of another class than the module's
    assert paths(Wrapped(), torch.rand(2, 4)) == ["", "", mix, f"{mix} fc:1", mix, mix, ""]


def test_equal_layers_with_functions_are_one_stack_and_their_modules_keep_their_addresses() -> None:
    drawing = tl.draw(nn.Sequential(*[Rotary() for _ in range(3)]), torch.rand(2, 4), depth=1)
    assert any(view.face.times == 3 for view, *_ in walk(drawing.picture.root, 0, 0))
    drawing = tl.draw(nn.Sequential(Rotary(), nn.ReLU()), torch.rand(2, 4), depth="all")
    addresses = {address for *_, address, _ in walk(drawing.picture.root, 0, 0)}
    assert {"0", "0.mix", "0.fc", "0.rotate:1"} <= addresses


def test_a_pass_of_a_model_has_no_frames() -> None:
    history = tl.log_forward_pass(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.rand(2, 3))
    assert paths_with_functions(history.ops, history.info) == {}
