"""Weights in files: numpy's own format, which holds numbers and no code."""

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

from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.errors import BadArgument

HEAD = "torcheer"  # the entry that says a file is ours, and of which types its tensors are
CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes: for types numpy does not know


def save(name: str | os.PathLike[str], seq_list: Iterable[Any]) -> None:
    """Write a list of tensors, such as `model.seq_list()`, to a file of exactly this name."""
    with unrecorded():
        tensors = [torch.as_tensor(one).detach().cpu().contiguous() for one in seq_list]
        types = [str(one.dtype).removeprefix("torch.") for one in tensors]
        entries = {str(place): _as_numpy(one) for place, one in enumerate(tensors)}
    head = np.frombuffer(json.dumps({"version": 1, "types": types}).encode(), np.uint8)
    path = Path(name)
    half = path.with_name(path.name + ".half")  # an interrupted save leaves the old file as it was
    try:
        with open(half, "wb") as file:
            np.savez(file, allow_pickle=False, **{HEAD: head}, **entries)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def load(name: str | os.PathLike[str]) -> list[Tensor]:
    """The tensors that `save` wrote, for `model.load_seq_list`."""
    try:
        with np.load(name, allow_pickle=False) as file:
            head = json.loads(file[HEAD].tobytes())
            return [_as_tensor(file[str(place)], kind) for place, kind in enumerate(head["types"])]
    except (ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as problem:
        raise BadArgument(
            f"{os.fspath(name)!r} is not a file that torcheer.autograd.save wrote, or not all of it. "
            f"load_from_torch reads what torch.save wrote"
        ) from problem


def load_from_torch(name: str | os.PathLike[str], names_order: Sequence[str] | None = None) -> list[Tensor]:
    """The tensors of a state_dict that torch.save wrote, in its own order or in that of `names_order`."""
    found = torch.load(name, map_location="cpu", weights_only=True)
    found = dict(enumerate(found)) if isinstance(found, (list, tuple)) else found
    if not isinstance(found, dict) or not all(isinstance(one, Tensor) for one in found.values()):
        raise BadArgument(
            f"{os.fspath(name)!r} holds no state_dict, a dict of tensors; save model.state_dict() into it"
        )
    missing = [key for key in names_order or () if key not in found]
    if missing:
        raise BadArgument(f"{os.fspath(name)!r} has no {missing[0]!r}; it has {', '.join(map(str, found))}")
    return [found[key].detach() for key in (found if names_order is None else names_order)]


def from_numpy(array: Any) -> tracer:
    """A tracer of the numbers in an array; it shares the memory of an array of floats."""
    return tracer(torch.from_numpy(array))


def set_seed(seed: int) -> None:
    """Begin Python's, numpy's and torch's random numbers anew, on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _as_numpy(tensor: Tensor) -> Any:
    try:
        return tensor.numpy()
    except TypeError:  # bfloat16 and the small floats: the bytes as they are
        return tensor.view(CARRIERS[tensor.element_size()]).numpy()


def _as_tensor(array: Any, kind: str) -> Tensor:
    tensor = torch.from_numpy(array)
    wanted = getattr(torch, kind)
    return tensor if tensor.dtype == wanted else tensor.view(wanted)
