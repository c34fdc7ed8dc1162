"""Two tensors of one name, one of each side, and how names of two files are matched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from torcheer.errors import TorcheerError
from torcheer.history.alignment.array_difference import Difference, difference, measure
from torcheer.studio.tensors.lazy_difference import LazyDifference
from torcheer.terminal import human_shape

Array = NDArray[Any]
FIRST, SECOND, DIFFERENCE = "First", "Second", "Difference"
_WRAPPERS: Final = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class ComparedTensor(Protocol):
    """A tensor of one side; nothing is read before it is asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def type(self) -> str:
        """The name of its type."""

    def mapped(self) -> Array:
        """All of it, memory-mapped where possible."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What stands side by side: a tensor of the first, and of the second; None where a side has none."""

    name: str
    first: ComparedTensor | None
    second: ComparedTensor | None
    other: str = ""  # its name in the second, where that is another
    kind: str = ""  # "conv2d", "parameter"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of either."""
        tensor = self.first or self.second
        return tuple(tensor.shape) if tensor is not None else ()

    @property
    def absence(self) -> str:
        """Why there is no difference; "" if there is one."""
        if self.first is None or self.second is None:
            return f"it is only in the {'second' if self.first is None else 'first'}"
        if tuple(self.first.shape) != tuple(self.second.shape):
            return f"the shapes are {human_shape(self.first.shape)} and {human_shape(self.second.shape)}"
        return ""

    def array(self, variable: str) -> Any:
        """The first, the second, or what was added to the first, as a lazy array; None where there is none."""
        if variable == DIFFERENCE:
            if self.absence or self.first is None or self.second is None:
                return None
            return LazyDifference(self.first.mapped(), self.second.mapped())
        tensor = self.side(variable)
        return None if tensor is None else tensor.mapped()

    def side(self, variable: str) -> ComparedTensor | None:
        """The tensor of a side."""
        return {FIRST: self.first, SECOND: self.second}.get(variable)

    def measured(self) -> Difference:
        """How far the two lie apart; reads all of both, a few megabytes at a time."""
        if self.absence or self.first is None or self.second is None:
            is_alone = self.first is None or self.second is None
            return Difference(self.name, self.absence.removeprefix("it is ") if is_alone else "other shape")
        same_type = self.first.type == self.second.type
        try:
            if hasattr(self.first, "chunks") and hasattr(self.second, "chunks"):
                return measure(self.name, zip(self.first.chunks(), self.second.chunks()), same_type=same_type)
            return difference(self.name, self.first.mapped(), self.second.mapped(), same_type=same_type)
        except (TorcheerError, OSError, ValueError) as error:
            return Difference(self.name, f"cannot be read: {str(error)[:200]}")


def pair_names(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that belong together, "" where a side has none, in the order of the first.

    Names of wrapped models (`module.`, `_orig_mod.`) are those of the model. If the two share no name, a prefix that
    all names of one side have is left out.
    """
    keys, others = _plain_names(first), _plain_names(second)
    if not keys.keys() & others.keys():
        keys, others = _without_prefix(keys), _without_prefix(others)
    follows: dict[str, list[str]] = {}  # names of the second alone, after the shared name before them
    last = ""
    for key, name in others.items():
        last = key if key in keys else last
        if key not in keys:
            follows.setdefault(last, []).append(name)
    yield from (("", name) for name in follows.get("", ()))
    for key, name in keys.items():
        yield name, others.get(key, "")
        yield from (("", other) for other in follows.get(key, ()) if key in others)


def _plain_names(names: Iterable[str]) -> dict[str, str]:
    """The names by what they would be without wrappers; one that would be another's keeps its own."""
    plain: dict[str, str] = {}
    for name in names:
        parts = name.split(".")
        key = ".".join([part for part in parts[:-1] if part not in _WRAPPERS] + parts[-1:])
        plain[name if key in plain else key] = name
    return plain


def _without_prefix(names: dict[str, str]) -> dict[str, str]:
    first = {key.partition(".")[0] for key in names}
    if len(first) != 1 or not all("." in key for key in names):
        return names
    return {key.partition(".")[2]: name for key, name in names.items()}
