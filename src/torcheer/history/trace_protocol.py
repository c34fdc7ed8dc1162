"""What a ModelHistory reads from: a live capture or a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torcheer.records import ModuleRun, Op, RunInfo


class Trace(Protocol):
    """The maker's side of a history; capture and archive each provide one."""

    def ops(self) -> list[Op]:
        """Every operation so far, in order of execution."""

    def info(self) -> RunInfo:
        """The run's own facts."""

    def is_saved(self, index: int, output: int) -> bool:
        """Whether `value` would answer."""

    def value(self, index: int, output: int) -> Any:
        """The array an op returned (a torch.Tensor from a live capture); raises ValueUnavailable."""

    def gradients(self, index: int, output: int) -> list[Any]:
        """The gradients that reached it, one per backward call."""

    def stored_gradients(self, name: str) -> list[Any]:
        """The gradients of one parameter, one per backward call."""

    def stored_value(self, name: str) -> Any:
        """A parameter or buffer as it was when it was first read."""

    def below(self, index: int) -> list[Op]:
        """The dispatcher's operations that ran under an op, where they were asked for."""

    def runs(self) -> list[ModuleRun]:
        """What each module call received and returned, in the order of the calls."""

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Hand every op so far to `reader`, then each new one as it runs."""
