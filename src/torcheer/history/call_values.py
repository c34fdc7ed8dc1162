"""Inputs and outputs of operations and module calls: each value with its argument position."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torcheer.errors import AmbiguousLayer, UnknownLayer, ValueUnavailable
from torcheer.records import Argument, ModuleRun, Op
from torcheer.terminal import plural

if TYPE_CHECKING:
    from torch import Tensor

    from torcheer.history.model_history import ModelHistory
    from torcheer.history.op_views import OpView


class ArgumentView:
    """One input or output value: a tensor, a parameter, or a plain setting."""

    __slots__ = ("history", "record")

    def __init__(self, history: ModelHistory, record: Argument) -> None:
        self.history = history
        self.record = record

    @property
    def where(self) -> tuple[int | str, ...]:
        """Its position: (0,) the first argument, ("mask",) a keyword, (0, 2) an item of a list."""
        return self.record.where

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.record.parent >= 0 or bool(self.record.stored)

    @property
    def op(self) -> OpView | None:
        """The operation that made it; None for a parameter, a stored buffer, or a setting."""
        return self.history[self.record.parent] if self.record.parent >= 0 else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor; () for other values."""
        shape: tuple[int, ...] = self._fact("shape", ())
        return shape

    @property
    def dtype(self) -> str:
        """The dtype of a tensor; "" for other values."""
        return str(self._fact("dtype", ""))

    def _fact(self, name: str, default: Any) -> Any:
        if self.record.parent >= 0:
            return getattr(self.history.facts.ops[self.record.parent].tensors[self.record.output], name)
        stored = self.history.facts.stored.get(self.record.stored)
        return getattr(stored, name) if stored is not None else default

    @property
    def tensor_contents(self) -> Tensor | Any:
        """The tensor, if it was saved; for a setting, its value."""
        if self.record.parent < 0:
            return self.history.trace.stored_value(self.record.stored) if self.record.stored else self.record.setting
        try:
            return self.history.trace.value(self.record.parent, self.record.output)
        except ValueUnavailable as error:
            label = self.history.facts.layers.label(self.record.parent)
            raise ValueUnavailable(f"the value of {label} cannot be had: {error}") from None

    def __repr__(self) -> str:
        place = ".".join(map(str, self.where))
        if not self.is_tensor:
            return f"{place}: {self.record.setting!r}"
        name = self.record.stored or self.history.facts.layers.label(self.record.parent)
        return f"{place}: {name} {self.shape} {self.dtype}"


class Arguments(list[ArgumentView]):
    """The values of a call, in argument order."""

    def __init__(self, history: ModelHistory, records: Iterable[Argument]) -> None:
        super().__init__(ArgumentView(history, record) for record in records)

    @property
    def tensors(self) -> list[Any]:
        """The tensors among them; raises ValueUnavailable if one was not saved."""
        return [argument.tensor_contents for argument in self if argument.is_tensor]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "nothing"


def op_arguments(op: Op) -> list[Argument]:
    """Return an operation's arguments by position: tensors, parameters and settings."""
    arguments = {edge.where: Argument(edge.where, edge.parent, edge.output) for edge in op.parents}
    for stored in op.stored:
        arguments.setdefault(stored.where, Argument(stored.where, stored=stored.name))
    for where, setting in op.settings:
        arguments.setdefault(tuple(where), Argument(tuple(where), setting=setting))
    return sorted(arguments.values(), key=lambda argument: [(isinstance(part, str), part) for part in argument.where])


def module_run(history: ModelHistory, address: str, call: int | None) -> ModuleRun:
    """Return the inputs and outputs of one call of a module; of its only call if `call` is None."""
    runs = history.facts.module_runs.get(address, {})
    if not runs:
        if not history.facts.has_runs:
            raise ValueUnavailable("this history does not say what modules received: it was saved by torcheer 0.1.0")
        raise UnknownLayer(f"the module {address or 'of the whole model'!r} was not called in this run.")
    if call is None and len(runs) > 1:
        raise AmbiguousLayer(
            f"{address!r} was called {plural(len(runs), 'time')}; "
            f"ask for one call: .inputs_of(1) … .inputs_of({max(runs)}), or .outputs_of"
        )
    if call is not None and call not in runs:
        raise UnknownLayer(f"no call {call} of {address!r}: there were {len(runs)}, from 1 to {max(runs)}.")
    return next(iter(runs.values())) if call is None else runs[call]
