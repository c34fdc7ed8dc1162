"""What a GPU would run: torch functions that do something else on a GPU than on meta tensors, as a function mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torcheer.capture.record.function_twins import twin_of

Function = Callable[..., Any]


class PlannedCalls(TorchFunctionMode):
    """Make tensors of lists that index: torch makes them on meta, where their numbers would be lost."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*with_known_index(func, args), **(kwargs or {}))


def with_known_index(func: Any, args: Any) -> Any:
    """Return the arguments of an operation, with lists of numbers in its index as real tensors."""
    if func not in (Tensor.__getitem__, Tensor.__setitem__):
        return args
    value, index, *rest = args
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, list) for part in parts):
        return args
    made = tuple(torch.tensor(part) if _is_list_of_numbers(part) else part for part in parts)
    return (value, made if isinstance(index, tuple) else made[0], *rest)


def _is_list_of_numbers(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(type(number) in (int, bool) for number in part)


class CudaCalls(TorchFunctionMode):
    """Run on meta tensors what CUDA would: fused attention, dropout with a mask of bytes, cuDNN's recurrent nets."""

    def __init__(self) -> None:
        super().__init__()
        self.autocast: torch.dtype | None = None  # the type to which torch.autocast would cast; None where it is off
        self._casts: dict[int, tuple[Tensor, Tensor]] = {}  # id of a weight -> it and its cast, until autocast ends

    @contextmanager
    def autocasting(self, dtype: torch.dtype | None) -> Iterator[None]:
        """Cast as torch.autocast would."""
        before, self.autocast = self.autocast, dtype
        try:
            yield
        finally:
            self.autocast = before
            if before is None:
                self._casts.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = _to_meta_device(kwargs) if kwargs else {}
        if (replacement := _REPLACED.get(func)) is not None:
            if self.autocast is not None and func is F.scaled_dot_product_attention:
                args = self._cast(args, self.autocast)
            return replacement(*args, **kwargs)
        if (twin := twin_of(func)) is not None:
            with self:  # the functions inside arrive here one by one
                return twin(*args, **kwargs)
        if func in _MOVES:
            return _MOVES[func](*args, **kwargs)
        if self.autocast is not None:
            name = getattr(func, "__name__", "")
            if name in _TO_LOW:
                args, kwargs = self._cast(args, self.autocast), self._cast(kwargs, self.autocast)
            elif name in _TO_FULL:
                args, kwargs = self._cast(args, torch.float32), self._cast(kwargs, torch.float32)
        return func(*with_known_index(func, args), **kwargs)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Tensor):
            is_small = value.is_floating_point() and value.dtype not in (dtype, torch.float64)
            return self._cast_tensor(value, dtype) if is_small else value
        if isinstance(value, dict):
            return {key: self._cast(item, dtype) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._cast(item, dtype) for item in value)
        return value

    def _cast_tensor(self, value: Tensor, dtype: torch.dtype) -> Tensor:
        if not (value.is_leaf and value.requires_grad and dtype is self.autocast):
            return value.to(dtype)
        if id(value) not in self._casts:
            self._casts[id(value)] = (value, value.to(dtype))
        return self._casts[id(value)][1]


def _to_meta_device(kwargs: dict[str, Any]) -> dict[str, Any]:
    device = kwargs.get("device")
    return {**kwargs, "device": "meta"} if device is not None and torch.device(device).type != "cpu" else kwargs


def _move(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Tensor.to, with every device but the CPU being meta."""
    is_device = [isinstance(item, str | torch.device | int) for item in args]
    moved = [
        "meta" if place and torch.device(item).type != "cpu" else item
        for item, place in zip(args, is_device, strict=True)
    ]
    return tensor.to(*moved, **kwargs)  # type: ignore[arg-type]


_MOVES: dict[Any, Function] = {
    Tensor.to: _move,
    Tensor.cuda: lambda tensor, *_, **__: tensor.to("meta"),
}


# Attention


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Call the kernel that torch would choose on a recent GPU."""
    aten = torch.ops.aten
    is_four = query.dim() == key.dim() == value.dim() == 4
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    widths = query.shape[-1], value.shape[-1]
    if is_four and is_half and attn_mask is None and widths[0] == widths[1] <= 256:
        padded = [F.pad(tensor, (0, -widths[0] % 8)) if widths[0] % 8 else tensor for tensor in (query, key, value)]
        scale = 1 / math.sqrt(widths[0]) if scale is None else scale
        out = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, scale=scale)[0]
        return out[..., : widths[0]] if widths[0] % 8 else out  # type: ignore[no-any-return]
    is_aligned = not any(width % (8 if is_half else 4) for width in widths)
    if is_four and is_aligned and query.shape[1] == key.shape[1] and query.dtype != torch.float64:
        if attn_mask is not None:
            attn_mask = _bias(attn_mask, query, key)
        needs_grad = any(tensor.requires_grad for tensor in (query, key, value)) and torch.is_grad_enabled()
        out, *_ = aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, needs_grad, dropout_p, is_causal, scale=scale
        )
        return out  # type: ignore[no-any-return]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask as the kernel takes it: numbers, rows aligned, one for each head by a stride of 0."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), -math.inf)
    rows, columns = query.shape[-2], key.shape[-2]
    if columns % 16:
        mask = F.pad(mask, (0, -columns % 16))[..., :columns]
    return mask.expand(*query.shape[:2], rows, columns)


def drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout as on a GPU: the mask has a byte for each number."""
    if not training or not 0 < p < 1 or inplace:
        return torch.dropout_(input, p, training) if inplace else torch.dropout(input, p, training)
    return torch.native_dropout(input, p, training)[0]


# Recurrent nets


# Gates -> the numbers that cuDNN keeps of each unit, step and sample, measured on an H200: of an LSTM the gates and its
# cell; of layers but the last, what they return comes on top.
_KEPT_NUMBERS = {4: 5, 3: 6, 1: 1}
_RNN_WORKSPACE_BYTES = 110 << 20  # besides a copy of the weights; measured, hardly different between shapes


class _CudnnRnn(torch.autograd.Function):
    """A recurrent net as cuDNN runs it: one kernel that keeps one block of memory for backward."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, gates: int, layout: tuple[int, int, int], *others: Tensor) -> Any:
        hidden, directions, layers = layout
        steps, batch = input.shape[:2]
        output = input.new_empty(steps, batch, directions * hidden)
        state = input.new_empty(directions * layers, batch, hidden)
        numbers = directions * (layers * _KEPT_NUMBERS[gates] + layers - 1)
        reserve = input.new_empty(numbers * steps * batch * hidden)
        _take_workspace(others)
        ctx.save_for_backward(input, output, reserve, *others)
        return output, state, (torch.empty_like(state) if gates == 4 else state.new_empty(0))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        input, _, _, *others = ctx.saved_tensors
        made = torch.empty_like(input), None, None, *(torch.empty_like(other) for other in others)
        _take_workspace(others)
        return made


def _take_workspace(weights: Sequence[Tensor]) -> None:
    torch.empty(_RNN_WORKSPACE_BYTES + sum(weight.nbytes for weight in weights), dtype=torch.uint8, device="meta")


def _recurrent(gates: int) -> Function:
    def run(input: Tensor, hx: Any, params: Any, *settings: Any) -> Any:
        if not isinstance(settings[0], bool):  # a packed sequence: (data, sizes, hx, params, …)
            data, sizes, hx, params, settings = input, hx, params, settings[0], settings[1:]
            input = data.unsqueeze(1)
            _, layers, _, _, bidirectional = settings
            batch_first = False
        else:
            _, layers, _, _, bidirectional, batch_first = settings
            sizes = None
        states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
        directions = 2 if bidirectional else 1
        hidden = states[0].shape[-1]
        steps_first = input.transpose(0, 1).contiguous() if batch_first else input
        output, state, cell = _CudnnRnn.apply(  # type: ignore[no-untyped-call]
            steps_first, gates, (hidden, directions, layers), *states, *params
        )
        if sizes is not None:
            output = output.squeeze(1)
            state, cell = torch.empty_like(states[0]), torch.empty_like(states[0])
        output = output.transpose(0, 1) if batch_first else output
        return (output, state, cell) if gates == 4 else (output, state)

    return run


_REPLACED: dict[Any, Function] = {
    F.scaled_dot_product_attention: attend,
    F.dropout: drop,
    torch.dropout: drop,
    torch.lstm: _recurrent(4),
    torch.gru: _recurrent(3),
    torch.rnn_tanh: _recurrent(1),
    torch.rnn_relu: _recurrent(1),
}

# What torch.autocast casts on CUDA, from its reference.
_TO_LOW = frozenset(
    "__matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution einsum linalg_multi_dot linear matmul mm mv prelu "
    "gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell lstm gru rnn_tanh rnn_relu".split()
)
_TO_FULL = frozenset(
    "__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss "
    "cdist cosine_similarity cross_entropy_loss cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss "
    "huber_loss kl_div l1_loss layer_norm log log10 log1p log2 log_softmax logsumexp margin_ranking_loss mse_loss "
    "multi_margin_loss multilabel_margin_loss native_layer_norm nll_loss nll_loss2d norm nuclear_norm pdist "
    "poisson_nll_loss pow prod reciprocal renorm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus "
    "sum tan triplet_margin_loss".split()
)
