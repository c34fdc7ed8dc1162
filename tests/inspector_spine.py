"""Things that the tests of the ring, the link and its faults share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seams import Link, Plan, Ring, RingReader, encode, packed, shared_memory

from torcheer.records import Sample
from torcheer.samples import Account

SCRIPTS = Path(__file__).parent / "inspector_scripts"
QUIET = Plan(statistics=False)
PATH = {"PYTHONPATH": os.pathsep.join(filter(None, (str(SCRIPTS.parent), os.environ.get("PYTHONPATH"))))}


def offer(
    to: Ring | Link, array: Any, step: int = 0, layer: str = "a", variable: str = "output", **extras: Any
) -> bool:
    """Send an array as a probe does."""
    about, payload = encode(Sample(step, layer, variable, -1, array))

    def fill(view: memoryview) -> None:
        view[:] = payload

    ring = to.ring if isinstance(to, Link) else to
    return ring.offer({**about, "step": step, **extras}, payload.nbytes, fill)


def reader_of(ring: Ring) -> RingReader:
    """The reading end, in this process."""
    return RingReader(os.dup(ring.fd))


def all_of(reader: RingReader) -> list[Any]:
    """Everything that waits."""
    return list(iter(reader.take, None))


class Diary:
    """Callbacks that write down what they get, one line each."""

    def __init__(self, path: Path, wait_secs: float = 0.0) -> None:
        self.path, self.wait_secs, self.count = str(path), wait_secs, 0

    def value(self, layer: str, variable: str, step: int, array: Any) -> None:
        """Note a value."""
        time.sleep(self.wait_secs)
        self.count += 1
        self.note(f"{layer}/{variable} {step} {float(np.asarray(array, np.float64).sum())}")

    def close(self) -> None:
        """Note the end."""
        self.note(f"closed after {self.count}")

    def note(self, text: str) -> None:
        """Append a line at once."""
        with open(self.path, "a") as file:
            file.write(text + "\n")

    def lines(self) -> list[str]:
        """What was noted so far."""
        return Path(self.path).read_text().splitlines() if os.path.exists(self.path) else []


def watched(diary: Diary, plan: Plan = QUIET, **settings: Any) -> Link:
    """A link whose child writes a diary."""
    return Link(plan, callbacks=packed(diary.value, diary.close, as_torch=False), **settings)


def balanced(account: Account) -> bool:
    """Whether every value that was offered is accounted for."""
    return account.offered == account.handled + sum(account.dropped.values()) + account.lost + account.damaged


@pytest.fixture(params=["isal", "without isal"])
def checksums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to check a record."""
    if request.param == "without isal":
        monkeypatch.setattr(shared_memory, "_has_isal", lambda: False)
