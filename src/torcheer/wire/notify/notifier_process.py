"""The process that notifies of a run: commands and webhooks, each in its own thread."""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import queue
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from torcheer.terminal import plural
from torcheer.wire.notify.notify_targets import SEVERITIES, Target, from_message, redacted
from torcheer.wire.parent import Parent

Event = dict[str, Any]
_POLL_SECS: Final = 0.2
_LAST_SECS: Final = 60.0  # for the last notifications once the run has ended
_MINUTE_SECS: Final = 60.0
_PAUSES_SECS: Final = (0.3, 1.0)  # between the tries to reach a webhook
_RETRIED: Final = (408, 425, 429)  # and all from 500 on
_MOST_PROBLEMS: Final = 5  # of a target
_MOST_TEXT: Final = 500
_DATAGRAM_BYTES: Final = 1 << 20


def main(_: Sequence[str], parent: Parent) -> None:
    """Run the process that `Notifier` started, until the run has ended and everything is sent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # for the run, whose end is still to be reported
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(parent.fds[0], False)
    with socket.socket(fileno=parent.fds[0]) as port:
        run = _Run(parent, port)
        run.follow()
    run.finish(time.monotonic() + _LAST_SECS)
    parent.wire.drain(1.0)
    os._exit(0)  # a webhook that hangs must not keep this process alive


class _Run:
    """The run whose events are sent on."""

    def __init__(self, parent: Parent, port: socket.socket) -> None:
        self._parent, self._port = parent, port
        self._senders: list[_Sender] = []
        self._about: dict[str, Any] = {}
        self._recent: deque[tuple[Any, ...]] = deque(maxlen=100)  # alerts, which may come from two processes
        self._has_ended = self._is_closed = False

    def follow(self) -> None:
        """Pass events on until the run ends."""
        ready = select.poll()
        ready.register(self._parent.wire, select.POLLIN)
        ready.register(self._port, select.POLLIN)
        while not self._is_closed and not self._parent.is_gone:
            ready.poll(1000 * _POLL_SECS)
            self._read()
        self._read()  # what it sent before it ended, perhaps before this process was ready
        if not self._has_ended:
            pid = self._about.get("pid", self._parent.pid)
            message = f"its process {pid} is gone without a word: it was killed, or ran out of memory"
            self._pass_on({"event": "crash", "what": message, "time": time.time()})

    def _read(self) -> None:
        for message in self._parent.wire.exchange():
            match message["kind"]:
                case "begin":
                    self._about = message["about"]
                    self._senders = [_Sender(from_message(part), self._report) for part in message["targets"]]
                case "event":
                    self._pass_on(message["event"])
                case "close":
                    self._is_closed = True
        while (datagram := self._datagram()) is not None:
            self._pass_on(json.loads(datagram))
        for sender in self._senders:
            sender.tick(time.monotonic())

    def _datagram(self) -> bytes | None:
        try:
            return self._port.recv(_DATAGRAM_BYTES)
        except OSError:
            return None

    def _pass_on(self, event: Event) -> None:
        if event["event"] == "alert":
            identity = tuple(event[name] for name in ("rule", "layer", "variable", "step", "severity", "what"))
            if identity in self._recent:
                return
            self._recent.append(identity)
        else:
            self._has_ended = True
        text = _one_line(f"torcheer: {self._about.get('title') or 'a run'}: {_VERBS[event['event']]}{event['what']}")
        for sender in self._senders:
            sender.take({"event": event["event"], "text": text, **self._about, **event}, time.monotonic())

    def _report(self, text: str) -> None:
        self._parent.wire.send({"kind": "problem", "text": text})

    def finish(self, deadline: float) -> None:
        """Send what is left, and wait for it."""
        for sender in self._senders:
            sender.close()
        for sender in self._senders:
            sender.join(max(deadline - time.monotonic(), 0.0))


_VERBS: Final = {"alert": "", "crash": "crashed: ", "end": "ended. ", "summary": ""}


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


class AlertLimit:
    """At most so many alerts a minute; those beyond become one summary."""

    def __init__(self, per_minute: int) -> None:
        self._sent: deque[float] = deque(maxlen=per_minute)
        self._rules: Counter[str] = Counter()  # of the alerts that are held back
        self._last: Event = {}

    def admit(self, event: Event, now: float) -> bool:
        """Whether an alert is sent now; otherwise it is counted for the summary."""
        if not self._rules and self._has_room(now):
            self._sent.append(now)
            return True
        self._rules[str(event.get("rule") or "alert")] += 1
        self._last = event
        return False

    def _has_room(self, now: float) -> bool:
        return len(self._sent) < (self._sent.maxlen or 1) or now - self._sent[0] >= _MINUTE_SECS

    def summary(self, now: float, *, is_last: bool = False) -> Event | None:
        """The summary of the alerts that were held back, once there is room for it; at the end in any case."""
        if not self._rules or not (is_last or self._has_room(now)):
            return None
        self._sent.append(now)
        rules = ", ".join(f"{name} {count}" for name, count in self._rules.most_common(5))
        total, last = self._rules.total(), self._last
        text = _one_line(f"{plural(total, 'more alert')} ({rules}); the last: {last['text']}")
        self._rules, self._last = Counter(), {}
        return {**last, "event": "summary", "text": text, "count": total}


class _Sender:
    """Sends the events that one target wants, in order, from a thread."""

    def __init__(self, target: Target, report: Callable[[str], None]) -> None:
        self._target, self._report, self._problems = target, report, 0
        self._limit, self._events = AlertLimit(target.per_minute), queue.SimpleQueue[Event | None]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self, event: Event, now: float) -> None:
        """Queue an event, if the target wants it."""
        if event["event"] not in self._target.on:
            return
        if event["event"] != "alert":
            self._send_summary(now, is_last=True)
        elif _rank(event) < SEVERITIES.index(self._target.severity) or not self._limit.admit(event, now):
            return
        self._events.put(event)

    def tick(self, now: float) -> None:
        """Queue the summary that is due."""
        self._send_summary(now)

    def close(self) -> None:
        """End the thread once everything is sent."""
        self._send_summary(time.monotonic(), is_last=True)
        self._events.put(None)

    def join(self, secs: float) -> None:
        """Wait until everything is sent."""
        self._thread.join(secs)

    def _send_summary(self, now: float, *, is_last: bool = False) -> None:
        if (summary := self._limit.summary(now, is_last=is_last)) is not None:
            self._events.put(summary)

    def _run(self) -> None:
        deliver = post if self._target.url else run_command
        while (event := self._events.get()) is not None:
            try:
                problem = deliver(self._target, event)
            except Exception as error:  # one event that cannot be sent must not end those behind it
                problem = type(error).__name__
            if problem and self._problems < _MOST_PROBLEMS:
                self._problems += 1
                self._report(f"notify: {self._target.shown} was not told of the {event['event']}: {problem}")


def _rank(event: Event) -> int:
    severity = event.get("severity", "warning")
    return SEVERITIES.index(severity) if severity in SEVERITIES else SEVERITIES.index("warning")


def run_command(target: Target, event: Event) -> str:
    """Run a command with an event as JSON on its standard input; why it failed, or ""."""
    text, command = event["text"], target.command
    environment = {**os.environ, "TORCHEER_EVENT": event["event"], "TORCHEER_TEXT": text}
    arguments = command if isinstance(command, str) else [*command, text]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(_body(event))
        given.seek(0)
        try:
            process = subprocess.Popen(
                arguments, shell=isinstance(command, str), stdin=given, stdout=subprocess.DEVNULL, stderr=errors,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return error.strerror or type(error).__name__
        try:
            status = process.wait(target.timeout_secs)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"it took longer than {target.timeout_secs:g} s"
        errors.seek(0)
        return f"status {status}. {_one_line(errors.read(2000).decode(errors='replace'))}".strip() if status else ""


def post(target: Target, event: Event) -> str:
    """Post an event as JSON to a webhook, up to three times; why it failed, or ""."""
    problem, is_final = _try_post(target, event)
    for pause_secs in _PAUSES_SECS:
        if not problem or is_final:
            break
        time.sleep(pause_secs)
        problem, is_final = _try_post(target, event)
    return problem


def _try_post(target: Target, event: Event) -> tuple[str, bool]:
    """Why it failed, and whether another try is useless; messages name no address, which may be secret."""
    try:
        with _OPENER.open(_request(target.url, _body(event)), timeout=target.timeout_secs) as answer:
            answer.read(1024)
        return "", True
    except urllib.error.HTTPError as error:
        to = f" to {redacted(error.headers.get('Location', ''))}" if 300 <= error.code < 400 else ""
        return f"it answered {error.code} {error.reason}{to}", error.code < 500 and error.code not in _RETRIED
    except TimeoutError:
        return f"no answer within {target.timeout_secs:g} s", False
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return f"no answer within {target.timeout_secs:g} s", False
        return getattr(error.reason, "strerror", None) or type(error.reason).__name__, False
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or type(error).__name__, False


def _request(url: str, body: bytes) -> urllib.request.Request:
    parts, headers = urlsplit(url), {"Content-Type": "application/json", "User-Agent": "torcheer"}
    user, _, host = parts.netloc.rpartition("@")
    if user:  # urllib would take it for a part of the host's name
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(user).encode()).decode()
    address = parts._replace(netloc=host, fragment="").geturl()
    return urllib.request.Request(address, data=body, headers=headers, method="POST")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: following it would lose the body, and send it to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def _body(event: Mapping[str, Any]) -> bytes:
    return json.dumps(_strict(event), default=str).encode()


def _strict(value: Any) -> Any:
    """The value without NaN and infinities, which JSON does not have: they become text."""
    if isinstance(value, Mapping):
        return {name: _strict(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strict(part) for part in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
