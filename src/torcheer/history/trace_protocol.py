"""The `Trace` protocol: the source of a ModelHistory, a live capture, a file or a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torcheer.errors import ValueUnavailable
from torcheer.records import ModuleRun, Op, RunInfo


class Trace(Protocol):
    """The source of a history; implemented by capture, by archive and by autograd."""

    def ops(self) -> list[Op]:
        """Return every operation so far, in order of execution."""

    def info(self) -> RunInfo:
        """Return the facts of the whole run."""

    def module_path(self, module: Any) -> str:
        """Return the path of a module of the model that ran; "" if it is none, or the history holds no model."""
        return ""

    def is_saved(self, index: int, output: int) -> bool:
        """Whether `value` would return an array."""

    def value(self, index: int, output: int) -> Any:
        """Return an output of an op (a torch.Tensor if live); raises ValueUnavailable."""

    def gradients(self, index: int, output: int) -> list[Any]:
        """Return the gradients of an output, one per backward call."""

    def variables(self, index: int) -> dict[str, Any]:
        """Return what was saved of an op beside its value and gradients, by name: attributions."""
        return {}

    def stored_gradients(self, name: str) -> list[Any]:
        """Return the gradients of a parameter, one per backward call."""
        return []

    def stored_value(self, name: str) -> Any:
        """Return a parameter or buffer as it was when first read."""
        raise ValueUnavailable(f"the value of {name} was not kept")

    def backward_text(self) -> str:
        """Return the steps of a readable backward pass, as lines for a page; "" if it was none."""
        return ""

    def head_columns(self, history: Any, attention: str, projections: dict[str, str]) -> dict[str, Any]:
        """Return the columns of each head of an attention's "q", "k", "v" and "z"; raises ValueUnavailable."""
        raise ValueUnavailable("which columns are a head's is known only where the model ran")

    def below(self, index: int) -> list[Op]:
        """Return the aten operations that ran under one op, with `level="aten"`."""
        return []

    def runs(self) -> list[ModuleRun]:
        """Return the inputs and outputs of each module call, in call order."""
        return []

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Call `reader` with every op so far, then with each new one as it runs."""
        for op in self.ops():
            reader(op)
