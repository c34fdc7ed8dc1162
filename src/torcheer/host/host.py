"""`Host`: publishes a process's network, tables and values to a viewer.

Never blocks or raises in a training step.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.control.loop_messages import alert_seen
from torcheer.errors import INTERRUPTED, TorcheerError, reason_of, uncaught
from torcheer.host.scratch_limits import ScratchLimits
from torcheer.host.state_sender import StateSender
from torcheer.host.viewer_connection import Board, Service
from torcheer.network.heads.token_names import TokenNames, check_token_names
from torcheer.network.network_records import Network
from torcheer.records import Sample
from torcheer.runlog.log_reader import RunLog, head_for
from torcheer.runlog.log_writer import LogWriter, begin_anew
from torcheer.runlog.run_folder import begin_run, end_run
from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.samples import Alert
from torcheer.terminal import warn_or_print
from torcheer.wire import fork_registry
from torcheer.wire.json_codec import to_json
from torcheer.wire.notify.notifier import Notifier
from torcheer.wire.notify.notify_targets import Target
from torcheer.wire.socket_path import HostBusy, ListeningSocket
from torcheer.wire.temporary_folders import TemporaryFolder

__all__ = ["Host", "HostBusy"]

_MOST_PROBLEMS = 20


class Host:
    """A server for one viewer, listening on the socket `path` until `close`.

    The socket lies in the run's folder `to`, or in a private one that is removed with this object. Tables, samples and
    the network are written to the log there, by the name `writer`, and a viewer follows it; without a name somebody
    else logs them. `continues`: what an earlier writer of the folder logged before this one's first step still holds.
    `notify` hears of alerts and the end.

    host = Host("runs/first", title="AlexNet")
    host.network = Network(…)
    values = host.values
    id = values.begin(step, {"Epoch": 3}); values.offer(id, tensor, "fc1", "Act"); values.end(id)
    """

    def __init__(
        self, to: str | os.PathLike[str] | None = None, *, title: str = "", writer: str = "live",
        continues: bool = False, notify: Sequence[Target] = (),
    ) -> None:  # fmt: skip
        self._token_names: TokenNames = ()
        self._alerts, self._opened_ms = 0, int(time.time() * 1000)
        self._heads: dict[str, TableHead] = {}
        self._closing = threading.RLock()  # a loop may close what another thread has just closed
        self._begun: dict[str, bool] = {}  # tables that have a row, and whether that has its step
        self._last_tables: dict[str, tuple[TableHead, dict[str, list[Any]]]] | None = None  # of a log that was removed
        self.problems: list[str] = []  # sentences about what could not be shown
        self._board = Board(title, {"state": State(), "parameters": ()})
        self._doorway: ListeningSocket | None = ListeningSocket(Path(to) if to is not None else None)
        self._service: Service | None = Service(self._doorway, self._board, self.report)
        self.values = self._service.sender  # writes states into the ring
        self.path: Path | None = self._doorway.path
        self._log: LogWriter | None = None
        self._limits = ScratchLimits(self.report) if to is None else None
        self.notifier = Notifier((), title=title, to=None, tell=self.report)
        folder = None if to is None else Path(to)
        self.notifier = Notifier(notify, title=title, to=folder, tell=self.report)  # it hears of a log that fails
        if writer:
            self._log = self._open_log(writer, continues=continues)
        fork_registry.register(self)
        weakref.finalize(self, self._doorway.remove_folder)
        atexit.register(self._at_exit)

    def _open_log(self, writer: str, *, continues: bool) -> LogWriter:
        assert self.path is not None
        run, is_temporary = self.path.parent, self._limits is not None
        if not is_temporary:
            try:
                begin_run(run, made_by=f"torcheer {writer}")
            except (OSError, TorcheerError) as error:
                self.report(f"{run / 'run.json'}: {error}")
        goes_on = "What is logged is not on the page; the rest of it goes on."
        log = LogWriter(run, writer, tell=self.report, goes_on=goes_on, is_temporary=is_temporary, waits_for_room=True)
        log.commit_in_background()
        if not continues and not is_temporary:
            begin_anew(log)
        return log

    @property
    def title(self) -> str:
        """The page's title."""
        return self._board.title

    # -- published state ---------------------------------------------------------------------------------------------

    @property
    def network(self) -> Network | None:
        """The network that is shown; assigning a different one sends it to the viewer."""
        return self._board.facts.get("network")

    @network.setter
    def network(self, network: Network) -> None:
        network = replace(network, token_names=self._token_names) if self._token_names else network
        if self._set("network", network) and self._service is not None:
            self._service.sender.use_network(network)
            if self._log is not None:
                self._log.network(to_json(network))

    @property
    def token_names(self) -> TokenNames:
        """The names of tokens at attention heads, for each item of the batch; a single list holds for all."""
        return self._token_names

    @token_names.setter
    def token_names(self, names: Any) -> None:
        self._token_names = check_token_names(names)
        if self.network is not None:
            self.network = replace(self.network, token_names=self._token_names)

    @property
    def state(self) -> State:
        """The run's status, counters and allowed actions."""
        state: State = self._board.facts["state"]
        return state

    @state.setter
    def state(self, state: State) -> None:
        before = self.state
        urgent = (state.status, state.can, state.message) != (before.status, before.can, before.message)
        self._set("state", state, urgent)

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters that the page's form shows."""
        return list(self._board.facts["parameters"])

    @parameters.setter
    def parameters(self, parameters: Sequence[Parameter]) -> None:
        self._set("parameters", tuple(parameters))

    def _set(self, name: str, fact: Any, urgent: bool = True) -> bool:
        if self.closed or self._board.facts.get(name) == fact:
            return False
        self._board.facts[name] = fact
        self._notify(urgent)
        return True

    def table(self, head: TableHead) -> None:
        """Announce a table, or its new columns."""
        if not self.closed:
            has_steps = any(column.name == "Step" for column in head.columns)
            self._announce(head, self._begun.get(head.name, has_steps))

    def _announce(self, head: TableHead, has_steps: bool) -> None:
        if self._log is not None:
            self._heads[head.name] = head
            self._log.head(head, steps=has_steps)

    def _begin_table(self, table: str, cells: Mapping[str, Any]) -> None:
        """Announce what a table's first row says of it."""
        self._begun[table] = "Step" in cells
        self._announce(self._heads.get(table) or head_for(table, cells), "Step" in cells)

    def row(self, table: str, cells: Mapping[str, Any]) -> None:
        """Add a row of numbers, text or arrays.

        An unannounced table or column is created from its cells.
        """
        log = self._log
        if log is None or self._service is None:
            return
        try:
            if table not in self._begun:
                self._begin_table(table, cells)
            step = cells.get("Step")
            if self._limits is None or self._limits.keeps_row(table, log):
                log.row(table, cells, int(self.state.counters.get("Step", 0) if step is None else step))
        except Exception as error:
            self.report(f"a row of {table} cannot be shown: {type(error).__name__}: {error}")

    def sample(self, sample: Sample, record: Mapping[str, Any], when: float) -> None:
        """Log an image, a sound, a text, … (`runlog.media`), from where the viewer reads it.

        Without a run's folder up to a limit.
        """
        if self.closed or self._log is None:
            return
        try:
            if self._limits is None or self._limits.keeps_sample(sample):
                self._log.sample(sample, record, when)
        except Exception as error:
            self.report(f"{sample.variable} {sample.layer!r} cannot be shown: {type(error).__name__}: {error}")

    @property
    def has_samples(self) -> bool:
        """True where a temporary log holds samples, which viewers read there one by one."""
        return self._limits is not None and self._limits.has_samples

    def tables(self) -> dict[str, tuple[TableHead, dict[str, list[Any]]]]:
        """Every table by name, as the log has it: its head and the cells of each column."""
        with self._closing:
            if self.path is None or self._last_tables is not None:
                return self._last_tables or {}
            if self._log is not None:
                self._log.commit()
            tables = {
                name: TableRows(head, {column.name: [] for column in head.columns})
                for name, head in self._heads.items()
            }
            tables |= RunLog(self.path.parent).tables()
        return {name: (table.head, table.columns) for name, table in tables.items()}

    def clear(self, table: str) -> None:
        """Delete the rows of a table."""
        if self._log is not None:
            self._log.clear(table)

    def alert(self, text: str, severity: str = "warning", step: int = 0, rule: str = "", layer: str = "") -> None:
        """Log a warning (or another severity): pages read it there; what no log takes is sent to the viewer."""
        self.pass_on(Alert(rule, layer, "", int(step), int(step), str(text), "", severity))

    def pass_on(self, alert: Alert) -> None:
        """Log an alert; what no log takes is sent to the viewer."""
        if self.closed:
            return
        self.notifier.alert(alert)
        if self._log is not None and self._log.alert(alert).id:
            return
        id = f"host:{self._opened_ms:x}:{self._alerts + 1}"
        seen = alert_seen(alert, alert.layer, id)
        self._board.alerts.append((self._alerts, seen))
        self._alerts += 1
        self._notify(urgent=False)

    # -- values ------------------------------------------------------------------------------------------------------

    @property
    def wants(self) -> Wants:
        """What the viewer subscribed to; `Wants()` without a subscription."""
        return self.values.wants

    # -- requests ----------------------------------------------------------------------------------------------------

    def orders(self) -> list[Order]:
        """Take the pages' requests since the last call, oldest first."""
        inbox, orders = self._board.inbox, list[Order]()
        while inbox and not self.closed:
            orders.append(inbox.popleft())
        return orders

    def wait(self, secs: float) -> bool:
        """Wait for an order or the viewer's disconnect; True if there is an order.

        For a paused loop.
        """
        if not self._board.inbox and not self.closed:
            self._board.wakeup.clear()
            if not self._board.inbox:  # an order may have arrived in between
                self._board.wakeup.wait(max(secs, 0.0))
        elif self.closed:
            time.sleep(min(max(secs, 0.0), 0.1))  # a paused loop must not spin
        return bool(self._board.inbox)

    @property
    def viewer(self) -> str:
        """The connected viewer's URL, or ""."""
        return self._service.url if self._service is not None else ""

    @property
    def folder(self) -> TemporaryFolder | None:
        """The temporary folder of a host without a run's: a viewer that holds it can read it after this process."""
        return self._doorway.folder if self._doorway is not None else None

    # -- closing -----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once no viewer can connect any more; also in a forked process."""
        return self._service is None

    def close(self, why: str = "", *, keeps_log: bool = False) -> None:
        """Disconnect the viewer, with the reason `why` of an unplanned end; a second call does nothing.

        A temporary log is removed, and only `tables` kept; with `keeps_log` by the next call of `discard`, or with this
        object.
        """
        with self._closing:
            if self._service is None or self._doorway is None:
                return
            service, self._service = self._service, None
            if self._log is not None:
                self._end_log(self._log, why)  # before the viewer hears that all is said
            service.stop(why)
            self._doorway.close()
            self.notifier.close(self._closing_line(), why)
            self.values.subscribe(Wants())
            atexit.unregister(self._at_exit)
            if not keeps_log:
                self.discard()

    def _end_log(self, log: LogWriter, why: str) -> None:
        has_failed = self.state.status == "failed" or why not in ("", INTERRUPTED)
        status, why = "failed" if has_failed else "done", why or self.state.message
        log.end(status, why)
        log.close()
        if self._limits is None and self.path is not None:
            try:
                end_run(self.path.parent, status, why)
            except (OSError, TorcheerError) as error:
                self.report(f"run.json does not say how the run ended: {error}")

    def discard(self) -> None:
        """Close, and remove a temporary log: the page can show no more of it."""
        with self._closing:
            self.close()
            if self._doorway is not None and self._doorway.is_private and self._last_tables is None:
                self._last_tables = self.tables()
                self._doorway.remove_folder()

    def _closing_line(self) -> str:
        counters = ", ".join(f"{name} {value}" for name, value in self.state.counters.items())
        return ", ".join(filter(None, (counters, self.state.message)))

    def after_fork(self) -> None:
        """Be closed in a forked process, such as a DataLoader worker; the sockets close themselves."""
        if self._service is not None:
            self._service.after_fork()
            self._service = self._log = None
            self.values = _no_values(self.report)
            self._closing = threading.RLock()  # another thread may have held it
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        error = uncaught()
        self.close("" if error is None else reason_of(error), keeps_log=True)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Host:
        return self  # copying a model copies the objects that it holds

    def __reduce__(self) -> tuple[Any, ...]:
        return closed_host, (self.title,)  # unpickled elsewhere, it has no viewer

    def _notify(self, urgent: bool) -> None:
        if self._service is not None:
            self._service.notify(urgent)

    def report(self, text: str) -> None:
        """Warn once about something that cannot be shown."""
        if text in self.problems or len(self.problems) >= _MOST_PROBLEMS:
            return
        self.problems.append(text)
        self.alert(text, rule="studio")
        warn_or_print(f"torcheer: {text}")


def closed_host(title: str) -> Host:
    """Create a host that is closed from the beginning."""
    host = object.__new__(Host)
    host._alerts, host._opened_ms, host.problems = 0, 0, []
    host._board = Board(title, {"state": State(), "parameters": ()})
    host._doorway = host._service = host._log = host.path = host._limits = None
    host.values = _no_values(host.report)
    host._heads, host._begun, host._last_tables, host._closing = {}, {}, None, threading.RLock()
    host.notifier = Notifier((), title=title, to=None, tell=host.report)
    return host


def _no_values(report: Callable[[str], None]) -> StateSender:
    """What takes no value, as it never gets a subscription."""
    return StateSender(lambda: None, report)
