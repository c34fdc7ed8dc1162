"""Torch's inside: the private names that torcheer reads, and what it replaces in torch while code runs.

No other file of this room reads a private name of torch or replaces anything in it (`tests/test_house.py`). Each name
has a check of how it behaves in `torch_probes`, run before a feature that leans on it is first used (`require`,
`is_usable`): a feature whose check fails is refused or left out, with one sentence. Hot paths bind the names below at
import, so that a call through them costs nothing extra.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn import Module

from torcheer.errors import UnsupportedTorch
from torcheer.tap.compiled.eager_stance import EAGER_STANCE
from torcheer.terminal import warn_or_print

# -- private names ---------------------------------------------------------------------------------------------------

NAMES: dict[str, str] = {}  # each private name in use -> what for
TESTED = "2.9 to 2.15"  # versions of torch: docs/versions.md
_ADVICE = f"install a version of torch that torcheer is tested with ({TESTED})"


class _Missing:
    """Stands for a name that this torch does not have: any use of it says so."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `UnsupportedTorch`, naming what is missing and what it is for."""
        raise UnsupportedTorch(
            f"torch {torch.__version__} has no {self.name}, which torcheer needs to {NAMES[self.name]}; {_ADVICE}"
        )

    __call__ = __getattr__ = __getitem__ = __iter__ = refuse


def _private(name: str, use: str, instead: Any = None) -> Any:
    """Return what a private name of torch stands for; without it, `instead` or an object that refuses to be used."""
    NAMES[name] = use
    return _find(name, instead)


def _find(name: str, instead: Any = None) -> Any:
    try:
        return reduce(getattr, name.split(".")[1:], torch)
    except AttributeError:
        return _Missing(name) if instead is None else instead


# Modes
push_function_mode = _private("torch._C._push_on_torch_function_stack", "activate a recorder")
pop_function_mode = _private("torch._C._pop_torch_function_stack", "deactivate a recorder")
function_mode_count = _private("torch._C._len_torch_function_stack", "list the active function modes")
function_mode_at = _private("torch._C._get_function_stack_at", "list the active function modes")
dispatch_mode_count = _private("torch._C._len_torch_dispatch_stack", "list the active dispatch modes")
_dispatch_mode_at = _private("torch._C._get_dispatch_stack_at", "list the active dispatch modes")
_push_dispatch_mode = _private("torch._C._push_on_torch_dispatch_stack", "replay an operation under its modes")
_pop_dispatch_mode = _private("torch._C._pop_torch_dispatch_stack", "replay an operation under its modes")
without_dispatch_modes = _private("torch.utils._python_dispatch._disable_current_modes", "let dynamo trace")

# Overrides of torch's functions
DisableTorchFunction = _private("torch._C.DisableTorchFunction", "keep its own work out of recordings")
DisableTorchFunctionSubclass = _private("torch._C.DisableTorchFunctionSubclass", "read tensors below their subclass")
EnableTorchFunction = _private("torch._C._EnableTorchFunction", "record inside a custom backward")
is_override_enabled = _private("torch._C._is_torch_function_enabled", "open functions as torch would")
are_modes_disabled = _private("torch._C._is_torch_function_all_disabled", "know whether it is recording")
NO_FUNCTION_OVERRIDE = _private("torch._C._disabled_torch_function_impl", "tell plain tensors from subclasses")
NO_DISPATCH_OVERRIDE = _private("torch._C._disabled_torch_dispatch_impl", "tell plain tensors from subclasses")
BOOLEAN_DISPATCHED = _private("torch._jit_internal.boolean_dispatched", "open max_pool and its like", instead={})

# State of the thread
is_autocasting = _private("torch._C._is_any_autocast_enabled", "repeat an operation's autocast in replay")
tracing_state = _private("torch._C._get_tracing_state", "step aside while torch.jit traces")
backward_call = _private("torch._C._current_graph_task_id", "tell one backward call from another")
set_grad_enabled = _private("torch._C._set_grad_enabled", "switch torch's autograd off around an operation")

# torch.func
is_wrapped = _private("torch._C._functorch.is_functorch_wrapped_tensor", "recognise tensors inside vmap and grad")
inner_tensor = _private("torch._C._functorch.get_unwrapped", "read tensors inside vmap and grad")
transform_level = _private("torch._C._functorch.maybe_current_level", "know whether vmap or grad is active")
are_transforms_active = _private("torch._C._are_functorch_transforms_active", "know whether vmap or grad is active")

# The dispatcher
OpOverload = _private("torch._ops.OpOverload", "recognise an aten operation", instead=())
OpOverloadPacket = _private("torch._ops.OpOverloadPacket", "recognise an aten operation", instead=())
HigherOrderOperator = _private("torch._ops.HigherOrderOperator", "recognise cond, scan and their like", instead=())
DispatchKey = _private("torch._C.DispatchKey", "name the parts of the dispatcher")
dispatch_keys = _private("torch._C._dispatch_keys", "tell plain tensors from subclasses")
_included_keys = _private("torch._C._dispatch_tls_local_include_set", "run a composite as if no mode were active")
_excluded_keys = _private("torch._C._dispatch_tls_local_exclude_set", "run a composite as if no mode were active")
_KeyGuard = _private("torch._C._ForceDispatchKeyGuard", "run a composite as if no mode were active")
has_kernel = _private("torch._C._dispatch_has_kernel_for_dispatch_key", "recognise composite operations")

# Functions
DelayedError = _private("torch._C._functions.DelayedError", "make a lost autograd graph raise")
nested_from_mask = _private("torch._nested_tensor_from_mask", "give nested tensors back from attention")
FUSED_KERNELS = {
    "_transformer_encoder_layer_fwd": _private("torch._transformer_encoder_layer_fwd", "run the fused encoder layer"),
    "_native_multi_head_attention": _private("torch._native_multi_head_attention", "run the fused attention"),
}

# Modules: their hooks, which `_call_impl` runs
GLOBAL_HOOKS = tuple(
    _private(f"torch.nn.modules.module._global_{kind}_hooks", "call modules with their hooks")
    for kind in ("forward", "forward_pre", "backward", "backward_pre")
)

PARAMETER_HOOKS = _private(
    "torch.nn.modules.module._global_parameter_registration_hooks", "notice parameters that a model assigns"
)

# Looked up when asked for: they change, or their module is loaded late.
_UNSAFE_VIEW = "torch.ops.aten._unsafe_view.default"
_WORLD = "torch.distributed.distributed_c10d._world"
_FORWARD_AD_LEVEL = "torch.autograd.forward_ad._current_level"
_DYNAMO_BACKENDS = "torch._dynamo.eval_frame.cached_backends"
_DYNAMO_COUNTERS = "torch._dynamo.utils.counters"
_FSDP_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup"
_SWAP_CONTENTS = "torch._C._swap_tensor_impl"
NAMES |= {
    _UNSAFE_VIEW: "rebuild values from memory",
    _WORLD: "know whether a collective is only queued",
    _FORWARD_AD_LEVEL: "know whether forward-mode gradients are on",
    _DYNAMO_BACKENDS: "notice compiled code",
    _DYNAMO_COUNTERS: "leave dynamo's counters as they were",
    _FSDP_GROUP: "leave the gathering of FSDP out of recordings",
    _SWAP_CONTENTS: "follow tensors whose contents are swapped",
}

# Private attributes of torch's objects, read where they are needed (a call around each would cost more than the read).
ATTRIBUTES: dict[str, str] = {
    "Tensor._version": "notice that a value was written since",
    "Tensor._is_view": "know whether a value owns its memory",
    "UntypedStorage._cdata": "know which tensors share memory",
    "OpOverload._schema": "know what an operation writes",
    "Module._call_impl": "see module calls",
    "Module._compiled_call_impl": "run a compiled module as its original Python",
    "Module._parameters": "name parameters",
    "Module._buffers": "name buffers",
    "Module._modules": "walk a model quickly",
    "Module._forward_hooks": "call modules with their hooks",
    "Module._forward_pre_hooks": "call modules with their hooks",
    "Module._backward_hooks": "call modules with their hooks",
    "Module._backward_pre_hooks": "call modules with their hooks",
}

IMPORTED = ("torch.utils._pytree", "torch.utils._python_dispatch.TorchDispatchMode")  # by their users themselves


# -- features --------------------------------------------------------------------------------------------------------


class Feature(NamedTuple):
    """A part of torcheer, and the private names that it leans on besides those of `CAPTURE`."""

    names: tuple[str, ...]
    without: str  # what follows where one of them fails, after "so"


CAPTURE, REPLAY, AUTOGRAD = "capture", "replay", "autograd"
ATTENTION, NESTED, HIGHER_ORDER, SCRIPTED = "attention", "nested", "higher order", "scripted"
GRADIENTS, LOST_GRAPHS, UNDONE_WRITES, QUEUED = "gradients", "lost graphs", "undone writes", "queued collectives"
POOLING = "pooling"

FEATURES: dict[str, Feature] = {
    REPLAY: Feature(
        (
            "torch._C._push_on_torch_dispatch_stack", "torch._C._pop_torch_dispatch_stack",
            "torch._C._disabled_torch_dispatch_impl", _FORWARD_AD_LEVEL,
        ),
        "a history cannot be replayed",
    ),
    AUTOGRAD: Feature(("torch._C._EnableTorchFunction",), "the readable autograd cannot record"),
    ATTENTION: Feature(
        tuple(f"torch.{name}" for name in FUSED_KERNELS),
        "a fused attention kernel is recorded as one operation, without its inside",
    ),
    NESTED: Feature(
        ("torch._nested_tensor_from_mask",), "the inside of fused attention on nested tensors is not recorded"
    ),
    HIGHER_ORDER: Feature(
        ("torch._C.DispatchKey", "torch._C._dispatch_keys", "torch.utils._python_dispatch._disable_current_modes"),
        "cond, scan and their like are recorded as one operation each, without their inside",
    ),
    SCRIPTED: Feature(
        (
            "torch._C._dispatch_tls_local_include_set", "torch._C._dispatch_tls_local_exclude_set",
            "torch._C._ForceDispatchKeyGuard", "torch._C._dispatch_has_kernel_for_dispatch_key",
            "torch.utils._python_dispatch.TorchDispatchMode",
        ),
        "aten operations, also those inside TorchScript, are not recorded",
    ),
    GRADIENTS: Feature(("torch._C._current_graph_task_id",), "gradients of recorded values cannot be saved"),
    LOST_GRAPHS: Feature(
        ("torch._C._functions.DelayedError",), "values written in place cannot be kept with their autograd graph"
    ),
    UNDONE_WRITES: Feature((_UNSAFE_VIEW,), "values written in place cannot be kept with their autograd graph"),
    QUEUED: Feature((_WORLD,), "collectives in a coalescing block cannot be recorded"),
    POOLING: Feature(
        ("torch._jit_internal.boolean_dispatched",), "max_pool and its like are recorded by their inner function"
    ),
}  # fmt: skip
# Looked up with a substitute where they are used: without them dynamo's own statistics may count a capture, and FSDP's
# gathering is recorded as any work; where tensors are swapped in another way, their values are not followed.
SUBSTITUTED = (_DYNAMO_BACKENDS, _DYNAMO_COUNTERS, _FSDP_GROUP, _SWAP_CONTENTS)
_optional = {name for feature in FEATURES.values() for name in feature.names}.union(SUBSTITUTED)
FEATURES[CAPTURE] = Feature(
    tuple(name for name in (*NAMES, *ATTRIBUTES, *IMPORTED) if name not in _optional),
    "operations cannot be recorded",
)
_faults: dict[str, str] = {}  # feature -> why it cannot be used; "" where it can


def require(feature: str) -> None:
    """Raise `UnsupportedTorch` if a check of what a feature leans on fails; the checks run once."""
    if fault := _fault_of(feature):
        raise UnsupportedTorch(f"{fault}; {_ADVICE}")


def is_usable(feature: str) -> bool:
    """Whether the checks of what a feature leans on hold; the first time that they do not, say so."""
    is_new = feature not in _faults
    fault = _fault_of(feature)
    if fault and is_new:
        warn_or_print(f"{fault}; {_ADVICE}")
    return not fault


def _fault_of(feature: str) -> str:
    fault = _faults.get(feature)
    if fault is None:
        fault = _faults[feature] = _find_fault(FEATURES[feature])
    return fault


def _find_fault(feature: Feature) -> str:
    """Run the checks of a feature's names in a thread, where no mode of this one is active."""
    from torcheer.capture.torch_probes import failed

    with ThreadPoolExecutor(1, "torcheer-probes") as thread:
        problems = thread.submit(failed, feature.names).result()
    for name, problem in problems.items():
        return f"{name} of torch {torch.__version__} is not as torcheer needs it ({problem}), so {feature.without}"
    return ""


# -- what is made of the names ---------------------------------------------------------------------------------------


def version_of(tensor: Tensor) -> int:
    """Return torch's version counter of a tensor; of an inference tensor, which has none, where it lies.

    A DTensor's local part has a counter of its own, for writes past the DTensor: their sum.
    """
    try:
        if tensor.is_inference():
            return _place_of(tensor)
        version = tensor._version
        if type(tensor) is not Tensor and type(tensor).__name__ == "DTensor":
            version += getattr(tensor, tensor.__tensor_flatten__()[0][0])._version  # type: ignore[attr-defined]
        return version
    except (RuntimeError, ValueError):
        return 0


def _place_of(tensor: Tensor) -> int:
    """Return a number for where a tensor lies: `set_`, which no mode sees, changes it."""
    try:
        return hash((tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape))
    except (NotImplementedError, RuntimeError, ValueError):
        return 0


def unsafe_view(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return a tensor of the same memory that autograd does not count as a view."""
    viewed: Tensor = _find(_UNSAFE_VIEW)(tensor, sizes)
    return viewed


def is_forward_ad_on() -> bool:
    """Whether forward-mode gradients (`torch.autograd.forward_ad`) are being computed."""
    return bool(_find(_FORWARD_AD_LEVEL) >= 0)


def composite_guard() -> Any:
    """Return a context in which a composite runs as if no dispatch mode were active."""
    return _KeyGuard(_included_keys(), _excluded_keys().remove(DispatchKey.ADInplaceOrView))


def eager_kernel(operator: str) -> Callable[..., Any]:
    """Return torch's own eager implementation of a higher-order operator."""
    kernel: Callable[..., Any] = getattr(torch.ops.higher_order, operator).py_kernels[
        DispatchKey.CompositeExplicitAutograd
    ]
    return kernel


def is_coalescing(group: Any) -> bool:
    """Whether a process group (None: the default one) only queues collectives at present."""
    world = _find(_WORLD)
    return bool(world.pg_coalesce_state) and (group or world.default_pg) in world.pg_coalesce_state


def fsdp_group() -> type | None:
    """Return FSDP2's class of the weights that it gathers together; None if it is not loaded, or not in this torch."""
    return _find(_FSDP_GROUP, instead=()) or None


def gathered_weights(group: Any) -> list[tuple[Module, str, Tensor, Tensor]]:
    """Return the module and name of each weight that such a group has gathered, its shard, and the whole."""
    weights = []
    try:
        for weight in group.fsdp_params:
            home = weight._module_info
            weights.append((home.module, home.param_name, weight.sharded_param, weight.unsharded_param))
    except AttributeError:  # not gathered yet, or another torch: its weights are found as those of any model
        return []
    return weights


def anything_compiled() -> bool:
    """Whether torch.compile was ever called in this process; does not load dynamo."""
    if "torch._dynamo" not in sys.modules:
        return False
    backends = _find(_DYNAMO_BACKENDS, instead={0: True})
    return any(backend is not None for backend in backends.values())  # at its import dynamo notes a None of its own


def dynamo_frames() -> dict[str, int]:
    """Return dynamo's own counts of the frames it compiled, to be read or changed; loads dynamo."""

    counts: dict[str, int] = _find(_DYNAMO_COUNTERS, instead={}).get("frames", Counter())
    return counts


# -- modes -----------------------------------------------------------------------------------------------------------


def function_modes() -> tuple[Any, ...]:
    """Return the active function modes, outermost first: a default device, a user's mode."""
    return tuple(function_mode_at(place) for place in range(function_mode_count()))


def dispatch_modes() -> tuple[Any, ...]:
    """Return the active dispatch modes, outermost first, without torcheer's own."""
    modes = (_dispatch_mode_at(place) for place in range(dispatch_mode_count()))
    return tuple(mode for mode in modes if type(mode).__module__ != "torcheer.capture.special_cases.aten_level")


@contextmanager
def exact_modes(functions: Sequence[Any], dispatches: Sequence[Any] | None = None) -> Iterator[None]:
    """Activate exactly these modes; None leaves the dispatch modes as they are.

    Without calling `__enter__`: a counter mode may restart when entered.
    """
    changes = [(_FUNCTION_STACK, functions)] + ([(_DISPATCH_STACK, dispatches)] if dispatches is not None else [])
    before = [(stack, _replace_modes(stack, modes)) for stack, modes in changes]
    try:
        yield
    finally:
        for stack, modes in before:
            _replace_modes(stack, modes)


_Stack = tuple[Callable[[], int], Callable[[], Any], Callable[[Any], Any]]  # length, pop, push
_FUNCTION_STACK: _Stack = (function_mode_count, pop_function_mode, push_function_mode)
_DISPATCH_STACK: _Stack = (dispatch_mode_count, partial(_pop_dispatch_mode, None), _push_dispatch_mode)


def _replace_modes(stack: _Stack, modes: Sequence[Any]) -> list[Any]:
    """Replace the active modes; return the previous ones, outermost first."""
    count, pop, push = stack
    before = [pop() for _ in range(count())]
    for mode in modes:
        push(mode)
    return before[::-1]


class PausedRecording:
    """A context like `DisableTorchFunction` that pauses a recorder's dispatch mode, too."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._disabled = DisableTorchFunction()

    def __enter__(self) -> None:
        self._outer, self._recorder.dispatch_paused = self._recorder.dispatch_paused, True
        self._disabled.__enter__()

    def __exit__(self, *problem: Any) -> None:
        self._disabled.__exit__(*problem)
        self._recorder.dispatch_paused = self._outer


# -- replacements ----------------------------------------------------------------------------------------------------

# An attribute that is replaced: its owner, its name, and a function that makes the replacement from what it finds
# there (None: leave it).
Swap = tuple[Any, str, Callable[[Any], Any]]

# Where torch swaps the contents of two tensors: the function that people call, and the one that it ends with.
TENSOR_SWAP, CONTENT_SWAP = (torch.utils, "swap_tensors"), (torch._C, "_swap_tensor_impl")

MEMORY_SWAP = (Tensor, "set_")  # gives a tensor other memory; no mode hears of it

SWAPS: dict[str, Swaps] = {}  # all that torcheer may replace in torch, by purpose
originals: dict[Any, Any] = {}  # replacement -> the original, while it is replaced
_sharers: dict[int, int] = {}  # id of a replacement -> how many `Swaps` use it besides the one that made it
_lock = threading.RLock()
_ident = threading.get_ident


class Swaps:
    """What is replaced in torch while somebody is active: from the first user until the last one leaves.

    A replacement is seen by all threads. It looks its own thread up in `by_thread`, and if nobody is active there it
    only calls the original. `hooks` are made with the replacements; their `remove()` is called at the end.
    """

    def __init__(self, purpose: str, *table: Swap, hooks: Sequence[Callable[[], Any]] = ()) -> None:
        self.by_thread: dict[int, list[Any]] = {}  # thread -> its users, outermost first
        self.table = table
        self._hooks = hooks
        self._swapped: list[tuple[Any, str, Any]] = []  # owner, name, replacement
        self._handles: list[Any] = []
        SWAPS[purpose] = self

    def start(self, user: Any) -> None:
        """Activate a user in this thread."""
        with _lock:
            by_thread = self.by_thread
            if not by_thread:
                try:
                    self._install(self.table)
                    self._handles = [hook() for hook in self._hooks]
                except BaseException:
                    self._restore()
                    raise
            by_thread.setdefault(_ident(), []).append(user)

    def stop(self, user: Any) -> None:
        """Undo `start`, from any thread; the last user to leave restores torch."""
        with _lock:
            by_thread, thread = self.by_thread, _ident()
            if user not in by_thread.get(thread, ()):
                thread = next(other for other, users in by_thread.items() if user in users)
            users = by_thread[thread]
            users.remove(user)
            if not users:
                del by_thread[thread]
                if not by_thread:
                    self._restore()

    def __enter__(self) -> None:
        self.start(self)

    def __exit__(self, *_: object) -> None:
        self.stop(self)

    def swap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace one more attribute until the last user leaves."""
        with _lock:
            self._install([(owner, name, make)])

    def _install(self, table: Iterable[Swap]) -> None:
        for owner, name, make in table:
            found = owner.__dict__.get(name, getattr(owner, name, None) if isinstance(owner, type) else None)
            if id(found) in _sharers:
                replacement = found
                _sharers[id(found)] += 1
            else:
                replacement = make(found) if found is not None else None
                if replacement is None:
                    continue
                originals[replacement], _sharers[id(replacement)] = found, 0
                setattr(owner, name, replacement)
            self._swapped.append((owner, name, replacement))

    def _restore(self) -> None:
        for owner, name, replacement in self._swapped:
            if _sharers[id(replacement)]:
                _sharers[id(replacement)] -= 1
                continue
            original = originals.pop(replacement)
            del _sharers[id(replacement)]
            if owner.__dict__.get(name) is replacement:  # else other code replaced it since
                delattr(owner, name)
                if getattr(owner, name, None) is not original:  # it was not inherited
                    setattr(owner, name, original)
            if owner is Module:
                _restore_dynamo(replacement, original)
        self._swapped = []
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()


def _restore_dynamo(replacement: Any, original: Any) -> None:
    """Restore dynamo's copy of `_call_impl`, taken at its import, which may happen during a capture."""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call_impl", None) is replacement:
            module.unpatched_nn_module_call_impl = original  # type: ignore[union-attr]


class _Eager:
    """The stance for compiled functions, which holds for the whole process and is shared with passes beside them."""

    def __init__(self) -> None:
        EAGER_STANCE.__enter__()

    def remove(self) -> None:
        EAGER_STANCE.__exit__()


EAGER = Swaps("run compiled functions as their original Python", hooks=[_Eager])
