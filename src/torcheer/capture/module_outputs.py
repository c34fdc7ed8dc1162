"""Recording without structure: what some modules return, by a hook on each, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torcheer.capture.error_facts import operation
from torcheer.capture.record.model_names import ModelNames
from torcheer.capture.record.released_values import CELLS, add_facts, read_grad_fn, read_meta
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import DisableTorchFunction, anything_compiled, version_of
from torcheer.capture.values.memory_layout import is_empty, is_freed, unwrap
from torcheer.capture.values.save_policy import Save, StopEarly
from torcheer.capture.values.saved_gradients import GradientLog
from torcheer.capture.values.value_copies import copy_of, graph_copy
from torcheer.capture.values.value_forms import has_form, in_form
from torcheer.errors import UnknownLayer, ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.history.error_notes import explain
from torcheer.history.trace_protocol import Trace
from torcheer.models import ModulePaths
from torcheer.records import NO_STRUCTURE, Argument, ModuleCall, ModuleRun, Op, RunInfo
from torcheer.selection import keys_of, parse
from torcheer.tap.compiled.compiled_calls import CompiledCall, PartsInside
from torcheer.tap.compiled.gradient_edges import note_edge
from torcheer.tap.module_selection import matching_modules
from torcheer.tap.probe_hooks import ProbeHook, in_backward
from torcheer.terminal import first_names, plural

VERB = "layers_to_save (structure=False)"
_WORDS = ("all", "none")  # never paths
WRITTEN = (
    "a later operation wrote to it in place; tl.Save(guard='clone') keeps copies, and with structure=True a value is "
    "copied before it is overwritten"
)


BESIDE = (
    "layers inside compiled code are those of the eager program, run beside it: last bits and random numbers (dropout) "
    "are its own"
)


class ModuleOutputs(Trace):
    """The `Trace` of a recording without structure: one op for each call of a module that was asked for."""

    def __init__(self, model: torch.nn.Module, save: Save) -> None:
        self.model, self.save = model, save
        self.seed: int | None = None
        self.elapsed_secs = 0.0
        self.stopped = ""
        self.mode = "train" if model.training else "eval"
        self.run_notes: list[str] = [NO_STRUCTURE]
        self.gradient_log: GradientLog | None = None
        self._by_reference = not save.alters and not save.detach and save.guard == "write"
        self._calls: list[Any] = []  # of each call: path, number and class of the module, the first of its tensors
        # Of each tensor: its value, torch's version counter when it was taken (-1 of a copy), and the event after which
        # a copy may be read.
        self._kept: list[tuple[Any, int, Any]] = []
        self._facts: list[Any] = []  # of the same tensors, as they were returned
        self._ops: list[Op] = []
        self._names: ModelNames | None = None
        self._readers: list[Callable[[Op], object]] = []

    def take(self, path: str, number: int, module: torch.nn.Module, value: Any) -> None:
        """Keep what a call of a module returned."""
        kept = self._kept
        self._calls += (path, number, type(module), len(kept))
        if type(value) is Tensor and self._by_reference and self.gradient_log is None and not self._readers:
            try:
                version, grad = value._version, value.requires_grad and type(value.grad_fn)
                self._facts += (None, value.shape, value.dtype, value.device, grad)
                kept.append((value, version, None))
                return
            except Exception:  # no plain tensor
                pass
        for tensor in (value,) if type(value) is Tensor else leaves(value):
            add_facts(self._facts, tensor)
            if self._by_reference and not tensor.is_inference():
                kept.append((tensor, version_of(tensor), None))
            else:
                with DisableTorchFunction():  # not part of what another recording sees
                    kept.append(self._in_form(tensor))
            if self.gradient_log is not None:
                self.gradient_log.hook(tensor, len(kept) - 1)
                note_edge(tensor)
        for reader in self._readers:
            reader(self.ops()[-1])

    def _in_form(self, tensor: Tensor) -> tuple[Any, int, Any]:
        save = self.save
        if save.alters and not has_form(save, tensor):
            value, event = in_form(save, tensor)
            return value, -1, event
        if save.guard == "clone" or tensor.is_inference():  # which has no version: a write would go unnoticed
            return copy_of(tensor) if save.detach else graph_copy(tensor), -1, None
        return tensor.detach() if save.detach else tensor, version_of(tensor), None

    def _places(self, index: int) -> range:
        """Return the places in `_kept` of what a call returned."""
        start = 4 * index + 3
        end = self._calls[start + 4] if start + 4 < len(self._calls) else len(self._kept)
        return range(self._calls[start], end)

    def __len__(self) -> int:
        return len(self._calls) // 4

    # -- the Trace protocol ------------------------------------------------------------------------------------------

    def ops(self) -> list[Op]:
        """Return an op for each call so far."""
        for index in range(len(self._ops), len(self)):
            path, number, kind = self._calls[4 * index : 4 * index + 3]
            call = ModuleCall(path, number, kind.__name__)
            offsets = [place * CELLS for place in self._places(index)]
            self._ops.append(
                Op(
                    index=index,
                    name=call.type.lower(),
                    kind="op",
                    outputs=tuple([read_meta(self._facts, offset) for offset in offsets]),
                    modules=(call,),
                    root_call=1,
                    output_of=(call,),
                    grad_fn=read_grad_fn(self._facts, offsets[0]) if offsets else "",
                    note="what a module returned; the operations inside and around it were not recorded",
                )
            )
        return self._ops

    def info(self) -> RunInfo:
        """Return the facts of the whole run."""
        names = self._model_names()
        return RunInfo(
            names.title, self.seed, self.elapsed_secs, names.modules, names.stored, tuple(self.run_notes), self.stopped,
            self.mode,
        )  # fmt: skip

    def _model_names(self) -> ModelNames:
        if self._names is None:
            self._names = ModelNames([self.model])
        return self._names

    def module_path(self, module: Any) -> str:
        """Return the path of a module of the model; "" if it is none."""
        return self._model_names().path_of(module)

    def stored_value(self, name: str) -> Any:
        """Return a parameter or buffer as it is now."""
        return self._model_names().tensors.get(name)

    def is_saved(self, index: int, output: int) -> bool:
        """Whether `value` would return a tensor."""
        try:
            self.value(index, output)
        except ValueUnavailable:
            return False
        return True

    def value(self, index: int, output: int) -> Any:
        """Return a tensor that a call returned; raises ValueUnavailable if it was overwritten since."""
        value, version, event = self._kept[self._places(index)[output]]
        if event is not None:
            event.synchronize()
        if version >= 0 and version_of(value) != version and not is_empty(value):
            raise ValueUnavailable(WRITTEN)
        if isinstance(value, Tensor) and is_freed(value):
            raise ValueUnavailable("its memory was freed by the model (FSDP does that); tl.Save(guard='clone') copies")
        return unwrap(value)

    def gradients(self, index: int, output: int) -> list[Any]:
        """Return the gradients of an output, one per backward call."""
        return [] if self.gradient_log is None else self.gradient_log.of(self._places(index)[output])

    def runs(self) -> list[ModuleRun]:
        """Return what each call returned; what it was given is not known."""
        return [
            ModuleRun(op.modules[0], (), tuple(Argument((place,), op.index, place) for place in range(len(op.outputs))))
            for op in self.ops()
        ]

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Call `reader` with every op so far, then with each new one as it runs."""
        for op in list(self.ops()):
            reader(op)
        self._readers.append(reader)

    def finish(self) -> None:
        """End the recording."""
        self._readers, self._names = [], None  # lazy modules have their parameters only now


class TakingHook(ProbeHook):
    """Attached to a module while a recording runs: hands over what each call returned."""

    __slots__ = ("calls", "module", "path", "take")

    def __init__(
        self, module: torch.nn.Module, path: str, take: Callable[[str, int, torch.nn.Module, Any], None]
    ) -> None:
        self.module, self.path, self.take, self.calls = module, path, take, 0

    def attach(self) -> None:
        """Add the hook as `register_forward_hook` would, in a tenth of the time."""
        self.module._forward_hooks[id(self)] = self  # torch's own keys are small numbers

    def remove(self) -> None:
        """Take it off again."""
        self.module._forward_hooks.pop(id(self), None)

    def __call__(self, module: torch.nn.Module, _: Any, value: Any) -> None:
        if in_backward() < 0 and not is_dynamo_compiling():  # where checkpointing recomputes a pass, it was taken
            self.calls += 1
            self.take(self.path, self.calls, module, value)


class TakingShare:
    """What a recording takes inside a compiled part."""

    def __init__(self, call: CompiledCall, notes: list[str]) -> None:
        self._call, self._notes = call, notes
        self._hooks: list[TakingHook] = []
        call.shares.append(self)

    def add(self, hook: TakingHook) -> None:
        """Take what one more module returns."""
        self._hooks.append(hook)

    def attach(self) -> Iterator[Any]:
        """Hook the modules for a pass beside the compiled one."""
        for hook in self._hooks:
            hook.attach()
            yield hook

    def fail(self, error: Exception) -> None:
        """Note why nothing was taken."""
        paths = first_names([hook.path for hook in self._hooks], 3)
        self._notes.append(f"{paths}: the eager program could not be run, {type(error).__name__}: {error}")

    def remove(self) -> None:
        """Take no more."""
        self._call.shares.remove(self)


class ModuleRecording:
    """One recording without structure, from start to end."""

    def __init__(self, model: torch.nn.Module, save: Save, save_gradients: bool) -> None:
        self._model = model
        self.trace = ModuleOutputs(model, save)
        if save_gradients:
            self.trace.gradient_log = GradientLog()
        self.history = ModelHistory(self.trace)
        self._wanted: list[tuple[Any, Collection[str]]] = []  # each key with the paths that it means
        named, modules = ModulePaths(model), dict[str, torch.nn.Module]()
        find, wanted = named.find, self._wanted
        for key in keys_of(save.layers, VERB):
            if type(key) is str and key not in _WORDS and (module := find(key)) is not None:
                modules[key] = module  # without parsing: most keys are paths
                wanted.append((key, (key,)))
            else:
                matches = matching_modules(parse(key, named, VERB), named, VERB)
                wanted.append((key, matches.keys()))
                modules.update(matches)
        take = self._take_and_stop if save.stop_early else self.trace.take
        self._hooks = [TakingHook(module, path, take) for path, module in modules.items()]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hook the modules; take the hooks off at the end, also after an exception."""
        started, handles = perf_counter(), list[Any]()
        parts = PartsInside(self._model) if anything_compiled() else None
        try:
            self._attach(parts.find() if parts is not None else {}, handles)
            yield
        except StopEarly:
            self.trace.stopped = "stopped early, everything asked for was saved"
        except BaseException as error:
            self._explain(error)
            raise
        finally:
            for handle in handles:
                handle.remove()
            if parts is not None:
                parts.close()
            self.trace.elapsed_secs = perf_counter() - started
            self.trace.finish()
        if not self.trace.stopped:
            self._check_reached()

    def _attach(self, inside: Mapping[int, CompiledCall], handles: list[Any]) -> None:
        shares: dict[CompiledCall, TakingShare] = {}
        if not inside:
            handles += self._hooks
        for hook in self._hooks:
            if not inside:
                hook.attach()
            elif (call := inside.get(id(hook.module))) is None:
                hook.attach()
                handles.append(hook)
            else:
                if call not in shares:
                    handles.append(shares.setdefault(call, TakingShare(call, self.trace.run_notes)))
                shares[call].add(hook)
        if shares:
            self.trace.run_notes.append(BESIDE)

    def _take_and_stop(self, path: str, number: int, module: torch.nn.Module, value: Any) -> None:
        self.trace.take(path, number, module, value)
        if not self._unreached():
            raise StopEarly

    def _unreached(self) -> list[Any]:
        """Return the keys of which no module was called."""
        called = {hook.path for hook in self._hooks if hook.calls}
        return [key for key, paths in self._wanted if paths and called.isdisjoint(paths)]

    def _check_reached(self) -> None:
        if 0 not in [hook.calls for hook in self._hooks]:
            return
        for key in self._unreached():
            if not isinstance(key, str) or key != "all":
                error = UnknownLayer(
                    f"{key!r} was not reached while the model ran. Inside scripted code no hook is called; inside a "
                    f"compiled function, structure=True sees it{_reasons(self.trace.run_notes)}"
                )
                error.history = self.history  # type: ignore[attr-defined]
                raise error

    def _explain(self, error: BaseException) -> None:
        self.trace.stopped = f"{type(error).__name__}: {error}"
        with suppress(AttributeError, TypeError):  # exceptions that take no attributes
            error.history = self.history  # type: ignore[attr-defined]
        calls = plural(len(self.trace), "module call")
        explain(error, self._model, operation=operation, history=f"error.history is the pass until then, {calls}")


def _reasons(notes: list[str]) -> str:
    """What was noted beside what every such recording notes."""
    return "".join(f". {note}" for note in notes if note not in (NO_STRUCTURE, BESIDE))
