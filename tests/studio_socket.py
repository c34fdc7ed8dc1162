"""A page without a browser: logs in as one does, then speaks over the socket."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from seams import parse_frame
from waiting import WAIT_SECS
from websockets.sync.client import ClientConnection, connect


def cookie_of(url: str) -> str:
    """The cookie that a token URL is changed for."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=WAIT_SECS)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("location")) == (303, "./")
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    connection.close()
    return cookie


class Page:
    """One page; `heard` keeps every message, texts as dicts, frames as (FrameHead, bytes)."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.cookie, self.origin = cookie_of(url), f"http://{parts.netloc}"
        self.heard: list[Any] = []
        self.bytes: list[int] = []
        self._open = ExitStack()
        opened = connect(
            f"ws://{parts.netloc}{parts.path}ws", origin=self.origin, additional_headers={"Cookie": self.cookie},  # type: ignore[arg-type]
            max_size=None, compression=None, open_timeout=WAIT_SECS, close_timeout=2,
            ping_interval=None,  # a ping takes a number from `random`, as may a session of the same process
        )  # fmt: skip
        self._socket: ClientConnection = self._open.enter_context(opened)
        self.hello = self.opened()

    def opened(self) -> dict[str, Any]:
        """What is said of a source from its hello on until the page has caught up, as one dict."""
        hello = {"net": None, "moments": [], "alerts": [], **self.until("hello")}
        while (message := self.next())["kind"] != "caught_up":
            hello |= {"moments": message["came"]} if message["kind"] == "moments" else message
        return hello

    def say(self, kind: str, **fields: Any) -> None:
        """One message."""
        self._socket.send(json.dumps({"kind": kind, **fields}))

    def send(self, text: str | bytes) -> None:
        """Anything."""
        self._socket.send(text)

    def next(self, secs: float = WAIT_SECS) -> Any:
        """The next message; TimeoutError where none comes."""
        message = self._socket.recv(timeout=secs)
        self.bytes.append(len(message))
        self.heard.append(json.loads(message) if isinstance(message, str) else parse_frame(message))
        return self.heard[-1]

    def until(self, kind: str, fits: Callable[[Any], Any] = lambda message: True) -> Any:
        """The next message of a kind that fits, whatever comes before it."""
        return self._first(lambda message: message["kind"] == kind and fits(message), f"a {kind} that fits")

    def state(self, **look: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Look at something: the frames by layer, and `shown`; it is said to be seen."""
        self.say("look", **look)
        begin = len(self.heard)
        shown = self.until("shown", lambda message: message["look"] == look["look"])
        found = [one for one in self.heard[begin:] if isinstance(one, tuple) and one[0].look == look["look"]]
        self.say("seen", look=shown["look"], moment=shown["moment"])
        return {head.layer: (head, payload) for head, payload in found}, shown

    def ask(self, kind: str, question: int, **fields: Any) -> Any:
        """A question, and what comes back: the answer's value, or the problem."""
        self.say(kind, question=question, **fields)
        message = self._first(lambda message: message.get("question") == question, f"an answer to {question}")
        return message["value"] if message["kind"] == "answer" else message["text"]

    def ask_bytes(self, kind: str, question: int, **fields: Any) -> bytes:
        """A question of a page that looks at nothing, and the payload that comes back."""
        self.say(kind, question=question, **fields)
        while isinstance(message := self._socket.recv(timeout=WAIT_SECS), str):
            pass
        length = int.from_bytes(message[4:8], "little")
        return message[-(-(8 + length) // 8) * 8 :]

    def _first(self, fits: Callable[[Any], Any], what: str) -> Any:
        """The next message, no frame, that fits."""
        end = time.monotonic() + WAIT_SECS
        while (left := end - time.monotonic()) > 0:
            if isinstance(message := self.next(left), dict) and fits(message):
                return message
        raise TimeoutError(f"no message was {what}")

    def problem(self, kind: str, **fields: Any) -> str:
        """Say what cannot be: the sentence that comes back."""
        self.say(kind, **fields)
        return str(self.until("problem")["text"])

    def quiet(self, secs: float) -> list[Any]:
        """All that comes until nothing has for so long."""
        begin = len(self.heard)
        try:
            while True:
                self.next(secs)
        except TimeoutError:
            return self.heard[begin:]

    def close(self) -> None:
        """Close the page."""
        self._open.close()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class FakeSocket:
    """A page's WebSocket, as far as a `PageConnection` needs it: all that is sent goes to a function."""

    def __init__(self, send: Callable[[str | bytes], Awaitable[None]]) -> None:
        self.send_text: Callable[[str], Awaitable[None]] = send
        self.send_bytes: Callable[[bytes], Awaitable[None]] = send
