"""Report errors of ours instead of raising them into a user's model."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

Report = Callable[[str], None]


class ErrorGuard:
    """Context manager that reports errors; a third of the cost of `contextmanager`, as it runs at every step."""

    __slots__ = ("_report", "_what")

    def __init__(self, report: Report, what: str) -> None:
        self._report, self._what = report, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._report(f"{self._what} could not be watched: {type(error).__name__}: {error}")
        return True
