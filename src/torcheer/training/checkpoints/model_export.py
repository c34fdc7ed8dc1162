"""Export trained models: weights as safetensors, a `torch.export` program, or ONNX."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.checkpoints.tensor_files import ChecksumFile, write_tensors

if TYPE_CHECKING:
    from torcheer.training.session import Session

KINDS = {".safetensors": "weights", ".pt2": "a torch.export program", ".onnx": "an ONNX graph"}


def export_model(
    model: nn.Module | Session, path: str | os.PathLike[str], inputs: Any = None, *,
    input_kwargs: Mapping[str, Any] | None = None, name: str | None = None, overwrite: bool = False,
) -> Path:  # fmt: skip
    """Write a model to a file that others read; the end of its name says which: .safetensors, .pt2 or .onnx.

    - `model`: a module, or a session of training, whose averaged weights are written where it has them
    - `path`: `.safetensors` keeps the weights, `.pt2` a program of `torch.export`, `.onnx` an ONNX graph
    - `inputs`, `input_kwargs`: what the model is called with, for the two programs: a tensor, or a tuple of arguments;
      of a session's model, its first batch by default. The first axis of each tensor may have any length.
    - `name`: which model, of a session that has several
    - `overwrite`: replace a file that is there

    A module is written in evaluation mode, and left in the mode it was in. Returns the path.
    """
    target = Path(path)
    export_kind(target)
    if target.exists() and not overwrite:
        raise BadArgument(f"{target} is there already; overwrite=True replaces it")
    if not isinstance(model, nn.Module):
        return _export_of_session(model, target, name)
    if target.suffix == ".safetensors":
        _write_weights(model.state_dict(), target)
        return target
    if inputs is None and not input_kwargs:
        raise BadArgument(f"{target}: a program is made by running the model; export_model(model, path, inputs)")
    arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        program = _program(type(model).__name__, model, arguments, dict(input_kwargs or {}))
        with _export_path(target) as part:
            _SAVE[target.suffix](program, part)
    finally:
        for module, mode in modes.items():
            module.training = mode
    return target


def _export_of_session(session: Session, path: Path, name: str | None) -> Path:
    if path.suffix == ".safetensors":
        export_weights(session.state(), path, name)
    else:
        export_program(session, path, name)
    return path


def export_kind(path: Path) -> str:
    """Return the kind of export that a file's suffix selects."""
    if path.suffix not in KINDS:
        kinds = ", ".join(f"{suffix} ({kind})" for suffix, kind in KINDS.items())
        raise BadArgument(f"{path}: the end of its name says what is written, and is one of {kinds}")
    missing = [package for package in ("onnx", "onnxscript") if find_spec(package) is None]
    if path.suffix == ".onnx" and missing:
        raise BadArgument(f"{path}: ONNX needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    return KINDS[path.suffix]


def export_weights(state: Mapping[str, Any], path: Path, model: str | None = None) -> str:
    """Write the weights of a checkpoint's state, averaged where available.

    Return a description.
    """
    weights, averages = state["models"], state["averages"]
    averaged = {
        _memory(weights[name][key]): value for name, values in averages.items() for key, value in values.items()
    }
    models = {
        name: {key: averaged.get(_memory(value), value) for key, value in values.items()}
        for name, values in weights.items()
    }
    if model is not None:
        models = {model: models[_resolve_model(model, models)]}
    is_single = len(models) == 1
    tensors = {
        key if is_single else f"{name}.{key}": value
        for name, weights in models.items()
        for key, value in weights.items()
        if isinstance(value, Tensor)
    }
    _write_weights(tensors, path)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    return f"{', '.join(models)}: {len(tensors)} tensors, {numbers:,} numbers{' (averaged)' * bool(state['averages'])}"


def _write_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    with _export_path(path) as part, open(part, "wb", buffering=0) as file:
        write_tensors(ChecksumFile(file), tensors)


def _memory(value: Any) -> Any:
    """Return the key that identifies tied weights, of one model or of several.

    They share one average.
    """
    return (value.data_ptr(), value.shape) if isinstance(value, Tensor) and value.numel() else id(value)


def export_program(session: Session, path: Path, model: str | None = None) -> str:
    """Write one model of a session as a program that runs without its code.

    Return a description.
    """
    name = _resolve_model(model, session.models)
    module = session.models[name]
    for average in session.averages.values():
        average.swap()
    try:
        module.eval()
        args, kwargs = example_inputs(session, name)
        program = _program(name, module, args, kwargs)
        with _export_path(path) as part:
            _SAVE[path.suffix](program, part)
    finally:
        for average in session.averages.values():
            average.swap()
    shapes = ", ".join(
        str(tuple(leaf.shape)) for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
    )
    return f"{name}, as it ran on {shapes}"


def _program(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    shapes = _pytree.tree_map(_free_batch, args), _pytree.tree_map(_free_batch, kwargs)
    free = (
        {**inspect.signature(module.forward).bind_partial(*shapes[0]).arguments, **shapes[1]} if kwargs else shapes[0]
    )
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=free)
    except Exception as error:  # torch.export raises many types
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadArgument(f"torch.export cannot make a program of {name!r}: {reason}") from error


def _free_batch(value: Any) -> Any:
    """Allow batches of any size; torch checks whether the model supports it."""
    return {0: torch.export.Dim.AUTO} if isinstance(value, Tensor) and value.ndim else None


def _resolve_model(model: str | None, models: Mapping[str, Any]) -> str:
    if model is None and len(models) == 1:
        return next(iter(models))
    if model is None:
        raise BadArgument(f"there are several models; say which with --model: {', '.join(models)}")
    if model not in models:
        raise BadArgument(f"there is no model {model!r}; there is {', '.join(models)}.{did_you_mean(model, models)}")
    return model


def example_inputs(session: Session, model: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a model's arguments for the first batch of the first pipeline that runs it."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record_call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((args, kwargs))

    stages = [name for stage in session.stages for name in (*stage.training, *stage.validation)]
    for name in dict.fromkeys([*stages, *session.runners]):
        if model not in {node.model for node in session.nodes_of(name)}:
            continue
        hook = session.models[model].register_forward_pre_hook(record_call, with_kwargs=True)
        try:
            with session.reading(), torch.no_grad():
                session.runners[name].forward(next(session.runners[name].batches(None)))
        finally:
            hook.remove()
        if calls:
            return calls[0]
    raise BadArgument(f"no pipeline runs the model {model!r}, so nothing is known of its inputs")


@contextmanager
def _export_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path`; a refusal says what to try."""
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            yield part


def _save_onnx(program: Any, path: Path) -> None:
    torch.onnx.export(program, f=str(path), dynamo=True, external_data=False, verbose=False)


_SAVE: dict[str, Callable[[Any, Path], Any]] = {
    ".pt2": lambda program, path: torch.export.save(program, path),
    ".onnx": _save_onnx,
}
