"""A table of torch functions: names, written arguments, use of random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.function_twins import ENGINE, twin_of
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import HigherOrderOperator, OpOverload, OpOverloadPacket

Function = Callable[..., Any]


class TorchCall:
    """How the recorder treats a torch function; one object per function, cached in `CALLS`."""

    __slots__ = (
        "collective",
        "engine",
        "exposes_memory",
        "function",
        "higher",
        "idle",
        "in_place",
        "late",
        "level",
        "mark",
        "name",
        "plain",
        "random",
        "skip",
        "switch",
        "twin",
        "view",
        "where",
        "writes",
    )

    def __init__(self, function: Any, name: str, where: str) -> None:
        self.function = function
        self.name = name
        self.where = where  # "torch.conv2d"
        self.skip = False  # neither returns nor changes a tensor
        self.writes: tuple[int | str, ...] = ()  # positions and keywords of the arguments it writes to
        self.random: Function | None = None  # (args, kwargs) -> whether this call draws random numbers
        self.idle = False  # no operation if it returns its own argument: x.float() of floats
        self.exposes_memory = False  # returns the tensor's memory, which can then be written unseen
        self.twin: Function | None = None  # run instead of the function, to record its inner operations
        self.engine = False  # runs autograd's engine
        self.higher = False  # a higher-order operator: torch.cond
        self.collective = False  # communicates with other ranks and writes the result into its arguments
        self.view = False
        self.level = "function"
        # its result's version is set after the call: by autograd (aten), or by a thread (collectives)
        self.late = False
        self.mark = function is None  # not a call: an input, an output, memory that changed
        self.plain = True  # none of the above
        self.in_place = False  # otherwise plain, it writes to all of its first argument and returns it: relu_
        self.switch = 0  # position of the argument that, if False, makes it plain: dropout and batch_norm in eval

    def is_off(self, args: tuple[Any, ...]) -> bool:
        """Whether this call, with these arguments, writes nothing and draws no random numbers."""
        return self.switch > 0 and len(args) > self.switch and args[self.switch] is False


CALLS: dict[Any, TorchCall] = {}


def lookup_call(function: Any) -> TorchCall:
    """Return the table entry of a function, classifying it at its first call."""
    call = CALLS.get(function)
    if call is None:
        call = CALLS[function] = _classify(function)
    return call


# Queries: they return facts about a tensor and compute none.
_QUERIES = frozenset(
    """dim size stride numel nelement ndimension element_size itemsize get_device storage_offset data_ptr item tolist
    is_floating_point is_complex is_contiguous is_cuda is_signed is_conj is_neg is_inference is_same_size is_set_to
    is_nonzero is_shared is_pinned is_tensor is_storage is_distributed type_as_string qscheme q_scale q_zero_point
    q_per_channel_axis dense_dim sparse_dim _nnz has_names backward_hooks requires_grad_ retain_grad register_hook
    register_post_accumulate_grad_hook result_type can_cast promote_types equal allclose
    _is_view _is_zerotensor __len__ __bool__ __int__ __float__ __index__ __complex__ __hash__ __repr__ __str__
    __format__ __contains__ __dir__ __reduce_ex__ __deepcopy__ _set_grad_enabled is_coalesced is_grad_enabled
    is_inference_mode_enabled set_default_dtype get_default_dtype sym_numel sym_size sym_stride sym_storage_offset
    _has_compatible_shallow_copy_type typename _dimI _dimV has_names _is_functional_tensor is_vulkan nbytes
    _typed_storage is_autocast_enabled get_autocast_dtype is_autocast_cache_enabled __torch_function__
    _assert _assert_async _functional_assert_async _assert_scalar set_stance _clear_non_serializable_cached_data
    """.split()
)
_EXPOSES_MEMORY = frozenset(
    """numpy __array__ untyped_storage storage _typed_storage __dlpack__ __cuda_array_interface__
    share_memory_""".split()
)
_TENSOR_PROPERTIES = frozenset("T mT H mH real imag data".split())
_VIEWS = frozenset(
    """view reshape view_as reshape_as permute transpose t swapaxes swapdims movedim moveaxis expand expand_as
    broadcast_to squeeze unsqueeze select narrow split chunk tensor_split hsplit vsplit dsplit unbind unfold diagonal
    __getitem__ as_strided flatten unflatten detach alias T mT H mH real imag data view_as_real view_as_complex
    split_with_sizes unsafe_chunk unsafe_split ravel contiguous atleast_1d atleast_2d atleast_3d adjoint""".split()
)
_IDLE = frozenset("to type type_as float double half bfloat16 cpu cuda contiguous".split())
# These may write a small part of their first argument.
BY_DIMENSION = frozenset("index_copy_ index_fill_ index_add_ index_reduce_".split())
BY_INDEX = BY_DIMENSION | {"__setitem__", "index_put_"}
# Implemented in Python, or under a name that has no schema.
_WRITES_NOTHING = frozenset("requires_grad_ retain_grad share_memory_ rename_ coalesce_ _coalesced_".split())


def _classify(function: Any) -> TorchCall:
    name, where = _names(function)
    call = TorchCall(function, name, where)
    kind = getattr(function, "__name__", "")
    if kind in ("__get__", "__set__", "__delete__") and not isinstance(function, OpOverloadPacket):
        call.skip = kind != "__get__" or name not in _TENSOR_PROPERTIES
        if kind == "__set__" and name in ("data", "real", "imag"):
            call.name, call.skip, call.writes = f"set_{name}", False, (0,)
    elif name in _QUERIES:
        call.skip = True
    else:
        call.twin = twin_of(function)
        call.engine = function in ENGINE
        call.writes = _writes(function, name)
        call.random = _random(function, name)
    call.exposes_memory = name in _EXPOSES_MEMORY
    call.higher = isinstance(function, HigherOrderOperator)
    call.skip = call.skip and not call.exposes_memory
    call.view = name in _VIEWS
    call.idle = name in _IDLE
    call.late = "c10d_functional" in where
    call.collective = where.startswith(_DISTRIBUTED) and bool(call.writes)
    special = call.skip or call.random or call.exposes_memory or call.twin or call.higher or call.late
    call.plain = not (special or call.writes)
    call.in_place = not (special or call.collective) and 0 in call.writes and _writes_whole(function, name)
    call.switch = _SWITCHES.get(name, 0) if call.twin is None else 0
    return call


def _names(function: Any) -> tuple[str, str]:
    if isinstance(function, (OpOverload, OpOverloadPacket)):
        qualified = str(function)
        return qualified.split(".")[1], f"torch.ops.{qualified}"
    name = getattr(function, "__name__", None) or type(function).__name__
    if name in ("__get__", "__set__", "__delete__"):
        owner = function.__self__
        name = getattr(owner, "__name__", None) or getattr(getattr(owner, "fget", None), "__name__", "property")
        return str(name), f"torch.Tensor.{name}"
    owner = getattr(function, "__objclass__", None)
    if owner is not None or getattr(Tensor, name, None) is function:
        return name, f"torch.Tensor.{name}"
    module = getattr(function, "__module__", None) or "torch"
    return name, f"{module}.{name}"


def schemas_of(function: Any, name: str) -> Iterator[Any]:
    """Yield the dispatcher's schemas that a torch function of this name may resolve to."""
    if isinstance(function, OpOverload):
        yield function._schema
        return
    packet = function if isinstance(function, OpOverloadPacket) else _packet(name)
    if packet is not None:
        for overload in packet.overloads():
            yield getattr(packet, overload)._schema


def _packet(name: str) -> Any:
    if name.startswith("__") and not name.startswith("__i"):
        return None
    try:
        return getattr(torch.ops.aten, name)
    except (AttributeError, RuntimeError):
        return None


# Their schemas do not declare the write; the argument after these (`training`) decides whether there is one.
_RUNNING_STATISTICS: tuple[int | str, ...] = (3, 4, "running_mean", "running_var")
_NORMS = frozenset(
    """batch_norm instance_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _batch_norm_impl_index""".split()
)


# Which arguments the functions of torch.distributed write: they have no schemas.
_DISTRIBUTED = "torch.distributed.distributed_c10d"
_RECEIVED: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys("all_reduce broadcast reduce scatter recv irecv".split(), (0, "tensor")),
    **dict.fromkeys("all_gather_single all_gather_into_tensor _all_gather_base".split(), (0, "output_tensor")),
    **dict.fromkeys("reduce_scatter reduce_scatter_single reduce_scatter_tensor".split(), (0, "output")),
    **dict.fromkeys("_reduce_scatter_base all_to_all_single".split(), (0, "output")),
    "all_reduce_coalesced": (0, "tensors"),
    "all_gather": (0, "tensor_list"),
    "all_gather_coalesced": (0, "output_tensor_lists"),
    "all_to_all": (0, "output_tensor_list"),
    "gather": (1, "gather_list"),
}


def _writes(function: Any, name: str) -> tuple[int | str, ...]:
    """Return the arguments a function writes, from its schemas; `out=` is checked per call."""
    if getattr(function, "__module__", None) == _DISTRIBUTED:
        return _RECEIVED.get(name, ())
    if name in _WRITES_NOTHING:
        return ()
    if name in _NORMS:
        return _RUNNING_STATISTICS
    if name == "__setitem__" or (name.startswith("__i") and name not in ("__invert__", "__index__")):
        return (0,)
    written: dict[int | str, bool] = {}  # argument -> whether every overload with a tensor there writes it
    for schema in schemas_of(function, name):
        if any(argument.is_out for argument in schema.arguments):
            continue
        for position, argument in enumerate(schema.arguments):
            if "Tensor" not in str(argument.type):
                continue
            writes = argument.alias_info is not None and argument.alias_info.is_write
            for place in (argument.name,) if argument.kwarg_only else (position, argument.name):
                written[place] = written.get(place, True) and writes
    places = tuple(place for place, always in written.items() if always)
    if name.endswith("_") and not name.endswith("__"):  # torch.nn.init.uniform_(tensor=…) is not an aten operation
        return places or (0,) if isinstance(function, OpOverload) else (*(places or (0,)), "input", "tensor")
    return places


def _flag(position: int, keyword: str, default: Any = False) -> Function:
    """Return a test of one argument: dropout draws no random numbers in eval."""

    def is_on(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        return bool(kwargs.get(keyword, args[position] if len(args) > position else default))

    return is_on


def _always(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return True


_DROPOUTS = "dropout alpha_dropout feature_dropout feature_alpha_dropout native_dropout".split()
_SWITCHES = {**dict.fromkeys(_DROPOUTS, 2), "rrelu": 3, **dict.fromkeys(_NORMS, 5)}
_RANDOM: dict[str, Function] = {
    **{name + ending: _flag(2, "train") for name in _DROPOUTS for ending in ("", "_")},
    **dict.fromkeys(("rrelu", "rrelu_"), _flag(3, "training")),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), lambda args, kwargs: _recurrent_draws(args)),
    "scaled_dot_product_attention": _flag(4, "dropout_p", 0.0),
}


def _recurrent_draws(args: tuple[Any, ...]) -> bool:
    """Whether a recurrent layer's call has a dropout probability above 0.

    The signatures are lstm(input, hx, params, has_biases, layers, dropout, train, …) and lstm(data, sizes, hx, params,
    …).
    """
    numbers = [value for value in args if isinstance(value, float)]
    return any(numbers)


def _writes_whole(function: Any, name: str) -> bool:
    """Whether a function writes to all of its first argument, to no other, and returns it: relu_, add_."""
    if isinstance(function, OpOverload) or not name.endswith("_") or name.endswith("__") or name in BY_INDEX:
        return False
    packet = _packet(name)
    if packet is None or isinstance(function, OpOverloadPacket):
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return all(
        torch.Tag.inplace_view not in overload.tags  # resize_, t_
        and not any(_is_written(argument) for argument in overload._schema.arguments[1:])
        for overload in overloads
    )


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out


def _random(function: Any, name: str) -> Function | None:
    if name in _RANDOM:
        return _RANDOM[name]
    if getattr(function, "__module__", "") == torch.nn.init.__name__:
        return _always
    if isinstance(function, OpOverload):
        tags = [function.tags]
    else:
        packet = function if isinstance(function, OpOverloadPacket) else _packet(name)
        tags = [getattr(packet, overload).tags for overload in packet.overloads()] if packet is not None else []
    return _always if any(torch.Tag.nondeterministic_seeded in overload_tags for overload_tags in tags) else None


def written_tensors(call: TorchCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that a call with these arguments will write to."""
    tensors: list[Tensor] = []
    if "out" in kwargs and kwargs["out"] is not None:
        tensors += leaves(kwargs["out"])
    if call.writes:
        if call.is_off(args):
            return tensors
        for place in call.writes:
            if isinstance(place, int):
                tensors += leaves(args[place]) if place < len(args) else ()
            elif place in kwargs and place != "out":
                tensors += leaves(kwargs[place])
    return tensors
