"""The inside of a fused kernel, computed when somebody reads a value of it.

The first time that a module of some configuration meets a kernel, its explicit path runs beside it, and the rows that
it recorded become a *pattern*: functions, settings, shapes, and where each argument comes from. The next module of the
same configuration, on inputs of the same form, would record the same rows, so they are added from the pattern, without
values. Reading a value runs the rows, in order, on the recorded inputs and parameters: not the module, which may have
been changed since. What a pattern cannot say (random numbers, writes, nested tensors) is computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.released_values import CELLS, ReleasedOutputs, add_facts
from torcheer.capture.record.tensor_trees import (
    ABSENT,
    ATOMS,
    argument_leaves,
    argument_tensors,
    leaves,
    replace,
    without_tensors,
)
from torcheer.capture.torch_state import dispatch_mode_count, exact_modes, function_modes, is_autocasting, version_of
from torcheer.errors import ValueUnavailable
from torcheer.records import BESIDE

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder

_PARAMETER, _ARGUMENT, _INSIDE = range(3)
_MODULE_NAMES = frozenset(vars(Module()))  # of every module: hooks, parameters, submodules
_MOST_PATTERNS = 256
WRITTEN = "was written in place after the pass; read a value before, or capture with tl.Save(guard='clone')"


class _Source(NamedTuple):
    """Where a value of the inside comes from."""

    kind: int  # _PARAMETER, _ARGUMENT or _INSIDE
    number: int  # among these; of the inside, its ref, counted from the first row


class _PatternRow(NamedTuple):
    """One operation of a pattern."""

    call: Any
    args: Any
    kwargs: Any
    outputs: tuple[Any, ...]  # cells of facts, without the weak reference
    refs: tuple[_Source, ...]
    scope: int  # -1: that of the kernel
    code: Any
    lasti: int
    caller: Any


class _PatternCall(NamedTuple):
    """One module call of a pattern."""

    outer: int
    path: str
    code: Any
    lasti: int
    inputs: Any


class _Pattern(NamedTuple):
    rows: tuple[_PatternRow, ...]
    scopes: tuple[_PatternCall, ...]
    exits: tuple[Any, ...]
    calls: frozenset[Any]  # the functions of its rows


@dataclass(frozen=True, slots=True, eq=False)
class DeferredInside:
    """Rows whose values were not computed yet, with the modes in which they would have been."""

    nodes: range
    parameters: dict[int, tuple[Tensor, int]]  # ref -> its memory (`model.to` gives a parameter another), and version
    inference: bool
    grad: bool


_patterns: dict[Any, _Pattern] = {}


class FusedCall:
    """A forward that is about to call a fused kernel, as far as a pattern is concerned."""

    def __init__(self, recorder: Recorder, module: Module, args: Any, kwargs: Any) -> None:
        self.recorder, self.module = recorder, module
        self.arguments = argument_tensors(args, kwargs)
        self.parameters: list[Parameter] = []
        self.key = self._key(args, kwargs) if _is_plain_run(recorder) else None
        self.start, self.first_scope, self.first_exit = recorder.count, len(recorder.scopes) // 4, len(recorder.exits)

    # -- what decides which operations run ---------------------------------------------------------------------------

    def _key(self, args: Any, kwargs: Any) -> Any:
        """Return all that the explicit path may depend on, tensors' numbers aside; None if a pattern is not safe."""
        settings = [leaf for leaf in argument_leaves(args, kwargs) if not isinstance(leaf[1], Tensor)]
        tensors = [_form(tensor) for tensor in self.arguments]
        modules = [self._configuration(path, part) for path, part in self.module.named_modules()]
        if None in tensors or None in modules or any(type(value) not in ATOMS for _, value in settings):
            return None
        same = [next(n for n, other in enumerate(self.arguments) if other is tensor) for tensor in self.arguments]
        return (*modules, *tensors, *same, *_torch_settings(), repr(settings))

    def _configuration(self, path: str, module: Module) -> Any:
        """Return the attributes and parameters of a module; None if it is none of torch's own, or in training."""
        if module.training or module._buffers or not type(module).__module__.startswith("torch.nn.modules."):
            return None
        attributes = [(name, value) for name, value in vars(module).items() if name not in _MODULE_NAMES]
        if not all(_is_setting(value) for _, value in attributes):
            return None
        forms = []
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if type(parameter) is not Parameter or any(parameter is other for other in self.parameters):
                    return None
                self.parameters.append(parameter)
            forms.append((name, None if parameter is None else _form(parameter)))
        return (path, type(module), *attributes, *forms)

    # -- adding rows -------------------------------------------------------------------------------------------------

    def defer(self) -> bool:
        """Add the rows of the inside without their values; False if it must be computed at once."""
        pattern = _patterns.get(self.key) if self.key is not None else None
        if pattern is None or self.recorder.asks_for_inside(self.module, pattern.calls) or not self._knows_values():
            return False
        recorder = self.recorder
        sources = [
            [recorder.ref_of(parameter) for parameter in self.parameters],
            [recorder.ref_of(tensor) for tensor in self.arguments],
        ]
        start = self.start << SLOT_BITS

        def ref_of(source: _Source) -> int:
            return start + source.number if source.kind == _INSIDE else sources[source.kind][source.number]

        self._add_scopes(pattern, ref_of)
        for row in pattern.rows:
            self._add_row(row, ref_of)
        if recorder.saved is None:
            nodes = range(self.start, recorder.count)
            held = {ref: _held(part) for ref, part in zip(sources[0], self.parameters, strict=True)}
            inside = DeferredInside(nodes, held, torch.is_inference_mode_enabled(), torch.is_grad_enabled())
            recorder.deferred.update(dict.fromkeys(nodes, inside))
        return True

    def _knows_values(self) -> bool:
        """Whether each tensor has a ref, or gets one without a row of its own."""
        recorder = self.recorder
        for tensor in (*self.arguments, *self.parameters):
            key = id(tensor)
            if recorder.find_ref(key) is None:
                if type(tensor) is not Parameter or key in recorder.memory.stale or key in recorder.memory.exposed:
                    return False
            elif version_of(tensor) != recorder.versions.get(key, 0):
                return False
        return True

    def _add_scopes(self, pattern: _Pattern, ref_of: Callable[[Any], int]) -> None:
        recorder, first = self.recorder, self.first_scope
        for call in pattern.scopes:
            outer = first + call.outer if call.outer >= 0 else recorder.scope
            recorder.scopes += (outer, self.module.get_submodule(call.path), call.code, call.lasti)
            recorder.call_inputs.append(_mapped_inputs(call.inputs, ref_of))
        for scope, refs in zip(pattern.exits[::2], pattern.exits[1::2], strict=True):
            recorder.exits += (first + scope, _mapped_refs(refs, ref_of))

    def _add_row(self, row: _PatternRow, ref_of: Callable[[Any], int]) -> None:
        recorder = self.recorder
        node, begin, facts = recorder.count, len(recorder.refs), recorder.facts
        offset, count = len(facts), len(row.outputs)
        for cells in row.outputs:
            facts += (_gone, *cells)
        out = offset if count == 1 else ReleasedOutputs(offset, count, count)
        recorder.refs += map(ref_of, row.refs)
        scope = self.first_scope + row.scope if row.scope >= 0 else recorder.scope
        recorder.append((row.call, row.args, row.kwargs, out, begin, scope, row.code, row.lasti, 0))
        recorder.notes[node] = BESIDE
        if row.caller is not None:
            recorder.callers[node] = row.caller
        recorder.count = node + 1

    # -- making a pattern --------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Make a pattern of the rows that the explicit path recorded, where they say all of it."""
        if self.key is None or self.key in _patterns:
            return
        recorder = self.recorder
        nodes = range(self.start, recorder.count)
        special = (recorder.random_states, recorder.inplace_nodes, recorder.extra_writes, recorder.autocast)
        if any(node in facts for facts in special for node in nodes):
            return
        try:
            rows = tuple([self._pattern_row(node) for node in nodes])
            scopes = tuple([self._pattern_call(scope) for scope in range(self.first_scope, len(recorder.scopes) // 4)])
            exits = recorder.exits[self.first_exit :]
            exits[::2] = [scope - self.first_scope for scope in exits[::2]]
            exits[1::2] = [_mapped_refs(refs, self._source_of) for refs in exits[1::2]]
        except _NoPattern:
            return
        if len(_patterns) >= _MOST_PATTERNS:
            _patterns.clear()
        _patterns[self.key] = _Pattern(rows, scopes, tuple(exits), frozenset(row.call for row in rows))

    def _pattern_row(self, node: int) -> _PatternRow:
        recorder = self.recorder
        row = recorder.row(node)
        args, kwargs = without_tensors(row.args), without_tensors(row.kwargs or {})
        plain = all(value is ABSENT or type(value) in ATOMS for _, value in argument_leaves(args, kwargs))
        if row.call.mark or not plain or node in recorder.modes:
            raise _NoPattern
        facts = recorder.facts
        offsets: Any = recorder.released_at(node)
        if not offsets:
            facts = []
            for tensor in leaves(row.out):
                add_facts(facts, tensor)
            offsets = range(0, len(facts), CELLS)
        outputs = tuple([tuple(facts[offset + 1 : offset + CELLS]) for offset in offsets])
        if not all(type(cells[0]) is torch.Size for cells in outputs):
            raise _NoPattern
        refs = tuple([self._source_of(ref) for ref in row.refs])
        scope = row.scope - self.first_scope if row.scope >= self.first_scope else -1
        caller = recorder.callers.get(node)
        return _PatternRow(row.call, args, kwargs or None, outputs, refs, scope, row.code, row.lasti, caller)

    def _pattern_call(self, scope: int) -> _PatternCall:
        recorder = self.recorder
        outer, module, code, lasti = recorder.scopes[4 * scope : 4 * scope + 4]
        path = next((path for path, part in self.module.named_modules() if part is module), None)
        if path is None or scope in recorder.object_outputs:
            raise _NoPattern
        inputs = _mapped_inputs(recorder.call_inputs[scope], self._source_of)
        return _PatternCall(outer - self.first_scope if outer >= self.first_scope else -1, path, code, lasti, inputs)

    def _source_of(self, ref: int) -> _Source:
        if ref >> SLOT_BITS >= self.start:
            return _Source(_INSIDE, ref - (self.start << SLOT_BITS))
        known = [self.recorder.find_ref(id(tensor)) for tensor in self.arguments]
        if ref in known:
            return _Source(_ARGUMENT, known.index(ref))
        for number, parameter in enumerate(self.parameters):
            if ref < 0 and self.recorder.stored[~ref] is parameter:
                return _Source(_PARAMETER, number)
        raise _NoPattern


class _NoPattern(Exception):
    """What was recorded depends on more than a pattern can say."""


def _is_plain_run(recorder: Recorder) -> bool:
    return not (
        recorder.has_edits
        or recorder.gradient_log is not None
        or recorder.distributed
        or recorder.dispatch_mode_on
        or len(function_modes()) > 1
        or dispatch_mode_count()
        or is_autocasting()
    )


def _form(tensor: Tensor) -> Any:
    """Return what of a tensor may decide which operations run on it; None if it is not plain."""
    if type(tensor) not in (Tensor, Parameter) or tensor.is_nested or tensor.layout is not torch.strided:
        return None
    return (
        tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, tensor.is_inference(),
        tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip


def _torch_settings() -> tuple[Any, ...]:
    """Return the settings by which torch chooses kernels, whose results may have other strides."""
    cuda = torch.backends.cuda
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled(),
    )  # fmt: skip


def _is_setting(value: Any) -> bool:
    """Whether an attribute can be part of a key: a number, text, some of them, or a function of torch."""
    if type(value) is tuple:
        return ATOMS.issuperset(map(type, value))
    return type(value) in ATOMS or (callable(value) and (getattr(value, "__module__", None) or "").startswith("torch"))


def _held(parameter: Parameter) -> tuple[Tensor, int]:
    """Return a parameter's memory, and its version; torch multiplies in another order if it requires no gradient."""
    with torch.inference_mode(False):
        return parameter.detach().requires_grad_(parameter.requires_grad), version_of(parameter)


def _gone() -> None:
    """Stand for the weak reference to a tensor that is not there."""


def _mapped_refs(refs: Any, change: Callable[[Any], Any]) -> Any:
    """Return the refs of a module's outputs, changed: one, or a plain tuple of them, with None for the unknown."""
    if type(refs) is tuple:
        return tuple([None if ref is None else change(ref) for ref in refs])
    return None if refs is None else change(refs)


def _mapped_inputs(inputs: Any, change: Callable[[Any], Any]) -> Any:
    """Return the inputs of a module call, changed: one ref, or (where, ref, setting) of each argument."""
    if type(inputs) is not tuple:
        return None if inputs is None else change(inputs)
    return tuple([(where, None if ref is None else change(ref), setting) for where, ref, setting in inputs])


# -- computing -------------------------------------------------------------------------------------------------------


def is_available(recorder: Recorder, inside: DeferredInside) -> bool:
    """Whether the values that the rows begin with can still be read."""
    try:
        for _ in _outer_values(recorder, inside):
            pass
    except ValueUnavailable:
        return False
    return True


def _outer_values(recorder: Recorder, inside: DeferredInside) -> Iterator[tuple[int, Tensor]]:
    for ref in {ref for node in inside.nodes for ref in recorder.row(node).refs}:
        if ref in inside.parameters and recorder.memory.preserved(ref) is None:
            value, version = inside.parameters[ref]
            if version_of(value) != version:
                raise ValueUnavailable(
                    f"the inside of a fused kernel is computed when it is read, and a weight {WRITTEN}"
                )
            yield ref, value
        elif ref >> SLOT_BITS < inside.nodes.start:
            yield ref, recorder.exact_value(ref)


def compute(recorder: Recorder, inside: DeferredInside) -> None:
    """Run the rows, and put their values where they would have been."""
    values = dict(_outer_values(recorder, inside))
    with torch.inference_mode(inside.inference), torch.set_grad_enabled(inside.grad), exact_modes((), ()):
        for node in inside.nodes:
            row = recorder.row(node)
            fresh = iter([values[ref] for ref in row.refs])
            args, kwargs = replace(row.args, fresh), replace(row.kwargs, fresh)
            out = row.call.function(*args, **(kwargs or {}))
            recorder.put_values(node, args, kwargs, out)
            values.update(enumerate(leaves(out), node << SLOT_BITS))
    for node in inside.nodes:
        del recorder.deferred[node]
