"""Run a model, or any code, under a recorder: what the verbs `log_forward_pass` and `recording` do."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.capture import process_groups
from torcheer.capture.capture_options import Requests
from torcheer.capture.error_facts import kept_bytes_by_module, operation, operation_name
from torcheer.capture.record import module_stack
from torcheer.capture.record.device_times import DeviceTimes, check_timing
from torcheer.capture.record.op_rows import LiveTrace
from torcheer.capture.record.partial_recorder import PartialRecorder
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.source_lines import capture_caller
from torcheer.capture.record.tensor_trees import Path, direct_tensors, replace_by_id, tensors_in
from torcheer.capture.special_cases.generator_forward import run_to_end
from torcheer.capture.torch_state import EAGER, Swaps, anything_compiled, dynamo_frames
from torcheer.capture.values.save_policy import Save, StopEarly
from torcheer.errors import BadArgument, NotAModel
from torcheer.history import ModelHistory
from torcheer.history.error_notes import explain
from torcheer.inputs import argument_places, call_arguments, check_arguments, unknown_keys
from torcheer.records import COMPILED_AS_EAGER
from torcheer.terminal import plural

if TYPE_CHECKING:
    from torcheer.capture.module_outputs import ModuleRecording


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What is recorded of a run, and how: the options that `log_forward_pass` and `recording` share."""

    layers_to_save: Any = "all"
    save_gradients: bool = False
    edits: Mapping[Any, Any] | None = None
    fused: bool = False
    level: str = "function"
    structure: bool = True  # False: only what modules return, without operations
    timing: str = "host"
    for_proof: bool = False  # keep also what only a replay needs, the weights that FSDP gathers

    def __post_init__(self) -> None:
        if not isinstance(self.structure, bool):
            raise BadArgument(f"structure={self.structure!r}: give True, or False to record only what modules return")
        if self.level not in ("function", "aten"):
            raise BadArgument(
                f"level={self.level!r}: 'function' records what the code calls, 'aten' also what runs below it"
            )
        for name, usual in (("edits", None), ("level", "function"), ("timing", "host")):
            value = getattr(self, name)
            if not self.structure and value and value != usual:
                shown = name if name == "edits" else f"{name}={value!r}"
                raise BadArgument(f"{shown} needs the operations of the run; structure=False records none of them")
        check_timing(self.timing)

    @property
    def save(self) -> Save:
        """Which values are saved, and in which form."""
        return self.layers_to_save if isinstance(self.layers_to_save, Save) else Save(self.layers_to_save)


def run_forward_pass(
    model: torch.nn.Module, inputs: Any, input_kwargs: Mapping[str, Any] | None, settings: CaptureSettings, *,
    seed: int | None = None,
) -> ModelHistory:  # fmt: skip
    """Run `model` once and return the history of every operation; without structure, what some modules returned."""
    check_model(model)
    args, kwargs = call_arguments(model, inputs, input_kwargs)
    if not settings.structure:
        return _log_modules(model, args, kwargs, settings, seed)
    session = _Session(model, settings)
    session.trace.seed = _set_seed(seed)
    recorder = session.recorder
    recorder.gathered_copies = {} if settings.for_proof else None
    with session.running():
        paths: list[Path] = []
        if not kwargs and set(map(type, args)) == {Tensor}:
            tensors, paths = list(args), [(0, position) for position in range(len(args))]
        else:
            tensors = _input_tensors(recorder, args, kwargs, paths)
        if len(tensors) > 1:
            recorder.given_at |= enumerate(argument_places(model, paths), recorder.count)
        refs = [recorder.add("input", tensor, []) for tensor in tensors]
        if recorder.edited:
            edited = {id(tensor): recorder.value(ref) for tensor, ref in zip(tensors, refs, strict=True)}
            args, kwargs = replace_by_id((args, kwargs), edited)
        try:
            with _no_collection, recorder:
                out = run_to_end(model(*args, **kwargs), recorder.run_notes)
        except Exception as error:
            _explain_arguments(error, model, args, kwargs, has_run=recorder.count > len(tensors))
            raise
        paths = []
        for tensor, path in zip(tensors_in(out, paths), paths, strict=True):
            ref = recorder.ref_of(tensor)  # may add a row, if nothing is known of it
            recorder.returned_at[recorder.count] = path
            recorder.add("output", tensor, [ref])
    return session.history


def _set_seed(seed: int | None) -> int | None:
    if seed is not None:
        if not isinstance(seed, int):
            raise BadArgument(f"seed={seed!r}: give a whole number, or None to leave the generators alone")
        torch.manual_seed(seed)
    return seed


def _explain_arguments(error: Exception, model: Any, args: Any, kwargs: Any, *, has_run: bool) -> None:
    """Raise WrongInputs where forward refused its arguments; else add what may be wrong with them to the error."""
    wrong = check_arguments(model, args, kwargs) if isinstance(error, TypeError) else None
    if wrong is not None and not has_run:
        raise wrong from error
    if hint := unknown_keys(model, args):
        explain(error, model, operation=operation, hint=hint)


def _module_recording(model: torch.nn.Module, settings: CaptureSettings) -> ModuleRecording:
    from torcheer.capture.module_outputs import ModuleRecording  # loads the tap, which other captures do without

    return ModuleRecording(model, settings.save, settings.save_gradients)


def _log_modules(
    model: torch.nn.Module, args: Any, kwargs: Any, settings: CaptureSettings, seed: int | None
) -> ModelHistory:
    """Run `model` once with a hook on each module asked for."""
    session = _module_recording(model, settings)
    session.trace.seed = _set_seed(seed)
    with session.running():
        try:
            run_to_end(model(*args, **kwargs), session.trace.run_notes)
        except Exception as error:
            _explain_arguments(error, model, args, kwargs, has_run=len(session.trace) > 0)
            raise
    return session.history


def _input_tensors(
    recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any], paths: list[Path]
) -> list[Tensor]:
    """Return the input tensors, without the model's own that an input object may hold; append where each stands."""
    direct, every = set(map(id, direct_tensors((args, kwargs)))), list[Path]()
    found = [
        (tensor, path)
        for tensor, path in zip(tensors_in((args, kwargs), every), every)
        if id(tensor) in direct or not recorder.is_stored(tensor)
    ]
    paths += [path for _, path in found]
    return [tensor for tensor, _ in found]


@contextmanager
def record_block(model: torch.nn.Module | None, settings: CaptureSettings) -> Iterator[ModelHistory]:
    """Record everything torch does inside the block."""
    if model is not None:
        check_model(model)
    if not settings.structure:
        if model is None:
            raise BadArgument("structure=False records what modules return: give the model, recording(model, …)")
        recorded = _module_recording(model, settings)
        with recorded.running():
            yield recorded.history
        return
    session = _Session(model, settings)
    session.recorder.inputs_from_call = True
    with session.running(), _rare_collection, session.recorder:
        yield session.history


class _Session:
    """One capture from start to end."""

    def __init__(self, model: Any, settings: CaptureSettings) -> None:
        save = settings.save
        self.recorder = (Recorder if save.is_plain else PartialRecorder)(model, settings.fused)
        self.trace = LiveTrace(self.recorder)
        self.trace.origin = capture_caller(sys._getframe(2))
        self.history = ModelHistory(self.trace)
        self.level = settings.level
        self.device_times = DeviceTimes(self.recorder) if settings.timing == "device" else None
        self.requests: Requests | None = None
        self.trace.on_follow = self._attach_reader
        if not save.is_plain or settings.save_gradients or settings.edits:
            self._attach_requests()
            assert self.requests is not None
            self.requests.read(save, settings.save_gradients, settings.edits)

    def _attach_requests(self) -> None:
        """Attach a handler that is called after each operation, once one is needed."""
        if self.requests is None:
            self.requests = Requests(self.recorder, self.trace, self.history)

    def _attach_reader(self) -> None:
        self._attach_requests()
        assert self.requests is not None
        self.requests.see_whole_rows()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record module calls; restore torch at the end, also after an exception."""
        started = perf_counter()
        module_stack.start(self.recorder)
        try:
            with ExitStack() as stack:
                begin = partial(stack.enter_context, _uncompiled(self.recorder))
                if "torch._dynamo" in sys.modules:  # compiled code runs as the eager program it was made from
                    begin()
                else:
                    self.recorder.on_compile = begin
                if self.level == "aten":
                    from torcheer.capture.special_cases.aten_level import aten_recording

                    stack.enter_context(aten_recording(self.recorder))
                if self.device_times is not None:
                    stack.enter_context(self.device_times)
                yield
                process_groups.flush_finished(self.recorder, ended=True)
        except StopEarly:
            self.trace.stopped = "stopped early, everything asked for was saved"
        except BaseException as error:
            if self.requests is not None:
                with suppress(Exception):
                    self.requests.finish_recent()
            self._explain(error)
            raise
        finally:
            module_stack.stop(self.recorder)
            self.recorder.memory.finish()
            if self.device_times is not None:
                self.recorder.device_secs = self.device_times.read()
            self.trace.elapsed_secs = perf_counter() - started
            self.trace.finish()
            self.trace.on_follow = _no_op
            self.recorder.on_compile = None
            recorder = self.recorder
            recorder.on_op = recorder.on_module = recorder.on_entry = recorder.wants_inside = (
                None  # no cycles: a dropped history frees all
            )
            if isinstance(recorder, PartialRecorder):
                recorder.on_row = recorder.holds = None
        if self.requests is not None:
            self.requests.finish()

    def _explain(self, error: BaseException) -> None:
        """Note the error in the history; add its location and the partial history to the exception."""
        name = operation_name(error)
        self.trace.stopped = f"{type(error).__name__}{f' in {name}' if name else ''}: {error}"
        with suppress(AttributeError, TypeError):  # exceptions that take no attributes
            error.history = self.history  # type: ignore[attr-defined]
        summary = f"error.history is the pass until then, {plural(self.recorder.count, 'operation')}"
        kept_bytes = partial(kept_bytes_by_module, self.trace)
        explain(error, self.recorder.model, operation=operation, bytes_by_module=kept_bytes, history=summary)


class _NoCollection:
    """The garbage collector, disabled during a forward pass.

    Rows are not garbage, and scanning them costs a third of the time.
    """

    def __init__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def remove(self) -> None:
        if self._was_on:  # else the user had disabled it
            gc.enable()


_no_collection = Swaps("pause the garbage collector", hooks=[_NoCollection])


class _RareCollection:
    """The garbage collector, run at fewer allocations while any code is recorded.

    Not disabled, as in a forward pass: a block may run for long, and its garbage must go. At torch's own pace a quarter
    of the time of a recorded `generate` went into looking at rows.
    """

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        if self._before[0]:  # 0: the user had disabled it
            self._raised = (max(self._before[0], ALLOCATIONS), *self._before[1:])
            gc.set_threshold(*self._raised)

    def remove(self) -> None:
        if self._before[0] and gc.get_threshold() == self._raised:  # else the user has set another
            gc.set_threshold(*self._before)


ALLOCATIONS = 25_000  # between two collections: those of about 5,000 operations
_rare_collection = Swaps("collect garbage rarely", hooks=[_RareCollection])


def _no_op() -> None:
    pass


def _compiled_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the compiled modules, in place or wrapped.

    Walks `_modules` itself: `model.modules()` would take ten times as long.
    """
    compiled: list[torch.nn.Module] = []
    stack: list[torch.nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        if module is not None:
            stack += module._modules.values()
            if module.__dict__.get("_compiled_call_impl") is not None or "_orig_mod" in module._modules:
                compiled.append(module)
    return compiled


@contextmanager
def _uncompiled(recorder: Recorder) -> Iterator[None]:
    """Run compiled functions and modules as their original Python."""
    model = recorder.model if anything_compiled() else None
    compiled = _compiled_modules(model) if model is not None else []
    calls = [module._compiled_call_impl for module in compiled]
    if compiled or dynamo_frames()["total"]:
        recorder.run_notes.append(COMPILED_AS_EAGER)
    with EAGER:
        for module in compiled:
            module._compiled_call_impl = None
        try:
            yield
        finally:
            for module, call in zip(compiled, calls, strict=True):
                module._compiled_call_impl = call


def check_model(model: Any) -> None:
    """Raise `NotAModel` for anything but a model, saying what to give."""
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise NotAModel(f"{model.__name__} is a class; give a model made from it: {model.__name__}(…)")
    if not isinstance(model, torch.nn.Module):
        hint = "; record a function with `with tl.recording() as history:`" if callable(model) else ""
        raise NotAModel(f"expected an nn.Module, got {type(model).__name__}{hint}")
