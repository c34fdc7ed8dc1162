"""The ring: values on their way from the training process to the child, through memory that both share.

One process writes, one reads. A record is a head of 64 bytes, the array's bytes, and what it is as JSON. It counts
from the moment on that `HEAD` is moved behind it; a writer that dies half-way leaves nothing to be read.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import itemgetter
from typing import Any, Final

import numpy as np

from torcheer.encoding import decode
from torcheer.errors import BadArgument
from torcheer.samples import Delivery, Key, Statistics
from torcheer.wire.mailboxes import MailboxReader, MailboxWriter
from torcheer.wire.ring_queue import QueueReader, QueueWriter
from torcheer.wire.shared_memory import ASLEEP, DAMAGED, HANDLED, TAKEN, Memory

Fill = Callable[[memoryview], None]
POLICIES: Final = ("drop", "latest", "block")
_LEAST_BYTES: Final = 64 << 10


class Ring:
    """The writing end. Any thread may offer; a forked process may not, and does no harm."""

    def __init__(
        self, size_bytes: int = 64 << 20, *, policy: str = "drop", block_ms: float = 0.0, most_records: int = 0
    ) -> None:
        if policy not in POLICIES:
            raise BadArgument(f"no policy {policy!r}; there are {', '.join(POLICIES)}")
        if size_bytes < _LEAST_BYTES:
            raise BadArgument(f"a ring of {size_bytes} bytes is too small; {_LEAST_BYTES:,} is the least")
        self.memory = Memory.make(-(-size_bytes // 4096) * 4096, POLICIES.index(policy))
        self.fd, self.share_bytes = self.memory.fd, self.memory.size // 8
        self._refused: dict[Key, int] = {}
        self._overwritten: dict[Key, int] = {}
        self.blocks = policy == "block" and block_ms > 0
        self._block_secs = block_ms / 1000 if self.blocks else 0.0
        self._counting = threading.RLock()
        self._most_records, self._process, self._lock, self._busy = most_records, os.getpid(), threading.RLock(), False
        self._shut = self._closed = False
        self._writer = MailboxWriter(self.memory) if policy == "latest" else QueueWriter(self.memory)
        self._believed: dict[int, int] = {}

    def offer(self, about: Mapping[str, Any], size_bytes: int, fill: Fill) -> bool:
        """Let `fill` copy a value into the shared memory; False where there is no room, or nobody left to read it."""
        if self._process != os.getpid() or self._shut:  # before the lock: a fork may have inherited it locked
            return False
        if not self.blocks:
            with self._lock:
                return self._offer_alone(about, size_bytes, fill, 0.0)
        until = time.monotonic() + self._block_secs
        if not self._lock.acquire(timeout=self._block_secs):
            return self.refuse(about)
        try:
            return self._offer_alone(about, size_bytes, fill, until)
        finally:
            self._lock.release()

    def _offer_alone(self, about: Mapping[str, Any], size_bytes: int, fill: Fill, until: float) -> bool:
        if self._shut:
            return False
        if self._busy:  # `fill`, or a signal while it ran, offers something itself
            return self.refuse(about)
        key, before, self._busy = (about["layer"], about["variable"]), self._writer.published, True
        try:
            text = _text(about)
            if size_bytes <= self.share_bytes and len(text) <= self.share_bytes:
                while not self._write(key, text, size_bytes, fill) and time.monotonic() < until:
                    time.sleep(0.0005)
        finally:
            self._busy = False
            written = self._writer.published != before
            if not written:
                self._refuse(key)
        return written

    def _write(self, key: Key, text: bytes, size_bytes: int, fill: Fill) -> bool:
        if self._most_records and self._writer.waiting(key) >= self._most_records:
            return False
        return self._writer.write(key, text, size_bytes, fill)

    def refuse(self, about: Mapping[str, Any]) -> bool:
        """Count a value that is not even tried."""
        self._refuse((about["layer"], about["variable"]))
        return False

    def _refuse(self, key: Key) -> None:
        with self._counting:
            self._refused[key] = self._refused.get(key, 0) + 1

    @property
    def offered(self) -> int:
        """How many were written or refused; kept nowhere, so that Ctrl-C cannot come between it and those."""
        with self._counting:
            return self._writer.published + sum(self._refused.values())

    @property
    def dropped(self) -> dict[Key, int]:
        """How many values of each key were not sent, or overwritten before they were read."""
        with self._counting:
            found = dict(self._refused)
        for key, count in (self._overwritten if self._closed else self._writer.overwritten()).items():
            found[key] = found.get(key, 0) + count
        return found

    @property
    def published(self) -> int:
        """How many were written."""
        return self._writer.published

    @property
    def taken(self) -> int:
        """How many the reader has taken out, of which it may have handled all but the last."""
        return self._told(TAKEN)

    @property
    def handled(self) -> int:
        """How many the reader is done with."""
        return self._told(HANDLED)

    @property
    def damaged(self) -> int:
        """How many the reader had to leave out."""
        return self._told(DAMAGED)

    def _told(self, place: int) -> int:
        """A count of the reader's; the last one that could be, where that one is damaged."""
        before = self._believed.get(place, 0)
        if not self._closed and before <= self.memory.words[place] <= self._writer.published:
            before = self._believed[place] = self.memory.words[place]
        return before

    def wanted(self) -> bool:
        """Whether the reader sleeps and should be woken; says so once."""
        if not self.memory.words[ASLEEP]:
            return False
        self.memory.words[ASLEEP] = 0
        return True

    def restate(self) -> None:
        """Get ready for another reader."""
        self.memory.state()

    def shut(self) -> None:
        """Take nothing more; wait for who is just copying, but not for long."""
        self._shut = True
        if self._lock.acquire(timeout=5.0):
            self._lock.release()

    def close(self) -> None:
        """Give the memory back."""
        self._shut = True
        if not self._closed:
            self._overwritten = self._writer.overwritten()
            _ = self.taken, self.handled, self.damaged  # believed from now on
            self._closed = True
            self._writer.close()
            self.memory.close()


class RingReader:
    """The reading end."""

    def __init__(self, fd: int) -> None:
        self.memory = Memory.open(fd)
        latest = POLICIES[self.memory.policy % len(POLICIES)] == "latest"
        self._reader = MailboxReader(self.memory) if latest else QueueReader(self.memory)
        self.taken, self.handled = self.memory.left(TAKEN), self.memory.left(HANDLED)

    def take(self) -> Delivery | None:
        """The next value; None where there is none. It is behind the reader from then on, whatever comes of it."""
        while (found := self._reader.take()) is not None:
            about, payload = found
            try:
                sent = sent_of(json.loads(about), payload)
            except (ValueError, TypeError, KeyError, AttributeError):  # whole, yet not what a record says
                self._reader.spoil()
                continue
            self.taken += 1
            self.memory.put(TAKEN, self.taken)
            return sent
        return None

    def done(self) -> None:
        """The value taken last is dealt with."""
        self.handled += 1
        self.memory.put(HANDLED, self.handled)

    @property
    def damaged(self) -> int:
        """How many records could not be read."""
        return self._reader.damaged

    def waits(self) -> bool:
        """Whether there is something to take."""
        return self._reader.waits()

    def asleep(self, yes: bool) -> None:
        """Say whether a new record should wake this process."""
        self.memory.words[ASLEEP] = int(yes)

    def finish(self) -> None:
        """Nothing more will be written: what never was found counts as damaged."""
        self._reader.finish()

    def close(self) -> None:
        """Give the memory and its descriptor back."""
        self._reader.close()
        self.memory.close()


_EXTRAS: Final = {field.name for field in fields(Delivery)} - {"sample"}


def sent_of(about: dict[str, Any], payload: Any) -> Delivery:
    """The value that a record holds."""
    extras = {name: about[name] for name in _EXTRAS & about.keys()}
    if "whole" in extras:
        extras["whole"] = tuple(extras["whole"])
    if (numbers := extras.get("summary")) is not None:
        lists = {name: tuple(numbers[name]) for name in ("percentiles", "histogram") if name in numbers}
        extras["summary"] = Statistics(**{**numbers, **lists})
    return Delivery(decode(about, payload, int(about.get("step", 0))), **extras)


def _plain(value: Any) -> Any:
    if isinstance(value, Statistics):
        return {field.name: getattr(value, field.name) for field in fields(Statistics)}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be part of what a record says; text and numbers can")


def _encoder() -> Callable[[Any], str]:
    """JSON's own encoder, made once: `json.dumps` makes one for every call, which costs more than its work."""
    slow = json.JSONEncoder(check_circular=False, separators=(",", ":"), default=_plain).encode
    try:
        make, text = json.encoder.c_make_encoder, json.encoder.encode_basestring_ascii  # type: ignore[attr-defined]
        parts = make(None, _plain, text, None, ":", ",", False, False, True)
        good = "".join(parts({"a": [1.5]}, 0)) == slow({"a": [1.5]})
    except Exception:  # another Python may have none, or one that takes other arguments
        return slow
    return (lambda about: "".join(parts(about, 0))) if good else slow


_ENCODE: Final = _encoder()


_USUAL: Final = itemgetter("layer", "variable", "item", "type", "shape", "step", "time_secs")
_FRONTS: dict[Any, str] = {}  # what records of one value have in common, as JSON has it


def _text(about: Mapping[str, Any]) -> bytes:
    counted = "count" in about
    if len(about) == 7 + counted and type(about) is dict:
        try:
            layer, variable, item, kind, shape, step, secs = _USUAL(about)
            plain = type(layer) is type(variable) is str and type(step) is type(item) is int and type(shape) is list
            if (
                plain and type(secs) is float and 0 <= secs < 1e12
            ):  # what JSON's own encoder gives, at a quarter of its cost
                front = _FRONTS.get((layer, variable, item, kind, *shape)) or _front(layer, variable, item, kind, shape)
                count = f'"count":{about["count"]:d},' if counted else ""
                return f'{front}{step},{count}"time_secs":{int(secs * 1e6)}e-6}}'.encode()
        except (KeyError, TypeError, ValueError):
            pass
    return _ENCODE(about if type(about) is dict else dict(about)).encode()


def _front(layer: Any, variable: Any, item: int, kind: Any, shape: list[int]) -> str:
    if len(_FRONTS) > 10_000:
        _FRONTS.clear()
    about = {"layer": layer, "variable": variable, "item": item, "type": kind, "shape": shape}
    text = _FRONTS[layer, variable, item, kind, *shape] = _ENCODE(about)[:-1] + ',"step":'
    return text
