"""The recorder: a function mode that appends what torch runs to flat columns, and nothing else.

One row per operation, kept as consecutive cells of one list (an object per row costs twice as much and feeds the
garbage collector). Everything a reader sees, labels, edges, source lines, is made from the rows later, in `trace`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from torcheer.capture import process_groups
from torcheer.capture.record import autograd_engine
from torcheer.capture.record.function_table import CALLS, Call, learn, written_tensors
from torcheer.capture.record.refs import SLOT_BITS, SLOT_MASK
from torcheer.capture.record.source_lines import DIRECT, caller_of
from torcheer.capture.record.tensor_trees import (
    ATOMS,
    ATOMS_AND_TENSORS,
    argument_tensors,
    leaves,
    snapshot,
    tensors_in,
)
from torcheer.capture.torch_state import (
    Unseen,
    autocast_settings,
    dispatch_modes,
    function_modes,
    random_state,
    version_of,
)
from torcheer.capture.values.copy_on_write import Memory
from torcheer.capture.values.memory_layout import bare, is_empty, is_freed, is_wrapped
from torcheer.errors import ValueUnavailable


class Row(NamedTuple):
    """The cells of one row."""

    call: Call
    args: Any
    kwargs: Any
    out: Any
    refs: Any  # in the list: where its refs begin in `Recorder.refs`; read through `Recorder.row`: the refs themselves
    scope: int  # the module call it ran in, -1 outside
    code: CodeType | None  # the code that called it, and at which instruction
    lasti: int
    nanoseconds: int


WIDTH = len(Row._fields)
TENSORS = (Tensor, Parameter)
ARGS, KWARGS, OUT, REFS, CODE = (Row._fields.index(name) for name in ("args", "kwargs", "out", "refs", "code"))

# Rows that are no calls.
MARKS = {name: Call(None, name, "") for name in ("input", "output", "unseen", "alias", "edit")}
MARKS["grad"] = Call(None, "grad", "torch.autograd.grad")

_frame = sys._getframe
_autocast_enabled = torch._C._is_any_autocast_enabled
_dispatch_modes_on = torch._C._len_torch_dispatch_stack
_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack


class Recorder(TorchFunctionMode):
    """Everything that ran while it was on."""

    # What the hot path touches; an instance with this many attributes would look them up in a slower way.
    __slots__ = (
        "after",
        "append",
        "careful",
        "count",
        "exits",
        "given",
        "known",
        "refs",
        "scope",
        "scopes",
        "versions",
    )

    def __init__(self, model: torch.nn.Module | None = None, fused: bool = False) -> None:
        self.model = model
        self.fused = fused
        self.rows: list[Any] = []
        self.append = self.rows.extend
        self.refs: list[int] = []  # of all rows, one after the other
        self.count = 0
        self.known: dict[int, int] = {}  # id of a live tensor -> ref of its value
        self.versions: dict[int, int] = {}  # id -> torch's version counter, where it is not 0
        self.stored: list[Tensor] = []  # parameters and buffers met
        self.distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        # id of a buffer or parameter -> who held it when it was first read: models assign new ones, FSDP exchanges them
        self.homes: dict[int, tuple[torch.nn.Module, str]] = {}
        # ref -> from which row on it is whose buffer, or parameter
        self.assigned: dict[int, tuple[int, torch.nn.Module, str]] = {}
        self.exchanged: list[Tensor] = []  # parameters and those they took the place of: `homes` knows them by id
        self.losses: list[int] = []  # refs of what the last backward pass began from
        self.gradients: dict[int, int] | None = {}  # id of a gradient it left -> ref of whose; None: not looked yet
        self.memory = Memory(self)
        self.scopes: list[
            Any
        ] = []  # four cells per module call: outer scope, module, its caller's code and instruction
        self.scope = -1  # the module call we are in
        self.given: list[
            Any
        ] = []  # one cell per module call: the ref of its only argument, or (place, ref, setting) each
        self.held: dict[int, tuple[int | None, ...]] = {}  # scope -> what it returned inside plain objects, as refs
        self.exits: list[Any] = []  # two cells per module call that returned: its scope, what it returned as refs
        self.random_states: dict[int, Any] = {}  # node -> random state before it ran
        self.autocast: dict[int, Any] = {}  # node -> autocast settings, where on
        self.modes: dict[int, tuple[Any, ...]] = {}  # node -> the dispatch modes it ran under, where there were any
        self.outer_modes = function_modes()  # they were on before us, and see each call after us
        self.callers: dict[int, Any] = {}  # node -> the user's code around it, where torch's own code made the call
        self.notes: dict[int, str] = {}  # node -> what a reader should know
        self.wrote: set[int] = set()  # nodes that wrote to their arguments
        self.writers: dict[int, tuple[Tensor, ...]] = {}  # node -> tensors it wrote beyond those it returned
        self.remarks: list[str] = []  # of the whole run
        self.opened: Any = None  # the composite being opened
        self.edited: dict[int, str] = {}  # node -> what an edit did to its result
        self.edit_functions: dict[int, list[Any]] = {}  # node -> (slot, edit, random state) each, to be replayed
        self.saved: dict[int, tuple[Tensor, int]] | None = None  # ref -> value and version; None: rows keep everything
        self.live: dict[int, Any] = {}  # ref -> weak tensor, for values let go
        self.altered: set[int] = set()  # refs stored in another form than they ran
        self.below: list[Any] = []  # (node, aten operation, its outputs, nanoseconds) run inside recorded functions
        self.resting = False  # whether a dispatch mode of ours should look away
        self.careful = False  # a dispatch mode is on and asks which call is running
        self.unsettled: set[int] = set()  # ids of results whose version is set after we see them
        self.beside = 0  # whether the inside of a fused kernel is being computed, which the model will not use
        self.has_edits = False
        self.watched: set[int] = set()  # ids of modules below which calls of `.forward` are watched
        self.under_way: list[tuple[int, Call, Any]] = []  # collectives whose results nobody has been shown yet
        self.inside_higher = 0  # how many higher-order operators are open now
        self.on_compile: Callable[[], None] | None = None  # when torch.compile is first called in this capture
        self.inside = 0  # how many recorded calls are running now
        self.after: Callable[[int, Call, Any], Any] | None = None  # edits, saving, gradients, followers
        self.after_module: Callable[[int, torch.nn.Module, Any], Any] | None = None
        self.inputs_from_call = False  # whether tensors given to a root module call are inputs (in `recording`)
        self._several: tuple[int, Any, list[Any]] = (-1, None, [])  # a row of many tensors, its result, and these
        self._buffers: dict[int, tuple[str, Tensor]] | None = (
            None  # of the model, by id, as they were at the first look
        )

    # -- the hot path ------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        call = CALLS.get(func)
        if (
            call is None
            or self.careful
            or not (call.plain or call.is_off(args))
            or (kwargs and not ATOMS.issuperset(map(type, kwargs.values())))
        ):
            if call is not None and call.skip:
                return func(*args, **kwargs) if kwargs else func(*args)
            return self._special(func, args, kwargs or {}, _frame(1))
        known, versions, refs = self.known, self.versions, self.refs
        begin, has_list = len(refs), False
        try:
            for value in args:
                kind = type(value)
                if kind is Tensor or kind is Parameter:
                    key = id(value)
                    ref = known.get(key)
                    if ref is None:
                        if not self._takes(value, key):
                            break
                        ref = known[key]
                    elif value._version != versions.get(key, 0):
                        break
                    refs.append(ref)
                elif kind is tuple or kind is list:
                    if not ATOMS.issuperset(map(type, value)) and not self._takes_all(value):
                        break
                    has_list = has_list or kind is list
                elif kind not in ATOMS:
                    break
            else:
                kind = None
        except RuntimeError:  # inference tensors count no writes
            pass
        if kind is not None and args:  # something new or nested among the arguments
            del refs[begin:]
            return self._special(func, args, kwargs or {}, _frame(1))
        if has_list:
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
        node = self.count
        if type(out) is Tensor:
            if call.idle and out is args[0]:
                del refs[begin:]
                return out
            key = id(out)
            known[key] = node << SLOT_BITS
            try:
                version = out._version
            except RuntimeError:
                version = 0
            if version or key in versions:
                versions[key] = version
        elif not self.claim(out, node):
            del refs[begin:]
            return out
        if _autocast_enabled():
            self.autocast[node] = autocast_settings()
        if _dispatch_modes_on():
            self.modes[node] = dispatch_modes()
        if id(code) not in DIRECT:
            self.callers[node] = caller_of(frame)
        self.count = node + 1
        self.append((call, args, kwargs, out, begin, self.scope, code, frame.f_lasti, nanoseconds))
        if self.after is not None:
            return self.after(node, call, out)
        return out

    def _takes(self, tensor: Tensor, key: int) -> bool:
        """At first sight of a tensor: store it if it is a parameter, or a buffer of the module that runs."""
        memory = self.memory
        if key in memory.stale or key in memory.leaked:
            return False
        if type(tensor) is not Parameter:
            if self.scope < 0:
                return False
            module = self.scopes[4 * self.scope + 1]
            for name, held in (*module._buffers.items(), *module._parameters.items()):
                if (
                    held is tensor
                ):  # among the parameters where torch.func.functional_call has put others in their place
                    self.homes[key] = (module, name)
                    break
            else:
                return False
        if self.distributed:
            self.store(tensor)
            return True
        self.known[key] = ~len(self.stored)
        self.stored.append(tensor)
        version = version_of(tensor)
        if version:
            self.versions[key] = version
        return True

    def _takes_all(self, values: Any) -> bool:
        """The refs of a list of tensors, if all of them are known."""
        known, versions = self.known, self.versions
        for value in values:
            key = id(value)
            ref = known.get(key)
            if ref is None or type(value) not in TENSORS or value._version != versions.get(key, 0):
                return False
            self.refs.append(ref)
        return True

    # -- everything rarer --------------------------------------------------------------------------------------------

    def _special(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        call = learn(func)
        if call.skip:
            return func(*args, **kwargs)
        if call.higher:
            from torcheer.capture.record.higher_order import call_operator

            return call_operator(self, call, args, kwargs, frame)
        if call.collective and process_groups.is_put_off(call, kwargs):
            return func(*args, **kwargs)
        if call.twin is not None and self.opened is not func:
            return self._open(call, args, kwargs, frame)
        if not ATOMS_AND_TENSORS.issuperset(map(type, args)):
            args = snapshot(args)
        if kwargs and not ATOMS_AND_TENSORS.issuperset(map(type, kwargs.values())):
            kwargs = {name: snapshot(value) for name, value in kwargs.items()}
        return self.record(call, args, kwargs, frame)

    def _open(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run a composite's twin with the recorder on, so that what is inside arrives op by op."""
        refs = autograd_engine.entering(self, call.function, args, kwargs) if call.engine else []
        outer, self.opened = self.opened, call.function
        _push(self)
        try:
            out = call.twin(*args, **kwargs)  # type: ignore[misc]
        finally:
            _pop()
            self.opened = outer
        if call.engine:
            autograd_engine.left(self, call.function, out, refs, frame)
        return out

    def record(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Run one operation of any kind and keep its row."""
        if self.under_way:
            process_groups.settle(self)
        refs = [self.ref_of(tensor) for tensor in argument_tensors(args, kwargs)]
        written = written_tensors(call, args, kwargs) if call.writes or "out" in kwargs else []
        windows = self.memory.protect(call, args, written) if written else []
        node = self.count
        if call.random is not None and call.random(args, kwargs):
            self.random_states[node] = random_state(args, kwargs)
        start = perf_counter_ns()
        self.inside += 1
        try:
            out = call.function(*args, **kwargs)
        finally:
            self.inside -= 1
        nanoseconds = perf_counter_ns() - start
        if call.idle and args and out is args[0]:
            return out
        if call.leaks:
            self.memory.leak(args[0])
            if out is args[0]:
                return out
        node = self.count  # a function that is not opened may have called back into user code
        if len(written) == 1 and out is written[0]:
            self.know(out, node << SLOT_BITS)
        elif not self.claim_all(out, written, node):
            self.random_states.pop(node, None)
            return out
        if call.late:
            self.unsettled.update(id(tensor) for tensor in leaves(out))
        if _autocast_enabled():
            self.autocast[node] = autocast_settings()
        if _dispatch_modes_on():
            self.modes[node] = dispatch_modes()
        self.count = node + 1
        begin = len(self.refs)
        self.refs += refs
        if id(frame.f_code) not in DIRECT:
            self.callers[node] = caller_of(frame)
        under_way = call.collective and process_groups.is_under_way(out)
        kept = out
        if call.collective:
            kept = None  # what is under way holds its process group
            args, kwargs = process_groups.without_groups(args, kwargs)
        cells = (call, args, kwargs, kept, begin, self.scope, frame.f_code, frame.f_lasti, nanoseconds)
        self.append(cells)
        if written:
            self.wrote.add(node)
            self.memory.written(windows)
        self.memory.spread((kept, written))
        if under_way:
            self.unsettled.update(map(id, written))
            if self.after is not None:
                self.under_way.append((node, call, out))
        elif self.after is not None:
            found = self.after(node, call, kept)
            return out if call.collective else found
        return out

    # -- refs --------------------------------------------------------------------------------------------------------

    def adopt(self, tensor: Tensor) -> int:
        """The ref of a tensor that is not known, or whose value is no longer the one we know."""
        if id(tensor) not in self.known and self._takes(tensor, id(tensor)):
            return self.known[id(tensor)]
        return self.memory.adopt(tensor)

    def ref_of(self, tensor: Tensor) -> int:
        """The ref of the value a tensor holds now."""
        ref = self.known.get(id(tensor))
        if ref is None or version_of(tensor) != self.versions.get(id(tensor), 0):
            return self.adopt(tensor)
        return ref

    def store(self, tensor: Tensor) -> int:
        """A ref for a parameter or buffer."""
        ref = ~len(self.stored)
        self.stored.append(tensor)
        if self.distributed and self.scope >= 0:  # FSDP exchanges the parameters around each forward
            module = self.scopes[4 * self.scope + 1]
            for name, held in module._parameters.items():
                if held is tensor:
                    self.homes[id(tensor)] = (module, name)
        self.know(tensor, ref)
        return ref

    def is_stored(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter or a buffer of a module that is running, or of the model."""
        if isinstance(tensor, Parameter):
            return True
        scope = self.scope
        while scope >= 0:
            outer, module = self.scopes[4 * scope : 4 * scope + 2]
            for name, buffer in module._buffers.items():
                if buffer is tensor:
                    self.homes[id(tensor)] = (module, name)
                    return True
            scope = outer
        if self._buffers is None:
            named = self.model.named_buffers() if self.model is not None else ()
            self._buffers = {id(buffer): (name, buffer) for name, buffer in named}
        name, held = self._buffers.get(id(tensor), ("", None))
        if held is tensor:
            assert self.model is not None
            self.homes[id(tensor)] = (self.model, name)
        return held is tensor

    def know(self, tensor: Tensor, ref: int) -> None:
        """From now on this tensor holds that value."""
        key = id(tensor)
        self.known[key] = ref
        version = version_of(tensor)
        if version or key in self.versions:
            self.versions[key] = version

    def claim(self, out: Any, node: int) -> int:
        """Know every tensor in a result; how many there were."""
        slot = -1
        for slot, tensor in enumerate(leaves(out)):
            self.know(tensor, node << SLOT_BITS | slot)
        return slot + 1

    def claim_all(self, out: Any, written: list[Tensor], node: int) -> int:
        """Know every tensor in a result, and those written but not returned: they are further tensors of the row."""
        returned = self.claim(out, node)
        if not written:
            return returned
        answers = {id(tensor) for tensor in leaves(out)}
        extra = tuple(tensor for tensor in written if id(tensor) not in answers)
        for slot, tensor in enumerate(extra, returned):
            self.know(tensor, node << SLOT_BITS | slot)
        if extra:
            self.writers[node] = extra
        return returned + len(extra)

    def add(self, mark: str, out: Any, refs: list[int], args: tuple[Any, ...] = (), note: str = "") -> int:
        """A row for something that was not a call; the ref of its first tensor."""
        node = self.count
        self.claim(out, node)
        self.count = node + 1
        call = MARKS[mark]
        begin = len(self.refs)
        self.refs += refs
        self.append((call, args, None, out, begin, self.scope, None, 0, 0))
        if note:
            self.notes[node] = note
        if self.after is not None:
            self.after(node, call, out)
        return node << SLOT_BITS

    def called_by(self, node: int, frame: FrameType) -> None:
        """A row that was no call is the work of this line after all."""
        self.rows[node * WIDTH + CODE : node * WIDTH + CODE + 2] = frame.f_code, frame.f_lasti

    def made_memory(self, node: int, tensor: Tensor) -> bool:
        """Whether a row gave its result new memory, or was the last to write to it: older rows cannot share it."""
        call, args = self.rows[node * WIDTH : node * WIDTH + 2]
        if call.mark or call.view or call.level == "aten" or call.name == "set_data":
            return False
        return node in self.wrote or not any(value is tensor for value in args)

    def unseen(self) -> AbstractContextManager[Any]:
        """For work of our own: no subclass, no other recorder and no dispatch mode of ours takes it for the model's."""
        return torch._C.DisableTorchFunction() if not self.careful else Unseen(self)

    def was_read(self, ref: int) -> bool:
        """Whether a later row took this value."""
        following = (ref >> SLOT_BITS) + 1
        return following < self.count and ref in self.refs[self.rows[following * WIDTH + REFS] :]

    def row(self, node: int) -> Row:
        """One row, to be read."""
        start = node * WIDTH
        row = Row(*self.rows[start : start + WIDTH])
        end = self.rows[start + WIDTH + REFS] if node + 1 < self.count else len(self.refs)
        return row._replace(refs=self.refs[row.refs : end])

    def inputs(self) -> Iterator[tuple[int, Tensor]]:
        """The tensors that came in as inputs and are still here, with their refs."""
        for node in range(self.count):
            if self.rows[node * WIDTH] is MARKS["input"]:
                for tensor in self.outputs(node):
                    if isinstance(tensor, Tensor):
                        yield node << SLOT_BITS, tensor

    # -- values ------------------------------------------------------------------------------------------------------

    def keeps(self, ref: int) -> bool:
        """Whether a value is kept by reference and must not change."""
        if self.saved is None or ref in self.saved or ref < 0:
            return True
        return not hasattr(self.rows[(ref >> SLOT_BITS) * WIDTH + OUT], "metas")  # not decided yet

    def returned(self, node: int) -> int:
        """How many of a row's tensors are its value; where a call returns none, `x[0] = y`, what it wrote is."""
        out = self.rows[node * WIDTH + OUT]
        if self.saved is not None and hasattr(out, "metas"):
            return int(out.returned)
        count = len(leaves(out))
        return count if count else len(self.writers.get(node, ()))

    def outputs(self, node: int) -> list[Any]:
        """The tensors of a row: what it returned, then what else it wrote; what is known of them once let go."""
        out = self.rows[node * WIDTH + OUT]
        if self.saved is not None and hasattr(out, "metas"):
            return list(out.metas)
        if self._several[0] == node and self._several[1] is out:
            return self._several[2]
        found = leaves(out)
        found = [*found, *self.writers[node]] if node in self.writers else found
        if len(found) > 8 and self.saved is None:  # asked for one after the other, by their places
            self._several = (node, out, found)
        return found

    def values_since(self, node: int, stored: int) -> Iterator[tuple[int, Tensor]]:
        """Every live value from a row and a stored tensor on, with its ref."""
        for number in range(stored, len(self.stored)):
            yield ~number, self.stored[number]
        for row in range(node, self.count):
            for slot, tensor in enumerate(self.outputs(row)):
                ref = row << SLOT_BITS | slot
                if not isinstance(tensor, Tensor):
                    tensor = self.live[ref]() if ref in self.live else None
                if tensor is not None:
                    yield ref, tensor

    def value(self, ref: int) -> Tensor:
        """The tensor a ref names, as it was; raises ValueUnavailable."""
        return bare(self._held(ref))

    def exact(self, ref: int) -> Tensor:
        """The value as it ran, for replay."""
        if ref in self.altered:
            raise ValueUnavailable("it was stored in another form (device, dtype or transform)")
        tensor = self._held(ref)
        if is_wrapped(tensor):
            raise ValueUnavailable("values inside vmap, grad or jvp live only while the transform runs")
        return tensor

    def _held(self, ref: int) -> Tensor:
        copied = self.memory.kept(ref)
        if copied is not None:
            return copied
        if ref in self.memory.lost:
            raise ValueUnavailable(self.memory.lost[ref])
        if self.saved is None or ref < 0:
            tensor = self.stored[~ref] if ref < 0 else self.outputs(ref >> SLOT_BITS)[ref & SLOT_MASK]
            version = self.versions.get(id(tensor), 0)
        elif ref in self.saved:
            tensor, version = self.saved[ref]
        else:
            raise ValueUnavailable("it was not saved: layers_to_save did not ask for it")
        now = version_of(tensor)
        if now != version and not self.memory.accounts_for(tensor, ref, version, now):
            if id(tensor) not in self.unsettled and not is_empty(tensor):
                raise ValueUnavailable("it was written in place after the pass; tl.Save(guard='clone') keeps copies")
        if is_freed(tensor):
            raise ValueUnavailable(
                "its memory was freed by the model (FSDP does that); tl.Save(guard='clone') keeps copies"
            )
        return tensor

    # -- modules, called by `modules` --------------------------------------------------------------------------------

    def entered(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A root call."""
        if self.scopes[4 * self.scope] < 0 and self.inputs_from_call:
            for tensor in tensors_in((args, kwargs)):
                if id(tensor) not in self.known and not self.is_stored(tensor):
                    self.add("input", tensor, [])
