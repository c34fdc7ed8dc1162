"""Checks of how torch's private names behave, one per name in `torch_state`, run before a feature is first used.

A name may be kept by a new version of torch and mean something else: `failed()` says which of them do. A check leaves
no trace: no random number is drawn, nothing is registered that other threads see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torcheer.capture import torch_state as state

Probe = Callable[[], object]  # a true value if the name behaves as torcheer assumes
PROBES: dict[str, Probe] = {}
_C = "torch._C."


def failed(names: Iterable[str] = PROBES) -> dict[str, str]:
    """Probe these names (default: all); return those that this torch lacks or that behave otherwise, and how."""
    return {name: problem for name in names if (problem := _problem(PROBES[name]))}


def _problem(probe: Probe) -> str:
    try:
        return "" if probe() else "it behaves otherwise than in the versions that are tested"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _probe(*names: str) -> Callable[[Probe], Probe]:
    def add(probe: Probe) -> Probe:
        PROBES.update(dict.fromkeys(names, probe))
        return probe

    return add


class _SeenCalls(TorchFunctionMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Subclass(Tensor):
    pass


# -- modes -----------------------------------------------------------------------------------------------------------


@_probe(
    f"{_C}_push_on_torch_function_stack", f"{_C}_pop_torch_function_stack",
    f"{_C}_len_torch_function_stack", f"{_C}_get_function_stack_at",
)  # fmt: skip
def _function_stack() -> bool:
    mode, before = _SeenCalls(), state.function_mode_count()
    state.push_function_mode(mode)
    on_top = state.function_mode_count() == before + 1 and state.function_mode_at(before) is mode
    return state.pop_function_mode() is mode and on_top and state.function_mode_count() == before


@_probe(
    f"{_C}_push_on_torch_dispatch_stack", f"{_C}_pop_torch_dispatch_stack",
    f"{_C}_len_torch_dispatch_stack", f"{_C}_get_dispatch_stack_at",
)  # fmt: skip
def _dispatch_stack() -> bool:
    mode = _Dispatch()
    with state.exact_modes((), (mode,)):
        return state.dispatch_modes() == (mode,)


@_probe("torch.utils._python_dispatch._disable_current_modes")
def _no_dispatch_modes() -> bool:
    with state.exact_modes((), (_Dispatch(),)), state.without_dispatch_modes():
        return not state.dispatch_modes()


@_probe("torch.utils._python_dispatch.TorchDispatchMode")
def _dispatch_mode() -> bool:
    return callable(TorchDispatchMode.__enter__)


# -- overrides -------------------------------------------------------------------------------------------------------


@_probe(f"{_C}DisableTorchFunction", f"{_C}_is_torch_function_all_disabled")
def _nothing_sees_calls() -> bool:
    with _SeenCalls() as seen, state.DisableTorchFunction():
        torch.add(torch.ones(1), 1)
        return state.are_modes_disabled() and not seen.names


@_probe(f"{_C}DisableTorchFunctionSubclass", f"{_C}_is_torch_function_enabled")
def _subclasses_see_no_calls() -> bool:
    with _SeenCalls() as seen, state.DisableTorchFunctionSubclass():
        out = torch.add(torch.ones(1).as_subclass(_Subclass), 1)
        return not state.is_override_enabled() and "add" in seen.names and type(out) is Tensor


@_probe(f"{_C}_EnableTorchFunction")
def _calls_are_seen_again() -> bool:
    with _SeenCalls() as seen, state.DisableTorchFunction(), state.EnableTorchFunction():
        torch.add(torch.ones(1), 1)
        return "add" in seen.names


@_probe(f"{_C}_disabled_torch_function_impl", f"{_C}_disabled_torch_dispatch_impl")
def _plain_tensors() -> bool:
    function = torch.nn.Parameter.__torch_function__
    return function is state.NO_FUNCTION_OVERRIDE and Tensor.__torch_dispatch__ is state.NO_DISPATCH_OVERRIDE


@_probe("torch._jit_internal.boolean_dispatched")
def _dispatched_by_a_flag() -> bool:
    return callable(state.BOOLEAN_DISPATCHED[functional.max_pool2d]["if_true"])


# -- state of the thread ---------------------------------------------------------------------------------------------


@_probe(f"{_C}_is_any_autocast_enabled")
def _autocast() -> bool:
    with torch.autocast("cpu", enabled=False):
        off = state.is_autocasting()
    with torch.autocast("cpu"):
        return state.is_autocasting() and not off


@_probe(f"{_C}_get_tracing_state")
def _no_tracing() -> bool:
    return state.tracing_state() is None


@_probe(f"{_C}_current_graph_task_id")
def _backward_calls() -> bool:
    calls: list[int] = []
    leaf = torch.ones(1, requires_grad=True)
    leaf.register_hook(lambda _: calls.append(state.backward_call()))
    for _ in range(2):
        (leaf * 2).sum().backward()
    return state.backward_call() == -1 and len({*calls, -1}) == 3


@_probe(f"{_C}_set_grad_enabled")
def _gradients_off() -> bool:
    with torch.enable_grad():
        state.set_grad_enabled(False)
        return not torch.is_grad_enabled()


@_probe("torch.autograd.forward_ad._current_level")
def _forward_gradients() -> bool:
    off = state.is_forward_ad_on()
    with torch.autograd.forward_ad.dual_level():
        return state.is_forward_ad_on() and not off


# -- torch.func ------------------------------------------------------------------------------------------------------


@_probe(
    f"{_C}_functorch.is_functorch_wrapped_tensor", f"{_C}_functorch.get_unwrapped",
    f"{_C}_functorch.maybe_current_level", f"{_C}_are_functorch_transforms_active",
)  # fmt: skip
def _transforms() -> bool:
    facts: list[bool] = [state.transform_level() is None, not state.are_transforms_active()]

    def look(row: Tensor) -> Tensor:
        facts.extend((state.is_wrapped(row), state.inner_tensor(row).shape == (3, 2)))
        facts.extend((state.transform_level() is not None, state.are_transforms_active()))
        return row + 1

    torch.vmap(look)(torch.ones(3, 2))
    return all(facts) and not state.is_wrapped(torch.ones(1))


# -- the dispatcher --------------------------------------------------------------------------------------------------


@_probe("torch._ops.OpOverload", "torch._ops.OpOverloadPacket", "torch._ops.HigherOrderOperator", "OpOverload._schema")
def _operations() -> bool:
    packet, cond = torch.ops.aten.add_, torch.ops.higher_order.cond
    kinds = isinstance(packet, state.OpOverloadPacket) and isinstance(packet.Tensor, state.OpOverload)
    written = [argument.alias_info is not None for argument in packet.Tensor._schema.arguments]
    return kinds and isinstance(cond, state.HigherOrderOperator) and written == [True, False, False]


@_probe(f"{_C}DispatchKey")
def _eager_kernels() -> bool:
    return all(map(callable, map(state.eager_kernel, ("cond", "while_loop", "associative_scan", "map_impl"))))


@_probe(f"{_C}_dispatch_keys")
def _keys() -> bool:
    keys = state.dispatch_keys(torch.ones(1, device="cpu"))
    return keys.has("CPU") and not keys.has("Python")


@_probe(
    f"{_C}_dispatch_tls_local_include_set", f"{_C}_dispatch_tls_local_exclude_set", f"{_C}_ForceDispatchKeyGuard",
)  # fmt: skip
def _guard() -> bool:
    with state.composite_guard():
        return not torch._C._dispatch_tls_local_exclude_set().has(state.DispatchKey.ADInplaceOrView)


@_probe(f"{_C}_dispatch_has_kernel_for_dispatch_key")
def _composites() -> bool:
    key = "CompositeImplicitAutograd"
    return state.has_kernel("aten::conv2d", key) and not state.has_kernel("aten::add.Tensor", key)


# -- functions -------------------------------------------------------------------------------------------------------


@_probe(f"{_C}_functions.DelayedError")
def _delayed_error() -> bool:
    value = state.DelayedError(b"no backward here", 1)(torch.ones(1, requires_grad=True))
    try:
        value.sum().backward()
    except RuntimeError as error:
        return "no backward here" in str(error)
    return False


@_probe("torch._nested_tensor_from_mask")
def _nested() -> bool:
    mask = torch.tensor([[True, False], [True, True]])
    return [len(row) for row in state.nested_from_mask(torch.ones(2, 2, 3), mask).unbind()] == [1, 2]


@_probe("torch._transformer_encoder_layer_fwd", "torch._native_multi_head_attention")
def _kernels() -> bool:
    return all(callable(getattr(torch, name)) for name in state.FUSED_KERNELS)


@_probe("torch.ops.aten._unsafe_view.default")
def _same_memory() -> bool:
    tensor = torch.ones(2, 3)
    viewed = state.unsafe_view(tensor, (3, 2))
    return viewed.data_ptr() == tensor.data_ptr() and viewed.shape == (3, 2) and not viewed._is_view()


@_probe("torch.distributed.distributed_c10d._world")
def _no_queue() -> bool:
    return not torch.distributed.is_available() or state.is_coalescing(None) is False


@_probe("torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup")
def _gathering() -> bool:
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from torcheer.capture.special_cases import gathered_weights

    alone = not distributed.is_initialized()
    if alone:
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    seen: list[Any] = []

    def wait_for_unshard(group: Any) -> None:
        original(group)
        seen.extend(state.gathered_weights(group))

    group: Any = state.fsdp_group()
    original = group.wait_for_unshard
    try:
        linear = torch.nn.Linear(2, 2, bias=False)
        fully_shard(linear, mesh=init_device_mesh("cpu", (1,)))
        shard = linear.weight
        group.wait_for_unshard = wait_for_unshard
        linear(torch.ones(1, 2))
        ((module, name, part, whole),) = seen
        known = module is linear and name == "weight" and part is shard and type(whole) is torch.nn.Parameter
        return known and vars(group).keys() >= gathered_weights.METHODS.keys()
    finally:
        group.wait_for_unshard = original
        if alone:
            distributed.destroy_process_group()


@_probe("torch._dynamo.eval_frame.cached_backends", "torch._dynamo.utils.counters")
def _dynamo() -> bool:
    frames = state.dynamo_frames()
    return frames["total"] >= 0 and isinstance(state.anything_compiled(), bool) and hasattr(
        torch._dynamo.utils, "unpatched_nn_module_call_impl"
    )  # fmt: skip


@_probe("torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup")
def _sharded() -> bool:
    group = state.fsdp_group()
    return group is None or isinstance(group, type)


@_probe("torch.utils._pytree")
def _trees() -> bool:
    flat, spec = _pytree.tree_flatten({"a": [1, (2,)]})
    return flat == [1, 2] and _pytree.tree_unflatten(flat, spec) == {"a": [1, (2,)]} and dict in _pytree.SUPPORTED_NODES


# -- modules and tensors ---------------------------------------------------------------------------------------------


@_probe(*(name for name in state.NAMES if name.startswith("torch.nn.modules.module._global_")))
def _global_hooks() -> bool:
    from torch.nn.modules import module as hooks

    registers = (
        hooks.register_module_forward_hook, hooks.register_module_forward_pre_hook,
        hooks.register_module_full_backward_hook, hooks.register_module_full_backward_pre_hook,
        hooks.register_module_parameter_registration_hook,
    )  # fmt: skip
    known = (*state.GLOBAL_HOOKS, state.PARAMETER_HOOKS)
    return all(
        any(getattr(hooks, name, None) is table for name in register.__code__.co_names)
        for register, table in zip(registers, known, strict=True)
    )


@_probe(*(f"Module._{kind}_hooks" for kind in ("forward", "forward_pre", "backward", "backward_pre")))
def _module_hooks() -> bool:
    module = Module()
    for register in (
        module.register_forward_hook, module.register_forward_pre_hook,
        module.register_full_backward_hook, module.register_full_backward_pre_hook,
    ):  # fmt: skip
        register(lambda *_: None)
    kinds = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return list(map(len, kinds)) == [1, 1, 1, 1]


@_probe("Module._parameters", "Module._buffers", "Module._modules")
def _module_contents() -> bool:
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(2))._modules["0"]
    assert norm is not None
    return list(norm._parameters) == ["weight", "bias"] and "running_mean" in norm._buffers


@_probe("Module._call_impl")
def _module_call() -> bool:
    calls: list[Any] = []

    class Watched(Module):
        def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            return super()._call_impl(*args, **kwargs)

        def forward(self, value: int) -> int:
            return value + 1

    return Watched()(1) == 2 and calls == [(1,)]


@_probe("Module._compiled_call_impl")
def _compiled_module() -> bool:
    module = torch.nn.Identity()
    module._compiled_call_impl = lambda value: "compiled"
    return bool(module(torch.ones(1)) == "compiled")


@_probe(state._SWAP_CONTENTS)
def _swapped_contents() -> bool:
    first, second = torch.zeros(1), torch.ones(2)
    owner, name = state.CONTENT_SWAP
    vars(owner)[name](first, second)
    return first.tolist() == [1, 1] and second.tolist() == [0]


@_probe("Tensor._version", "Tensor._is_view", "UntypedStorage._cdata")
def _memory() -> bool:
    tensor = torch.zeros(2)
    row = tensor[:1]
    before = tensor._version
    tensor.add_(1)
    shared = row.untyped_storage()._cdata == tensor.untyped_storage()._cdata != torch.zeros(2).untyped_storage()._cdata
    return tensor._version == before + 1 == row._version and row._is_view() and not tensor._is_view() and shared
