"""`Host`: what a process that is looked at holds. It starts nothing, waits for nobody, and raises into no step."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.host.missing_values import Absence
from torcheer.host.state_sender import as_array
from torcheer.host.viewer_connection import Board, Service
from torcheer.network.network_records import Network
from torcheer.runlog.table_records import TableHead
from torcheer.wire.socket_path import Doorway, HostBusy

__all__ = ["Host", "HostBusy"]

_MOST_PROBLEMS = 20


class Host:
    """Listens for a viewer at `path`, in a run's directory or a private one, until `close`.

    host = Host("runs/first", title="AlexNet")
    host.network = Network(…)
    id = host.begin(step, {"Epoch": 3}); host.offer(id, tensor, "fc1", "Act"); host.end(id)
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, title: str = "") -> None:
        self._alerts = 0
        self.problems: list[str] = []  # what could not be shown, in words
        self._board = Board(title, {"state": State(), "parameters": ()})
        self._doorway: Doorway | None = Doorway(Path(directory) if directory is not None else None)
        self._service: Service | None = Service(self._doorway, self._board, self._problem)
        self.path: Path | None = self._doorway.path
        _HOSTS.add(self)
        atexit.register(self._at_exit)

    @property
    def title(self) -> str:
        """What a page is called."""
        return self._board.title

    # -- what there is to say ----------------------------------------------------------------------------------------

    @property
    def network(self) -> Network | None:
        """What is shown; setting it tells the viewer, if it is another."""
        return self._board.facts.get("network")

    @network.setter
    def network(self, network: Network) -> None:
        if self._set("network", network) and self._service is not None:
            self._service.values.know(network)

    @property
    def state(self) -> State:
        """Where the run is."""
        found: State = self._board.facts["state"]
        return found

    @state.setter
    def state(self, state: State) -> None:
        before = self.state
        urgent = (state.status, state.can, state.message) != (before.status, before.can, before.message)
        self._set("state", state, urgent)

    @property
    def parameters(self) -> list[Parameter]:
        """The lines of the form."""
        return list(self._board.facts["parameters"])

    @parameters.setter
    def parameters(self, parameters: Sequence[Parameter]) -> None:
        self._set("parameters", tuple(parameters))

    def _set(self, name: str, fact: Any, urgent: bool = True) -> bool:
        if self._gone or self._board.facts.get(name) == fact:
            return False
        self._board.facts[name] = fact
        self._poke(urgent)
        return True

    def table(self, head: TableHead) -> None:
        """A table begins, or has other columns."""
        if not self._gone:
            self._board.tables.head(head)
            self._poke(urgent=False)

    def row(self, table: str, cells: Mapping[str, Any]) -> None:
        """Add a row: numbers, text, arrays. A table or column that nobody announced is made of it."""
        service = self._service
        if service is None:
            return
        try:
            self._board.tables.row(table, cells)
        except Exception as error:
            self._problem(f"a row of {table} cannot be shown: {type(error).__name__}: {error}")
        service.poke(urgent=False)

    def tables(self) -> dict[str, tuple[TableHead, dict[str, list[Any]]]]:
        """All of them by name, each with the cells of its columns."""
        return self._board.tables.columns()

    def clear(self, table: str) -> None:
        """Forget the rows of a table."""
        if not self._gone:
            self._board.tables.clear(table)
            self._poke(urgent=False)

    def alert(self, text: str, severity: str = "warning", step: int = 0, rule: str = "", layer: str = "") -> None:
        """Say that something looks wrong."""
        if self._gone:
            return
        alert = {"text": str(text), "severity": severity, "step": int(step), "rule": rule, "layer": layer}
        self._board.alerts.append((self._alerts, alert))
        self._alerts += 1
        self._poke(urgent=False)

    # -- values ------------------------------------------------------------------------------------------------------

    @property
    def wants(self) -> Wants:
        """What is looked at; `Wants()` where nobody looks."""
        return self._board.wants

    @property
    def dropped(self) -> int:
        """How many states found no room."""
        return self._service.values.dropped if self._service is not None else 0

    @property
    def moments(self) -> int:
        """How many states were announced."""
        return self._service.values.announced if self._service is not None else 0

    @property
    def making_secs(self) -> float:
        """How long it took to make the memory that values travel through: once, and no part of what a state costs."""
        return self._service.values.making_secs if self._service is not None else 0.0

    def begin(self, step: int, counters: Mapping[str, Any] | None = None, test: bool = False) -> int:
        """Begin a state, and return its number; -1, of which nothing is taken, where nobody looks or has room."""
        if self._gone or self._service is None:
            return -1
        try:
            return self._service.values.begin(step, counters or {}, test)
        except Exception as error:
            self._problem(f"step {step} cannot be shown: {type(error).__name__}: {error}")
            return -1

    def offer(self, id: int, value: Any, layer: str, variable: str, item: int = -1) -> bool:
        """Copy a tensor or array of a state, now; False where there is no room, or nobody looks at it.

        The first axis is the batch; where `item` says which one it is, the value is that item alone.
        """
        if id < 0 or self._gone or self._service is None:
            return False
        try:
            return self._service.values.offer(id, as_array(value), layer, variable, item)
        except Exception as error:  # a value that cannot be copied is no reason to stop a training run
            self._problem(f"{layer} ({variable}) cannot be shown: {type(error).__name__}: {error}")
            return False

    def absent(self, id: int, absences: Iterable[Absence]) -> None:
        """Say of layers why a state has no value of a variable."""
        if id >= 0 and not self._gone and self._service is not None:
            self._service.values.absent(id, absences)

    def end(self, id: int) -> None:
        """A state is complete: the viewer may show it, if all of it found room."""
        if id >= 0 and not self._gone and self._service is not None:
            self._service.values.end(id)

    # -- what is asked of it -----------------------------------------------------------------------------------------

    def orders(self) -> list[Order]:
        """What pages asked for since, oldest first."""
        inbox, found = self._board.inbox, list[Order]()
        while inbox and not self._gone:
            found.append(inbox.popleft())
        return found

    def wait(self, secs: float) -> bool:
        """Wait for an order, or until the viewer goes; whether there is one. For a loop that is paused."""
        if not self._board.inbox and not self._gone:
            self._board.came.clear()
            if not self._board.inbox:  # one may have come in between
                self._board.came.wait(max(secs, 0.0))
        elif self._gone:
            time.sleep(min(max(secs, 0.0), 0.1))  # a paused loop must not spin
        return bool(self._board.inbox)

    @property
    def viewer(self) -> str:
        """The address of the viewer that is there, or ""."""
        return self._service.url if self._service is not None else ""

    # -- its end -----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether nobody can look any more; also in a forked process."""
        return self._service is None

    @property
    def _gone(self) -> bool:
        return self._service is None

    def close(self, why: str = "") -> None:
        """Say goodbye to the viewer, and why it ends where that is not as planned; again does nothing."""
        if self._gone or self._service is None or self._doorway is None:
            return
        service, self._service = self._service, None
        service.stop(why)
        self._doorway.close()
        self._board.wants = Wants()
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        self.close(_uncaught())

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Host:
        return self  # a model is copied with what it holds

    def __reduce__(self) -> tuple[Any, ...]:
        return nowhere, (self.title,)  # a file, or another process, has nobody to look

    def _poke(self, urgent: bool) -> None:
        if self._service is not None:
            self._service.poke(urgent)

    def _problem(self, text: str) -> None:
        """Say once what cannot be shown."""
        if text in self.problems or len(self.problems) >= _MOST_PROBLEMS:
            return
        self.problems.append(text)
        self.alert(text, rule="studio")
        try:
            warnings.warn(f"torcheer: {text}", RuntimeWarning, stacklevel=4)
        except RuntimeWarning:  # where warnings are errors, this is still none of the model's
            print(f"torcheer: {text}", file=sys.stderr)


def reason_of(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:500]


def _uncaught() -> str:
    """The exception that ends this program, if nobody caught it; at a prompt and in notebooks none ends anything."""
    error = getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1") or "IPython" in sys.modules:
        return ""
    return reason_of(error)


def nowhere(title: str) -> Host:
    """A host that is closed from the beginning."""
    host = object.__new__(Host)
    host._alerts, host.problems = 0, []
    host._board = Board(title, {"state": State(), "parameters": ()})
    host._doorway = host._service = host.path = None
    return host


_HOSTS: weakref.WeakSet[Host] = weakref.WeakSet()


def _forget() -> None:
    """In a forked process (a DataLoader's worker): let go, or the viewer would never see the end."""
    for host in list(_HOSTS):
        if host._service is not None and host._doorway is not None:
            host._service.let_go()
            host._doorway.let_go()
            host._service = None
            atexit.unregister(host._at_exit)


os.register_at_fork(after_in_child=_forget)
