"""TorchLens's verbs, each by one of ours."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import torcheer
from torcheer import Save
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer_originals.torchlens.older_options import (
    DrawingWish,
    by_first_name,
    check_options,
    drawing_wish,
    save_form,
)
from torcheer_originals.torchlens.site_selectors import layer_key

StrPath = str | os.PathLike[str]
_OURS = ("save_gradients", "edits", "seed", "fused", "level", "structure", "timing")


def log_forward_pass(
    model: torch.nn.Module,
    input_args: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    layers_to_save: Any = "all",
    *,
    vis_opt: str = "none",
    vis_path: StrPath | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> ModelHistory:
    """Run a model and return its history, by TorchLens's options or by ours.

    - `layers_to_save`: as for `torcheer.log_forward_pass`; None is "none", as in TorchLens.
    - `options`: TorchLens's, where the caller has them apart; `others` may hold both kinds.
    """
    ours = {name: others.pop(name) for name in _OURS if name in others}
    older = {**(options or {}), **others}
    check_options(older, "log_forward_pass")
    older = by_first_name(older)
    wish = drawing_wish(older, vis_opt, vis_path)
    if "random_seed" in older:
        ours["seed"] = older["random_seed"]
    history = torcheer.log_forward_pass(
        model, input_args, input_kwargs=input_kwargs, layers_to_save=_in_form(layers_to_save, save_form(older)), **ours
    )
    _draw(history, wish)
    return history


def trace(
    model: torch.nn.Module,
    input_args: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    save: Any = "all",
    intervene: Mapping[Any, Any] | None = None,
    save_grads: bool = False,
    **options: Any,
) -> ModelHistory:
    """Run a model and return its history: TorchLens 2's first verb.

    - `save`: "all", "none", layers, or selectors such as `func("relu")`.
    - `intervene`: what `when(site, edit)` returned.
    - `save_grads`: keep gradients of later `backward` calls.
    - `options`: as of `log_forward_pass`.
    """
    if intervene is not None and not isinstance(intervene, Mapping):
        raise BadArgument("trace(intervene=…): give when(site, edit), such as when(func('relu'), scale(0.5))")
    if not isinstance(save_grads, bool):
        raise BadArgument("trace(save_grads=…): True keeps the gradients of everything that is saved; choose by save=")
    sites = {layer_key(site): edit for site, edit in (intervene or {}).items()}
    return log_forward_pass(
        model, input_args, input_kwargs, options.pop("layers_to_save", save), save_gradients=save_grads,
        edits=sites or None, **options,
    )  # fmt: skip


def pluck(model: torch.nn.Module, x: Any, layer: Any) -> Any:
    """Return the value of one layer."""
    history = torcheer.log_forward_pass(model, x, layers_to_save=[layer_key(layer)])
    found = history.find(layer_key(layer))
    return history[layer].tensor_contents if len(found) != 1 else found[0].tensor_contents


def extract(model: torch.nn.Module, x: Any, layers: Iterable[str] | Mapping[str, str]) -> dict[str, Any]:
    """Return the values of several layers of one pass, by name."""
    names = dict(layers) if isinstance(layers, Mapping) else {layer: layer for layer in layers}
    history = torcheer.log_forward_pass(model, x, layers_to_save=list(names.values()))
    return {name: history[layer].tensor_contents for name, layer in names.items()}


def extract_dataset(model: torch.nn.Module, dataset: Any, layers: Any, *, output_dir: StrPath, **options: Any) -> Any:
    """Write layers over a dataset to a folder; `options` are those of `torcheer.extract`."""
    return torcheer.extract(model, dataset, layers=layers, to=output_dir, **options)


def show_model_graph(
    model: torch.nn.Module,
    input_args: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    vis_opt: str = "unrolled",
    vis_outpath: StrPath = "modelgraph",
    **options: Any,
) -> None:
    """Draw a model from one pass to a file, as a PDF unless its ending says otherwise."""
    options.pop("save_only", None)
    log_forward_pass(
        model, input_args, input_kwargs, "none", vis_opt=vis_opt, options={**options, "vis_outpath": vis_outpath}
    )


def get_model_metadata(
    model: torch.nn.Module, input_args: Any = (), input_kwargs: Mapping[str, Any] | None = None
) -> ModelHistory:
    """Run a model and return its history without any value."""
    return torcheer.log_forward_pass(model, input_args, input_kwargs=input_kwargs, layers_to_save="none")


log_model_metadata = get_model_metadata


def summary(model: torch.nn.Module, input_args: Any = (), input_kwargs: Mapping[str, Any] | None = None) -> str:
    """Return the table of modules of one pass, as text."""
    return str(get_model_metadata(model, input_args, input_kwargs).summary())


def validate_forward_pass(
    model: torch.nn.Module,
    input_args: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    random_seed: int | None = None,
    verbose: bool = False,
) -> bool:
    """Whether every operation of a pass replays bit for bit, and every edge matters; `verbose` prints the report."""
    report = torcheer.validate(model, input_args, input_kwargs=input_kwargs, seed=random_seed)
    if verbose:
        print(report)
    return bool(report)


validate = validate_saved_activations = validate_forward_pass


def save(history: ModelHistory, path: StrPath, *, overwrite: bool = False) -> None:
    """Write a history to a folder; `load` opens it."""
    history.save(path, overwrite=overwrite)


def _in_form(layers: Any, form: Mapping[str, Any]) -> Any:
    if layers is None or (isinstance(layers, list | tuple) and not layers):
        layers = "none"
    if isinstance(layers, list | tuple):
        layers = [layer_key(layer) for layer in layers]
    if isinstance(layers, Save) or not form:
        return layer_key(layers)
    return Save(layer_key(layers), **form)


def _draw(history: ModelHistory, wish: DrawingWish) -> None:
    if wish.mode != "none":
        path = wish.path or Path(f"{history.model_name or 'model'}.svg")
        drawing = history.draw(rolled=wish.mode == "rolled", depth=wish.depth, direction=wish.direction)
        print(f"drawing written to {drawing.save(path)}")
