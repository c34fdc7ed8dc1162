"""Higher-order operators, which take functions and run them: `cond`, `while_loop`, `scan` …

Plain torch has dynamo trace these functions and runs the graph as one closed operation. Under a recorder they run by
their Python meaning (take the branch, loop, stack), so that the inner operations are recorded and have gradients.
Dynamo still traces them, without running anything: so the same programs are rejected with the same errors, and the
trace shows which tensors the functions close over. Under vmap, during export and with another dispatch mode active,
the Python meaning does not hold: there plain torch runs them, as one operation with a note. Nothing is registered in
torch.

With gradients plain torch runs a traced copy of the step of `scan` and `map`, whose last bits differ. There the model
gets plain torch's own result and the steps are computed beside it, unless an edit or `save_gradients` asks for them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torcheer.capture.ambient_state import RandomState
from torcheer.capture.record import module_stack
from torcheer.capture.record.function_table import TorchCall
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import (
    HIGHER_ORDER,
    dispatch_keys,
    dispatch_mode_count,
    dispatch_modes,
    dynamo_frames,
    eager_kernel,
    exact_modes,
    function_modes,
    is_autocasting,
    is_usable,
    pop_function_mode,
    push_function_mode,
    tracing_state,
    transform_level,
    without_dispatch_modes,
)
from torcheer.records import BESIDE, KERNEL

CLOSED = "a higher-order operator, run as one operation: here its functions cannot be run by their Python meaning"
JOINED = "tensors that only the branch not taken reads get a gradient of zero, as in plain torch"
REMARK = (
    "scan and map with gradients: the model got plain torch's own results; the steps inside were computed beside them, "
    "to be read; save_gradients=True puts them in its place"
)
REPLACED = (
    "scan and map ran step by step, because an edit or save_gradients asked for their inside; "
    "plain torch runs a traced copy of the step, so results may differ in the last bits"
)

_frame = sys._getframe
_TORCH_SOURCES = tuple(
    f"{torch.__path__[0]}/{place}" for place in ("_higher_order_ops/", "nn/attention/flex_attention.py")
)

Compile = Callable[..., Any]


def wrapper_of(function: Any) -> str:
    """Return the operator that a function of torch wraps ("cond"); "" for other functions."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.startswith(_TORCH_SOURCES):
        return ""
    name: str = function.__qualname__.partition(".")[0]
    return name if name in _WRAPPED else ""


def call_wrapper(
    recorder: Recorder, compile: Compile, alone: bool, function: Any, options: Any, *args: Any, **kwargs: Any
) -> Any:
    """Run the compiled wrapper of an operator while a recorder is active.

    Dynamo can only trace while nothing forces compiled code to run eagerly, and that switch is shared by all threads:
    so it traces only if `alone`, that is, if no other thread captures.
    """
    if recorder not in function_modes():
        return _run_compiled(compile, function, options, *args, **kwargs)
    name = wrapper_of(function)
    if not _is_eager(name, args, kwargs):
        closed = functools.partial(_run_compiled, compile, function, options)
        with _without_recorders(recorder):
            return _run_closed(recorder, TorchCall(closed, name, f"torch.{name}"), args, kwargs, _frame(1))
    operands = leaves((args, kwargs))
    is_outermost = not recorder.higher_order_depth
    if is_outermost and alone:
        operands = _trace_operands(compile, function, args, kwargs) or operands
    if is_outermost:
        recorder.ran_traced_step = False
    recorder.ran_traced_step |= name in _TRACED_WITH_GRADIENTS
    start, random_state = recorder.count, RandomState() if is_outermost else None
    recorder.higher_order_depth += 1
    try:
        out = (_WRAPPED[name] or function)(*args, **kwargs)
    finally:
        recorder.higher_order_depth -= 1
    if random_state is not None and recorder.ran_traced_step and _takes_gradients(operands):
        replaced = not alone or recorder.has_edits or recorder.gradient_log is not None
        _note_once(recorder, REPLACED if replaced else REMARK)
        if not replaced:
            random_state.restore()
            for node in range(start, recorder.count):
                recorder.notes.setdefault(node, BESIDE)
            plain = functools.partial(_run_compiled, compile, function, options)
            with _without_recorders(recorder):
                return _run_closed(recorder, TorchCall(plain, name, f"torch.{name}"), args, kwargs, _frame(1), KERNEL)
    with _without_recorders(recorder):
        return _join_operands(recorder, TorchCall(None, name, f"torch.{name}"), out, operands, _frame(1))


def _note_once(recorder: Recorder, note: str) -> None:
    if note not in recorder.run_notes:
        recorder.run_notes.append(note)


def call_operator(
    recorder: Recorder, call: TorchCall, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
) -> Any:
    """Run a direct call of an operator: by its wrapper, an exported program or user code."""
    name = call.function.name()
    meaning = _PYTHON_MEANINGS.get(name)
    options = None if meaning is None else _understood(meaning, call.function, args, kwargs)
    if meaning is None or options is None or not _is_eager(name, args, kwargs):
        return _run_closed(recorder, call, args, kwargs, frame)
    push_function_mode(recorder)
    try:
        out = meaning(*args, **options)
    finally:
        pop_function_mode()
    if _is_wrapper_call(frame):
        return out
    return _join_operands(recorder, call, out, leaves((args, kwargs)), frame)


def _understood(meaning: Callable[..., Any], operator: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the keywords for a Python meaning; None where a newer torch asks for more than it means.

    An option that the meaning does not know is left out if it has its default.
    """
    signature = inspect.signature(meaning)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        return kwargs
    known = inspect.signature(type(operator).__call__).parameters
    options = {name: value for name, value in kwargs.items() if name in signature.parameters}
    others = {name: value for name, value in kwargs.items() if name not in signature.parameters}
    if any(name not in known or known[name].default != value for name, value in others.items()):
        return None
    try:
        signature.bind(*args, **options)
    except TypeError:
        return None
    return options


def _is_wrapper_call(frame: FrameType | None) -> bool:
    """Whether the operator was called by torch's wrapper rather than directly."""
    while frame is not None and (
        frame.f_code.co_name == "__call__" or frame.f_code.co_filename.endswith(("/overrides.py", "/_ops.py"))
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH_SOURCES)


def _is_eager(name: str, args: Any, kwargs: Any) -> bool:
    """Whether only plain tensors and torcheer's own modes are involved."""
    if not is_usable(HIGHER_ORDER) or transform_level() is not None or tracing_state() is not None:
        return False
    if torch.compiler.is_compiling() or dispatch_modes():
        return False
    if name == "flex_attention" and is_autocasting():  # it casts before it runs
        return False
    return not any(dispatch_keys(tensor).has("Python") for tensor in leaves((args, kwargs)))


def _without_recorders(*recorders: Any) -> AbstractContextManager[None]:
    """Deactivate these recorders (default: all), as inside `__torch_function__`."""
    return exact_modes(
        [mode for mode in function_modes() if mode not in recorders and (recorders or not isinstance(mode, Recorder))]
    )


# -- as plain torch runs them ----------------------------------------------------------------------------------------


def _run_closed(
    recorder: Recorder, call: TorchCall, args: Any, kwargs: Any, frame: FrameType, note: str = CLOSED
) -> Any:
    before = recorder.count
    out = recorder.record(call, args, kwargs, frame)
    if recorder.count > before:
        recorder.notes.setdefault(recorder.count - 1, note)
    return out


def _run_compiled(compile: Compile, function: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
    with _without_recorders(), _plain_dynamo():
        return compile(function, **options)(*args, **kwargs)


def _trace_operands(compile: Compile, function: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Let dynamo trace the functions, as plain torch does; return every tensor that they read."""
    with _without_recorders(), _plain_dynamo():
        try:
            compile(function, backend=_stop, fullgraph=True)(*args, **kwargs)
        except _TracingDone as done:
            return [value for value in done.inputs if isinstance(value, Tensor)]
    return []


class _TracingDone(Exception):
    """Tracing succeeded; carries the inputs of the traced graph."""

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self.inputs = inputs


def _stop(graph: Any, examples: Any) -> Callable[..., Any]:
    """A dynamo backend whose programs raise `_TracingDone` instead of running."""

    def program(*inputs: Any) -> Any:
        raise _TracingDone(inputs)

    return program


@contextmanager
def _plain_dynamo() -> Iterator[None]:
    """Run dynamo as it would run without a capture, and restore its counters."""
    counts_before = dict(dynamo_frames())
    with ExitStack() as stack:
        if dispatch_mode_count() and not dispatch_modes():  # only torcheer's own
            stack.enter_context(without_dispatch_modes())
        stack.enter_context(module_stack.paused())
        stack.enter_context(torch.compiler.set_stance("default"))
        try:
            yield
        finally:
            counts = dynamo_frames()
            counts.clear()
            counts.update(counts_before)


# -- by their Python meaning -----------------------------------------------------------------------------------------


def _cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any, **options: Any) -> Any:
    spec = next((cell.cell_contents for cell in getattr(body_fn, "__closure__", None) or () if _is_spec(cell)), None)

    def body(*values: Any) -> Any:
        return tuple(pytree.tree_leaves(body_fn(*values)))

    dense = eager_kernel("while_loop")
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
    out = eager_kernel("associative_scan")(combine_fn, xs, additional_inputs)  # in torch's own order of combination
    spec = getattr(combine_fn, "keywords", {}).get("spec")
    return out if spec is None else pytree.tree_unflatten(out, spec)


def _map(f: Any, xs: Any, pos_args: Any) -> Any:
    return eager_kernel("map_impl")(f, xs, pos_args)


def _flex_attention(*args: Any, **kwargs: Any) -> Any:
    return eager_kernel("flex_attention")(*args, **kwargs)


_PYTHON_MEANINGS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "associative_scan": _associative_scan,
    "map_impl": _map,
    "flex_attention": _flex_attention,
}
# Wrapper name -> what runs instead; None: the wrapper itself, which then calls its operator.
_WRAPPED: dict[str, Callable[..., Any] | None] = {"cond": _cond, **dict.fromkeys(("while_loop", "scan", "map"))}
_WRAPPED |= dict.fromkeys(("associative_scan", "flex_attention", "strict_mode", "invoke_subgraph"))
_TRACED_WITH_GRADIENTS = frozenset(("scan", "map"))  # views become copies there: other kernels, other last bits


# -- gradients -------------------------------------------------------------------------------------------------------


class _Join(torch.autograd.Function):
    """Make tensors depend on further tensors, with a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.others = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors[count:]]
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        zeros = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.others]
        return None, *gradients, *zeros


def _join_operands(recorder: Recorder, call: TorchCall, out: Any, operands: list[Tensor], frame: FrameType) -> Any:
    """Make results depend on every operand that requires grad, as plain torch does."""
    operands = [tensor for tensor in operands if tensor.requires_grad]
    if not _takes_gradients(operands):
        return out
    flat, spec = pytree.tree_flatten(out)
    places = [place for place, value in enumerate(flat) if isinstance(value, Tensor) and _is_differentiable(value)]
    results = [flat[place] for place in places]
    with recorder.paused():
        unreached = _unreached(results, operands)
    if not results or (not unreached and all(tensor.requires_grad for tensor in results)):
        return out
    join = TorchCall(functools.partial(_join, unreached or operands[:1]), call.name, call.where)
    node = recorder.count
    for place, tensor in zip(places, recorder.record(join, tuple(results), {}, frame), strict=True):
        flat[place] = tensor
    recorder.notes[node] = JOINED
    return pytree.tree_unflatten(flat, spec)


def _join(unreached: list[Tensor], *results: Tensor) -> tuple[Tensor, ...]:
    joined: tuple[Tensor, ...] = _Join.apply(len(results), *results, *unreached)
    return joined


def _takes_gradients(operands: list[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in operands)


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _unreached(results: list[Tensor], operands: list[Tensor]) -> list[Tensor]:
    """Return the operands that no result depends on."""
    edges = {torch.autograd.graph.get_gradient_edge(tensor)[:2]: tensor for tensor in operands}
    pending: list[Any] = [
        torch.autograd.graph.get_gradient_edge(tensor)[:2] for tensor in results if tensor.requires_grad
    ]
    visited: set[Any] = set()
    while pending:
        edge = pending.pop()
        if edge not in visited:
            visited.add(edge)
            if edge not in edges:
                pending += [edge_before for edge_before in edge[0].next_functions if edge_before[0] is not None]
    return [tensor for edge, tensor in edges.items() if edge not in visited]
