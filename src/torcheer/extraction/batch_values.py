"""One batch through the model: the values of the chosen layers, one row for each sample."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torcheer.capture.forward_pass import log_forward_pass
from torcheer.capture.values.save_policy import Save
from torcheer.encoding import type_name
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.extraction.batches import Batch, count_of, model_inputs
from torcheer.extraction.hook_values import Hooks
from torcheer.history.error_notes import NO_HISTORY, describe_arguments, explain
from torcheer.inputs import call_arguments

LEEWAY = 0.02  # of two runs that are called the same
Reduce = Callable[..., Any]
Values = dict[str, Tensor | list[Tensor]]  # a tensor of the whole batch, or a list of one tensor for each sample


class Taker:
    """Takes the values of chosen layers out of a model's runs."""

    def __init__(
        self, model: torch.nn.Module, layers: Any, *, device: torch.device, transformed: bool, seed: int
    ) -> None:
        self.model, self.device, self.transformed, self.seed = model, device, transformed, seed
        self.layers = _as_table(layers)
        self._fused = True
        self._stop_early = False
        self._hooks: Hooks | None = None
        self._misses = 0  # how often they could not tell

    def trial(self, batch: Batch) -> Values:
        """The first run: it finds out whether everything that was asked for is there, and how it is reached."""
        try:
            values = self.take(batch)
        except UnknownLayer:  # perhaps inside of a fused operation, which the next run opens
            self._fused = False
            values = self.take(batch)
        self._stop_early = True
        self._hooks = Hooks.of(self.model, self.layers)
        for _ in range(2):  # the first time they may learn which values are written over later on
            if self._hooks is not None and not are_equal(self.take(batch), values):
                self._hooks = None
        return values

    def take(self, batch: Batch) -> Values:
        """The values of one batch, in memory that nobody else writes to."""
        try:
            return self._take(batch)
        except Exception as error:
            text = f"{batch} did not go through; it is {describe_arguments((batch.data,), {})}"
            explain(error, self.model, extraction=text, history=NO_HISTORY)
            raise

    def _take(self, batch: Batch) -> Values:
        args, kwargs = call_arguments(self.model, model_inputs(batch.data, transformed=self.transformed))
        count = count_of((args, kwargs)) if batch.rows is None else batch.rows
        args, kwargs = _moved((args, kwargs), self.device)
        _seed(self.seed + batch.number, self.device)  # so that a model that draws numbers draws the same again
        return _own(self._values(args, kwargs, batch, count))

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any], batch: Batch, count: int) -> Values:
        taken = self._taken(args, kwargs)
        found: Values = {}
        for name, reduce in self.layers.items():
            value = taken[name]
            made = _reduced(reduce, value, batch.data) if reduce else value
            found[name] = _checked(name, made, count, reduce is not None)
        return found

    def _taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """The layers' own values: by hooks where these gave what a capture gave, else by a capture."""
        if self._hooks is not None:
            if (taken := self._hooks.run(args, kwargs)) is not None:
                return taken
            self._misses += 1
            if self._misses > 1:  # to run everything twice would be dearer than any capture
                self._hooks = None
        save = Save(list(self.layers), detach=True, stop_early=self._stop_early)
        history = log_forward_pass(self.model, args, input_kwargs=kwargs, layers_to_save=save, fused=self._fused)
        return {name: history[name].tensor_contents for name in self.layers}


def _as_table(layers: Any) -> dict[str, Reduce | None]:
    """Names, each with what is to be made of its value."""
    if isinstance(layers, str):
        layers = [layers]
    if isinstance(layers, Mapping):
        table = dict(layers)
    elif isinstance(layers, Sequence):
        table = dict.fromkeys(layers)
        if len(table) < len(layers):
            raise BadArgument(f"layers={list(layers)}: a layer is named twice")
    else:
        raise BadArgument(f"layers={layers!r}: give a list of names, or a dict of name: function")
    if not table or not all(isinstance(name, str) for name in table):
        raise BadArgument(f"layers={layers!r}: give at least one name, each a text such as 'features.6' or 'relu_1'")
    for name, reduce in table.items():
        if reduce is not None and not callable(reduce):
            raise BadArgument(f"layers: {name!r} has {reduce!r}; give a function of the layer's value, or None")
    return table


def _reduced(reduce: Reduce, value: Any, data: Any) -> Any:
    """What a function makes of a value; one with two parameters is also given the batch."""
    try:
        takes_two = len([
            one for one in inspect.signature(reduce).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
        ]) > 1  # fmt: skip
    except (TypeError, ValueError):  # builtins have no signature
        takes_two = False
    return reduce(value, data) if takes_two else reduce(value)


def _checked(name: str, value: Any, count: int, reduced: bool) -> Tensor | list[Tensor]:
    """A value with one row for each sample, or a clear word why it is none."""
    if isinstance(value, Tensor):
        value = value.unbind() if value.is_nested else _plain(value)
        if isinstance(value, Tensor) and value.ndim and len(value) == count:
            return value
    if isinstance(value, (list, tuple)) and (reduced or not isinstance(value, tuple) or len(value) == count):
        rows = list(value)
        if len(rows) == count and all(isinstance(row, Tensor) for row in rows) and not _is_outputs(value, reduced):
            return [_plain(row) for row in rows]
    what = tuple(value.shape) if isinstance(value, Tensor) else f"{type(value).__name__} of {_size(value)}"
    raise BadArgument(
        f"layer {name!r} gives {what} for a batch of {count}, and one row for each sample is needed; say how it is "
        f"made: layers={{{name!r}: lambda value: …}}, with a tensor of {count} rows or a list of {count} tensors"
    )


def _is_outputs(value: Any, reduced: bool) -> bool:
    """Whether a tuple is what a module with several outputs returned, and not one value for each sample."""
    return isinstance(value, tuple) and not reduced


def _own(values: Values) -> Values:
    """A copy of each value whose memory somebody else holds, too: a buffer of the model, a batch that its loader fills
    again. The disk gets to it while the next batch is computed."""
    ours = Counter(_memory(one) for value in values.values() for one in _rows(value))
    more = _holders(torch.empty(1)) - 1  # torch counts itself while it is asked

    def own(one: Tensor) -> Tensor:
        return one if _holders(one) == ours[_memory(one)] + more else one.clone()

    return _each(values, own)


def _holders(tensor: Tensor) -> int:
    """How many tensors, arrays and the like hold a tensor's memory."""
    return torch._C._storage_Use_Count(_memory(tensor))


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _each(values: Values, make: Callable[[Tensor], Tensor]) -> Values:
    return {
        name: [make(row) for row in value] if isinstance(value, list) else make(value) for name, value in values.items()
    }


def _rows(value: Tensor | list[Tensor]) -> list[Tensor]:
    return value if isinstance(value, list) else [value]


def _plain(value: Tensor) -> Tensor:
    value = value.dequantize() if value.is_quantized else value
    return value if value.layout is torch.strided else value.to_dense()


def _size(value: Any) -> str:
    return f"{len(value)} things" if hasattr(value, "__len__") else "no length"


def _moved(data: Any, device: torch.device) -> Any:
    if isinstance(data, Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {key: _moved(part, device) for key, part in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[_moved(part, device) for part in data])
    if isinstance(data, (tuple, list)):
        return type(data)(_moved(part, device) for part in data)
    return data


def rows_of(values: Values) -> int:
    """How many samples there are."""
    return len(next(iter(values.values())))


def sizes_of(values: Values) -> dict[str, int]:
    """The bytes of each layer's value."""
    return {name: sum(one.numel() * one.element_size() for one in _rows(value)) for name, value in values.items()}


def are_alike(value: Tensor, stored: NDArray[Any], kind: str) -> bool:
    """Whether a stored value may be this one, from another number of threads, another device, through a lossy codec."""
    if tuple(value.shape) != stored.shape or type_name(value.dtype) != kind:
        return False
    if not value.is_floating_point() or stored.dtype.name != kind:  # a rounding may turn an argmax anywhere
        return True
    new, old = value.detach().cpu().double().nan_to_num(), torch.from_numpy(stored.astype(np.float64)).nan_to_num()
    return bool((new - old).abs().sum() <= LEEWAY * (new.abs().sum() + old.abs().sum()))


def are_equal(ones: Values, others: Values) -> bool:
    """Whether two runs gave the same, bit for bit."""
    return all(
        len(_rows(one)) == len(_rows(others[name]))
        and all(
            a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))
            for a, b in zip(_rows(one), _rows(others[name]))
        )
        for name, one in ones.items()
    )


def _bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor: NaN equals NaN there, and -0 is not 0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor


def on_their_way(values: Values) -> dict[torch.device, Any]:
    """A mark in the queue of each GPU that values are on, behind them."""
    gpus = {one.device for value in values.values() for one in _rows(value) if one.is_cuda}
    return {gpu: torch.cuda.current_stream(gpu).record_event() for gpu in gpus}


def fetched(values: Values, ready: dict[torch.device, Any]) -> Values:
    """Values on the CPU, copied in a stream of their own so that the next batch does not wait for them."""
    if not ready:
        return values
    beside = {gpu: torch.cuda.Stream(gpu) for gpu in ready}  # type: ignore[no-untyped-call]
    for gpu, mark in ready.items():
        beside[gpu].wait_event(mark)

    def fetch(one: Tensor) -> Tensor:
        if one.device not in beside:
            return one
        with torch.cuda.stream(beside[one.device]):
            return one.cpu()

    return _each(values, fetch)


@contextmanager
def at_rest(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """A model in evaluation mode on a device, without gradients; afterwards everything is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    before = next((tensor.device for tensor in _tensors(model)), device)
    cuda = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        try:
            model.eval()
            if before != device:
                model.to(device)
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            if before != device:
                model.to(before)


def device_of(model: torch.nn.Module, asked: Any) -> torch.device:
    """Where to run: where it was asked for, or where the model is."""
    there = list(dict.fromkeys(tensor.device for tensor in _tensors(model))) or [torch.device("cpu")]
    if asked is None:
        return there[0]
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked)
    except (RuntimeError, TypeError) as error:
        raise BadArgument(f"device={asked!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadArgument(f"device={asked!r}: this torch finds no GPU; device='auto' takes one where there is one")
    if len(there) > 1:  # it could not be put back
        raise BadArgument(f"device={asked!r}: the model is spread over {', '.join(map(str, there))}; leave device out")
    return device


def _seed(seed: int, device: torch.device) -> None:
    """Only where the model draws: `at_rest` puts back nothing else."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def _tensors(model: torch.nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
