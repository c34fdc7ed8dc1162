"""Where each edit is applied: at which side of which modules or operations, to which heads and positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.capture.edits import Edit
from torcheer.capture.tensor_parts import TensorPart, positions_in_call, positions_tensor, sequence_offset
from torcheer.errors import BadArgument
from torcheer.selection import Selector
from torcheer.terminal import plural

if TYPE_CHECKING:
    from torcheer.capture.head_columns import Columns
    from torcheer.roles import Place, Roles

ATTENTION = "scaled_dot_product_attention"


class EditTarget:
    """One edit of what one key selects."""

    def __init__(self, selector: Selector, edit: Edit, places: tuple[Place, ...] = (), inside: str = "") -> None:
        self.selector, self.edit = selector, edit
        self.places = places  # of a role, or of a module that has one
        self.inside = inside  # the attention whose fused operation it edits, where no module receives its heads
        self.reached = False  # whether one of its positions was

    @property
    def key(self) -> Any:
        """What was written for the layers."""
        return self.selector.key

    def name_in_history(self, address: str, call: int) -> str:
        """Return the name by which a patch finds the value of a module's call in another history."""
        is_role = self.selector.form == "role" and len(self.places) == 1 and call == 1
        return str(self.key) if is_role else f"{address}:{call}"

    def application(self, part: TensorPart | None, label: str) -> Callable[[Tensor], Tensor]:
        """Return the edit as a function of the whole value."""
        function = self.edit.function
        apply = (lambda x: function(x, label)) if getattr(function, "wants_key", False) else function
        if part is None:
            return apply
        whole = getattr(function, "takes_whole", False)
        return lambda x: part.edit(x, apply, whole)

    def is_attention(self, name: str) -> bool:
        """Whether an operation is torch's fused attention, which returns an axis of heads."""
        return name == ATTENTION

    def place(self, address: str, call: int, kind: str, side: str) -> Place | None:
        """Return its place at one side of a module call; None if it is not there."""
        if self.inside:
            return None
        if self.places:
            right_call = self.selector.call in (0, call)
            return next((p for p in self.places if right_call and p.path == address and p.at == side), None)
        own_side = "input" if self.edit.at == "input" else "output"
        if side != own_side or not self.selector.for_modules or not self.selector.matches_call(address, call, kind):
            return None
        from torcheer.roles import Place

        return Place("", address, side)


class EditTargets:
    """All edits of a capture, and what they need to know of the run: where in the sequence a call begins, heads."""

    def __init__(self, modules: Mapping[str, torch.nn.Module]) -> None:
        self.modules = modules
        self.all: list[EditTarget] = []
        self.saved: list[Place] = []  # of roles that are saved, and read later
        self.offset = 0  # tokens before those of the current call of the model
        self.columns: dict[str, Columns] = {}  # path of an attention -> its heads

    @cached_property
    def roles(self) -> Roles:
        """The roles of the model's modules."""
        from torcheer.roles import roles_of

        return roles_of(self.modules)

    def add(self, selector: Selector, edit: Edit) -> None:
        """Add an edit; raises BadArgument for a place that does not exist."""
        places = selector.places
        if edit.head is not None:
            places = tuple(self._with_heads(place, selector) for place in places or self._places_of(selector))
        elif edit.at == "input":
            places = tuple(self._input_of(place) for place in places)
        apart = [place for place in places if edit.head is not None and not place.heads]
        self.all.append(EditTarget(selector, edit, places, inside=apart[0].attention if apart else ""))

    def _places_of(self, selector: Selector) -> tuple[Place, ...]:
        """Return the places of a module that has a role; none for an operation, which may be an attention itself."""
        if selector.form != "module":
            return ()
        places = [p for p in self.roles.places.values() if selector.name in (p.path, p.attention)]
        heads = [place for place in places if place.heads]
        if not heads:
            raise BadArgument(f"edits[{selector.key!r}]: {selector.name} is no attention, so it has no heads")
        return (next((p for p in heads if p.path == selector.name), heads[-1]),)  # of the attention itself, z

    def _with_heads(self, place: Place, selector: Selector) -> Place:
        """Return the place where a role's heads are apart; of an attention's output, before they are mixed."""
        if place.heads:
            return place
        name = f"{place.role.removesuffix('.out')}.z"
        beside = [p for p in self.roles.places.values() if p.role == name and p.attention == place.attention]
        if place.attention and not beside:
            return place  # its operation, which has an axis of heads
        if not beside:
            raise BadArgument(f"edits[{selector.key!r}]: {place.role} has no heads; attn[i] and its q, k, v, z have")
        return beside[0]

    def _input_of(self, place: Place) -> Place:
        from torcheer.roles import Place

        inside = self.roles.places.get(f"{place.role.removesuffix('.out')}.in")
        same = inside is not None and (inside.path == place.path or inside.path.startswith(f"{place.attention}."))
        return inside if inside is not None and same else Place(place.role, place.path, "input")

    @property
    def need_entries(self) -> bool:
        """Whether module calls must be seen before they run."""
        places = [*self.saved, *(place for target in self.all for place in target.places)]
        edits = [target.edit for target in self.all]
        return any(place.heads or place.at == "input" for place in places) or any(
            edit.at == "input" or edit.positions is not None for edit in edits
        )

    def begin_call(self, args: Any, kwargs: Any) -> None:
        """Note where in the sequence a call of the model begins."""
        self.offset = sequence_offset(args, kwargs)

    def find_heads(self, address: str, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Find the heads of a module that is about to be called, if it is an attention that is edited or saved."""
        places = [*self.saved, *(place for target in self.all for place in target.places)]
        place = next((p for p in places if p.heads and p.attention == address), None)
        if place is not None and address not in self.columns:
            inside = {
                letter: path.removeprefix(f"{address}.") for letter, path in self.roles.projections(place).items()
            }
            from torcheer.capture.head_columns import columns_before_call

            self.columns[address] = columns_before_call(module, args, kwargs, inside)
            self._edit_inside(address)

    def _edit_inside(self, address: str) -> None:
        """Edit the fused operation of an attention whose heads are mixed before a module receives them: by a norm."""
        columns = self.columns[address]
        for target in self.all:
            is_mixed = any(place.attention == address and place.heads == "z" for place in target.places)
            if is_mixed and target.edit.head is not None and columns and "z" not in columns:
                target.inside = address

    def part(self, target: EditTarget, place: Place | None, x: Tensor, name: str) -> TensorPart | None:
        """Return the part of a value that an edit changes: None for all of it, or if none of its positions are here."""
        indices, axis = self._indices(target, place, x, name)
        if target.edit.positions is None:
            target.reached = True
            return TensorPart(indices, axis) if indices is not None else None
        if x.ndim < 3:
            raise BadArgument(
                f"edits[{target.key!r}] is for positions, but the value has shape {tuple(x.shape)}: positions are the "
                "last axis but one, after an axis of samples"
            )
        positions = positions_in_call(target.edit.positions, self.offset, x.shape[-2])  # type: ignore[arg-type]
        target.reached = target.reached or bool(positions)
        return TensorPart(indices, axis, positions_tensor(positions))

    def _indices(self, target: EditTarget, place: Place | None, x: Tensor, name: str) -> tuple[Tensor | None, int]:
        heads = target.edit.head
        if place is not None and place.heads:
            columns = self.columns.get(place.attention, {}).get(place.heads)
            if columns is None and heads is None:
                return None, -1
            if columns is None:
                raise BadArgument(
                    f"edits[{target.key!r}]: which columns of {place.path} are a head's could not be found in "
                    f"{place.attention}"
                )
            _check_heads(target, len(columns))
            chosen = torch.cat(columns if heads is None else [columns[head] for head in heads])  # type: ignore[union-attr]
            return (None if torch.equal(chosen, torch.arange(x.shape[-1])) else chosen), -1
        if heads is None:
            return None, -1
        if name != ATTENTION or x.ndim != 4:
            raise BadArgument(
                f"edits[{target.key!r}] is for a head, but {name} of shape {tuple(x.shape)} has none; give an "
                "attention ('attn[0]', its module) or 'scaleddotproductattention_1'"
            )
        _check_heads(target, x.shape[1])
        return torch.tensor(heads), 1

    def check_reached(self) -> None:
        """Raise for an edit none of whose positions were in the sequence."""
        for target in self.all:
            if not target.reached and target.edit.positions is not None:
                raise BadArgument(f"edits[{target.key!r}]: none of positions {target.edit.positions} was reached")


def _check_heads(target: EditTarget, count: int) -> None:
    wrong = [head for head in target.edit.head or () if not -count <= head < count]  # type: ignore[union-attr]
    if wrong:
        raise BadArgument(
            f"edits[{target.key!r}]: head {wrong[0]} is not there; it has {plural(count, 'head')}, 0 … {count - 1}"
        )
