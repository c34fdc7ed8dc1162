"""The buttons of a loop: one machine for training, `tl.live` and `Simulation`.

A loop is paused, or runs, perhaps only to a goal: so many trials, epochs or runs. It tells its control what it has
finished (`reached`), and between two trials lets it execute the orders of a page.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from torcheer.control.control_records import Act, Change, Order, State
from torcheer.control.parameter_form import CHANGES, ParameterChange, Setting, set_parameter
from torcheer.errors import BadArgument, TorcheerError
from torcheer.runlog.table_records import Column, TableHead

ALONE_SECS = 10.0  # a pause lasts this long once the viewer is gone
STEP_UNITS: Final = {"step_trial": "trial", "step_n": "trial", "step_epoch": "epoch", "step_run": "run"}


def check_action(action: str, can: Iterable[str]) -> None:
    """Raise for an action that is not available."""
    if action not in can:
        raise BadArgument(f"{action!r} cannot be done here; there is {', '.join(can) or 'nothing to do'}")


class LoopHost(Protocol):
    """What a loop's control needs of its host."""

    @property
    def viewer(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def orders(self) -> list[Order]: ...
    def wait(self, secs: float) -> bool: ...
    def alert(self, text: str, severity: str, step: int, rule: str) -> None: ...
    def table(self, head: TableHead) -> None: ...
    def row(self, table: str, cells: Mapping[str, Any]) -> None: ...


class LoopControl:
    """The state of a loop's buttons, and what its page asks for.

    can: the actions that the loop accepts now. counters: where it is. settings: its parameters. changed: called with
    each change of one. act: called for each action once the buttons are set; tests and Init are the loop's own.
    """

    def __init__(
        self, host: LoopHost, *, can: Callable[[], tuple[str, ...]], counters: Callable[[], Mapping[str, Any]],
        settings: Callable[[], Iterable[Setting]], changed: Callable[[ParameterChange | None], None],
        act: Callable[[Act], None] = lambda order: None, is_paused: bool = False,
    ) -> None:  # fmt: skip
        self.host, self.is_paused = host, is_paused
        self.is_waiting_for_viewer = is_paused  # a loop that begins paused waits for its first viewer
        self._can, self._act, self._settings, self._changed, self._counters = can, act, settings, changed, counters
        self._unit, self._left = "", 0  # the goal: how many trials, epochs or runs are left; "": none
        self._alone_since: float | None = None
        self._waiting = deque[Order]()  # orders that are not executed yet

    # -- the buttons -------------------------------------------------------------------------------------------------

    @property
    def has_goal(self) -> bool:
        """True while the loop runs to a goal: it must tell of each trial."""
        return self._unit != ""

    def pause(self) -> None:
        """Pause before the next trial."""
        self.is_paused, self._unit, self._left, self._alone_since = True, "", 0, None

    def go_on(self, unit: str = "", count: int = 0) -> None:
        """Run on, or for so many units: "trial", "epoch" or "run"."""
        self.is_paused, self._unit, self._left = unit != "" and count < 1, unit, count

    def reached(self, unit: str) -> None:
        """Count a trial, an epoch or a run that has ended; pause where that was the goal."""
        if unit == self._unit:
            self._left -= 1
            if self._left <= 0:
                self.pause()

    # -- orders ------------------------------------------------------------------------------------------------------

    def orders(self) -> Iterator[Order]:
        """Take the waiting orders one by one, oldest first; those that are not taken go on waiting."""
        self._waiting += self.host.orders()
        while self._waiting:
            yield self._waiting.popleft()

    def is_stop_waiting(self) -> bool:
        """True where Stop was pressed meanwhile, for tests that take long; orders are executed after them."""
        self._waiting += self.host.orders()
        return any(isinstance(order, Act) and order.action == "stop" for order in self._waiting)

    def execute(self, order: Order) -> str:
        """Execute an order; return why it is refused, or "". A refusal is an alert on the page."""
        try:
            if isinstance(order, Change):
                self.change(order.name, order.value)
            else:
                self._press(order)
        except TorcheerError as error:
            self._alert(str(error), "warning")
            return str(error)
        return ""

    def change(self, name: str, value: Any) -> None:
        """Change a parameter, from the next trial on; raises where that cannot be done."""
        try:
            change = set_parameter(self._settings(), name, value)
        except TorcheerError:
            raise
        except Exception as error:  # a callback of the loop's own
            raise BadArgument(f"{name}: {type(error).__name__}: {error}") from error
        self._changed(change)

    def record(self, change: ParameterChange, counters: Mapping[str, int]) -> None:
        """Add a change to the host's table of changes."""
        counts = tuple(Column(name, "int", plotted=False) for name in counters)
        texts = tuple(Column(name, "text", plotted=False) for name in ("name", "before", "after"))
        self.host.table(TableHead(*CHANGES, x="Step", columns=(*counts, *texts)))
        self.host.row(CHANGES[0], change.row(counters))

    def _press(self, order: Act) -> None:
        check_action(order.action, self._can())
        if order.action == "stop":
            self.pause()
        elif order.action == "train":
            self.go_on()
        elif order.action in STEP_UNITS:
            count = 1 if order.action != "step_n" else order.count if order.count > 0 else State().step_n
            self.go_on(STEP_UNITS[order.action], count)
        self._act(order)

    # -- a pause -----------------------------------------------------------------------------------------------------

    def wait(self, secs: float) -> str:
        """Wait for orders of a paused loop; return why it goes on without one, or "".

        It does so when nobody has looked on for a while: whoever paused it is gone.
        """
        if not self._is_alone():
            self.host.wait(secs)
            return ""
        self.go_on()
        why = "nobody can look on any more" if self.host.closed else f"nobody has looked on for {ALONE_SECS:g} s"
        self._alert(f"{why}: it goes on", "info")
        return why

    def _is_alone(self) -> bool:
        """True once no viewer could let the loop go on for `ALONE_SECS`."""
        if self.host.closed:
            return True
        if self.host.viewer:
            self.is_waiting_for_viewer, self._alone_since = False, None
        if self.host.viewer or self.is_waiting_for_viewer:
            return False
        self._alone_since = self._alone_since or time.monotonic()
        return time.monotonic() - self._alone_since >= ALONE_SECS

    def _alert(self, text: str, severity: str) -> None:
        self.host.alert(text, severity, int(self._counters().get("Step", 0)), "studio")
