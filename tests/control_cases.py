"""Somebody who looks on: a small client of a host's socket, and sessions to look at."""

from __future__ import annotations

import select
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from host_viewer import connected
from seams import Event, FollowedLog, RingReader, Wants, to_json
from waiting import wait_until

from torcheer.samples import Alert
from torcheer.training import Session
from torcheer.training.control import Control

DEADLINE_SECS = 120.0  # of a machine with much else to do


class Looker:
    """A viewer without a page: says hello, keeps what it is told, asks for things."""

    def __init__(self, path: Path) -> None:
        self.wire = wait_until(lambda: connected(path))
        self.state: dict[str, Any] = {}
        self.states: list[str] = []
        self.parameters: dict[str, dict[str, Any]] = {}
        self.network: dict[str, Any] = {}
        self._log = FollowedLog(Path(path).parent)
        self.alerts: list[dict[str, Any]] = []
        self.moments: list[dict[str, Any]] = []
        self.values: dict[tuple[int, str, str], Any] = {}
        self.welcome = self.said_bye = False
        self._ring: RingReader | None = None
        self.wire.send({"kind": "join", "version": 2, "url": "http://127.0.0.1:1/"})
        self.until(lambda: self.welcome and bool(self.state))

    def act(self, action: str, *, count: int = 0, item: int = 0) -> None:
        self.wire.send({"kind": "act", "action": action, "count": count, "item": item})

    def change(self, name: str, value: Any) -> None:
        self.wire.send({"kind": "change", "name": name, "value": value})

    def look(self, **wants: Any) -> None:
        self.wire.send({"kind": "subscribe", "wants": to_json(Wants(**wants))})

    def until(self, condition: Callable[[], Any]) -> None:
        """Listen until something holds."""

        def listen() -> None:
            assert not self.wire.closed, f"{self.wire.why}; the state is {self.state}"
            select.select([self.wire], [], [], 0.05)
            self.listen()

        wait_until(condition, poll=listen, seen=lambda: (self.state, self.alerts[-3:]))

    def status(self, *wanted: str) -> dict[str, Any]:
        """Wait for a status; what the counters are then."""
        self.until(lambda: self.state["status"] in wanted)
        return dict(self.state["counters"])

    def paused(self, step: int | None = None, **counters: Any) -> dict[str, Any]:
        """Wait until it is paused at a place."""
        wanted = counters | ({"Step": step} if step is not None else {})
        self.until(lambda: self.state["status"] == "paused" and wanted.items() <= self.state["counters"].items())
        return dict(self.state["counters"])

    @property
    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """The cells of each column of the run's tables, as a page has them."""
        self._log.refresh()
        return {name: {column: list(cells) for column, cells in table.columns.items()}
                for name, table in self._log.tables.items()}  # fmt: skip

    @property
    def logged_alerts(self) -> list[Alert]:
        """The alerts of the run's logs, which are not sent besides."""
        self._log.refresh()
        return self._log.alerts

    def rows(self, table: str) -> int:
        self._log.refresh()
        return self._log.tables[table].count if table in self._log.tables else 0

    def listen(self) -> None:
        for message, fd in self.wire.receive():
            if fd is not None:
                self._drain()
                self._ring = RingReader(fd)
            self._take(message)
        self._drain()

    def _drain(self) -> None:
        while self._ring is not None and (sent := self._ring.take()) is not None:
            sample = sent.sample
            self.values[sample.step, sample.layer, sample.variable] = sample.array.copy()
            self._ring.done()

    def _take(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "welcome":
                self.welcome = True
            case "state_came":
                self.state = message["state"]
                if self.states[-1:] != [self.state["status"]]:
                    self.states.append(self.state["status"])
            case "parameters_came":
                self.parameters = {one["name"]: one for one in message["parameters"]}
            case "network_came":
                self.network = message["network"]
            case "alerts_came":
                self.alerts += message["alerts"]
            case "moment_came":
                self._drain()
                self.moments.append(message["moment"])
            case "bye":
                self.said_bye = True

    def close(self) -> None:
        self.wire.close()


def page_at(url: str) -> int:
    """What a browser gets at an address with a token: a cookie, then the page."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=60) as page:
        return int(page.status)


class Running:
    """A session that trains in a thread of its own, under control; its events as they come."""

    def __init__(self, session: Session, *, is_paused: bool = True, **options: Any) -> None:
        self.session, self.events, self.error = session, list[Event](), list[BaseException]()
        self.control = Control(session.directory, title="a session", is_paused=is_paused, **options)
        assert self.control.host.path is not None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_until(lambda: hasattr(self.control, "session"))
        self.looker = Looker(self.control.host.path)

    def _run(self) -> None:
        try:
            with self.control:
                self.control.take(self.session)
                for event in self.session.run():
                    self.events.append(event)
                self.control.finish()
        except BaseException as error:
            self.error.append(error)

    def join(self) -> list[Event]:
        """Wait for its end; its events."""
        self._thread.join(DEADLINE_SECS)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error[0]
        return self.events
