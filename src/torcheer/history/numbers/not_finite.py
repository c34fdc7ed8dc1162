"""Where NaN and infinity begin in a history, apart from masks and uninitialised memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import isinf
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from torcheer.errors import ValueUnavailable
from torcheer.history.numbers.unwritten_memory import Unwritten, unwritten_memory
from torcheer.history.value_arrays import recording_paused, to_numpy
from torcheer.records import BESIDE, Op
from torcheer.terminal import first_names

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory
    from torcheer.history.op_views import OpView

_CHOICES: Final = frozenset("argmax argmin argsort".split())  # of NaN, they make ordinary integers
_MASKING: Final = frozenset(  # they choose numbers, and may leave NaN out on purpose
    """where masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select nan_to_num nan_to_num_ nansum nanmean
    nanmedian nanquantile fmax fmin getitem setitem index_select index_put index_put_ index_copy index_copy_ index_fill
    index_fill_ gather take take_along_dim scatter scatter_ copy_ fill_ zero_ tril triu tril_ triu_""".split()
)
_FLOATS: Final = ("float", "bfloat", "complex")


def first_nan(history: ModelHistory) -> OpView | None:
    """Return the first operation of whose NaN the results are made; None if there is none."""
    scan = _Scan(history)
    for ends in (scan.outputs, [*scan.dead_ends, *scan.swallowed]):
        reaching = scan.leading(scan.nan, ends)
        index = next((index for index in scan.beginnings(scan.nan) if reaching[index]), None)
        if index is not None:
            return scan.view(index, scan.nan, "NaN")
        scan.check_known(ends)
    return None


def first_inf(history: ModelHistory) -> OpView | None:
    """Return the first operation of whose infinities the results, or their NaN, are made; None if there is none."""
    scan = _Scan(history)
    for ends in (scan.outputs, scan.dead_ends):
        lasting = scan.leading(scan.nan, ends)
        harmful = [index for index in scan.beginnings(scan.nan) if lasting[index]]
        read = [edge.parent for index in harmful for edge in history.ops[index].parents]
        to_nan = scan.leading(scan.inf, [*read, *harmful])  # one that returns both lets the infinity become NaN later
        to_end = scan.leading(scan.inf, ends)
        found = [index for index in scan.beginnings(scan.inf) if to_nan[index] or to_end[index]]
        computed = [index for index in found if not scan.is_put(index)]
        chosen = computed or [index for index in found if to_nan[index]]
        if chosen:
            return scan.view(chosen[0], scan.inf, "infinity")
        scan.check_known(ends)
    return None


class _Scan:
    """Which operations of a history hold NaN and infinity, where written; None where that is not known."""

    def __init__(self, history: ModelHistory) -> None:
        self.history, self.ops = history, history.ops
        self.nan: list[bool | None] = []
        self.inf: list[bool | None] = []
        unwritten = unwritten_memory(history)
        for op in self.ops:
            found = [self._look(op, output, unwritten) for output in range(len(op.tensors))]
            for holds, seen in ((self.nan, [nan for nan, _ in found]), (self.inf, [inf for _, inf in found])):
                holds.append(True if True in seen else None if None in seen else False)

    @cached_property
    def outputs(self) -> list[int]:
        """What the run returned, and choices made of its values: NaN does not show in them."""
        returned = [op.index for op in self.ops if op.kind == "output"]
        chosen = [edge.parent for op in self.ops if op.name in _CHOICES for edge in op.parents]
        return [*returned, *chosen] if returned else self.dead_ends

    @cached_property
    def dead_ends(self) -> list[int]:
        """What nothing reads: the losses of a recording, the last results of a run that stopped."""
        children = self.history.facts.children
        return [op.index for op in self.ops if not children[op.index] and op.note != BESIDE]

    @cached_property
    def swallowed(self) -> list[int]:
        """What holds NaN where a kernel that is no mask returns numbers all the same: fused attention on a CPU."""
        return [
            edge.parent
            for op in self.ops
            if self.nan[op.index] is False and not op.view and op.name.strip("_") not in _MASKING
            if op.name not in _MASKING and any(_is_float(meta.dtype) for meta in op.outputs)
            for edge in op.parents
            if self.nan[edge.parent] and edge.where[:1] != ("out",)
        ]

    def beginnings(self, holds: list[bool | None]) -> list[int]:
        """Return the operations that hold it and read no value that is known to."""
        return [
            op.index
            for op in self.ops
            if holds[op.index] and not any(holds[edge.parent] for edge in op.parents if edge.parent != op.index)
        ]

    def leading(self, holds: list[bool | None], ends: Iterable[int]) -> list[bool]:
        """Whether each operation holds it, or may, and passes it on from one to the next to one of `ends`."""
        leads = [False] * len(self.ops)
        for end in ends:
            leads[end] = holds[end] is not False
        for op in reversed(self.ops):
            if leads[op.index]:
                for edge in op.parents:
                    leads[edge.parent] = leads[edge.parent] or holds[edge.parent] is not False
        return leads

    def is_put(self, index: int) -> bool:
        """Whether infinity was given to an operation, or computed of constants, integers and shapes alone."""
        given = any(isinstance(value, float) and isinf(value) for _, value in self.ops[index].settings)
        return given or not self._of_data[index]

    @cached_property
    def _of_data(self) -> list[bool]:
        """Whether each operation depends on real numbers that were given to the run, or on parameters."""
        of_data: list[bool] = []
        for op in self.ops:
            given = op.kind in ("input", "unseen") and any(_is_float(meta.dtype) for meta in op.outputs)
            read = any(stored.kind == "parameter" for stored in op.stored)
            of_data.append(given or read or any(of_data[edge.parent] for edge in op.parents))
        return of_data

    def view(self, index: int, holds: list[bool | None], what: str) -> OpView:
        """Return an operation in which it begins; raises ValueUnavailable if it may begin earlier."""
        op = self.history[index]
        unknown = self.history.pick(edge.parent for edge in op.record.parents if holds[edge.parent] is None).labels
        if unknown:
            raise ValueUnavailable(
                f"{op.label} holds {what}, but whether it begins there is not known: the values of "
                f'{first_names(unknown)} were not saved. Record with layers_to_save="all".'
            )
        return op

    def check_known(self, ends: list[int]) -> None:
        """Raise ValueUnavailable if a result was not saved: there may be NaN or infinity in it."""
        unknown = [index for index in ends if self.nan[index] is None]
        if unknown:
            raise ValueUnavailable(
                f"none was found in what was saved, but {first_names(self.history.pick(unknown).labels)} was not. "
                'Record with layers_to_save="all".'
            )

    def _look(
        self, op: Op, output: int, unwritten: dict[tuple[int, int], Unwritten]
    ) -> tuple[bool | None, bool | None]:
        """Return whether a value holds NaN, and whether it holds infinity; unwritten memory does not count."""
        if not _is_float(op.tensors[output].dtype):
            return False, False
        try:
            value = self.history.trace.value(op.index, output)
            places = unwritten.get((op.index, output))
            if places is None:
                return _odd_numbers(value)
            if places.is_sure:
                return _odd_numbers(np.where(places.places, 0, to_numpy(value)))
        except ValueUnavailable:
            return None, None
        nan, inf = _odd_numbers(value)  # a view of partly written memory: its NaN may be what that holds
        read = [edge.parent for edge in op.parents]
        return nan and any(self.nan[parent] for parent in read), inf and any(self.inf[parent] for parent in read)


def _is_float(dtype: str) -> bool:
    return dtype.removeprefix("torch.").startswith(_FLOATS)


def _odd_numbers(value: Any) -> tuple[bool, bool]:
    """Return whether a tensor or array holds NaN, and whether it holds infinity; on its device where it can be."""
    if hasattr(value, "isfinite"):
        try:
            with recording_paused():
                if bool(value.isfinite().all()):
                    return False, False
                return bool(value.isnan().any()), bool(value.isinf().any())
        except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested, of 8 bits
            pass
    array = to_numpy(value)
    return bool(np.isnan(array).any()), bool(np.isinf(array).any())
