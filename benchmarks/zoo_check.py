"""What the zoo asks of one model: the same numbers as a plain run, every operation replayed, nothing missed."""

from __future__ import annotations

import copy
import dataclasses
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torcheer
from torcheer.capture import torch_state
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.special_cases import aten_level
from torcheer.capture.values import byte_history, copy_on_write, value_copies, written_regions

PAIRS = 3  # plain and captured runs whose CPU times are compared


@dataclasses.dataclass
class Finding:
    """What came of one model in one mode: a row of docs/zoo.md."""

    family: str  # the package it comes from
    name: str
    mode: str  # "eval" or "train"
    ops: int = 0  # recorded operations, inputs and outputs included
    equal: int = 0  # those replayed bit for bit
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)  # reason -> operations that cannot be replayed
    unequal: list[str] = dataclasses.field(default_factory=list)
    dead_edges: list[str] = dataclasses.field(default_factory=list)
    outputs: str = ""  # "equal", or why not
    below: int = 0  # aten operations the witness saw that make or change a tensor
    questions: int = 0  # and those that only answer a question: item, equal, `5 in tensor`
    crossings: int = 0  # and those by which vmap hands its result out, which the history shows as an alias
    outside: dict[str, int] = dataclasses.field(default_factory=dict)  # aten operation -> seen outside any record
    ratio: float = 0.0  # CPU time of a capture over that of a plain run
    secs: float = 0.0
    problem: str = ""  # what went wrong with the capture or its examination
    absent: str = ""  # why there is no such model here: it cannot be built or run even without us

    @property
    def held(self) -> bool:
        """Whether everything that was asked held."""
        return not self.trouble

    @property
    def trouble(self) -> str:
        """What did not hold, or ""."""
        said = [self.absent, self.problem, *self.unequal[:3]]
        said += [f"parent does not matter: {edge}" for edge in self.dead_edges[:3]]
        said += [f"{count} {name} outside any record" for name, count in list(self.outside.items())[:3]]
        if self.outputs not in ("", "equal", DIFFERENT_EACH_TIME):
            said.append(self.outputs)
        return "; ".join(filter(None, said))


DIFFERENT_EACH_TIME = "two plain runs differ too"


def examine(found: Finding, model: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Finding:
    """Run a model plainly, captured and witnessed, and fill in what held."""
    started = time.perf_counter()
    trial = _Trial(model.train(found.mode == "train"), args, kwargs)
    try:
        plain, _ = trial.run(_plainly)
    except Exception as error:
        found.absent = f"does not run in this mode: {type(error).__name__}: {error}"[:300]
        return found
    _replay(found, trial, plain)
    _witness(found, trial)
    found.ratio = statistics.median(_capture_cost(trial) for _ in range(PAIRS))
    found.secs = time.perf_counter() - started
    return found


class _Trial:
    """A model that can be run again and again from the same state."""

    def __init__(self, model: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]  # batch norm moves its own

    def run(self, how: Callable[..., Any]) -> tuple[Any, float]:
        """Everything as at first, then one run; its result and CPU seconds."""
        with torch.no_grad():
            for buffer, value in self.buffers:
                buffer.copy_(value)
        args, kwargs = copy.deepcopy((self.args, self.kwargs))
        random.seed(0)
        numpy.random.seed(0)
        torch.manual_seed(0)
        with nullcontext() if self.model.training else torch.no_grad():
            before = time.process_time()
            result = how(self.model, args, kwargs)
            return result, time.process_time() - before


def _plainly(model: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    return model(*args, **kwargs)


def _captured(model: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> torcheer.ModelHistory:
    return torcheer.log_forward_pass(model, args, input_kwargs=kwargs)


def _capture_cost(trial: _Trial) -> float:
    plain, captured = (trial.run(how)[1] for how in (_plainly, _captured))
    return captured / max(plain, 1e-9)


# -- the same numbers, and every operation again -----------------------------------------------------------------------


def _replay(found: Finding, trial: _Trial, plain: Any) -> None:
    returned: list[Any] = []
    handle = trial.model.register_forward_hook(lambda model, given, result: returned.append(result))
    try:
        history, _ = trial.run(_captured)
    finally:
        handle.remove()
    report = history.validate()
    found.ops = report.ops
    found.equal = sum(verdict == "equal" for verdict in report.verdicts.values())
    reasons = [text.removeprefix("skipped: ") for text in (*report.skipped.values(), *report.unjudged.values())]
    found.skipped = dict(Counter(reasons))
    found.unequal = [f"{report.labels.get(index, index)} {text}" for index, text in report.failures.items()]
    found.dead_edges = list(report.dead_edges)
    found.outputs = _difference(plain, returned[-1])
    if found.outputs != "equal" and _difference(plain, trial.run(_plainly)[0]) != "equal":
        found.outputs = DIFFERENT_EACH_TIME


def _difference(plain: Any, captured: Any) -> str:
    one, two = list(tensors_in(plain)), list(tensors_in(captured))
    if len(one) != len(two):
        return f"{len(two)} tensors instead of {len(one)}"
    for place, (left, right) in enumerate(zip(one, two)):
        if left.shape != right.shape or left.dtype != right.dtype or not _same(left, right):
            return f"tensor {place} of the result differs"
    return "equal" if one else "no tensor in the result"


def _same(left: Tensor, right: Tensor) -> bool:
    if left.is_floating_point() or left.is_complex():
        return torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(), right.nan_to_num())
    return torch.equal(left, right)


def tensors_in(value: Any, met: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor of a result, also inside objects such as key-value caches."""
    met = set() if met is None else met
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, torch.nn.Module) or id(value) in met:
        return
    elif isinstance(value, (Mapping, list, tuple, set)) or hasattr(value, "__dict__"):
        met.add(id(value))
        inside = value.values() if isinstance(value, Mapping) else value
        for item in inside if isinstance(value, (Mapping, list, tuple, set)) else vars(value).values():
            yield from tensors_in(item, met)


# -- the witness -------------------------------------------------------------------------------------------------------


class Witness(TorchDispatchMode):
    """Notes what the dispatcher runs, and which call of the recorder's was running at that moment.

    It looks at the stack, not at the recorder's own bookkeeping: an operation is accounted for when a function that
    the recorder was calling ended in a row.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.seen: list[tuple[str, Any, int]] = []  # operation, the call it ran in or None, rows there were
        self.questions = 0  # `item`, `equal`, `5 in tensor`: the answer is no tensor
        self.crossings = 0  # vmap's way out

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            result = func(*args, **(kwargs or {}))
        frame = _nearest(sys._getframe(1))
        code = frame.f_code if frame is not None else None
        if code is not None and code.co_filename in KEEPING:
            return result  # a copy that the recorder makes to keep a value
        call = frame.f_locals["call"] if code in CALLING else None
        computes = func._schema.is_mutable or next(tensors_in(result), None) is not None
        if not computes or (call is not None and call.skip):
            self.questions += 1
        elif call is None and _leaves_vmap(sys._getframe(1)):
            self.crossings += 1
        else:
            self.seen.append((str(func), call, self.recorder.count))
        return result

    def outside(self) -> Counter[str]:
        """Operations that belong to no row."""
        calls = [self.recorder.row(node).call for node in range(self.recorder.count)]
        return Counter(
            name for name, call, count in self.seen if call is None or all(call is not row for row in calls[count:])
        )


# Where the recorder copies values, and what a write will replace.
KEEPING = {module.__file__ for module in (copy_on_write, value_copies, byte_history, written_regions)}
# Where the recorder calls functions.
CALLING = (Recorder.__torch_function__.__code__, Recorder._run_special.__code__, Recorder.record.__code__)
CAPTURE = copy_on_write.__file__.rsplit("/", 2)[0]  # the room
# What only hands a call on: a dispatch mode of its own, and what is replaced in torch.
BETWEEN = {aten_level.__file__, torch_state.__file__}


def _nearest(frame: Any) -> Any:
    """The innermost frame of the recorder's, of those that do not only hand a call on."""
    while frame is not None and (
        not frame.f_code.co_filename.startswith(CAPTURE)
        or frame.f_code.co_filename in BETWEEN
        or frame.f_code.co_name == "give_memory"  # in place of `Tensor.set_`
    ):
        frame = frame.f_back
    return frame


def _leaves_vmap(frame: Any) -> bool:
    """Whether torch's own vmap called this, through its compile-time wrappers."""
    while frame is not None and ("/torch/_dynamo/" in frame.f_code.co_filename or frame.f_code.co_name == "inner"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_remove_batch_dim"


def _witness(found: Finding, trial: _Trial) -> None:
    witness, _ = trial.run(_witnessed)
    found.below, found.questions, found.crossings = len(witness.seen), witness.questions, witness.crossings
    found.outside = dict(witness.outside())
    witness.recorder.modes.clear()  # the witness is one of them: a cycle, which would keep a whole history


def _witnessed(model: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Witness:
    with torcheer.recording(model) as history, Witness(history.trace.recorder) as witness:
        model(*args, **kwargs)
    return witness
