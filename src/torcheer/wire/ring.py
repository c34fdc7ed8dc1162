"""The ring buffer in shared memory that carries values from the training process to a reader process.

One process writes, one reads. A record is a fixed head of 64 bytes, the array's bytes, and a header as JSON; or several
arrays, and a list of headers; or a `SampleBatch`. Moving `HEAD` behind a record commits it: a writer that dies half-way
leaves nothing to be read.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np

from torcheer.encoding import Fill, MemoryCopy, Offer, address_of, array_bytes, decode
from torcheer.errors import BadArgument
from torcheer.samples import Delivery, Key, SampleBatch, split_batch
from torcheer.vocabulary.array_statistics import Statistics
from torcheer.wire.mailboxes import MailboxReader, MailboxWriter
from torcheer.wire.ring_queue import QueueReader, QueueWriter
from torcheer.wire.shared_memory import ASLEEP, DAMAGED, HANDLED, HEAD, TAIL, TAKEN, Memory

POLICIES: Final = ("drop", "latest", "block")
_LEAST_BYTES: Final = 64 << 10
_TOGETHER_BYTES: Final = 4 << 20  # after which no further values are taken together


class ReaderProcess(Protocol):
    """The process at the reading end, as far as a ring has to do with it."""

    def wake(self) -> None:
        """Wake it up: it sleeps, and there is something to read."""

    def is_alive(self) -> bool:
        """Whether it runs; asked where a value waits for room."""

    def leave_out(self, error: Exception) -> None:
        """Report a value that could not be copied into the ring."""


class Ring:
    """The writing end. Any thread may offer; in a forked process `offer` does nothing and returns False."""

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
        self._count_lock = threading.RLock()
        self._most_records, self._process, self._lock, self._is_writing = (
            most_records,
            os.getpid(),
            threading.RLock(),
            False,
        )
        self._stopped = self._closed = False
        self._reader: ReaderProcess | None = None
        self.has_reader = True  # without one, what is offered is counted as dropped
        self._writer = MailboxWriter(self.memory) if policy == "latest" else QueueWriter(self.memory)
        self._last_counts: dict[int, int] = {}  # of the reader, the last valid ones

    def read_by(self, reader: ReaderProcess) -> None:
        """Name the process that reads: it is woken up, and told of values that cannot be copied."""
        self._reader = reader

    def offer(self, header: Mapping[str, Any], size_bytes: int, fill: Fill) -> bool:
        """Let `fill` write a value's payload into the ring; False where there is no room, or the ring is stopped."""
        if self._process != os.getpid() or self._stopped:  # before the lock: a fork may have inherited it while locked
            return False
        reader = self._reader
        try:
            if not self.has_reader:
                return self.refuse(header)
            if self.blocks:
                is_written = self._offer_blocking(header, size_bytes, fill)
            else:
                with self._lock:
                    is_written = self._offer_locked(header, size_bytes, fill, 0.0)
            if is_written and reader is not None and self.needs_wakeup():
                reader.wake()
            return is_written
        except Exception as error:
            if reader is None:
                raise
            reader.leave_out(error)
            return False

    def _offer_blocking(self, header: Mapping[str, Any], size_bytes: int, fill: Fill) -> bool:
        if self._reader is not None and not self._reader.is_alive():
            return self.refuse(header)
        deadline = time.monotonic() + self._block_secs
        if not self._lock.acquire(timeout=self._block_secs):
            return self.refuse(header)
        try:
            return self._offer_locked(header, size_bytes, fill, deadline)
        finally:
            self._lock.release()

    def _offer_locked(self, header: Mapping[str, Any], size_bytes: int, fill: Fill, deadline: float) -> bool:
        if self._stopped:
            return False
        if self._is_writing:  # reentrant: `fill`, or a signal handler while it ran, offers a value itself
            return self.refuse(header)
        key, published_before, self._is_writing = (header["layer"], header["variable"]), self._writer.published, True
        try:
            text = _encode_header(header)
            if size_bytes <= self.share_bytes and len(text) <= self.share_bytes:
                while not self._write(key, text, size_bytes, fill) and time.monotonic() < deadline:
                    time.sleep(0.0005)
        finally:
            self._is_writing = False
            written = self._writer.published != published_before
            if not written:
                self._count_refused(key)
        return written

    def _write(self, key: Key, text: bytes, size_bytes: int, fill: Fill) -> bool:
        if self._most_records and self._writer.waiting(key) >= self._most_records:
            return False
        return self._writer.write(key, text, size_bytes, fill)

    def offer_together(self, offers: Sequence[Offer]) -> bool:
        """Write several values as one record, at a fraction of the cost; False where they must be offered singly.

        That is where there is no room for all of them, or the policy counts or replaces single values.
        """
        size_bytes = sum(size for _, size, _ in offers)

        def text() -> bytes:
            return b"[" + b",".join(_encode_header(header) for header, _, _ in offers) + b"]"

        return self._write_together(text, size_bytes, partial(_fill_all, offers), len(offers))

    def offer_batch(self, batch: SampleBatch) -> bool:
        """Write a batch as one record; False as in `offer_together`."""
        return self._write_together(batch.text, batch.size_bytes, batch.fill, len(batch.rows))

    def _write_together(self, make_text: Callable[[], bytes], size_bytes: int, fill: Fill, values: int) -> bool:
        if self._process != os.getpid() or self._stopped or self.blocks or self._most_records or not self.has_reader:
            return False
        try:
            with self._lock:
                is_written = self._write_record(make_text, size_bytes, fill, values)
        except Exception:
            if self._reader is None:
                raise
            return False  # offered singly, the one that cannot be copied is found and named
        if is_written and self._reader is not None and self.needs_wakeup():
            self._reader.wake()
        return is_written

    def _write_record(self, make_text: Callable[[], bytes], size_bytes: int, fill: Fill, values: int) -> bool:
        if self._is_writing or self._stopped or not isinstance(self._writer, QueueWriter):
            return False
        self._is_writing = True
        try:
            text = make_text()
            if size_bytes > self.share_bytes or len(text) > self.share_bytes:
                return False
            return self._writer.write(None, text, size_bytes, fill, values)
        finally:
            self._is_writing = False

    def refuse(self, header: Mapping[str, Any]) -> bool:
        """Count a value as dropped without trying to write it."""
        self._count_refused((header["layer"], header["variable"]))
        return False

    def _count_refused(self, key: Key) -> None:
        with self._count_lock:
            self._refused[key] = self._refused.get(key, 0) + 1

    @property
    def offered(self) -> int:
        """Values written or refused; computed, not stored, so that Ctrl-C cannot make the counts disagree."""
        with self._count_lock:
            return self._writer.published + sum(self._refused.values())

    @property
    def dropped(self) -> dict[Key, int]:
        """Values of each key that were not written, or overwritten before they were read."""
        with self._count_lock:
            counts = dict(self._refused)
        for key, count in self._overwritten_counts().items():
            counts[key] = counts.get(key, 0) + count
        return counts

    def _overwritten_counts(self) -> dict[Key, int]:
        return self._overwritten if self._closed else self._writer.overwritten()

    @property
    def waiting(self) -> int:
        """Values written that the reader has not taken out yet."""
        return self._remaining(self.taken)

    @property
    def unhandled(self) -> int:
        """Values written that the reader has not handled yet."""
        return self._remaining(self.handled)

    def _remaining(self, passed: int) -> int:
        overwritten = sum(self._overwritten_counts().values())
        return max(self._writer.published - overwritten - passed - self.damaged, 0)

    @property
    def free_bytes(self) -> int:
        """Room for further records, where they stand one behind the other."""
        head, tail = self.memory.get(HEAD), self.memory.get(TAIL)
        return self.memory.size if head is None or tail is None else self.memory.size - (head - tail)

    @property
    def backlog(self) -> float:
        """The filled share of the memory, where records stand one behind the other."""
        return 1.0 - self.free_bytes / self.memory.size

    @property
    def published(self) -> int:
        """Values written."""
        return self._writer.published

    @property
    def taken(self) -> int:
        """Values the reader has taken out; it may have handled all but the last."""
        return self._reader_count(TAKEN)

    @property
    def handled(self) -> int:
        """Values the reader has handled."""
        return self._reader_count(HANDLED)

    @property
    def damaged(self) -> int:
        """Damaged records that the reader skipped."""
        return self._reader_count(DAMAGED)

    def _reader_count(self, place: int) -> int:
        """A count kept by the reader; the last valid one where the stored one is damaged."""
        count = self._last_counts.get(place, 0)
        if not self._closed and count <= self.memory.words[place] <= self._writer.published:
            count = self._last_counts[place] = self.memory.words[place]
        return count

    def needs_wakeup(self) -> bool:
        """Whether the reader sleeps and should be woken; True only once per sleep."""
        if not self.memory.words[ASLEEP]:
            return False
        self.memory.words[ASLEEP] = 0
        return True

    def prepare_reader(self) -> None:
        """Rewrite the constants of the memory's header for another reader."""
        self.memory.write_header()

    def stop_accepting(self) -> None:
        """Accept no more values; wait up to 5 s for a copy in progress."""
        self._stopped = True
        if self._lock.acquire(timeout=5.0):
            self._lock.release()

    def close(self) -> None:
        """Release the memory; the counts stay readable."""
        self._stopped = True
        if not self._closed:
            self._overwritten = self._writer.overwritten()
            _ = self.taken, self.handled, self.damaged  # caches them in `_last_counts`
            self._closed, self._reader = True, None
            self._writer.close()
            self.memory.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Ring:
        return self  # copying a model copies the hooks that hold it


def _fill_all(offers: Sequence[Offer], view: memoryview) -> None:
    begin, address = 0, address_of(view)
    for _, size_bytes, fill in offers:
        if type(fill) is MemoryCopy:
            fill.write_at(address + begin)  # without a view, at a third of the cost
        else:
            fill(view[begin : begin + size_bytes])
        begin += size_bytes


class RingReader:
    """The reading end."""

    def __init__(self, fd: int) -> None:
        self.memory = Memory.open(fd)
        is_latest = POLICIES[self.memory.policy % len(POLICIES)] == "latest"
        self._reader = MailboxReader(self.memory) if is_latest else QueueReader(self.memory)
        self.taken, self.handled = self.memory.recover_count(TAKEN), self.memory.recover_count(HANDLED)
        self._rest: deque[Delivery] = deque()  # of a record of several values

    def take(self) -> Delivery | None:
        """Take the next value; None where there is none. It is not read again, even if handling it fails."""
        while not self._rest and (record := self._reader.take()) is not None:
            text, payload, count = record
            try:
                deliveries = decode_records(json.loads(text), payload)
                if len(deliveries) != count:
                    raise ValueError("another number of values than its head says")
            except (
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
            ):  # the checksum is right, but the content is no record
                self._reader.count_damaged(count)
                continue
            self._rest.extend(deliveries)
            self.taken += count
            self.memory.put(TAKEN, self.taken)
        return self._rest.popleft() if self._rest else None

    def take_together(self, most: int) -> list[Delivery]:
        """Take what is there, at most so many values; where the process ends before `done`, all of them are lost."""
        taken: list[Delivery] = []
        size_bytes = 0
        while len(taken) < most and size_bytes < _TOGETHER_BYTES and (delivery := self.take()) is not None:
            taken.append(delivery)
            size_bytes += delivery.sample.array.nbytes
        return taken

    def done(self) -> None:
        """Count a value that was taken as handled."""
        self.handled += 1
        self.memory.put(HANDLED, self.handled)

    @property
    def damaged(self) -> int:
        """Number of records that could not be read."""
        return self._reader.damaged

    def has_next(self) -> bool:
        """Whether there is a value to take."""
        return bool(self._rest) or self._reader.has_next()

    def set_asleep(self, asleep: bool) -> None:
        """Set whether the writer should wake this process at the next record."""
        self.memory.words[ASLEEP] = int(asleep)

    def finish(self) -> None:
        """End reading: records that were published but never found count as damaged."""
        self._reader.finish()

    def close(self) -> None:
        """Release the memory and its descriptor."""
        self._reader.close()
        self.memory.close()


_EXTRAS: Final = {field.name for field in fields(Delivery)} - {"sample", "summary"}


def decode_records(headers: Any, payload: Any) -> list[Delivery]:
    """Decode a record: the header of one value, a list of headers whose arrays follow each other, or a batch."""
    if isinstance(headers, dict) and "rows" in headers:
        return [decode_record(header, bytearray(numbers)) for header, numbers in split_batch(headers, payload)]
    if not isinstance(headers, list):
        return [decode_record(headers, payload)]
    deliveries, begin, view = [], 0, memoryview(payload)
    for header in headers:
        end = begin + array_bytes(header)
        deliveries.append(decode_record(header, bytearray(view[begin:end])))
        begin = end
    return deliveries


def decode_record(header: dict[str, Any], payload: Any) -> Delivery:
    """Decode a value's header and payload."""
    extras = {name: header[name] for name in _EXTRAS & header.keys()}
    if "whole" in extras:
        extras["whole"] = tuple(extras["whole"])
    if "sums" in header:
        stride, *row = header["sums"]
        extras["summary"] = Statistics.of_row(row, stride)
    return Delivery(decode(header, payload, int(header.get("step", 0))), **extras)


def _json_default(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be part of what a record says; text and numbers can")


def _encoder() -> Callable[[Any], str]:
    """The C encoder of `json`, built once: `json.dumps` builds one per call, which costs more than the encoding."""
    slow = json.JSONEncoder(check_circular=False, separators=(",", ":"), default=_json_default).encode
    try:
        make, text = json.encoder.c_make_encoder, json.encoder.encode_basestring_ascii  # type: ignore[attr-defined]
        parts = make(None, _json_default, text, None, ":", ",", False, False, True)
        is_equal = "".join(parts({"a": [1.5]}, 0)) == slow({"a": [1.5]})
    except Exception:  # another Python version may lack it, or have other arguments
        return slow
    return (lambda header: "".join(parts(header, 0))) if is_equal else slow


_ENCODE: Final = _encoder()


_KEY_FIELDS: Final = itemgetter("layer", "variable", "item", "type", "shape")
_LASTING_FIELDS: Final = ("layer", "variable", "item", "type", "shape", "device", "stride", "whole")  # of one value's
_PREFIXES: dict[Any, str] = {}  # the JSON text that all records of one value begin with


def _encode_header(header: Mapping[str, Any]) -> bytes:
    """What JSON's own encoder gives, at a quarter of its cost: the beginning is made once for each value."""
    try:
        layer, variable, item, kind, shape = _KEY_FIELDS(header)
        if type(layer) is type(variable) is str and type(item) is int and type(shape) is list:
            key = (layer, variable, item, kind, *shape)
            if "whole" in header:
                key = (*key, header.get("device"), header.get("stride"), *header["whole"])
            prefix = _PREFIXES.get(key) or _encode_prefix(key, header)
            return _encode_rest(prefix, header).encode()
    except (KeyError, TypeError, ValueError):
        pass
    return _ENCODE(header if type(header) is dict else dict(header)).encode()


def _encode_rest(prefix: str, header: Mapping[str, Any]) -> str:
    has_count = "count" in header
    if len(header) == 7 + has_count:
        step, secs = header["step"], header["time_secs"]
        if type(step) is int and type(secs) is float and 0 <= secs < 1e12:
            count = f'"count":{header["count"]:d},' if has_count else ""
            return f'{prefix},"step":{step},{count}"time_secs":{int(secs * 1e6)}e-6}}'
    lasting = _LASTING_FIELDS if "whole" in header else _LASTING_FIELDS[:5]
    rest = {name: value for name, value in header.items() if name not in lasting}
    return f"{prefix},{_ENCODE(rest)[1:]}" if rest else prefix + "}"


def _encode_prefix(key: Any, header: Mapping[str, Any]) -> str:
    if len(_PREFIXES) > 10_000:
        _PREFIXES.clear()
    lasting = _LASTING_FIELDS if "whole" in header else _LASTING_FIELDS[:5]
    text = _PREFIXES[key] = _ENCODE({name: header[name] for name in lasting if name in header})[:-1]
    return text
