"""Files of weights, in numpy's .npz format, which holds numbers and no code; random seeds."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torcheer.autograd.argument_names import also_takes
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.disk import replacing
from torcheer.errors import BadArgument

HEAD = "torcheer"  # the entry that marks our files; holds a version and the dtypes of the tensors
CARRIERS = {
    1: torch.uint8,
    2: torch.int16,
    4: torch.int32,
    8: torch.int64,
}  # by bytes per element: integer types for dtypes that numpy does not know


def save(name: str | os.PathLike[str], seq_list: Iterable[Any]) -> None:
    """Write a list of tensors, such as `model.seq_list()`, to a file; no suffix is added.

    - `name`: the file.
    - `seq_list`: tensors, in order.
    """
    with unrecorded():
        tensors = [torch.as_tensor(tensor).detach().cpu().contiguous() for tensor in seq_list]
        types = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
        entries = {str(place): _as_numpy(tensor) for place, tensor in enumerate(tensors)}
    head = np.frombuffer(json.dumps({"version": 1, "types": types}).encode(), np.uint8)
    with replacing(Path(name)) as part, open(part, "wb") as file:  # a path would get the suffix .npz
        np.savez(file, allow_pickle=False, **{HEAD: head}, **entries)


def load(name: str | os.PathLike[str]) -> list[Tensor]:
    """Read the tensors that `save` wrote, for `model.load_seq_list`.

    - `name`: the file.
    """
    try:
        with np.load(name, allow_pickle=False) as file:
            head = json.loads(file[HEAD].tobytes())
            return [_as_tensor(file[str(place)], dtype) for place, dtype in enumerate(head["types"])]
    except (ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as problem:
        raise BadArgument(
            f"{os.fspath(name)!r} is not a file that torcheer.autograd.save wrote, or not all of it. "
            f"load_from_torch reads what torch.save wrote, torcheer_originals.torchtrace.load what torchtrace pickled"
        ) from problem


def load_from_torch(name: str | os.PathLike[str], names_order: Sequence[str] | None = None) -> list[Tensor]:
    """Read the tensors of a saved state_dict, in its order or in that of `names_order`.

    - `name`: a file that `torch.save(model.state_dict(), name)` wrote.
    """
    weights = torch.load(name, map_location="cpu", weights_only=True)
    weights = dict(enumerate(weights)) if isinstance(weights, (list, tuple)) else weights
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise BadArgument(
            f"{os.fspath(name)!r} holds no state_dict, a dict of tensors; save model.state_dict() into it"
        )
    missing = [key for key in names_order or () if key not in weights]
    if missing:
        raise BadArgument(f"{os.fspath(name)!r} has no {missing[0]!r}; it has {', '.join(map(str, weights))}")
    return [weights[key].detach() for key in (weights if names_order is None else names_order)]


@also_takes(data="array")
def from_numpy(array: Any) -> tracer:
    """Return a tracer of an array; it shares the memory of an array of floats.

    - `array`: numbers; those that are no floats are converted.
    """
    return tracer(torch.from_numpy(array))


def set_seed(seed: int) -> None:
    """Seed the random numbers of Python, numpy and torch, on every device.

    - `seed`: a whole number.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _as_numpy(tensor: Tensor) -> Any:
    try:
        return tensor.numpy()
    except TypeError:  # bfloat16 and float8: the raw bytes
        return tensor.view(CARRIERS[tensor.element_size()]).numpy()


def _as_tensor(array: Any, dtype_name: str) -> Tensor:
    tensor = torch.from_numpy(array)
    dtype = getattr(torch, dtype_name)
    return tensor if tensor.dtype == dtype else tensor.view(dtype)
