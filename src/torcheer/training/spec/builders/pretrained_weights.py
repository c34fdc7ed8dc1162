"""Weights of a file for a model that is trained further: whatever fits by name and shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torcheer.errors import BadArgument
from torcheer.terminal import first_names, human_shape
from torcheer.training.checkpoints.tensor_files import ChecksumFile, read_tensors


def load_weights(model: nn.Module, path: Path) -> str:
    """Load the tensors of a file that a model has by the same name and shape; return what was loaded and what not."""
    if not path.is_file():
        raise BadArgument(f"there is no file {path}")
    if lazy := [key for key, value in model.state_dict().items() if is_lazy(value)]:
        raise BadArgument(f"the model has layers without a size yet ({first_names(lazy, 3)}): weights need their sizes")
    state, tensors = model.state_dict(), _tensors(path)
    fitting = {key: value for key, value in tensors.items() if key in state and state[key].shape == value.shape}
    if not fitting:
        message = f"none of the {len(tensors)} tensors of {path.name} ({first_names(tensors, 3)})"
        raise BadArgument(f"{message} has the name and shape of one of the model's ({first_names(state, 3)})")
    model.load_state_dict({**state, **fitting})
    shapes = {key: human_shape(tensor.shape) for key, tensor in tensors.items()}
    left = [
        f"{key} ({human_shape(tensor.shape)}; {shapes.get(key, 'not')} in the file)"
        for key, tensor in state.items()
        if key not in fitting
    ]
    rest = f"; as initialized: {first_names(left, 4)}" if left else ""
    return f"{len(fitting)} of {len(state)} tensors are those of {path.name}{rest}"


def _tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, or a state dict that `torch.save` wrote; no code of a file is run."""
    if path.suffix == ".safetensors":
        with open(path, "rb", buffering=0) as file:
            return read_tensors(ChecksumFile(file), path)
    state: Any = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model"):  # as many programs nest it
        state = state[key] if isinstance(state, Mapping) and isinstance(state.get(key), Mapping) else state
    if not isinstance(state, Mapping):
        raise BadArgument(f"{path.name} holds {type(state).__name__}, and a state dict is needed")
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}
