"""The operations of one pass of a model: its user's own next call, recorded, or an extra one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling

from torcheer.capture import log_forward_pass, recording
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.torch_state import function_modes, tracing_state
from torcheer.history import ModelHistory
from torcheer.models import unwrapped
from torcheer.records import Op
from torcheer.tap.compiled.compiled_parts import ORIGINAL
from torcheer.tap.compiled.preserved_state import PreservedState
from torcheer.tap.pass_counter import PassCounter
from torcheer.tap.probe_hooks import in_backward

_SHARDED = "FullyShardedDataParallel"


@dataclass(slots=True)
class ModelPass:
    """What ran in a pass, and what each module call returned."""

    ops: list[Op] = field(default_factory=list)
    # (address, call) -> the operations that made what it returned, and their places in that
    outputs: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if an input has no items: such a pass tells no shapes."""
        return any(0 in value.shape for op in self.ops if op.kind == "input" for value in op.outputs[:1])


def pass_of(history: ModelHistory) -> ModelPass:
    """The pass of a capture."""
    trace = history.trace
    outputs = {
        (run.call.address, run.call.call): {value.parent: int(value.where[0]) for value in reversed(run.outputs)}
        for run in trace.runs()
    }
    return ModelPass(list(trace.ops()), outputs)


def pass_of_models(history: ModelHistory, models: nn.Module) -> ModelPass:
    """The pass of a capture around the calls of several models, the parts of `models`.

    Other modules, such as a loss, are no part of the network; what the models are given from outside are inputs.
    """
    model_pass, names = pass_of(history), dict(models.named_children())
    inside: set[int] = set()  # what the models computed, or what was computed from it
    for op in model_pass.ops:
        if (op.modules[:1] and op.modules[0].address in names) or any(edge.parent in inside for edge in op.parents):
            inside.add(op.index)
    given = {value.parent for run in history.trace.runs() if run.call.address in names for value in run.inputs} - inside
    for place, op in enumerate(model_pass.ops):
        if op.index in given:
            model_pass.ops[place] = replace(op, kind="input", parents=(), modules=(), output_of=())
        elif not (op.modules[:1] and op.modules[0].address in names):
            model_pass.ops[place] = replace(op, modules=(), output_of=(), stored=())
    return model_pass


def run_once(model: nn.Module, inputs: Any, keywords: Any = None) -> ModelPass:
    """Capture an extra pass, in evaluation mode, that leaves no trace in the model."""
    with PreservedState(model).restored(), torch.no_grad():
        model.eval()
        return pass_of(log_forward_pass(unwrapped(model), inputs, input_kwargs=keywords, layers_to_save="none"))


def can_record(model: nn.Module) -> bool:
    """Whether a call of the model can be recorded: not one that is sharded, replicated or replaced by other code."""
    inner = unwrapped(model)
    if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
        return False
    if any(type(part).__name__ == _SHARDED for part in model.modules()):
        return False
    if any(hasattr(parameter, "_local_tensor") for parameter in inner.parameters()):
        return False
    if "torch._dynamo" in sys.modules and any(map(_calls_compiled, inner.modules())):
        return False  # a recording runs the eager program, whose last bits differ
    return PassCounter.fits(inner) and type(inner).forward is not nn.Module.forward


def _calls_compiled(module: nn.Module) -> bool:
    """Whether a module's forward may call a compiled function: one it holds, or one of its file."""
    forward = getattr(type(module), "forward", None)
    names, known = getattr(getattr(forward, "__code__", None), "co_names", ()), getattr(forward, "__globals__", {})
    functions = (*vars(module).values(), *(known.get(name) for name in names))
    return any(isinstance(value, FunctionType) and ORIGINAL in vars(value) for value in functions)


class RecordedCall(PassCounter):
    """Replaces a model's `forward` until its next call, which is recorded: no value changes or is kept.

    `done` is told the history, and returns False if the next call should be recorded too.
    """

    __slots__ = ("_done", "_is_idle")

    def __init__(self, model: nn.Module, done: Callable[[ModelHistory], bool]) -> None:
        unused: Any = None
        super().__init__(model, unused, unused)
        self._done, self._is_idle = done, True

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if not self._is_idle or is_dynamo_compiling() or in_backward() >= 0 or tracing_state() or _is_recording():
            return self.__wrapped__(*arguments, **keywords)
        self._is_idle, failure = False, None  # a recursive call is part of this one
        try:
            with recording(self._model, layers_to_save="none") as history:
                try:
                    out = type(self._model).forward(self._model, *arguments, **keywords)
                except BaseException as error:  # to a passing error a recording would add its history
                    failure = error
        finally:
            self._is_idle = True
        if failure is not None:
            raise failure
        if self._done(history):
            self.end()
        return out

    def end(self) -> None:
        """Restore the model's `forward`; where other code has wrapped it meanwhile, only pass calls on."""
        self._is_idle = False
        super().end()


def _is_recording() -> bool:
    return any(isinstance(mode, Recorder) for mode in function_modes())
