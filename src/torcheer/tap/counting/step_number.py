"""The number of a step: counted here, or the loop's own."""

from __future__ import annotations

from collections.abc import Callable

from torcheer.tap.tensor_copies import Report


class StepNumber:
    """Numbers steps by how many there were, or by `step_of()`, until that fails."""

    __slots__ = ("_offset", "_report", "is_read", "last", "step_of")

    def __init__(self) -> None:
        self.step_of: Callable[[], int] | None = None
        self.last = -1  # result of `step_of`
        self._offset = 0  # number less counted steps
        self.is_read = False  # whether `last` is already that of the step to be read next
        self._report: Report = print

    def use(self, step_of: Callable[[], int], report: Report) -> None:
        """Take the numbers from `step_of()` from now on; its failure is reported."""
        self.step_of, self._report = step_of, report

    def at(self, count: int) -> int:
        """The number of the step that began last, the `count`-th one; -1 before the first."""
        return self.last if self.step_of is not None else count - 1 + self._offset

    def read(self, count: int) -> None:
        """Read the number of the `count`-th step; where that fails, count from here on."""
        is_read, self.is_read = self.is_read, False
        if self.step_of is None or is_read:
            return
        try:
            self.last = int(self.step_of())
        except Exception as error:
            self.step_of, self._offset = None, max(self.last + 1, 0) - (count - 1)
            self._report(f"step_of failed, steps are counted from here on: {type(error).__name__}: {error}")
