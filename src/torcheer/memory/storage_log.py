"""Which storages live when: a log of every allocation and release while code runs on meta tensors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torcheer.capture.torch_state import DisableTorchFunction
from torcheer.errors import BadArgument
from torcheer.memory.kernel_workspace import workspace_bytes
from torcheer.memory.known_values import KnownValues
from torcheer.memory.meta_rules import GROUPED, grouped_matmul
from torcheer.memory.shape_cache import ShapeCache

_READ = "aten::_local_scalar_dense"
_FOREACH = "aten::_foreach_"


@dataclass(slots=True)
class Allocation:
    """One storage."""

    nbytes: int  # as the allocator rounds it
    layer: str  # path of the module that ran
    phase: str  # "before", "forward", "backward" or "step"
    op: str  # "aten.mm"
    kind: str = ""  # a key of memory_plan.KINDS; "" while unknown


class StorageLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that logs storages of meta tensors as they are allocated and released.

    Autograd itself runs above it, so what it saves for backward lives as long as it would on a device.

    - `round_bytes`: the size that the allocator gives for a size that is asked for.
    - `layer_of`: returns the path of the module that is running.
    """

    def __init__(self, round_bytes: Callable[[int], int], layer_of: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocations: list[Allocation] = []
        self.events: list[int] = []  # +n: allocation n - 1 began; -n: it ended
        self.phase = "before"
        self.starts: dict[str, int] = {}  # phase -> the number of events before it
        self._round_bytes, self._layer_of = round_bytes, layer_of
        self._live: dict[int, tuple[int, Any]] = {}  # address of a storage -> its number, a reference to it
        self.known = KnownValues()
        self._shapes = ShapeCache()
        self._names: dict[Any, str] = {}  # operation -> "aten.mm.default"
        self.failed: tuple[Exception, Any, Any, Any] | None = None  # what an operation raised last, it, its arguments
        self.forward_ended = False
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}  # id of a real tensor -> it and its meta copy

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        self.phase = phase
        self.starts[phase] = len(self.events)

    def note(self, tensor: Tensor, *, layer: str | None = None, kind: str = "", op: str = "") -> Allocation | None:
        """Log the storage of a meta tensor, if it is new; return its allocation."""
        if tensor.device.type != "meta":
            return None
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._live:
            return self.allocations[self._live[address][0] - 1]
        number = self._begin(storage.nbytes(), layer, op, kind)

        def end(_: Any, address: int = address, number: int = number) -> None:
            self._live.pop(address, None)
            self.events.append(-number)

        self._live[address] = (number, weakref.ref(storage, end))
        return self.allocations[-1]

    def note_workspace(self, nbytes: int, op: str) -> None:
        """Log memory that a kernel takes and gives back."""
        if nbytes:
            self.events.append(-self._begin(nbytes, None, op, "workspace"))

    def rename(self, tensor: Tensor, kind: str, layer: str) -> None:
        """Say what a tensor has turned out to be."""
        if tensor.device.type == "meta" and (entry := self._live.get(tensor.untyped_storage()._cdata)):
            allocation = self.allocations[entry[0] - 1]
            allocation.kind, allocation.layer = kind, layer

    @property
    def live(self) -> list[Allocation]:
        """What is allocated now."""
        return [self.allocations[number - 1] for number, _ in self._live.values()]

    def _begin(self, nbytes: int, layer: str | None, op: str, kind: str) -> int:
        layer = self._layer_of() if layer is None else layer
        self.allocations.append(Allocation(self._round_bytes(nbytes), layer, self.phase, op, kind))
        number = len(self.allocations)
        self.events.append(number)
        return number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunction():  # torch computes shapes in Python: not what the model calls
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        if (name := self._names.get(func)) is None:
            name = self._names[func] = str(func)
        if func._schema.name.startswith(_FOREACH) and not func._schema.returns and args[0][0].is_meta:
            return None  # writes in place: nothing is allocated, and an optimizer's hundreds of tensors take long
        tensors = list(tensors_in((*args, *kwargs.values()) if kwargs else args))
        real_count = sum([not tensor.is_meta for tensor in tensors])
        if 0 < real_count < len(tensors):
            args, kwargs = self._on_meta(args), self._on_meta(kwargs)
            tensors = list(tensors_in((*args, *kwargs.values())))
        # Parameters and what is computed from them have no numbers, so most operations stop at the first argument.
        real = self.known.compute(func, args, kwargs, tensors)
        if func._schema.name == _READ:
            return real if real is not None else self._refuse_read()
        try:
            result = grouped_matmul(*args, **kwargs) if name == GROUPED else self._shapes.run(func, args, kwargs)
        except Exception as error:
            self.failed = error, func, args, kwargs
            raise
        if real is not None:
            self.known.note(result, real)
        for tensor in tensors_in(result):
            self.note(tensor, op=name)
        self.note_workspace(workspace_bytes(func, args, result), name)
        return result

    def _refuse_read(self) -> NoReturn:
        layer = self._layer_of()
        where = f"{layer}: forward" if layer and "(" not in layer else "forward"
        raise BadArgument(
            f"plan: {where} reads a number of a tensor (.item(), `if tensor:`, a mask as an index); a plan knows "
            "shapes alone. If it comes from integers of the input, give those as real tensors; else plan the parts"
        )

    def _on_meta(self, value: Any) -> Any:
        """Replace real tensors, such as the labels that a loss function holds, by meta ones."""
        if isinstance(value, Tensor):
            if value.device.type == "meta" or not value.dim():
                return value
            if id(value) not in self._constants:
                copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                self._constants[id(value)] = (value, copy)
                self.known.learn(copy, value)
                self.note(copy, layer="(inputs)", kind="input", op="constant")
            return self._constants[id(value)][1]
        if isinstance(value, dict):
            return {key: self._on_meta(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            items = [self._on_meta(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, Tensor):
                yield item
            elif isinstance(item, dict | list | tuple):
                yield from tensors_in(item)
