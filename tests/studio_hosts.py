"""Hosts for tests of the viewer: one that is killed (`python studio_hosts.py FOLDER FIRST COUNT`), one that lies."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from children import Child
from seams import Host, Layer, Network, Parameter, Projection, State, Variable, Wire
from waiting import wait_until

NETWORK = Network(
    "pair",
    (Layer("in", (4,), "Input"), Layer("out", (2, 3), "Linear")),
    (Projection("w", "in", "out", "linear", (6, 4)),),
    (Variable("Act"), Variable("Grad"), Variable("Wt", "weight")),
)


def tell(host: Host, step: int) -> bool:
    """Offer a state."""
    number = host.values.begin(step, {"Epoch": step // 10, "Trial": step})
    good = host.values.offer(number, np.full((3, 4), step, np.float32) + np.arange(3)[:, None], "in", "Act")
    good &= host.values.offer(number, np.arange(18.0).reshape(3, 2, 3) + step, "out", "Act")
    if host.wants.weights:
        good &= host.values.offer(number, np.arange(24.0).reshape(6, 4) * step, "w", "Wt")
    host.values.end(number)
    return good


def main(folder: str, first: int, count: int) -> None:
    """Host a run from an epoch on: a row for each, then states for as long as it lives."""
    with Host(folder, title="victim", continues=True) as host:
        host.network, host.state = NETWORK, State("running", {"Epoch": first}, ("train", "stop"))
        host.parameters = [Parameter("lr", 0.1, editable=True)]
        for epoch in range(first, first + count):
            host.row("train_epoch", {"Epoch": epoch, "Step": 10 * epoch, "loss": 1 / (epoch + 1)})
        print("up", flush=True)
        for step in range(1_000_000):
            tell(host, step)
            time.sleep(0.01)


@contextmanager
def started(folder: Path, first: int = 0, count: int = 5) -> Iterator[Child]:
    """That host in a process of its own, listening."""
    with Child(__file__, folder, first, count) as process:
        assert process.line() == "up"
        yield process


class Liar:
    """A host that says whatever it is told to; it speaks to the one viewer that comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self.wire: Wire | None = None
        self.heard: list[dict[str, Any]] = []
        self._raw: socket.socket | None = None

    def meet(self, source: Any, *, welcome: bool = True) -> None:
        """Let the viewer in."""
        source.poll()
        self._raw, _ = self._listener.accept()
        self.wire = Wire(self._raw)
        wait_until(self.hear, poll=source.poll)
        if welcome:
            self.say({"kind": "welcome", "version": 2, "title": "liar"})

    def hear(self) -> list[dict[str, Any]]:
        assert self.wire is not None
        self.heard += [message for message, _ in self.wire.receive()]
        return self.heard

    def say(self, message: dict[str, Any], fd: int | None = None) -> None:
        assert self.wire is not None
        self.wire.send(message, fd)

    def raw(self, data: bytes) -> None:
        assert self._raw is not None
        self._raw.send(data)

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
