"""Files of weights: ours, and those that torchtrace pickled. Tensors are read, and nothing else is run or made."""

from __future__ import annotations

import io
import os
import pickle
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd import load as load_ours
from torcheer.errors import BadArgument

_REBUILDS = {("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter")}


def load(name: str | os.PathLike[str]) -> list[Tensor]:
    """Read the tensors that `save` wrote, torcheer's or torchtrace's, for `model.load_seq_list`."""
    with open(name, "rb") as file:
        if file.read(1) != b"\x80":  # as Python's pickles begin
            return load_ours(name)
        file.seek(0)
        weights = _TensorUnpickler(file).load()
    if not isinstance(weights, list) or not all(isinstance(weight, Tensor) for weight in weights):
        raise BadArgument(
            f"{os.fspath(name)!r} is not a file that torcheer.autograd.save wrote, or torchtrace's: it holds "
            f"{type(weights).__name__}, and not a list of tensors. load_from_torch reads what torch.save wrote"
        )
    return [weight.detach() for weight in weights]


class _TensorUnpickler(pickle.Unpickler):
    """Unpickles tensors alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a function that makes tensors; refuse all others."""
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _load_storage
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) in _REBUILDS:
            return super().find_class(module, name)
        raise BadArgument(f"a file of weights asks for {module}.{name}: it holds more than tensors, and is not read")


def _load_storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
