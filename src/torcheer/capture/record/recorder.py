"""The recorder: a function mode that appends one row of raw facts per torch call.

Rows are consecutive cells of one flat list (an object per row costs twice as much and feeds the garbage collector).
Everything a reader sees (labels, edges, source lines) is built from the rows later, in `op_rows`.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from torcheer.capture import process_groups
from torcheer.capture.ambient_state import BackendState, autocast_settings, default_device, random_state
from torcheer.capture.record.function_table import CALLS, TorchCall, lookup_call, written_tensors
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.released_values import CELLS, RELEASED, ReleasedOutputs, add_facts, read_meta
from torcheer.capture.record.source_lines import DIRECT, caller_of
from torcheer.capture.record.tensor_trees import (
    ABSENT,
    ATOMS,
    ATOMS_AND_TENSORS,
    Path,
    argument_tensors,
    leaves,
    snapshot,
    tensors_in,
    with_arrays_copied,
)
from torcheer.capture.special_cases import autograd_engine, deferred_inside
from torcheer.capture.special_cases.deferred_inside import DeferredInside
from torcheer.capture.torch_state import (
    DisableTorchFunction,
    PausedRecording,
    dispatch_mode_count,
    dispatch_modes,
    function_modes,
    is_autocasting,
    is_wrapped,
    pop_function_mode,
    push_function_mode,
    version_of,
)
from torcheer.capture.values.copy_on_write import ValueMemory
from torcheer.capture.values.memory_layout import Geometry, is_empty, is_freed, overlap_of, unwrap
from torcheer.errors import ValueUnavailable
from torcheer.inputs import argument_places


class OpRow(NamedTuple):
    """The cells of one recorded operation."""

    call: TorchCall
    args: Any
    kwargs: Any
    out: Any
    refs: Any  # in the list, the offset of its refs in `Recorder.refs`; from `Recorder.row`, the refs themselves
    scope: int  # the enclosing module call, -1 outside of any
    code: CodeType | None  # the calling code; `lasti` is the instruction in it
    lasti: int
    nanoseconds: int


WIDTH = len(OpRow._fields)
TENSORS = frozenset((Tensor, Parameter))
ALL_ABSENT = [(ABSENT,) * count for count in range(64)]  # the arguments of functions that take tensors only
ARGS, KWARGS, OUT, REFS, CODE = (OpRow._fields.index(name) for name in ("args", "kwargs", "out", "refs", "code"))

# Rows that are not calls.
MARKS = {name: TorchCall(None, name, "") for name in ("input", "output", "unseen", "alias", "edit")}
MARKS["grad"] = TorchCall(None, "grad", "torch.autograd.grad")

ATTENTION_KERNEL = "scaled_dot_product_attention"  # `sdpa_kernel` chooses among several

_frame = sys._getframe
_weak = weakref.ref
_autocast_enabled = is_autocasting
_dispatch_modes_on = dispatch_mode_count
_in_inference_mode = torch.is_inference_mode_enabled
_default_dtype = torch.get_default_dtype
_push, _pop = push_function_mode, pop_function_mode


# How the arguments of a call are nested: not at all (or by tuples of numbers), by tuples of tensors, by lists.
_FLAT, _TUPLE, _LIST = range(3)


class Recorder(TorchFunctionMode):
    """A function mode that records every torch call while it is active."""

    # Attributes of the hot path: with this many in the instance dict, lookups would be slower.
    __slots__ = (
        "add_released",
        "alive",
        "always_special",
        "append",
        "call_inputs",
        "count",
        "default_dtype",
        "dispatch_mode_on",
        "exits",
        "facts",
        "find_ref",
        "ignored_calls",
        "memory",
        "on_op",
        "on_row",
        "recent",
        "refs",
        "refs_by_id",
        "scope",
        "scopes",
        "versions",
    )

    def __init__(self, model: torch.nn.Module | None = None, fused: bool = False) -> None:
        self.model = model
        self.fused = fused
        self.rows: list[Any] = []
        self.append = self.rows.extend
        self.refs: list[int] = []  # of all rows, concatenated
        self.count = 0
        self.refs_by_id: dict[int, int] = {}  # id of a tensor that a row holds -> ref of its value
        self.alive: dict[int, weakref.ref[Tensor]] | None = None  # `PartialRecorder`: which ids are still in use
        self.add_released: Callable[..., None] | None = None  # `PartialRecorder`: appends a row without its tensors
        self.find_ref: Callable[[int], int | None] = self.refs_by_id.get  # of the id of a live tensor
        self.versions: dict[int, int] = {}  # id -> `version_of`, where it is not 0
        self.stored: list[Tensor] = []  # parameters and buffers read so far
        self.distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        # id of a buffer or parameter -> the module and name that held it when it was first read: models assign new
        # ones, FSDP replaces them
        self.owners: dict[int, tuple[torch.nn.Module, str]] = {}
        # ref of a computed value that was assigned to a module -> (first row after that, module, attribute name)
        self.assigned: dict[int, tuple[int, torch.nn.Module, str]] = {}
        self.kept_alive: list[Tensor] = []  # replaced parameters, new names of values: their ids are keys here
        # id of a weight that FSDP has gathered -> itself and the shard that stands for it (`gathered_weights`)
        self.gathered: dict[int, tuple[Tensor, Tensor]] = {}
        self.gathered_copies: dict[int, Tensor] | None = None  # ref of a shard -> the whole; None: they are not kept
        self.open_groups: dict[int, Any] = {}  # id of a group of weights that FSDP has gathered -> its `OpenGroup`
        self.losses: list[int] = []  # refs of the tensors the last backward pass started from
        self.gradients: dict[int, int] | None = {}  # id of a `.grad` -> ref of its owner; None: not collected yet
        self.memory = ValueMemory(self)
        # four cells per module call: outer scope, module, its caller's code and instruction
        self.scopes: list[Any] = []
        self.scope = -1  # the current module call
        # one cell per module call: the ref of its only argument, or a (where, ref, setting) per argument
        self.call_inputs: list[Any] = []
        # scope -> refs of tensors in returned plain objects
        self.object_outputs: dict[int, tuple[int | None, ...]] = {}
        self.exits: list[Any] = []  # two cells per module call that returned: its scope, the refs of its outputs
        self.random_states: dict[int, Any] = {}  # node -> random state before it ran
        self.default_dtype = torch.get_default_dtype()  # as it was when this began
        self.default_dtypes: dict[int, torch.dtype] = {}  # node -> the default dtype, where it was another one
        self.default_devices: dict[int, torch.device] = {}  # node -> the default device of what had no tensor given
        self.backends = BackendState()  # as it was when this began
        self.attention_backends: dict[int, BackendState] = {}  # node of attention -> where it was another one
        self.autocast: dict[int, Any] = {}  # node -> autocast settings, if autocast was on
        self.modes: dict[int, tuple[Any, ...]] = {}  # node -> the dispatch modes it ran under, if any
        self.outer_modes = function_modes()  # active before this recorder: they see each call after it
        self.callers: dict[int, Any] = {}  # node -> the user's calling code, where torch's own code made the call
        self.notes: dict[int, str] = {}  # node -> `Op.note`
        self.given_at: dict[int, tuple[int | str, ...]] = {}  # node of an input -> `Op.given_at`
        self.returned_at: dict[int, tuple[int | str, ...]] = {}  # node of an output -> `Op.returned_at`
        self.inplace_nodes: set[int] = set()  # nodes that wrote to their arguments
        self.extra_writes: dict[int, tuple[Tensor, ...]] = {}  # node -> tensors it wrote but did not return
        # node -> where each tensor among its arguments lay, if it wrote into memory that it also read
        self.overlaps: dict[int, tuple[Geometry | None, ...]] = {}
        self.run_notes: list[str] = []  # `RunInfo.notes`
        self.open_composite: Any = None  # the composite being opened
        self.edited: dict[int, str] = {}  # node -> description of the edits of its result
        self.edit_functions: dict[int, list[Any]] = {}  # node -> (slot, edit, random state) per edit, for replay
        self.saved: dict[int, tuple[Tensor, int]] | None = None  # ref -> value and version; None: rows hold all values
        self.facts: list[Any] = []  # cells of tensors that are not kept (`released_values`)
        # ref -> the device where a saved value was; None where it cannot be had back (dtype, transform)
        self.converted: dict[int, torch.device | None] = {}
        self.arrivals: dict[int, Any] = {}  # ref -> event after which its copy from a device may be read
        self.device_secs: dict[int, float] = {}  # node -> its time by events of its device (`DeviceTimes`)
        # (node, aten operation, its outputs, nanoseconds) run inside recorded functions
        self.aten_calls: list[Any] = []
        self.dispatch_paused = False  # True while `AtenMode` must not record
        self.always_special = False  # True: no call takes the short way (aten level, inference mode)
        self.dispatch_mode_on = False  # True while `AtenMode` is active, which needs `call_depth`
        self.unsettled: set[int] = set()  # ids of results whose version torch sets after the call is recorded
        self.deferred: dict[int, DeferredInside] = {}  # node -> the rows it belongs to, which wait to be computed
        self.wants_inside: Callable[[torch.nn.Module, frozenset[TorchCall]], bool] | None = None  # see asks_for_inside
        self.explicit_depth = 0  # > 0 while a fused kernel's explicit path runs, for reading only
        self.has_edits = False
        self.watched_modules: set[int] = set()  # ids of modules in which direct `.forward` calls are watched
        self.pending_collectives: list[tuple[int, TorchCall, Any]] = []  # not yet passed to `on_op`
        self.higher_order_depth = 0  # number of higher-order operators being opened
        self.ran_traced_step = False  # whether the outermost of them ran a step that plain torch traces
        self.on_compile: Callable[[], None] | None = None  # called at the first torch.compile of this capture
        self.call_depth = 0  # number of recorded calls that are running
        self.on_op: Callable[[int, TorchCall, Any], Any] | None = None  # edits, saving, gradients, readers
        # `PartialRecorder`: sees each row that was released at once; functions that it need not see
        self.on_row: Callable[[int, TorchCall, Any], None] | None = None
        self.ignored_calls: set[TorchCall] = set()
        # `PartialRecorder`: the newest rows with their results, where a position from the end may be theirs; whether a
        # value that is about to be overwritten is among them
        self.recent: deque[tuple[int, Any]] | None = None
        self.holds: Callable[[int], bool] | None = None
        self.gradient_log: Any = None  # the `GradientLog`, if gradients are saved
        self.on_module: Callable[[int, torch.nn.Module, Any], Any] | None = None
        self.on_entry: Callable[[int, torch.nn.Module, Any, Any], Any] | None = None  # edits of what modules receive
        self.inputs_from_call = False  # whether arguments of a root module call are inputs (in `recording`)
        self._outputs_cache: tuple[int, Any, list[Any]] = (-1, None, [])  # a row of many tensors, its result, and these
        # of the model, by id, as they were when first needed
        self._buffers: dict[int, tuple[str, Tensor]] | None = None

    # -- the hot path ------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        call = CALLS.get(func)
        if call is None:
            return self._run_special(func, args, kwargs or {}, _frame(1))
        if call.skip:
            return func(*args, **kwargs) if kwargs else func(*args)
        if (
            not (call.plain or call.in_place or (len(args) > call.switch > 0 and args[call.switch] is False))
            or self.always_special
            or (kwargs and not ATOMS.issuperset(map(type, kwargs.values())))
        ):
            return self._run_special(func, args, kwargs or {}, _frame(1))
        refs, refs_by_id, versions, alive = self.refs, self.refs_by_id, self.versions, self.alive
        begin, nesting, is_plain = len(refs), _FLAT, False
        try:
            for value in args:  # not in a method: a frame more for each operation would be noticed
                kind = type(value)
                if kind is Tensor or kind is Parameter:
                    key = id(value)
                    ref = refs_by_id.get(key)
                    if ref is None or (alive is not None and ref >= 0 and alive[key]() is None):
                        refs_by_id.pop(key, None)
                        if not self._store_if_owned(value, key):
                            break
                        ref = refs_by_id[key]
                    elif value._version != versions.get(key, 0):
                        break
                    refs.append(ref)
                elif kind is tuple or kind is list:
                    if kind is list:
                        nesting = _LIST
                    if not ATOMS.issuperset(map(type, value)):
                        if not self._append_refs(value):
                            break
                        nesting = nesting or _TUPLE
                elif kind not in ATOMS:
                    break
            else:
                is_plain = True
        except RuntimeError:  # inference tensors have no version counter; to ask them costs more than a special call
            self.always_special = _in_inference_mode()
        if not is_plain or (call.in_place and not self._can_write(args)):
            del refs[begin:]
            return self._run_special(func, args, kwargs or {}, _frame(1))
        if nesting is _LIST:
            args = snapshot(args)
        frame = _frame(1)
        code = frame.f_code
        start = perf_counter_ns()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException:
            del refs[begin:]
            raise
        nanoseconds = perf_counter_ns() - start
        node, add_released = self.count, self.add_released
        if type(out) is Tensor:
            if call.idle and out is args[0]:
                del refs[begin:]
                return out
            key = id(out)
            refs_by_id[key] = node << SLOT_BITS
            try:
                version = out._version
            except RuntimeError:
                version = version_of(out)
            if version or key in versions:
                versions[key] = version
            if call.in_place:
                self.inplace_nodes.add(node)
            if add_released is None and alive is not None:
                alive[key] = _weak(out)
        elif (call.idle and out is args[0]) or not self.set_refs(out, node):  # a parameter, or a subclass
            del refs[begin:]
            return out
        if _autocast_enabled():
            self.autocast[node] = autocast_settings()
        if _dispatch_modes_on():
            self.modes[node] = dispatch_modes()
        if _default_dtype() is not self.default_dtype or len(refs) == begin:
            self._note_defaults(node, has_tensors=len(refs) > begin)
        if id(code) not in DIRECT:
            self.callers[node] = caller_of(frame)
        self.count = node + 1
        if add_released is not None:
            if nesting or type(out) is not Tensor:
                add_released(self, call, args, kwargs, out, begin, frame, nanoseconds, nesting)
                return out
            # The same in line, for the usual call: a frame less is a tenth of what nothing kept costs.
            weak, facts, tensors = _weak(out), self.facts, len(refs) - begin
            released = len(facts)
            alive[key] = weak  # type: ignore[index]
            try:
                facts += (weak, out.shape, out.dtype, out.device, out.requires_grad and type(out.grad_fn))
            except Exception:  # no plain tensor
                add_facts(facts, out)
            if tensors == len(args) < 64:
                args = ALL_ABSENT[tensors]
            elif tensors == 1 and type(args[0]) in TENSORS:
                args = (ABSENT, *args[1:])
            elif tensors:
                args = tuple([ABSENT if type(value) in TENSORS else value for value in args])
            self.append((call, args, kwargs, released, begin, self.scope, code, frame.f_lasti, nanoseconds))
            if self.recent is not None:
                self.recent.append((node, out))
            if self.on_row is not None and call not in self.ignored_calls:
                self.on_row(node, call, out)
            return out
        self.append((call, args, kwargs, out, begin, self.scope, code, frame.f_lasti, nanoseconds))
        if self.on_op is not None:
            return self.on_op(node, call, out)
        return out

    def _note_defaults(self, node: int, *, has_tensors: bool) -> None:
        """Note the default dtype and device, where they decide what comes out."""
        if _default_dtype() is not self.default_dtype:
            self.default_dtypes[node] = _default_dtype()
        if not has_tensors and (device := default_device()) is not None:
            self.default_devices[node] = device

    def _can_write(self, args: tuple[Any, ...]) -> bool:
        """Preserve the first argument before it is written; False if other values may share its memory."""
        if not args or type(args[0]) is not Tensor or self.pending_collectives:
            return False
        return self.memory.protect_alone(args[0])

    def _store_if_owned(self, tensor: Tensor, key: int) -> bool:
        """Store a new tensor if it is a parameter, or a buffer of the running module."""
        memory = self.memory
        if key in memory.stale or key in memory.exposed:
            return False
        if type(tensor) is not Parameter:
            if self.scope < 0:
                return False
            module = self.scopes[4 * self.scope + 1]
            for name, candidate in (*module._buffers.items(), *module._parameters.items()):
                if (
                    candidate is tensor
                ):  # among the parameters where torch.func.functional_call has put others in their place
                    self.owners[key] = (module, name)
                    break
            else:
                return False
        if self.distributed:
            self.store(tensor)
            return True
        self.refs_by_id[key] = ~len(self.stored)
        self.stored.append(tensor)
        version = version_of(tensor)
        if version:
            self.versions[key] = version
        return True

    def _append_refs(self, values: Any) -> bool:
        """Append the refs of a list of tensors; False if one of them has none."""
        refs_by_id, versions = self.refs_by_id, self.versions
        for value in values:
            key = id(value)
            ref = refs_by_id.get(key)
            if ref is None or type(value) not in TENSORS or value._version != versions.get(key, 0):
                return False
            self.refs.append(ref)
        return True

    # -- rarer calls -------------------------------------------------------------------------------------------------

    def _run_special(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        call = lookup_call(func)
        if call.skip:
            return func(*args, **kwargs)
        if self.always_special and not self.dispatch_mode_on:
            self.always_special = _in_inference_mode()
        if call.higher:
            from torcheer.capture.special_cases.higher_order import call_operator

            return call_operator(self, call, args, kwargs, frame)
        if call.collective and process_groups.is_coalesced(call, kwargs):
            return func(*args, **kwargs)
        if call.twin is not None and self.open_composite is not func:
            return self._open(call, args, kwargs, frame)
        if not ATOMS_AND_TENSORS.issuperset(map(type, args)):
            args = snapshot(args)
        if kwargs and not ATOMS_AND_TENSORS.issuperset(map(type, kwargs.values())):
            kwargs = {name: snapshot(value) for name, value in kwargs.items()}
        return self.record(call, args, kwargs, frame)

    def _open(self, call: TorchCall, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run a composite's twin with the recorder active, to record its inner operations."""
        refs = autograd_engine.engine_inputs(self, call.function, args, kwargs) if call.engine else []
        outer, self.open_composite = self.open_composite, call.function
        _push(self)
        try:
            out = call.twin(*args, **kwargs)  # type: ignore[misc]
        finally:
            _pop()
            self.open_composite = outer
        if call.engine:
            autograd_engine.add_gradients(self, call.function, out, refs, frame)
        return out

    def record(self, call: TorchCall, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run one operation of any kind and append its row."""
        if self.pending_collectives:
            process_groups.flush_finished(self)
        refs = [self.ref_of(tensor) for tensor in argument_tensors(args, kwargs)]
        written = written_tensors(call, args, kwargs) if call.writes or "out" in kwargs else []
        windows = self.memory.protect(call, args, written) if written else []
        overlap = overlap_of(argument_tensors(args, kwargs), written) if written and len(refs) > 1 else None
        node = self.count
        if call.random is not None and call.random(args, kwargs):
            self.random_states[node] = random_state(args, kwargs)
        start = perf_counter_ns()
        self.call_depth += 1
        try:
            out = call.function(*args, **kwargs)
        finally:
            self.call_depth -= 1
        nanoseconds = perf_counter_ns() - start
        if call.idle and args and out is args[0]:
            return out
        if call.exposes_memory:
            self.memory.expose(args[0])
            if out is args[0]:
                return out
        node = self.count  # the function may have called back into user code, which recorded rows
        if len(written) == 1 and out is written[0]:
            self.set_ref(out, node << SLOT_BITS)
        elif not self.set_all_refs(out, written, node):
            self.random_states.pop(node, None)
            return out
        if call.late:
            self.unsettled.update(id(tensor) for tensor in leaves(out))
        if _autocast_enabled():
            self.autocast[node] = autocast_settings()
        if _dispatch_modes_on():
            self.modes[node] = dispatch_modes()
        self._note_defaults(node, has_tensors=bool(refs))
        if call.name == ATTENTION_KERNEL and (backends := BackendState()) != self.backends:
            self.attention_backends[node] = backends
        self.count = node + 1
        begin = len(self.refs)
        self.refs += refs
        if id(frame.f_code) not in DIRECT:
            self.callers[node] = caller_of(frame)
        under_way = call.collective and process_groups.is_pending(out)
        row_out = out
        if call.collective:
            row_out = None  # the returned Work holds its process group
            args, kwargs = process_groups.without_groups(args, kwargs)
        kept = with_arrays_copied((args, kwargs))
        cells = (call, *kept, row_out, begin, self.scope, frame.f_code, frame.f_lasti, nanoseconds)
        self.append(cells)
        if written:
            self.inplace_nodes.add(node)
            if overlap is not None:
                self.overlaps[node] = overlap
            self.memory.after_write(windows)
        self.memory.expose_results((row_out, written))
        if kept[0] is not args or kept[1] is not kwargs:
            self.memory.expose_foreign(out)
        if under_way:
            self.unsettled.update(map(id, written))
            if self.on_op is not None:
                self.pending_collectives.append((node, call, out))
        elif self.on_op is not None:
            edited = self.on_op(node, call, row_out)
            return out if call.collective else edited
        return out

    # -- refs --------------------------------------------------------------------------------------------------------

    def adopt(self, tensor: Tensor) -> int:
        """Find or create the ref of a tensor that has none, or whose value has changed."""
        if self.find_ref(id(tensor)) is None and self._store_if_owned(tensor, id(tensor)):
            return self.refs_by_id[id(tensor)]
        return self.memory.adopt(tensor)

    def ref_of(self, tensor: Tensor) -> int:
        """Return the ref of a tensor's current value."""
        ref = self.find_ref(id(tensor))
        if ref is None or version_of(tensor) != self.versions.get(id(tensor), 0):
            return self.adopt(tensor)
        return ref

    def store(self, tensor: Tensor) -> int:
        """Add a parameter or buffer to `stored` and return its ref."""
        ref = ~len(self.stored)
        self.stored.append(tensor)
        if self.distributed and self.scope >= 0:  # FSDP replaces the parameters around each forward
            module = self.scopes[4 * self.scope + 1]
            for name, parameter in module._parameters.items():
                if parameter is tensor:
                    self.owners[id(tensor)] = (module, name)
        self.set_ref(tensor, ref)
        return ref

    def is_stored(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter, or a buffer of a running module or of the model."""
        if isinstance(tensor, Parameter):
            return True
        scope = self.scope
        while scope >= 0:
            outer, module = self.scopes[4 * scope : 4 * scope + 2]
            for name, buffer in module._buffers.items():
                if buffer is tensor:
                    self.owners[id(tensor)] = (module, name)
                    return True
            scope = outer
        if self._buffers is None:
            named = self.model.named_buffers() if self.model is not None else ()
            self._buffers = {id(buffer): (name, buffer) for name, buffer in named}
        name, buffer_held = self._buffers.get(id(tensor), ("", None))
        if buffer_held is tensor:
            assert self.model is not None
            self.owners[id(tensor)] = (self.model, name)
        return buffer_held is tensor

    def set_ref(self, tensor: Tensor, ref: int) -> None:
        """Set the ref of a tensor's current value."""
        key = id(tensor)
        self.refs_by_id[key] = ref
        version = version_of(tensor)
        if version or key in self.versions:
            self.versions[key] = version

    def set_refs(self, out: Any, node: int) -> int:
        """Set the refs of all tensors in a result; return how many there are."""
        slot = -1
        for slot, tensor in enumerate(leaves(out)):
            self.set_ref(tensor, node << SLOT_BITS | slot)
        return slot + 1

    def set_all_refs(self, out: Any, written: list[Tensor], node: int) -> int:
        """Set the refs of a result's tensors and of those only written: further outputs of the row."""
        returned = self.set_refs(out, node)
        if not written:
            return returned
        returned_ids = {id(tensor) for tensor in leaves(out)}
        only_written = tuple(tensor for tensor in written if id(tensor) not in returned_ids)
        for slot, tensor in enumerate(only_written, returned):
            self.set_ref(tensor, node << SLOT_BITS | slot)
        if only_written:
            self.extra_writes[node] = only_written
        return returned + len(only_written)

    def add(self, mark: str, out: Any, refs: list[int], args: tuple[Any, ...] = (), note: str = "") -> int:
        """Append a row that is not a call; return the ref of its first tensor."""
        node = self.count
        self.set_refs(out, node)
        self.count = node + 1
        call = MARKS[mark]
        begin = len(self.refs)
        self.refs += refs
        self.append((call, args, None, out, begin, self.scope, None, 0, 0))
        if note:
            self.notes[node] = note
        if self.on_op is not None:
            self.on_op(node, call, out)
        return node << SLOT_BITS

    def set_caller(self, node: int, frame: FrameType) -> None:
        """Attribute a row that is not a call to a line of code."""
        self.rows[node * WIDTH + CODE : node * WIDTH + CODE + 2] = frame.f_code, frame.f_lasti

    def allocated_memory(self, node: int, tensor: Tensor) -> bool:
        """Whether a row allocated or last wrote its result's memory, so that no older row shares it."""
        call = self.rows[node * WIDTH]
        if call.mark or call.view or call.level == "aten" or call.name == "set_data":
            return False
        if node in self.inplace_nodes:
            return True
        for value in self.rows[node * WIDTH + ARGS]:
            if value is tensor:
                return False
        return True

    def paused(self) -> AbstractContextManager[Any]:
        """Return a context for torcheer's own torch calls: no recorder or subclass sees them."""
        return DisableTorchFunction() if not self.dispatch_mode_on else PausedRecording(self)

    def was_read(self, ref: int) -> bool:
        """Whether a later row read this value."""
        next_node = (ref >> SLOT_BITS) + 1
        return next_node < self.count and ref in self.refs[self.rows[next_node * WIDTH + REFS] :]

    def row(self, node: int) -> OpRow:
        """Read one row."""
        start = node * WIDTH
        row = OpRow(*self.rows[start : start + WIDTH])
        return row._replace(refs=self.refs_of(node))

    def refs_of(self, node: int) -> list[int]:
        """Return the refs of a row's arguments."""
        place = node * WIDTH + REFS
        return self.refs[self.rows[place] : self.rows[place + WIDTH] if node + 1 < self.count else len(self.refs)]

    def inputs(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the input tensors that are still alive, with their refs."""
        for node in range(self.count):
            if self.rows[node * WIDTH] is MARKS["input"]:
                for tensor in self.outputs(node):
                    if isinstance(tensor, Tensor):
                        yield node << SLOT_BITS, tensor

    # -- values ------------------------------------------------------------------------------------------------------

    def must_keep(self, ref: int) -> bool:
        """Whether a value is kept by reference and must be preserved before a write."""
        if self.saved is None or ref in self.saved or ref < 0:
            return True
        if type(self.rows[(ref >> SLOT_BITS) * WIDTH + OUT]) not in RELEASED:  # not decided yet
            return True
        return self.holds is not None and self.holds(ref)

    def output_count(self, node: int) -> int:
        """Count the row's outputs; if it returned no tensor (`x[0] = y`), those it wrote."""
        out = self.rows[node * WIDTH + OUT]
        if type(out) in RELEASED:
            return out.returned if isinstance(out, ReleasedOutputs) else 1
        count = len(leaves(out))
        return count if count else len(self.extra_writes.get(node, ()))

    def outputs(self, node: int) -> list[Any]:
        """Return a row's tensors: returned, then only written ones; metadata once released."""
        out = self.rows[node * WIDTH + OUT]
        if type(out) in RELEASED:
            return [read_meta(self.facts, offset) for offset in self.released_at(node)]
        if self._outputs_cache[0] == node and self._outputs_cache[1] is out:
            return self._outputs_cache[2]
        tensors = leaves(out)
        tensors = [*tensors, *self.extra_writes[node]] if node in self.extra_writes else tensors
        if len(tensors) > 8 and self.saved is None:  # callers read them one by one, by slot
            self._outputs_cache = (node, out, tensors)
        return tensors

    def forget_outputs(self) -> None:
        """Read the outputs of rows anew: they were changed."""
        self._outputs_cache = (-1, None, [])

    def released_at(self, node: int) -> range:
        """Return the offsets in `facts` of a row's released tensors; none if the row still holds them."""
        out = self.rows[node * WIDTH + OUT]
        if type(out) is int:
            return range(out, out + 1)
        if type(out) is ReleasedOutputs:
            return range(out.offset, out.offset + CELLS * out.size, CELLS)
        return range(0)

    def tensor_of(self, ref: int) -> Tensor | None:
        """Return the tensor that had a value, whatever it holds now; None if it is gone."""
        if ref < 0:
            return self.stored[~ref]
        tensor: Tensor | None
        out = self.rows[(ref >> SLOT_BITS) * WIDTH + OUT]
        if type(out) is int:
            tensor = self.facts[out]()
        elif type(out) is ReleasedOutputs:
            tensor = self.facts[out.offset + CELLS * (ref & SLOT_MASK)]()
        else:
            tensor = self.outputs(ref >> SLOT_BITS)[ref & SLOT_MASK]
        return tensor

    def values_since(self, node: int, stored: int) -> Iterator[tuple[int, Tensor]]:
        """Yield (ref, tensor) of live values, from row `node` and stored tensor `stored` on."""
        for number in range(stored, len(self.stored)):
            yield ~number, self.stored[number]
        for row in range(node, self.count):
            yield from self.live_values(row)

    def live_values(self, node: int) -> list[tuple[int, Tensor]]:
        """Return (ref, tensor) of a row's values that are alive; of one saved without its graph, what was saved."""
        first, out = node << SLOT_BITS, self.rows[node * WIDTH + OUT]
        if type(out) is Tensor and node not in self.extra_writes:
            return [(first, out)]
        if type(out) not in RELEASED:
            return list(enumerate(self.outputs(node), first))
        alive = []
        for ref, offset in enumerate(self.released_at(node), first):
            tensor = self.facts[offset]()
            if tensor is None and self.saved and ref in self.saved:
                tensor = self.saved[ref][0]
            if tensor is not None:
                alive.append((ref, tensor))
        return alive

    def value(self, ref: int) -> Tensor:
        """Return the recorded value of a ref; raises ValueUnavailable."""
        return unwrap(self._read_value(ref))

    def exact_value(self, ref: int) -> Tensor:
        """Return the value exactly as it ran, for replay; raises ValueUnavailable."""
        home = self.converted.get(ref)
        if home is None and ref in self.converted:
            raise ValueUnavailable("it was stored in another form (dtype, transform or the meta device)")
        tensor = self._read_value(ref)
        if is_wrapped(tensor):
            raise ValueUnavailable("values inside vmap, grad or jvp live only while the transform runs")
        if home is not None:
            tensor = tensor.to(home)
        return self._with_requires_grad(ref, tensor)

    def _with_requires_grad(self, ref: int, tensor: Tensor) -> Tensor:
        """Return a value that was saved without its graph as one that requires a gradient: torch may choose by that."""
        if ref < 0 or tensor.requires_grad or type(self.rows[(ref >> SLOT_BITS) * WIDTH + OUT]) not in RELEASED:
            return tensor
        offset = self.released_at(ref >> SLOT_BITS)[ref & SLOT_MASK]
        if not read_meta(self.facts, offset).requires_grad or tensor.is_inference():
            return tensor
        return tensor.detach().requires_grad_()

    def _read_value(self, ref: int) -> Tensor:
        if ref in self.arrivals:
            self.arrivals.pop(ref).synchronize()
        preserved = self.memory.preserved(ref)
        if preserved is not None:
            return preserved
        if ref in self.memory.lost:
            raise ValueUnavailable(self.memory.lost[ref])
        if ref >> SLOT_BITS in self.deferred:
            deferred_inside.compute(self, self.deferred[ref >> SLOT_BITS])
        if self.saved is None or ref < 0:
            tensor = self.stored[~ref] if ref < 0 else self.outputs(ref >> SLOT_BITS)[ref & SLOT_MASK]
            version = self.versions.get(id(tensor), 0)
        elif ref in self.saved:
            tensor, version = self.saved[ref]
        else:
            raise ValueUnavailable("it was not saved: layers_to_save did not ask for it")
        current_version = version_of(tensor)
        if current_version != version and not self.memory.all_writes_seen(tensor, ref, version, current_version):
            if id(tensor) not in self.unsettled and not is_empty(tensor):
                raise ValueUnavailable("it was written in place after the pass; tl.Save(guard='clone') keeps copies")
        if is_freed(tensor):
            raise ValueUnavailable(
                "its memory was freed by the model (FSDP does that); tl.Save(guard='clone') keeps copies"
            )
        return tensor

    def asks_for_inside(self, module: torch.nn.Module, calls: frozenset[TorchCall]) -> bool:
        """Whether values of operations inside a fused kernel are wanted as they run, and not only when read."""
        return self.on_op is not None if self.wants_inside is None else self.wants_inside(module, calls)

    def put_values(self, node: int, args: Any, kwargs: Any, out: Any) -> None:
        """Fill in a row whose values were deferred."""
        start = node * WIDTH
        self.rows[start + ARGS : start + OUT + 1] = args, kwargs, out
        self.set_refs(out, node)

    def compute_deferred(self) -> None:
        """Compute all values that waited to be read; those that no longer can be stay unavailable."""
        for inside in dict.fromkeys(self.deferred.values()):
            with suppress(ValueUnavailable):
                deferred_inside.compute(self, inside)

    # -- modules, called by `module_stack` ---------------------------------------------------------------------------

    def add_root_inputs(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Add the tensor arguments of a root module call as inputs."""
        if self.scopes[4 * self.scope] < 0 and self.inputs_from_call:
            paths: list[Path] = []
            tensors = tensors_in((args, kwargs), paths)
            places = argument_places(module, paths) if len(paths) > 1 else [()]
            for tensor, place in zip(tensors, places):
                if self.find_ref(id(tensor)) is None and not self.is_stored(tensor):
                    self.given_at[self.count] = place
                    self.add("input", tensor, [])
