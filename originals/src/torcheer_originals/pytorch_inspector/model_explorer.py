"""PyTorch Inspector's explorer of models; its keys name the types on the way: `AlexNet.Sequential.features.0`."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from torcheer.inspector.layer_discovery import Layers, Pick, describe, named, read_names, run_layers
from torcheer_originals.pytorch_inspector.met_differences import meet


class ModelExplorer:
    """Finds the layers of a model that can be tracked."""

    @staticmethod
    def get_layers(
        model: nn.Module, names: list[str] | None = None, model_types: list[str] | None = None
    ) -> list[tuple[nn.Module, str, str, str, str]]:
        """The layers without children: module, "features.0", "Conv2d", "features", "AlexNet.Sequential"."""
        return describe(model, ".".join(names or ()), ".".join(model_types or ()))

    @staticmethod
    def forward_hook_dummy(module: Any, input: Any, output: Any) -> None:
        """A forward hook that does nothing."""

    @staticmethod
    def backward_hook_dummy(module: Any, grad_input: Any, grad_output: Any) -> None:
        """A backward hook that does nothing."""

    @staticmethod
    def get_hook_layers(
        model: nn.Module, input_to_test: Any, get_out_tensor: Pick | None = None
    ) -> tuple[Layers, Layers]:
        """The layers to use with `track_model`, and those to use with `track_layer`.

        - `input_to_test`: a list of arguments of the model.
        - `get_out_tensor`: takes the tensor, where gradients start, out of what the model returns.
        """
        keys = _keys(model)
        forward, backward = run_layers(model, input_to_test, True, get_out_tensor)
        if any(getattr(layer, "inplace", False) for layer in forward.values()):
            meet("in place")
        if {layer for layer, *_ in describe(model)} - set(forward.values()):
            meet("never run")
        return _by_key(forward, keys), _by_key(backward, keys)

    @staticmethod
    def get_hook_layers_fromlist(model: nn.Module, input_layers: Iterable[str]) -> Layers:
        """The layers with these keys, or module paths; what the model does not have is left out."""
        asked, keys = set(input_layers), _keys(model)
        found = {}
        for name, module in named(model).items():
            for key in (keys[name], name):
                if key in asked:
                    found[key] = module
                    break
        return found

    @staticmethod
    def save_list_layers_name(list_valid: Iterable[str], fname: str | PathLike[str]) -> None:
        """Write keys to a text file, one a line; its folder is made."""
        Path(fname).parent.mkdir(parents=True, exist_ok=True)
        Path(fname).write_text("".join(f"{key}\n" for key in list_valid), encoding="utf-8")

    @staticmethod
    def load_list_layers_name(fname: str | PathLike[str]) -> list[str]:
        """The keys in a text file."""
        return read_names(fname)


def _keys(model: nn.Module) -> dict[str, str]:
    """The key of every module, by its path."""
    everything = named(model)
    return {name: _key(model, name, module, everything) for name, module in everything.items()}


def _key(model: nn.Module, name: str, module: nn.Module, everything: Layers) -> str:
    if module is model:
        return name
    parts = name.split(".")
    above = [everything[".".join(parts[:length])] for length in range(1, len(parts))]
    return ".".join([type(each).__name__ for each in (model, *above)] + [name])


def _by_key(layers: Layers, keys: dict[str, str]) -> Layers:
    return {keys[name]: module for name, module in layers.items()}
