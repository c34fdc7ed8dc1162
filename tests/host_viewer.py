"""A viewer for tests of the host: real socket, real ring, nothing of the studio."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seams import EACH_TRIAL, FollowedLog, Host, RingReader, Wants, alert_seen, connect, to_json
from waiting import wait_until

ALL = Wants(("Act", "Net", "Grad"), weights=True, train=EACH_TRIAL)


def connected(path: str | os.PathLike[str]) -> Any:
    """A wire to the host that listens there; None as long as none does: a socket is there before it listens."""
    try:
        return connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


class Viewer:
    """Connects, says what it wants, keeps all that comes."""

    def __init__(self, host: Host, wants: Wants | None = None, url: str = "http://viewer") -> None:
        self.host, self.messages, self.values = host, list[dict[str, Any]](), dict[tuple[int, str, str], Any]()
        self.reader: RingReader | None = None
        self.log = FollowedLog(Path(host.path or "").parent)
        self.rings = 0
        self.wire = connect(host.path or "")
        self.wire.send({"kind": "join", "version": 2, "url": url})
        wait_until(lambda: self.of("welcome") or self.of("busy") or self.wire.closed, "an answer")
        if wants is not None:
            self.want(wants)

    def want(self, wants: Wants) -> None:
        """Look at something, and wait until the host knows."""
        self.wire.send({"kind": "subscribe", "wants": to_json(wants)})
        wait_until(lambda: self.host.wants == wants, "the host to know what is wanted")

    def hear(self) -> None:
        """Take what has come."""
        for message, fd in self.wire.receive():
            if fd is not None:
                self.drain()
                self.reader = RingReader(fd)
                self.rings += 1
            self.messages.append(message)
        self.drain()

    def drain(self) -> None:
        while self.reader is not None and (sent := self.reader.take()) is not None:
            self.values[sent.sample.step, sent.sample.layer, sent.sample.variable] = sent.sample
            self.reader.done()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of a kind so far."""
        self.hear()
        return [message for message in self.messages if message["kind"] == kind]

    def states(self) -> list[dict[str, Any]]:
        """The states that were announced so far."""
        return [message["moment"] for message in self.of("moment_came")]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts so far: those of the log, and those that no log has."""
        self.log.refresh()
        logged = [alert_seen(one, one.layer, one.id) for one in self.log.alerts]
        said = [alert for message in self.of("alerts_came") for alert in message["alerts"]]
        return [*map(asdict, logged), *said]

    def moments(self, count: int = 1) -> list[dict[str, Any]]:
        """At least so many states, waited for."""
        found: list[dict[str, Any]] = wait_until(lambda: len(self.states()) >= count and self.states(), "states")
        return found

    def last(self, kind: str, fits: Callable[[dict[str, Any]], Any] = lambda message: True) -> dict[str, Any]:
        """The newest message of a kind, waited for."""
        found: list[dict[str, Any]] = wait_until(lambda: [one for one in self.of(kind) if fits(one)], kind)
        return found[-1]

    def rows(self, table: str) -> dict[str, list[Any]]:
        """A table, as its rows so far make it."""
        self.log.refresh()
        found = self.log.tables.get(table)
        return {} if found is None else {name: list(cells) for name, cells in found.columns.items()}

    def press(self, action: str, **about: Any) -> None:
        self.wire.send({"kind": "act", "action": action, **about})

    def close(self) -> None:
        self.wire.close()
        wait_until(lambda: self.host.viewer == "" or self.host.closed, "the host to notice")

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
