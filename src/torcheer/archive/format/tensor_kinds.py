"""Tensors that are not plain arrays: split into plain parts, and rebuilt from them.

Sparse, nested, masked and quantised tensors are stored as the plain tensors inside them plus settings in JSON; of a
distributed one each rank stores its part, and where it stands.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from torcheer.errors import ArchiveDamaged, ValueUnavailable
from torcheer.ranks import rank_of, settled, shard_of

_COMPRESSED = {  # layout -> the names of its two index tensors
    "sparse_csr": ("crow_indices", "col_indices"), "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"), "sparse_bsc": ("ccol_indices", "row_indices"),
}  # fmt: skip
SHARD: Final = "shard"  # of a distributed tensor: the part that one rank holds
_QUANTISED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}  # quantised type -> its integer type


class CompositeTensor(NamedTuple):
    """A tensor as plain parts and settings."""

    kind: str  # "sparse_coo"
    parts: dict[str, Any]  # plain tensors by name
    settings: dict[str, Any]  # what JSON can hold: shapes, scales


def complete_local_tensor(value: Any) -> Any:
    """Convert a distributed tensor that is complete in this process to a plain one.

    Return others unchanged.
    """
    shard = shard_of(value)
    is_complete = shard is not None and shard.shape == shard.whole and not shard.is_partial
    return settled(value.to_local() if is_complete else value)


def split_tensor(value: Any) -> CompositeTensor | None:
    """Split a tensor that is not a plain array into parts.

    None for a plain array or an unknown kind.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.is_meta:
        return None
    if (shard := shard_of(value)) is not None:
        settings = shard.as_json() | {"rank": rank_of()[0], "ranks": rank_of()[1]}
        return CompositeTensor(SHARD, {"part": settled(value.detach().to_local())}, settings)
    with torch._C.DisableTorchFunction(), torch.no_grad():
        kind = _tensor_kind(torch, value)
        return CompositeTensor(kind, *_SPLITTERS[kind](value.detach())) if kind else None


def _tensor_kind(torch: Any, value: Any) -> str:
    masked = getattr(sys.modules.get("torch.masked"), "MaskedTensor", None)
    if masked is not None and isinstance(value, masked):
        return "masked"
    layout = str(value.layout).removeprefix("torch.")
    if value.is_nested:
        return "jagged" if layout == "jagged" else "nested"
    if value.is_quantized:
        name = str(value.dtype).removeprefix("torch.")
        return (
            ("quantised" if "per_tensor" in str(value.qscheme()) else "quantised by channel")
            if name in _QUANTISED
            else ""
        )
    return layout if layout in _SPLITTERS else ""


def _split_coo(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = {"indices": value._indices(), "values": value._values()}
    return parts, {"shape": list(value.shape), "coalesced": value.is_coalesced()}


def _split_compressed(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = _COMPRESSED[str(value.layout).removeprefix("torch.")]
    parts = {name: getattr(value, name)() for name in (*names, "values")}
    return parts, {"shape": list(value.shape)}


def _split_quantised(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    settings = {"scale": value.q_scale(), "zero_point": value.q_zero_point()}
    return {"integers": value.int_repr()}, {"type": str(value.dtype).removeprefix("torch."), **settings}


def _split_quantised_by_channel(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    scales, zeros = value.q_per_channel_scales(), value.q_per_channel_zero_points()
    settings = {"scales": scales.tolist(), "zero_points": zeros.tolist(), "axis": value.q_per_channel_axis()}
    return {"integers": value.int_repr()}, {"type": str(value.dtype).removeprefix("torch."), **settings}


def _split_nested(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {str(number): part for number, part in enumerate(value.unbind())}, {"count": value.size(0)}


def _split_jagged(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = {"values": value.values(), "offsets": value.offsets()}
    if value.lengths() is not None:
        parts["lengths"] = value.lengths()
    return parts, {"ragged": value._ragged_idx}


def _split_masked(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = {"data": value.get_data(), "mask": value.get_mask()}
    if any(part.layout is not sys.modules["torch"].strided for part in parts.values()):
        raise ValueUnavailable("a masked tensor over a sparse one cannot be kept; to_tensor(0) of it can")
    return parts, {}


_SPLITTERS: dict[str, Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]] = {
    "sparse_coo": _split_coo, **dict.fromkeys(_COMPRESSED, _split_compressed), "quantised": _split_quantised,
    "quantised by channel": _split_quantised_by_channel, "nested": _split_nested, "jagged": _split_jagged,
    "masked": _split_masked,
}  # fmt: skip


# -- rebuilding ------------------------------------------------------------------------------------------------------


def rebuild_tensor(kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """Rebuild the tensor that `split_tensor` split; requires torch to be imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise ValueUnavailable(f"it is a tensor of torch's own kind, {kind}: import torch before it is read")
    if kind not in _BUILDERS:
        raise ArchiveDamaged(f"a value of unknown kind {kind!r}; known are {', '.join(_BUILDERS)}")
    try:
        with torch.inference_mode(False), torch._C.DisableTorchFunction():
            return _BUILDERS[kind](torch, parts, settings)
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ArchiveDamaged(f"the parts of a value of kind {kind} do not go together: {error}") from None


def _typed_settings(settings: Mapping[str, Any], **types: type) -> list[Any]:
    """Return settings by name; raise where one has the wrong type."""
    for name, kind in types.items():
        if type(settings[name]) is not kind:
            raise ValueError(f"{name} is {settings[name]!r}")
    return [settings[name] for name in types]


def _check_integers(integers: Any, kind: str) -> None:
    if str(integers.dtype) != f"torch.{_QUANTISED[kind]}":
        raise ValueError(f"{kind} made of {integers.dtype}")


def _build_coo(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    shape, coalesced = _typed_settings(settings, shape=list, coalesced=bool)
    tensor = torch.sparse_coo_tensor(parts["indices"], parts["values"], shape, check_invariants=True)
    return tensor._coalesced_(True) if coalesced else tensor


def _compressed_builder(layout: str) -> Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Any]:
    def make(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        (shape,) = _typed_settings(settings, shape=list)
        tensors = [parts[name] for name in (*_COMPRESSED[layout], "values")]
        return torch.sparse_compressed_tensor(*tensors, shape, layout=getattr(torch, layout), check_invariants=True)

    return make


def _build_quantised(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    scale, zero, kind = _typed_settings(settings, scale=float, zero_point=int, type=str)
    _check_integers(parts["integers"], kind)
    if not math.isfinite(scale):
        raise ValueError(f"a scale of {scale}")
    return torch._make_per_tensor_quantized_tensor(parts["integers"], scale, zero)


def _build_quantised_by_channel(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    scales, zeros, axis, kind = _typed_settings(settings, scales=list, zero_points=list, axis=int, type=str)
    _check_integers(parts["integers"], kind)
    scales, zeros = torch.tensor(scales, dtype=torch.float64), torch.tensor(zeros, dtype=torch.int64)
    if scales.shape != zeros.shape or parts["integers"].shape[axis] != len(scales):
        raise ValueError(f"{len(scales)} scales for {tuple(parts['integers'].shape)}")
    return torch._make_per_channel_quantized_tensor(parts["integers"], scales, zeros, axis)


def _build_nested(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    (count,) = _typed_settings(settings, count=int)
    return torch.nested.as_nested_tensor([parts[str(number)] for number in range(count)])


def _build_jagged(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    offsets, values = parts["offsets"], parts["values"]
    (ragged,) = _typed_settings(settings, ragged=int)
    if not len(offsets) or offsets[0] < 0 or (offsets.diff() < 0).any() or offsets[-1] > values.shape[ragged - 1]:
        raise ValueError(f"offsets up to {int(offsets[-1]) if len(offsets) else None} in {tuple(values.shape)}")
    lengths = parts.get("lengths")
    sizes = offsets.diff() if lengths is None else lengths
    ends = {"min_seqlen": int(sizes.min()), "max_seqlen": int(sizes.max())} if len(sizes) else {}
    return torch.nested.nested_tensor_from_jagged(values, offsets, lengths, jagged_dim=ragged, **ends)


def _build_masked(torch: Any, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that masked tensors are a prototype
        return torch.masked.masked_tensor(parts["data"], parts["mask"])


_BUILDERS: dict[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any]], Any]] = {
    "sparse_coo": _build_coo, **{layout: _compressed_builder(layout) for layout in _COMPRESSED},
    "quantised": _build_quantised, "quantised by channel": _build_quantised_by_channel,
    "nested": _build_nested, "jagged": _build_jagged, "masked": _build_masked,
}  # fmt: skip
