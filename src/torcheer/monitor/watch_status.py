"""The status of a watch: one line, a text, and a live display in a notebook."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

from torcheer.terminal import plural

if TYPE_CHECKING:
    from torcheer.monitor.model_watch import Watch

_SHOWN = 5  # alerts and problems
_PAUSE_SECS = 0.5  # between two updates of the display


def line(watch: Watch) -> str:
    """The `repr` of a watch: progress, counts of alerts, where the log is."""
    return f"<{'; '.join(_facts(watch).values())}>"


def text(watch: Watch) -> str:
    """The `str` of a watch: the same, with the last alerts and problems."""
    return "\n".join([line(watch)[1:-1], *(f"{mark} {words}" for mark, words in _findings(watch))])


def html(watch: Watch) -> str:
    """The HTML that a notebook shows."""
    rows = "".join(f"<tr><th>{name}</th><td>{escape(fact)}</td></tr>" for name, fact in _facts(watch).items())
    findings = "".join(f"<li>{escape(words)}</li>" for _, words in _findings(watch))
    return f"<table>{rows}</table><ul>{findings}</ul>" if findings else f"<table>{rows}</table>"


def _facts(watch: Watch) -> dict[str, str]:
    account = watch.account
    facts = {"watch": f"Watch of {watch.name}", "state": _state(watch)}
    facts["alerts"] = _counted(len(watch.alerts), "alert")
    if watch.problems:
        facts["problems"] = _counted(len(watch.problems), "problem")
    facts["values"] = f"{_counted(account.handled, 'value')}" + (f"; {account.missing}" if account.missing else "")
    facts["log"] = f"log in {watch.to}" if watch.to is not None else "no log (to=None)"
    return facts


def _state(watch: Watch) -> str:
    if not watch.has_part:
        return "another process watches"
    has_begun = watch.steps > 0
    where = f"step {watch.step:,}, {_counted(watch.looks, 'look')}" if has_begun else "no step yet"
    return f"{where}, {'closed' if watch.closed else 'watching'}"


def _findings(watch: Watch) -> list[tuple[str, str]]:
    findings = [("!", str(alert)) for alert in watch.alerts[-_SHOWN:]]
    return findings + [("?", problem) for problem in watch.problems[-_SHOWN:]]


def _counted(count: int, noun: str) -> str:
    return plural(count, noun) if count else f"no {noun}s"


class StatusBox:
    """The status below a notebook's cell, updated while the cell runs."""

    def __init__(self, watch: Watch) -> None:
        self._handle, self._shown = _display(html(watch)), time.monotonic()

    @staticmethod
    def fits() -> bool:
        """Whether this process is the kernel of a notebook."""
        shell: Any = sys.modules.get("IPython")  # not imported: not a notebook
        return "ipykernel" in sys.modules and shell is not None and hasattr(shell.get_ipython(), "kernel")

    def update(self, watch: Watch, now: bool = False) -> None:
        """Update the display, at most every 0.5 s unless `now`."""
        if now or time.monotonic() - self._shown >= _PAUSE_SECS:
            self._handle.update(_Html(html(watch)))
            self._shown = time.monotonic()


class _Html:
    def __init__(self, page: str) -> None:
        self._page = page

    def _repr_html_(self) -> str:
        return self._page

    def __repr__(self) -> str:
        return "<the status of a watch>"


def _display(page: str) -> Any:
    shell: Any = sys.modules["IPython"]
    return shell.display.display(_Html(page), display_id=True)
