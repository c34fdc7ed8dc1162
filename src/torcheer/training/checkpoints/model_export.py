"""What was trained, for use elsewhere: weights as safetensors, a `torch.export` program, or ONNX."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.training.checkpoints.run_directory import telling
from torcheer.training.checkpoints.tensor_files import Summed, write_tensors

if TYPE_CHECKING:
    from torcheer.training.session import Session

KINDS = {".safetensors": "weights", ".pt2": "a torch.export program", ".onnx": "an ONNX graph"}


def kind_of(path: Path) -> str:
    """What the end of a file's name asks for."""
    if path.suffix not in KINDS:
        known = ", ".join(f"{suffix} ({what})" for suffix, what in KINDS.items())
        raise BadArgument(f"{path}: the end of its name says what is written, and is one of {known}")
    missing = [package for package in ("onnx", "onnxscript") if find_spec(package) is None]
    if path.suffix == ".onnx" and missing:
        raise BadArgument(f"{path}: ONNX needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    return KINDS[path.suffix]


def export_weights(state: Mapping[str, Any], path: Path, model: str | None = None) -> str:
    """Write the weights of a checkpoint's state, averaged ones where there are some; what was written."""
    weights, averages = state["models"], state["averages"]
    pairs = {_memory(weights[name][key]): value for name, one in averages.items() for key, value in one.items()}
    models = {name: {key: pairs.get(_memory(each), each) for key, each in one.items()} for name, one in weights.items()}
    if model is not None:
        models = {model: models[_known(model, models)]}
    one = len(models) == 1
    tensors = {
        key if one else f"{name}.{key}": value
        for name, weights in models.items()
        for key, value in weights.items()
        if isinstance(value, Tensor)
    }
    with whole(path) as part, open(part, "wb", buffering=0) as file:
        write_tensors(Summed(file), tensors)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    return f"{', '.join(models)}: {len(tensors)} tensors, {numbers:,} numbers{' (averaged)' * bool(state['averages'])}"


def _memory(value: Any) -> Any:
    """What tells tied weights, of one model or of several, which have one average."""
    return (value.data_ptr(), value.shape) if isinstance(value, Tensor) and value.numel() else id(value)


def export_program(session: Session, path: Path, model: str | None = None) -> str:
    """Write one model of a session, with its weights, as something that runs without its code; what was written."""
    name = _known(model, session.models)
    module = session.models[name]
    for average in session.averages.values():
        average.swap()
    try:
        module.eval()
        args, kwargs = example(session, name)
        program = _program(name, module, args, kwargs)
        with whole(path) as part:
            _SAVE[path.suffix](program, part)
    finally:
        for average in session.averages.values():
            average.swap()
    given = ", ".join(str(tuple(one.shape)) for one in _pytree.tree_leaves((args, kwargs)) if isinstance(one, Tensor))
    return f"{name}, as it ran on {given}"


def _program(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    shapes = _pytree.tree_map(_free_batch, args), _pytree.tree_map(_free_batch, kwargs)
    free = (
        {**inspect.signature(module.forward).bind_partial(*shapes[0]).arguments, **shapes[1]} if kwargs else shapes[0]
    )
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=free)
    except Exception as error:  # many kinds, each of torch's own
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadArgument(f"torch.export cannot make a program of {name!r}: {said}") from error


def _free_batch(value: Any) -> Any:
    """Batches of any size: torch finds out whether the model allows it."""
    return {0: torch.export.Dim.AUTO} if isinstance(value, Tensor) and value.ndim else None


def _known(model: str | None, models: Mapping[str, Any]) -> str:
    if model is None and len(models) == 1:
        return next(iter(models))
    if model is None:
        raise BadArgument(f"there are several models; say which with --model: {', '.join(models)}")
    if model not in models:
        raise BadArgument(f"there is no model {model!r}; there is {', '.join(models)}.{nearest(model, models)}")
    return model


def example(session: Session, model: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a model is called with for the first batch of the first pipeline that runs it."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((args, kwargs))

    stages = [name for stage in session.stages for name in (*stage.training, *stage.validation)]
    for name in dict.fromkeys([*stages, *session.lanes]):
        if model not in {node.model for node in session.nodes_of(name)}:
            continue
        hook = session.models[model].register_forward_pre_hook(look, with_kwargs=True)
        try:
            with torch.no_grad():
                session.lanes[name].forward(next(session.lanes[name].batches(0)))
        finally:
            hook.remove()
        if seen:
            return seen[0]
    raise BadArgument(f"no pipeline runs the model {model!r}, so nothing is known of its inputs")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A place to write to that becomes the file once it is whole."""
    part = path.with_name(f".tmp-{path.name}")
    try:
        with telling(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _save_onnx(program: Any, path: Path) -> None:
    torch.onnx.export(program, f=str(path), dynamo=True, external_data=False, verbose=False)


_SAVE: dict[str, Callable[[Any, Path], Any]] = {
    ".pt2": lambda program, path: torch.export.save(program, path),
    ".onnx": _save_onnx,
}
