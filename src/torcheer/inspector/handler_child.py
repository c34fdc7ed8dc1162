"""One child of the handler: values sent to it, its messages, and stand-ins for its queues and process."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty
from typing import Any, Final, Self

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.monitor.child_link import Link, Process
from torcheer.monitor.child_plan import Plan
from torcheer.samples import Account
from torcheer.tap.reduction.cuda_statistics import Fetcher
from torcheer.tap.tensor_copies import local_shard, offer, refusal
from torcheer.terminal import met_difference, warn_or_print

_MOST_WORDS: Final = 10_000  # unread messages of a child


@dataclass
class ProcessInfoData:
    """A value to be put into `queue_to` by hand.

    - `name`: the key, as given to `new_process`.
    - `internal_message`: of the handler itself; empty for a value.
    - `message`: handed to the callback.
    - `shared_data`: the value, a tensor.
    """

    name: str
    internal_message: str
    message: str
    shared_data: Any


class Elsewhere:
    """Replaces, in the child, a handler or a queue that a callback's object refers to."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"no {name!r} here: handler and queues stay in the training process, callbacks run in another"
        )


class StaysHere:
    """Base of objects that are not pickled with the callbacks."""

    def __reduce__(self) -> tuple[type[Elsewhere], tuple[()]]:
        return Elsewhere, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Worker(StaysHere):
    """A child process by its number. One that ended for want of data is restarted when a value is sent."""

    def __init__(self, plan: Plan, callbacks: bytes, *, ring_bytes: int, most_records: int) -> None:
        self.unique_id = plan.unique_id
        self.most_records = most_records
        self._lock, self._process = threading.RLock(), os.getpid()
        self._told: set[str] = set()
        self.put_by_hand: set[str] = set()  # names that came by `queue_to`
        self.passed: dict[str, int] = {}  # how many values were sent by each name
        self.said: deque[dict[str, Any]] = deque(maxlen=_MOST_WORDS)
        self.stopped, self._over = False, False  # by `stop`; by itself, for want of data
        self.link = Link(plan, callbacks=callbacks, ring_bytes=ring_bytes, most_records=most_records, tell=self.tell)
        self._fetcher = Fetcher(self.link.ring)
        self.queue_to, self.queue_from, self.process = QueueTo(self), QueueFrom(self), ProcessStandIn(self.link)
        ring, size = self.link.ring, self.link.ring.memory.size
        ring.share_bytes = self.limit_bytes = size // 2 - min(64 << 10, size // 8)  # a callback needs a value in full

    def send(self, name: str, variable: str, tensor: Tensor, *, count: int, message: str) -> bool:
        """Copy a value on its way; False where it was dropped."""
        if self.stopped or self._process != os.getpid():
            return False
        with self._lock, torch.no_grad(), torch._C.DisableTorchFunction():  # keep out of a capture in progress
            if self.stopped:  # stopped while this thread waited for the lock
                return False
            self.listen()
            if self._over:
                self._over = False
                self.link.resume()
                met_difference("pytorch-inspector", "restart")
            header: dict[str, Any] = {"layer": name, "variable": variable, "step": count, "count": count}
            plain = local_shard(tensor).detach()
            if reason := refusal(plain):
                self.tell(f"{name} is not sent: {reason}")
                return self.link.ring.refuse(header)
            plain = self._fitting(plain, name)
            header |= {"message": message, "time_secs": time.time(), "limit_bytes": self.limit_bytes}
            self.passed[name] = self.passed.get(name, 0) + 1
            if not plain.is_cuda:
                return offer(self.link.ring, plain, **header)
            if (
                not torch.cuda.is_current_stream_capturing()
            ):  # the captured graph would repeat our copies at every replay
                self._fetcher.fetch_tensor(plain, **header)
            return True

    def _fitting(self, tensor: Tensor, name: str) -> Tensor:
        """A tensor, truncated to its first rows (or columns of a single row) where it is too large."""
        size = tensor.numel() * tensor.element_size()
        if size <= self.limit_bytes:
            return tensor
        part = beginning(tensor, self.limit_bytes)
        self.tell(
            f"{name} has {size:,} bytes: of its shape {tuple(tensor.shape)} only the first {tuple(part.shape)} are "
            f"sent; ParallelHandler(…, ring_bytes={1 << (2 * size + (1 << 20)).bit_length()}) sends it whole",
            topic=f"size of {name}",
        )
        return part

    def listen(self) -> None:
        """Receive the child's messages; the link restarts a child that has died."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._fetcher.harvest()
            for message in self.link.heard():
                self._take_in(message)

    def _take_in(self, message: dict[str, Any]) -> None:
        self.said.append(message)
        kind = message.get("kind")
        if kind == "quarantined":
            self.tell(
                f"{message.get('layer')} is no longer shown to the callback, which failed: {message.get('error')}"
            )
        elif kind == "problem":
            self.tell(f"child {self.unique_id}: {message.get('text')}")
        elif kind == "done" and message.get("why") == "timeout":
            self._over = True

    def tell(self, text: str, topic: str = "") -> None:
        """Report a text once, or one text per topic."""
        if (topic or text) not in self._told:
            self._told.add(topic or text)
            tell(text)

    def stop(self, timeout_secs: float) -> None:
        """Let the child finish for so long, then end it."""
        with self._lock:
            if not self.stopped and self._process == os.getpid():
                try:
                    self._fetcher.harvest(wait=True)
                except RuntimeError as error:  # the device is lost, not the child
                    self.tell(f"values on a device could not be fetched: {error}")
                self.stopped = True
                account = self.link.stop(timeout_secs)
                self.listen()
                if account.missing:
                    self.tell(f"child {self.unique_id}: of {account.offered:,} values {account.missing}")

    @property
    def account(self) -> Account:
        """What became of the values so far, over all children with this number."""
        return self.link.account


def beginning(tensor: Tensor, limit_bytes: int) -> Tensor:
    """Truncate a tensor to a byte limit: each axis in turn, down to length one, until it fits."""
    for axis, length in enumerate(tensor.shape):
        if (size := tensor.numel() * tensor.element_size()) <= limit_bytes:
            break
        tensor = tensor.narrow(axis, 0, max(length * limit_bytes // size, 1))
    return tensor


def tell(text: str) -> None:
    """Warn; where warnings are errors, print instead of raising into the model."""
    warn_or_print(f"ParallelHandler: {text}")


class QueueTo(StaysHere):
    """What goes to a child: `put` sends a `ProcessInfoData`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Send a value; it is dropped and counted where there is no room."""
        tensor = getattr(item, "shared_data", None)
        if not isinstance(tensor, Tensor):
            raise BadArgument(f"queue_to takes a ProcessInfoData with a tensor as its shared_data, not {item!r}")
        self._worker.put_by_hand.add(item.name)
        count = int(item.message) if str(item.message).isdigit() else 0
        self._worker.send(item.name, "put", tensor, count=count, message=_text(item, count))

    def put_nowait(self, item: Any) -> None:
        """The same: nothing here waits."""
        self.put(item)

    def qsize(self) -> int:
        """How many values the child has not dealt with."""
        return 0 if self._worker.stopped else self._worker.link.ring.unhandled

    def empty(self) -> bool:
        """Whether the child has dealt with all of them."""
        return not self.qsize()

    def full(self) -> bool:
        """Whether another one would be dropped for their number."""
        most = self._worker.most_records
        return bool(most) and self.qsize() >= most

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The child alone reads this queue."""
        raise BadArgument("only the child reads queue_to; what it says is in queue_from")

    get_nowait = get


def _text(item: Any, count: int) -> str:
    """Both messages of a value put by hand, as far as the second is no number."""
    text = str(item.message)
    return str(item.internal_message) if text == str(count) else f"{item.internal_message} {text}".strip()


class QueueFrom(StaysHere):
    """What a child says: {"kind": "quarantined", …}, {"kind": "done", …}; see docs/decisions/0008."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def get(self, block: bool = True, timeout: float | None = None) -> dict[str, Any]:
        """The next thing it said; waits for one, or so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.empty():
            if not block or self._worker.stopped or (deadline is not None and time.monotonic() >= deadline):
                raise Empty
            time.sleep(0.01)
        return self._worker.said.popleft()

    def get_nowait(self) -> dict[str, Any]:
        """The next thing it has said already."""
        return self.get(block=False)

    def qsize(self) -> int:
        """How many things it has said."""
        self._worker.listen()
        return len(self._worker.said)

    def empty(self) -> bool:
        """Whether it has said nothing."""
        return not self.qsize()

    def full(self) -> bool:
        """Never: the oldest give way."""
        return False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Only the child speaks here."""
        raise BadArgument("only the child writes to queue_from; what is sent to it goes into queue_to")

    put_nowait = put


class ProcessStandIn(StaysHere, Process):
    """The current child process of a number, in the form of `multiprocessing.Process`."""
