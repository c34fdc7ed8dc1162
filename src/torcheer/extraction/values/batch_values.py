"""Run one batch through the model and return the selected layers, one row per sample."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torcheer.capture import log_forward_pass
from torcheer.capture.values.save_policy import Save
from torcheer.encoding import type_name
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.extraction.batches import Batch, count_rows, model_inputs
from torcheer.extraction.values.hook_values import HookReader, same_bits
from torcheer.extraction.values.shared_storage import storage_holders, storage_id
from torcheer.extraction.values.value_rows import BatchValues, Mask, Values, check_mask, leave_out_padding, tensor_list
from torcheer.history.error_notes import NO_HISTORY, describe_arguments, explain
from torcheer.history.lookup import named_matches
from torcheer.inputs import call_arguments
from torcheer.models import named_parts
from torcheer.selection import keys_of, parse, refusal
from torcheer.tap.compiled.compiled_parts import compiled_parts
from torcheer.terminal import warn_or_print

TOLERANCE = 0.02  # relative difference up to which two runs count as the same
Reduce = Callable[..., Any]


class LayerReader:
    """Read the values of selected layers from a model's forward passes."""

    def __init__(
        self, model: torch.nn.Module, layers: Any, *, device: torch.device, transformed: bool, seed: int, mask: Mask
    ) -> None:
        self.model, self.device, self.transformed, self.seed = model, device, transformed, seed
        self._mask = check_mask(mask)
        self._requested = _parse_layers(layers)
        self.layers: dict[str, Reduce | None] = {}  # by name, once the trial has found them
        modules = named_parts(model)
        forms = {parse(key, modules, "extract").form for key in self._requested}
        # Inside a fused kernel nothing is counted: other operations would have the labels that a history shows.
        self._fused = forms <= {"module", "class"}
        self._all_named = forms <= {"module", "label"} and all(isinstance(key, str) for key in self._requested)
        self._stop_early = False
        self._hooks: HookReader | None = None
        self._misses = 0  # how often the hooks gave no result

    @property
    def wants_batch(self) -> bool:
        """Return whether the mask or a layer's function asks for the batch as it was given."""
        return self._mask is not None or any(map(_takes_batch, self._requested.values()))

    def run_trial(self, batch: Batch) -> BatchValues:
        """Run the first batch: find the layers that were asked for, and the cheapest way to read them."""
        self.layers = self._find_layers(batch)
        hooks = HookReader.for_layers(self.model, self.layers)
        if hooks is not None and not hooks.closes_fast_paths:
            self._hooks = hooks
        try:
            values = self.read(batch)
        except UnknownLayer:  # perhaps inside a fused operation, which the next run opens
            self._fused = False
            values = self.read(batch)
        self._stop_early = True
        if hooks is not None and self._hooks is None and not hooks.has_run:
            self._try_hooks(hooks, batch, values)
        self._warn_if_eager()
        return values

    def _warn_if_eager(self) -> None:
        """Say that compiled code does not run: captures never run it, and hooks only around it."""
        if compiled_parts(self.model) and (self._hooks is None or self._hooks.runs_eagerly):
            warn_or_print(
                "extract reads layers inside torch.compile, where no hook is called: the eager program that was "
                "compiled runs in its place, at its speed, and values may differ from compiled ones in the last bits"
            )

    def _try_hooks(self, hooks: HookReader, batch: Batch, values: BatchValues) -> None:
        """Read by hooks from here on if they give what a capture gave."""
        self._hooks = hooks
        for _ in range(2):  # the second pass stops early
            if self._hooks is not None and not are_equal(self.read(batch).values, values.values):
                self._hooks = None

    def read(self, batch: Batch) -> BatchValues:
        """Return the values of one batch, in memory that nothing else writes to."""
        try:
            return self._read(batch)
        except Exception as error:
            text = f"{batch} did not go through; it is {describe_arguments((batch.data,), {})}"
            explain(error, self.model, extraction=text, history=NO_HISTORY)
            raise

    def _read(self, batch: Batch) -> BatchValues:
        args, kwargs = self._arguments(batch)
        count = count_rows((args, kwargs)) if batch.rows is None else batch.rows
        values = self._values(args, kwargs, batch, count)
        if self._mask is None:
            return BatchValues(_copy_shared(values), count)
        values, lengths, masked = leave_out_padding(values, self._mask, batch.given, count)
        return BatchValues(_copy_shared(values), count, lengths, masked)

    def _arguments(self, batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arguments = call_arguments(self.model, model_inputs(batch.data, transformed=self.transformed))
        args, kwargs = _move_to(arguments, self.device)
        _seed_generators(self.seed + batch.number, self.device)  # a model that samples gives the same values again
        return args, kwargs

    def _find_layers(self, batch: Batch) -> dict[str, Reduce | None]:
        """Return every layer that was asked for by its name, with its function."""
        if self._all_named:
            return {str(key): reduce for key, reduce in self._requested.items()}
        args, kwargs = self._arguments(batch)
        save = "all" if any(callable(key) for key in self._requested) else "none"  # a predicate may ask for values
        history = log_forward_pass(self.model, args, input_kwargs=kwargs, layers_to_save=save, fused=self._fused)
        layers: dict[str, Reduce | None] = {}
        for key, reduce in self._requested.items():
            is_name = isinstance(key, str) and key in history and not isinstance(history[key], list)
            matches = [(key, 0)] if is_name else named_matches(history, key)
            if not matches:
                raise UnknownLayer(f"extract: nothing among {len(history)} operations matches {key!r}")
            layers |= {name: layers.get(name) or reduce for name, _ in matches}
        return layers

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any], batch: Batch, count: int) -> Values:
        raw_values = self._raw_values(args, kwargs)
        values: Values = {}
        for name, reduce in self.layers.items():
            value = raw_values[name]
            rows = _apply_reduce(reduce, value, batch.given) if reduce else value
            values[name] = _check_rows(name, rows, count, reduce is not None)
        return values

    def _raw_values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """Return the layers' values.

        By hooks where these give what a capture does, otherwise by a capture.
        """
        if self._hooks is not None:
            if (values := self._hooks.run(args, kwargs)) is not None:
                return values
            self._misses += 1
            if self._misses > 1 or not self._hooks.has_run:  # running every batch twice would cost more than a capture
                self._hooks = None
        save = Save(list(self.layers), detach=True, stop_early=self._stop_early)
        history = log_forward_pass(self.model, args, input_kwargs=kwargs, layers_to_save=save, fused=self._fused)
        return {name: history[name].tensor_contents for name in self.layers}


def _parse_layers(layers: Any) -> dict[Any, Reduce | None]:
    """Return the function of each layer that was asked for, or None."""
    if isinstance(layers, Mapping):
        table = dict(layers)
    else:
        keys = list(keys_of(layers, "extract"))
        if any(isinstance(key, slice) for key in keys):
            raise BadArgument(refusal("extract", "slice", layers))
        table = dict.fromkeys(keys)
        if len(table) < len(keys):
            raise BadArgument(f"layers={keys}: a layer is named twice")
    if not table:
        raise BadArgument(f"layers={layers!r}: give at least one layer, such as 'features.6' or 'relu_1'")
    for name, reduce in table.items():
        if reduce is not None and not callable(reduce):
            raise BadArgument(f"layers: {name!r} has {reduce!r}; give a function of the layer's value, or None")
    return table


def _apply_reduce(reduce: Reduce, value: Any, given: Any) -> Any:
    """Call a reduce function with the value, and with the batch as it was given if it takes two parameters."""
    return reduce(value, given) if _takes_batch(reduce) else reduce(value)


def _takes_batch(reduce: Reduce | None) -> bool:
    """Return whether a function has two parameters."""
    if reduce is None:
        return False
    try:
        parameters = inspect.signature(reduce).parameters.values()
    except (TypeError, ValueError):  # builtins have no signature
        return False
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len([parameter for parameter in positional if parameter.default is parameter.empty]) > 1


def _check_rows(name: str, value: Any, count: int, reduced: bool) -> Tensor | list[Tensor]:
    """Return the value as one row per sample; raise where it is none."""
    if isinstance(value, Tensor):
        value = value.unbind() if value.is_nested else _to_dense(value)
        if isinstance(value, Tensor) and value.ndim and len(value) == count:
            return value
    if isinstance(value, (list, tuple)) and (reduced or not isinstance(value, tuple) or len(value) == count):
        rows = list(value)
        if len(rows) == count and all(isinstance(row, Tensor) for row in rows) and not _is_output_tuple(value, reduced):
            return [_to_dense(row) for row in rows]
    description = (
        tuple(value.shape) if isinstance(value, Tensor) else f"{type(value).__name__} of {_describe_length(value)}"
    )
    raise BadArgument(
        f"layer {name!r} gives {description} for a batch of {count}, and one row for each sample is needed; say how it "
        f"is made: layers={{{name!r}: lambda value: …}}, with a tensor of {count} rows or a list of {count} tensors"
    )


def _is_output_tuple(value: Any, reduced: bool) -> bool:
    """Return whether a tuple is the outputs of a module rather than one value per sample."""
    return isinstance(value, tuple) and not reduced


def _copy_shared(values: Values) -> Values:
    """Copy each value whose storage is shared: a model's buffer, a batch that its loader reuses.

    Values are written to disk while the next batch is computed, which could overwrite shared storage.
    """
    own = Counter(storage_id(tensor) for value in values.values() for tensor in tensor_list(value))

    def copy_if_shared(tensor: Tensor) -> Tensor:
        return tensor if storage_holders(tensor) == own[storage_id(tensor)] else tensor.clone()

    return _map_tensors(values, copy_if_shared)


def _map_tensors(values: Values, make: Callable[[Tensor], Tensor]) -> Values:
    return {
        name: [make(row) for row in value] if isinstance(value, list) else make(value) for name, value in values.items()
    }


def _to_dense(value: Tensor) -> Tensor:
    value = value.dequantize() if value.is_quantized else value
    return value if value.layout is torch.strided else value.to_dense()


def _describe_length(value: Any) -> str:
    return f"{len(value)} things" if hasattr(value, "__len__") else "no length"


def _move_to(data: Any, device: torch.device) -> Any:
    if isinstance(data, Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {key: _move_to(part, device) for key, part in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[_move_to(part, device) for part in data])
    if isinstance(data, (tuple, list)):
        return type(data)(_move_to(part, device) for part in data)
    return data


def is_close(value: Tensor, stored: NDArray[Any], kind: str) -> bool:
    """Return whether a stored value matches, up to thread count, device and a lossy codec."""
    if tuple(value.shape) != stored.shape or type_name(value.dtype) != kind:
        return False
    if not value.is_floating_point() or stored.dtype.name != kind:  # rounding may change an argmax arbitrarily
        return True
    new, old = value.detach().cpu().double().nan_to_num(), torch.from_numpy(stored.astype(np.float64)).nan_to_num()
    return bool((new - old).abs().sum() <= TOLERANCE * (new.abs().sum() + old.abs().sum()))


def are_equal(first: Values, second: Values) -> bool:
    """Return whether two runs gave bit-equal values."""
    return all(
        len(tensor_list(value)) == len(tensor_list(second[name]))
        and all(same_bits(a, b) for a, b in zip(tensor_list(value), tensor_list(second[name])))
        for name, value in first.items()
    )


@contextmanager
def evaluation_mode(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Put a model in evaluation mode on a device, without gradients; restore everything on exit."""
    modes = [(module, module.training) for module in model.modules()]
    original_device = next((tensor.device for tensor in _parameters_and_buffers(model)), device)
    cuda = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    with torch.random.fork_rng(devices=cuda), torch.no_grad(), _few_threads(device):
        try:
            model.eval()
            if original_device != device:
                model.to(device)
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            if original_device != device:
                model.to(original_device)


@contextmanager
def _few_threads(device: torch.device) -> Iterator[None]:
    """Leave most processors to the threads that write, while a GPU runs the model.

    A loader that stacks its samples by all of them waits, after each, for threads whose turn others have.
    """
    before = torch.get_num_threads()
    most = max(1, (os.cpu_count() or 1) // 4)
    if device.type == "cpu" or before <= most:
        yield
        return
    torch.set_num_threads(most)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_device(model: torch.nn.Module, requested: Any) -> torch.device:
    """Return the device to run on: the requested one, or the model's."""
    devices = list(dict.fromkeys(tensor.device for tensor in _parameters_and_buffers(model))) or [torch.device("cpu")]
    if requested is None:
        return devices[0]
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if requested == "auto" else requested)
    except (RuntimeError, TypeError) as error:
        raise BadArgument(f"device={requested!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadArgument(f"device={requested!r}: this torch finds no GPU; device='auto' takes one where there is one")
    if len(devices) > 1:  # the placement could not be restored
        raise BadArgument(
            f"device={requested!r}: the model is spread over {', '.join(map(str, devices))}; leave device out"
        )
    return device


def _seed_generators(seed: int, device: torch.device) -> None:
    """Seed only the generators of the model's device: `evaluation_mode` restores no others."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def _parameters_and_buffers(model: torch.nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
