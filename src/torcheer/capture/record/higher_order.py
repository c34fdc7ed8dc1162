"""Higher-order operators: `cond`, `while_loop`, `scan`, `map` and their kind take functions, and run them.

Plain torch has dynamo trace these functions and runs the graph as one closed operation. Under a recorder they run by
their Python meaning (take the branch, loop, stack), so that what is inside is recorded and has gradients. Dynamo still
traces them, without running anything: so the same programs are refused with the same words, and we learn which tensors
the functions close over. Under vmap, while exporting and where another dispatch mode is on, Python's meaning is not
theirs: there plain torch runs them, as one operation with a note. Nothing is registered in torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from torcheer.capture.record import module_stack
from torcheer.capture.record.function_table import Call
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.tensor_trees import leaves

CLOSED = "a higher-order operator, run as one operation: here its functions cannot be run by their Python meaning"
JOINED = "tensors that only the branch not taken reads get a gradient of zero, as in plain torch"
SCANNED = "scan ran step by step; with gradients plain torch compiles its step, so results may differ in the last bits"

_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
_frame = sys._getframe
_PLACES = tuple(f"{torch.__path__[0]}/{place}" for place in ("_higher_order_ops/", "nn/attention/flex_attention.py"))

Compile = Callable[..., Any]


def wrapper_of(function: Any) -> str:
    """The operator that one of torch's own functions hands to `torch.compile`: "cond"; "" for anybody else's."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.startswith(_PLACES):
        return ""
    name: str = function.__qualname__.partition(".")[0]
    return name if name in _WRAPPED else ""


def call_wrapper(
    recorder: Recorder, compile: Compile, alone: bool, function: Any, options: Any, *args: Any, **kwargs: Any
) -> Any:
    """What the compiled wrapper of an operator does while a recorder is on.

    Dynamo can only trace while nothing forces compiled code to run eagerly, and that is one switch for all threads: so
    it traces only if this thread is `alone` in capturing.
    """
    if recorder not in _get_current_function_mode_stack():
        return _plain(compile, function, options, *args, **kwargs)
    name = wrapper_of(function)
    if not _is_eager(name, args, kwargs):
        whole = functools.partial(_plain, compile, function, options)
        with _aside(recorder):
            return _closed(recorder, Call(whole, name, f"torch.{name}"), args, kwargs, _frame(1))
    operands = leaves((args, kwargs))
    if not recorder.inside_higher and alone:
        operands = _traced(compile, function, args, kwargs) or operands
    if name == "scan" and SCANNED not in recorder.remarks and _takes_gradients(operands):
        recorder.remarks.append(SCANNED)
    recorder.inside_higher += 1
    try:
        out = (_WRAPPED[name] or function)(*args, **kwargs)
    finally:
        recorder.inside_higher -= 1
    with _aside(recorder):
        return _joined(recorder, Call(None, name, f"torch.{name}"), out, operands, _frame(1))


def call_operator(
    recorder: Recorder, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
) -> Any:
    """One call of an operator itself, by its wrapper, an exported program or a person."""
    name = call.function.name()
    meaning = _MEANINGS.get(name)
    if meaning is None or not _is_eager(name, args, kwargs):
        return _closed(recorder, call, args, kwargs, frame)
    _push(recorder)
    try:
        out = meaning(*args, **kwargs)
    finally:
        _pop()
    if _calls_for(frame):
        return out
    return _joined(recorder, call, out, leaves((args, kwargs)), frame)


def _calls_for(frame: FrameType | None) -> bool:
    """Whether a wrapper called the operator, not somebody directly."""
    while frame is not None and (
        frame.f_code.co_name == "__call__" or frame.f_code.co_filename.endswith(("/overrides.py", "/_ops.py"))
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_PLACES)


def _is_eager(name: str, args: Any, kwargs: Any) -> bool:
    """Whether nothing but plain tensors and our own modes are about."""
    if torch._C._functorch.maybe_current_level() is not None or torch._C._get_tracing_state() is not None:
        return False
    if torch.compiler.is_compiling() or any(not is_ours(mode) for mode in _get_current_dispatch_mode_stack()):
        return False
    if name == "flex_attention" and torch._C._is_any_autocast_enabled():  # it casts before it runs
        return False
    return not any(torch._C._dispatch_keys(tensor).has("Python") for tensor in leaves((args, kwargs)))


def is_ours(mode: Any) -> bool:
    """Whether a dispatch mode is a recorder's."""
    return isinstance(getattr(mode, "recorder", None), Recorder)


@contextmanager
def _aside(*recorders: Any) -> Iterator[None]:
    """Without these recorders, or without any, as inside their own `__torch_function__`."""
    modes = _get_current_function_mode_stack()
    staying = [mode for mode in modes if mode not in recorders and (recorders or not isinstance(mode, Recorder))]
    _exchange(modes, staying)
    try:
        yield
    finally:
        _exchange(staying, modes)


def _exchange(old: list[Any], new: list[Any]) -> None:
    for _ in old:
        _pop()
    for mode in new:
        _push(mode)


# -- as plain torch runs them ----------------------------------------------------------------------------------------


def _closed(recorder: Recorder, call: Call, args: Any, kwargs: Any, frame: FrameType) -> Any:
    before = recorder.count
    out = recorder.record(call, args, kwargs, frame)
    if recorder.count > before:
        recorder.notes.setdefault(recorder.count - 1, CLOSED)
    return out


def _plain(compile: Compile, function: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
    with _aside(), _plainly():
        return compile(function, **options)(*args, **kwargs)


def _traced(compile: Compile, function: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Let dynamo look at the functions, as plain torch does; every tensor that they read."""
    with _aside(), _plainly():
        try:
            compile(function, backend=_stop, fullgraph=True)(*args, **kwargs)
        except _Traced as found:
            return [value for value in found.inputs if isinstance(value, Tensor)]
    return []


class _Traced(Exception):
    """Tracing went well; what the graph would have been given."""

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self.inputs = inputs


def _stop(graph: Any, examples: Any) -> Callable[..., Any]:
    """A compiler whose programs stop before they start."""

    def program(*inputs: Any) -> Any:
        raise _Traced(inputs)

    return program


@contextmanager
def _plainly() -> Iterator[None]:
    """Dynamo as it would be if nobody recorded, and what it counts unchanged."""
    from torch._dynamo.utils import counters

    counted = dict(counters["frames"])
    with ExitStack() as stack:
        modes = _get_current_dispatch_mode_stack()
        if modes and all(is_ours(mode) for mode in modes):
            stack.enter_context(_disable_current_modes())
        stack.enter_context(module_stack.resting())
        stack.enter_context(torch.compiler.set_stance("default"))
        try:
            yield
        finally:
            counters["frames"].clear()
            counters["frames"].update(counted)


# -- by their Python meaning -----------------------------------------------------------------------------------------


def _cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any, **options: Any) -> Any:
    spec = next((cell.cell_contents for cell in getattr(body_fn, "__closure__", None) or () if _is_spec(cell)), None)

    def body(*values: Any) -> Any:
        return tuple(pytree.tree_leaves(body_fn(*values)))

    dense = _kernel("while_loop")
    out = dense(cond_fn, body if spec is not None else body_fn, carried_inputs, additional_inputs, **options)
    return pytree.tree_unflatten(out, spec)[0] if spec is not None else out


def _is_spec(cell: Any) -> bool:
    return isinstance(cell.cell_contents, pytree.TreeSpec)


def _scan(combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> Any:
    carry, columns = list(init), []
    for step in range(xs[0].shape[0]):
        out = combine_fn(*carry, *(x.select(0, step) for x in xs), *additional_inputs)
        flat = pytree.tree_leaves(out)
        carry = flat[: len(init)]
        columns.append(flat[len(init) :])
    stacked = [torch.stack(column) if isinstance(column[0], Tensor) else None for column in zip(*columns, strict=True)]
    flat = [*carry, *stacked]
    return (
        pytree.tree_unflatten(flat, pytree.tree_structure(out))
        if isinstance(combine_fn, functools.partial)
        else tuple(flat)
    )


def _associative_scan(combine_fn: Any, xs: Any, additional_inputs: Any) -> Any:
    out = _kernel("associative_scan")(combine_fn, xs, additional_inputs)  # in torch's own order of combination
    spec = getattr(combine_fn, "keywords", {}).get("spec")
    return out if spec is None else pytree.tree_unflatten(out, spec)


def _map(f: Any, xs: Any, pos_args: Any) -> Any:
    return _kernel("map_impl")(f, xs, pos_args)


def _flex_attention(*args: Any, **kwargs: Any) -> Any:
    return _kernel("flex_attention")(*args, **kwargs)


def _kernel(name: str) -> Callable[..., Any]:
    """What torch itself runs once nothing else wants the call."""
    kernel: Callable[..., Any] = getattr(torch.ops.higher_order, name).py_kernels[
        torch._C.DispatchKey.CompositeExplicitAutograd
    ]
    return kernel


_MEANINGS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "associative_scan": _associative_scan,
    "map_impl": _map,
    "flex_attention": _flex_attention,
}
# Wrappers by name, and what runs in their place; None: the wrapper itself, which then calls its operator.
_WRAPPED: dict[str, Callable[..., Any] | None] = {"cond": _cond, **dict.fromkeys(("while_loop", "scan", "map"))}
_WRAPPED |= dict.fromkeys(("associative_scan", "flex_attention", "strict_mode", "invoke_subgraph"))


# -- gradients -------------------------------------------------------------------------------------------------------


class _Join(torch.autograd.Function):
    """The same tensors, which now depend on others too, with a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.others = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors[count:]]
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        zeros = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.others]
        return None, *gradients, *zeros


def _joined(recorder: Recorder, call: Call, out: Any, operands: list[Tensor], frame: FrameType) -> Any:
    """In plain torch every result requires grad if any operand does, and every such operand gets a gradient."""
    operands = [tensor for tensor in operands if tensor.requires_grad]
    if not _takes_gradients(operands):
        return out
    flat, spec = pytree.tree_flatten(out)
    places = [place for place, value in enumerate(flat) if isinstance(value, Tensor) and _is_differentiable(value)]
    results = [flat[place] for place in places]
    with recorder.unseen():
        others = _unreached(results, operands)
    if not results or (not others and all(tensor.requires_grad for tensor in results)):
        return out
    join = Call(functools.partial(_join, others or operands[:1]), call.name, call.where)
    node = recorder.count
    for place, tensor in zip(places, recorder.record(join, tuple(results), {}, frame), strict=True):
        flat[place] = tensor
    recorder.notes[node] = JOINED
    return pytree.tree_unflatten(flat, spec)


def _join(others: list[Tensor], *results: Tensor) -> tuple[Tensor, ...]:
    joined: tuple[Tensor, ...] = _Join.apply(len(results), *results, *others)
    return joined


def _takes_gradients(operands: list[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in operands)


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _unreached(results: list[Tensor], operands: list[Tensor]) -> list[Tensor]:
    """The operands that no result depends on."""
    edges = {torch.autograd.graph.get_gradient_edge(tensor)[:2]: tensor for tensor in operands}
    waiting: list[Any] = [
        torch.autograd.graph.get_gradient_edge(tensor)[:2] for tensor in results if tensor.requires_grad
    ]
    seen: set[Any] = set()
    while waiting:
        edge = waiting.pop()
        if edge not in seen:
            seen.add(edge)
            if edge not in edges:
                waiting += [following for following in edge[0].next_functions if following[0] is not None]
    return [tensor for edge, tensor in edges.items() if edge not in seen]
