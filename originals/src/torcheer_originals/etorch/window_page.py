"""The page of a window: a host, and a thread that carries out what is pressed and changed there.

The buttons' functions contain the loops themselves, as they did in eTorch's window; `PollEvents`, which they call
between two trials, lets Stop and changed fields through.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from torcheer.control.control_records import Act, State
from torcheer.control.loop_control import LoopControl
from torcheer.control.parameter_form import ParameterChange
from torcheer.errors import TorcheerError
from torcheer.host.host import Host
from torcheer.runlog.table_records import TableHead
from torcheer.wire.open_viewer import Viewer, start
from torcheer_originals.etorch.ignored_calls import remark
from torcheer_originals.etorch.plot_settings import Plot2D
from torcheer_originals.etorch.tables.etables import Table

_REFRESH_SECS = 0.25  # between two updates of tables and fields, while it runs
_STATE_SECS = 0.1  # between two of counters
_IDLE_SECS = 0.5


class PageClosed(BaseException):
    """Ends a loop whose page was closed; no handler of exceptions in a program takes it for one."""


class SentTable:
    """How much of a table its page has."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.table: Table | None = None
        self.head: TableHead | None = None
        self.rows = 0

    def send(self, host: Host, table: Table, plot: Plot2D | None) -> None:
        """Send new rows; all of them where rows before were written anew."""
        if not table.columns:
            return
        self._send_head(host, table, plot)
        is_other = self.table is not None and table is not self.table
        if is_other or min(table.changed, default=self.rows) < self.rows:
            host.clear(self.name)
            self.rows = 0
        self.table = table
        table.changed.clear()
        for row in range(self.rows, table.filled):
            host.row(self.name, table[row])
        self.rows = table.filled

    def _send_head(self, host: Host, table: Table, plot: Plot2D | None) -> None:
        head = table.head()
        title = table.MetaData.get("name", self.name)
        head = TableHead(self.name, title, head.x, head.legend, head.columns)
        head = (plot or Plot2D()).head(head)
        if head != self.head:
            host.table(head)
            self.head = head


class WindowPage:
    """The page: its host, its state, and the thread that serves it."""

    def __init__(self, window: Any) -> None:
        self.window, self.host = window, Host(title=window.Title)
        self.status, self.message, self.item = "paused", "", -1
        self.counters: dict[str, Any] = {}
        self.viewer: Viewer | None = None
        self._control = LoopControl(
            self.host, can=lambda: tuple(window.actions), counters=lambda: self.counters, settings=window.settings,
            changed=self._changed, act=self._act, is_paused=True,
        )  # fmt: skip
        self._tables: dict[str, SentTable] = {}
        self._refreshed = self._counted = 0.0
        self._lock = threading.RLock()  # of what is sent: a program may update it from its own thread
        # A program stays for its page; a prompt, as after `python -i`, ends when it is left.
        self._thread = threading.Thread(target=self._serve, name="torcheer window", daemon=_has_prompt())

    def open(self) -> None:
        """Start the viewer, and the thread."""
        if self.window.view is not None:
            self.window.view.show_on(self.host)
        self.refresh()
        assert self.host.path is not None
        self.viewer = start(self.host.path, folder=self.host.folder, outlives=True)
        self._thread.start()

    def close(self) -> None:
        """End the viewer and the thread, which finishes what it does first."""
        if self.window.view is not None:
            self.window.view.close()
        if self.viewer is not None:
            self.viewer.close()
        self.host.close()

    def join(self) -> None:
        """Wait until the page is closed."""
        self._thread.join()

    # -- orders ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with suppress(PageClosed):
            while True:
                self.refresh()
                self.host.wait(_IDLE_SECS)
                self.poll()

    def poll(self) -> None:
        """Carry out what was pressed or changed meanwhile; once the page is closed, end a loop that it had started."""
        if self.host.closed and threading.current_thread() is self._thread:
            raise PageClosed
        for order in self._control.orders():
            self._control.execute(order)

    def _changed(self, change: ParameterChange | None) -> None:
        self.refresh()

    def _act(self, order: Act) -> None:
        """Press a button of the window; what its function raises is shown on the page."""
        before = self.status, self.message, self.item
        action = self.window.actions[order.action]
        if order.action.startswith("test"):
            self.status, self.message = "testing", action.label
        elif order.action == "train" or order.action.startswith("step"):
            self.status, self.message = "running", action.label
        self.item = order.item if order.action == "test_item" else -1
        self._publish()
        try:
            action.press()
        except TorcheerError:
            raise
        except Exception as error:
            traceback.print_exc()
            self.host.alert(f"{action.label}: {type(error).__name__}: {error}", severity="error", rule="task")
        finally:
            self.status, self.message, self.item = before
            if self.window.view is not None:
                self.window.view.flush()
            self.refresh()

    # -- updates -----------------------------------------------------------------------------------------------------

    def count(self, counters: dict[str, Any]) -> None:
        """Show counters, often enough to follow them."""
        self.counters = counters
        if time.monotonic() - self._counted >= _STATE_SECS:
            self._publish()

    def _publish(self) -> None:
        self._counted = time.monotonic()
        items, view = self.window.items(), self.window.view
        self.host.state = State(
            self.status, {name: value for name, value in self.counters.items() if value != ""},
            tuple(self.window.actions), len(items) if items is not None else 0, view.batch if view is not None else 0,
            message=self.message, unit="trial",
        )  # fmt: skip

    def refresh(self, often: bool = False) -> None:
        """Send state, form and tables as they are; if `often`, only where that was long ago."""
        if self.host.closed or (often and time.monotonic() - self._refreshed < _REFRESH_SECS):
            return
        with self._lock:
            self._refreshed = time.monotonic()
            self._publish()
            self.host.parameters = [setting.parameter for setting in self.window.settings()]
            for name, (table, plot) in self.window.tables().items():
                self._tables.setdefault(name, SentTable(name)).send(self.host, table, plot)

    def alert(self, text: str) -> None:
        """Show a text among the warnings."""
        self.host.alert(text, rule="task")


def open_page(window: Any) -> None:
    """Open a window's page; a second call does nothing."""
    if window.page is not None and not window.page.host.closed:
        return
    if window.view is not None:
        window.view.note_settings()
    remark()
    window.page = WindowPage(window)
    window.page.open()
    _close_at_interrupt(window.page)


def _has_prompt() -> bool:
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def _close_at_interrupt(page: WindowPage) -> None:
    """Let Ctrl-C close the page once the program's own code has ended; before, it interrupts that code as ever."""
    if threading.current_thread() is not threading.main_thread() or _has_prompt():
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        return

    def interrupt(number: int, frame: Any) -> None:
        if threading.main_thread().is_alive():
            before(number, frame)
        else:
            page.close()

    signal.signal(signal.SIGINT, interrupt)
