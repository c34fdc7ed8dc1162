"""What `history['attn[5].q']` returns: the value at a role, perhaps only some columns of what a module returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torcheer.errors import UnknownLayer, ValueUnavailable
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.records import Op
from torcheer.roles import ROLE, Place

if TYPE_CHECKING:
    from torch import Tensor

    from torcheer.history.model_history import ModelHistory


class RoleView(OpView):
    """The operation whose result has a role; values, gradients and shape are those of the role."""

    __slots__ = ("output", "place")

    def __init__(self, history: ModelHistory, record: Op, place: Place, output: int) -> None:
        super().__init__(history, record)
        self.place = place
        self.output = output  # which of the operation's results

    @property
    def role(self) -> str:
        """Its role, "attn[5].q"."""
        return self.place.role

    @property
    def columns(self) -> list[Any] | None:
        """The columns of each head in what the operation returned; None where the role has no heads."""
        if not self.place.heads:
            return None
        projections = self.history.facts.roles.projections(self.place)
        whole = f"history[{self.label!r}] is all of them"
        try:
            columns = self.history.trace.head_columns(self.history, self.place.attention, projections)
        except ValueUnavailable as error:
            raise ValueUnavailable(f"{self.role} is some columns at {self.place.path}: {error}; {whole}") from None
        if self.place.heads not in columns:
            raise UnknownLayer(f"which columns of {self.place.path} are {self.role} could not be found; {whole}")
        head_columns: list[Any] = columns[self.place.heads]
        return head_columns

    @property
    def heads(self) -> int:
        """The number of heads; 0 where the role has none."""
        return len(self.columns or ())

    def head(self, number: int) -> Any:
        """Return the value of one head."""
        columns = self.columns
        if columns is None:
            raise UnknownLayer(f"{self.role} has no heads; attn[i].q, .k, .v and .z have")
        return self._value(self.output)[..., columns[number]]

    @property
    def tensor_contents(self) -> Tensor | Any:
        """The value."""
        return self._part(self._value(self.output))

    @property
    def gradients(self) -> list[Any]:
        """One gradient per backward call."""
        gradients = self.history.trace.gradients(self.record.index, self.output)
        return [gradient if gradient is None else self._part(gradient) for gradient in gradients]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        shape = self.record.tensors[self.output].shape
        return (*shape[:-1], sum(map(len, self.columns or ()))) if self.place.heads else shape

    def _part(self, value: Any) -> Any:
        columns = self.columns
        if columns is None:
            return value
        order = [int(column) for head in columns for column in head]
        return value if order == list(range(value.shape[-1])) else value[..., order]


def by_role(history: ModelHistory, key: str) -> OpView | LayerView | OpList:
    """Return the value at a role; a list for several (`resid[*]`), a layer view for several calls."""
    matches = role_views(history, key)
    views = OpList(view for _, view in matches)
    if not views:
        raise UnknownLayer(f"{key!r} was not reached in this run")
    if len({view.place.role for _, view in matches}) > 1:
        return views
    return views[0] if len(views) == 1 else LayerView(history, key, views, [call for call, _ in matches])


def role_views(history: ModelHistory, key: str) -> list[tuple[int, RoleView]]:
    """Return every value at a role, with the number of the module's call."""
    match = ROLE.fullmatch(key)
    wanted = int(match["call"] or 0) if match else 0
    views: list[tuple[int, RoleView]] = []
    for place in history.facts.roles.resolve(key):
        for call, run in history.facts.module_runs.get(place.path, {}).items():
            side = run.inputs if place.at == "input" else run.outputs
            made = next((item for item in side if item.parent >= 0), None)
            if made is not None and wanted in (0, call):
                views.append((call, RoleView(history, history.facts.ops[made.parent], place, made.output)))
    return views
