"""Both ends of a socket between two processes: JSON lines, some with a file descriptor; never blocks."""

from __future__ import annotations

import array
import errno
import json
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Final

from torcheer.wire import fork_registry
from torcheer.wire.json_codec import plain_value

HOST_LINE_BYTES: Final = 64 << 20  # the longest line that a viewer accepts from a host
VIEWER_LINE_BYTES: Final = 1 << 20  # the longest line that a host accepts from a viewer
_OUTBOX_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 18
_ROUNDS: Final = 64  # chunks that one `receive` reads: a flood must not keep it busy forever
_MOST_DESCRIPTORS: Final = 16
_CONNECT_SECS: Final = 0.5
_LONGEST_PATH: Final = 100  # bytes that fit into a socket's address on all systems

Message = tuple[dict[str, Any], int | None]


class Wire:
    """One end of a connection. Thread-safe; an error closes it and is never raised."""

    def __init__(
        self, sock: socket.socket, *, line_bytes: int = HOST_LINE_BYTES, outbox_bytes: int = _OUTBOX_BYTES,
        drops_oldest: bool = False,
    ) -> None:  # fmt: skip
        """`line_bytes` is the longest line accepted, `outbox_bytes` the most that may wait for a slow peer.

        More than that closes the connection, or drops the oldest messages where `drops_oldest` says so.
        """
        sock.setblocking(False)
        self._socket, self._line_bytes = sock, line_bytes
        self._outbox_bytes, self._drops_oldest = outbox_bytes, drops_oldest
        self._outbox: deque[tuple[memoryview, int | None]] = deque()
        self._sending, self._receiving = threading.RLock(), threading.RLock()
        self._inbox = bytearray()
        self._searched = 0  # leading bytes of the inbox known to hold no newline
        self._descriptors: deque[int] = deque()  # received before the line that they belong to
        self.pending_bytes = 0  # queued, not sent yet
        self._peer_closed = False  # cannot send; what the peer sent before can still be received
        self.closed, self.why = False, ""
        fork_registry.register(self)

    def fileno(self) -> int:
        """For `select`; -1 once closed."""
        return -1 if self.closed else self._socket.fileno()

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any], fd: int | None = None) -> bool:
        """Send, or queue for `flush`; False where the connection is, or gets, closed. The descriptor is duplicated."""
        return self._put(encode_line(message if fd is None else {**message, "descriptor": True}), fd)

    def send_all(self, messages: Iterable[dict[str, Any]]) -> bool:
        """Send many at once: each system call may cost the thread its time slice."""
        data = b"".join(encode_line(message) for message in messages)
        return self._put(data) if data else not self.closed

    def wake(self) -> bool:
        """Send an empty line: the peer returns from its `select` and receives no message."""
        return self._put(b"\n")

    def _put(self, line: bytes, fd: int | None = None) -> bool:
        data = memoryview(line)
        with self._sending:
            if self.closed or self._peer_closed:
                return False
            if self.pending_bytes and self.pending_bytes + len(data) > self._outbox_bytes:
                if not self._drops_oldest:
                    self.close("the other side does not read")
                    return False
                self._drop(len(data))
            try:
                self._outbox.append((data, None if fd is None else os.dup(fd)))
            except OSError as error:
                self.close(f"a descriptor cannot be sent: {error}")
                return False
            self.pending_bytes += len(data)
            return self.flush()

    def _drop(self, needed_bytes: int) -> None:
        """Drop the oldest messages, except the first: part of it may have been sent."""
        while len(self._outbox) > 1 and self.pending_bytes + needed_bytes > self._outbox_bytes:
            data, fd = self._outbox[1]
            del self._outbox[1]
            self.pending_bytes -= len(data)
            if fd is not None:
                os.close(fd)

    def drain(self, secs: float) -> None:
        """Send what is queued; wait up to `secs` for the peer to read it."""
        deadline = time.monotonic() + secs
        while self.flush() and self.pending_bytes and (remaining_secs := deadline - time.monotonic()) > 0:
            self._wait(remaining_secs, select.POLLOUT)

    def flush(self) -> bool:
        """Send what is queued, as far as the peer accepts it; False once the peer, or this end, has closed."""
        with self._sending:
            while self._outbox and not self.closed:
                data, fd = self._outbox[0]
                try:
                    count = self._send_chunk(data, fd)
                except BlockingIOError:
                    break
                except (BrokenPipeError, ConnectionResetError):
                    self._peer_closed = True
                    self._clear_outbox()
                    break
                except OSError as error:
                    self.close(str(error))
                    break
                if fd is not None:
                    os.close(fd)
                self.pending_bytes -= count
                self._outbox[0] = (data[count:], None)
                if count == len(data):
                    self._outbox.popleft()
        return not (self.closed or self._peer_closed)

    def _clear_outbox(self) -> None:
        for _, fd in self._outbox:
            if fd is not None:
                os.close(fd)
        self._outbox.clear()
        self.pending_bytes = 0

    def _send_chunk(self, data: memoryview, fd: int | None) -> int:
        chunk = data[:_CHUNK_BYTES]
        if fd is None:
            return self._socket.send(chunk, _NO_SIGNAL)
        rights = array.array("i", [fd])
        return self._socket.sendmsg([chunk], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], _NO_SIGNAL)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self) -> list[Message]:
        """Receive the messages that have arrived, each with its descriptor, which the caller must close.

        Messages from before the connection was closed are still returned; check `closed` afterwards.
        """
        messages: list[Message] = []
        with self._receiving:
            for _ in range(_ROUNDS):
                if self.closed or not self._read():
                    break
                self._split(messages)
        return messages

    def receive_within(self, secs: float) -> list[Message]:
        """Receive messages as `receive` does, waiting up to so long for the first, or for the end of the connection."""
        self._wait(secs, select.POLLIN)
        return self.receive()

    def exchange(self, wait_secs: float = 0.0) -> list[dict[str, Any]]:
        """Send what is queued and receive messages, waiting up to `wait_secs` for either; descriptors are closed."""
        events = select.POLLIN | (select.POLLOUT if self.flush() and self.pending_bytes else 0)
        if wait_secs > 0 and not self._wait(wait_secs, events):
            return []
        messages = self.receive()
        for _, fd in messages:
            if fd is not None:
                os.close(fd)
        return [message for message, _ in messages]

    def _wait(self, secs: float, events: int) -> bool:
        """Wait for an event, or the end of the connection; False where none came in time."""
        if (fd := self.fileno()) < 0:  # another thread may close it
            return True
        poll = select.poll()  # `select` refuses descriptors from 1024 on
        poll.register(fd, events)
        return bool(poll.poll(1000 * secs))

    def _read(self) -> bool:
        """Read a chunk into the inbox; whether there was one."""
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(_CHUNK_BYTES, socket.CMSG_SPACE(_RIGHTS_BYTES))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close(str(error))
            return False
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(rights[: len(rights) - len(rights) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > _MOST_DESCRIPTORS:
            self.close("more descriptors came than there is room for")
        elif not data:
            self.close("the other side has closed it")
        self._inbox += data
        return not self.closed

    def _split(self, messages: list[Message]) -> None:
        """Parse the complete lines of the inbox."""
        begin = 0
        while (end := self._inbox.find(b"\n", max(begin, self._searched))) >= 0:
            if end - begin > self._line_bytes:
                break
            if begin < end and not self._parse(self._inbox[begin:end], messages):
                return
            begin = end + 1
        del self._inbox[:begin]
        self._searched = len(self._inbox)
        if self._searched > self._line_bytes:
            self.close(f"a line is longer than {self._line_bytes:,} bytes")

    def _parse(self, line: bytearray, messages: list[Message]) -> bool:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            self.close("a line is no message")
            return False
        fd = None
        if message.pop("descriptor", False):
            if not self._descriptors:
                self.close("a descriptor was announced and did not come")
                return False
            fd = self._descriptors.popleft()
        messages.append((message, fd))
        return True

    def close(self, why: str = "closed here") -> None:
        """Close the connection; idempotent."""
        with self._sending:
            if self.closed:
                return
            self.closed, self.why = True, why
            self._socket.close()
            self._clear_outbox()
            for fd in self._descriptors:
                os.close(fd)
            self._descriptors.clear()
            self._inbox.clear()

    def after_fork(self) -> None:
        """Close the inherited socket in a forked process: else the peer would never see the end of this one."""
        self.closed = True
        self._socket.close()


def connect(path: str | os.PathLike[str], *, line_bytes: int = HOST_LINE_BYTES) -> Wire:
    """Connect to a host's socket; OSError (FileNotFoundError, ConnectionRefusedError) where none listens."""
    if not hasattr(socket, "AF_UNIX"):  # Windows: nothing can listen
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(_CONNECT_SECS)  # a host whose thread hangs has a full backlog
        with Address(Path(path)) as address:
            sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return Wire(sock, line_bytes=line_bytes)


class Address:
    """Context manager that gives a path as a socket's address: long ones through a descriptor of their folder."""

    def __init__(self, path: Path) -> None:
        self._path, self._fd = path, -1

    def __enter__(self) -> str:
        path = self._path
        if path.is_symlink():
            path = path.resolve()
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return str(path)
        self._fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}/{path.name}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
_RIGHTS_BYTES: Final = _MOST_DESCRIPTORS * array.array("i").itemsize


def encode_line(message: dict[str, Any]) -> bytes:
    """A message as a line of JSON."""
    return json.dumps(message, separators=(",", ":"), default=_json_default).encode() + b"\n"


def _json_default(value: Any) -> Any:
    if hasattr(value, "tolist") or is_dataclass(value):  # of numpy; a record in a message
        return plain_value(value)
    raise TypeError(f"{type(value).__name__} cannot travel as JSON; text, numbers and lists can")
