"""What the server does not do: fill its memory, wait for who is slow, or send more than can be seen."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from children import Child
from fast_cases import fast_first
from seams import (
    MOST_ANSWERS,
    MOST_CELLS,
    Layer,
    Network,
    Variable,
    connection_limits,
    listen,
    net_of,
    page_connection,
    routes,
)
from studio_socket import WAIT_SECS, Page, cookie_of
from studio_stage import Stage, stage
from waiting import wait_until
from websockets.exceptions import ConnectionClosed

MEGABYTE = 1 << 20


@contextmanager
def stage_process(*arguments: str) -> Iterator[tuple[str, int]]:
    """The stage as a process of its own: its URL and its number."""
    with Child(Path(__file__).with_name("studio_stage.py"), *arguments) as process:
        yield process.line(), process.pid


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def raw_page(url: str, *texts: str) -> socket.socket:
    """A page that says these and then never reads."""
    parts = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect((parts.hostname or "", parts.port or 0))
    lines = ["GET /ws HTTP/1.1", f"Host: {parts.netloc}", f"Origin: http://{parts.netloc}", "Upgrade: websocket"]
    lines += ["Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]
    connection.sendall("\r\n".join([*lines, f"Cookie: {cookie_of(url)}", "", ""]).encode())
    assert b"101" in connection.recv(200)
    for text in texts:
        send_text(connection, text)
    return connection


def send_text(connection: socket.socket, text: str) -> None:
    """One message; masked with zeros."""
    body = text.encode()
    connection.sendall(struct.pack("!BBH", 0x81, 0x80 | 126, len(body)) + bytes(4) + body)


def look_text(look: int, moment: int) -> str:
    """A look, as it is sent."""
    return json.dumps({"kind": "look", "look": look, "variable": "Act", "moment": moment})


def test_memory_is_flat_over_ten_thousand_frames() -> None:
    with stage_process("--states", "210", "--more", "54") as (url, pid), Page(url) as page:
        frames = looks = 0

        def look_until(count: int) -> None:
            nonlocal frames, looks
            while frames < count:
                looks += 1
                moment = page.hello["moments"][-1 - looks % 40]["id"]
                found, _ = page.state(look=looks, variable=("Act", "Grad")[looks % 2], moment=moment)
                frames += len(found)
                page.heard.clear()

        look_until(5_000)  # by then all that is kept to be shown again is there
        warm = resident(pid)
        look_until(15_000)
        assert resident(pid) - warm < 4 * MEGABYTE
        assert max(page.bytes) < MEGABYTE


def test_a_hundred_pages_that_never_read_cost_neither_memory_nor_the_others_anything() -> None:
    source = Stage(paused=True, states=3)
    source.net = net_of(Network("wide", (Layer("Wide", (512, 512)),), (), (Variable("Act"),)))
    looks = [look_text(number, number % 3) for number in range(1, 21)]
    with stage(source) as (url, _), ExitStack() as open_pages, Page(url) as quick:
        quick.state(look=1, variable="Act", moment=1)
        before = resident(os.getpid())
        for _ in range(100):
            open_pages.callback(raw_page(url, *looks).close)
        source.trial_secs = 0.02
        quick.say("act", action="train")
        for number in range(2, 30):
            assert quick.state(look=number, variable="Act")[1]["missing"] == []
        # each of them asked for 20 states of 256 KB; the kernel's buffers and one message each are what there may be
        assert resident(os.getpid()) - before < 100 * MEGABYTE
        told = [one["viewers"] for one in quick.heard if isinstance(one, dict) and one["kind"] == "viewers_came"]
        assert 101 in told or quick.until("viewers_came", lambda one: one["viewers"] == 101)


def test_the_system_keeps_little_of_what_a_page_does_not_read() -> None:
    listener, _ = listen()
    with listener, socket.create_connection(listener.getsockname()) as page:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(0.2)
            page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sent = 0
            with pytest.raises(TimeoutError):
                while sent < 10 * MEGABYTE:
                    sent += connection.send(bytes(100_000))
    assert 0 < sent < 4 * MEGABYTE


def test_a_page_that_does_not_read_for_long_is_let_go(monkeypatch: Any) -> None:
    monkeypatch.setattr(page_connection, "SLOW_SECS", 0.3)
    source = Stage(paused=True, states=3)
    wide = tuple(Layer(f"Wide{number}", (1024, 1024)) for number in range(6))
    source.net = net_of(Network("wide", wide, (), (Variable("Act"),)))
    with stage(source) as (url, _), Page(url) as other:
        slow = raw_page(url, look_text(1, 1))
        assert other.until("viewers_came", lambda told: told["viewers"] == 2)
        assert other.until("viewers_came", lambda told: told["viewers"] == 1)
        slow.close()


def test_who_asks_and_does_not_listen_is_not_listened_to() -> None:
    about = {"kind": "ask_trace", "layer": "Conv", "unit": 1, "variables": ["Act", "Grad"]}
    with stage(paused=True, states=2) as (url, source):
        asked: list[int] = []
        source.trace = lambda *given: asked.append(1) or {"values": "x" * 20_000}  # type: ignore[func-returns-value, method-assign]
        connection = raw_page(url)
        connection.settimeout(2)
        with pytest.raises(TimeoutError):  # the server has stopped reading
            for number in range(20_000):
                send_text(connection, json.dumps({**about, "question": number}) + " " * 20_000)
        heard = wait_until(lambda: len(asked) == eventually_same(asked) and len(asked))
        assert MOST_ANSWERS <= heard < 1_000
        connection.close()


def eventually_same(asked: list[int]) -> int:
    """How many there were half a second ago: longer than the server pauses for who says much."""
    before = len(asked)
    time.sleep(0.5)
    return before


def test_a_recording_is_written_while_others_are_served() -> None:
    with stage(paused=True, states=2) as (url, source), Page(url) as saver, Page(url) as other:
        done, real = threading.Event(), source.save
        source.saving = lambda name="": lambda: done.wait(60) and real(name)  # type: ignore[assignment, method-assign]
        saver.say("save_recording", name="slow")
        saver.say("save_recording", name="other")
        about = {"layer": "Conv", "unit": 1, "variable": "Act", "moment": 1}
        for page in (other, saver):
            assert page.ask("ask_value", 1, **about)["value"] is not None
        assert not source.saved
        done.set()
        assert "slow" in saver.until("recordings_came")["saved"]
        assert "other" in saver.until("recordings_came", lambda told: "other" in told["saved"])["saved"]
        assert [one.name for one in source.saved] == ["slow", "other"]  # one after the other


def test_a_flood_of_one_page_leaves_the_others_served() -> None:
    with stage(paused=True, states=5) as (url, source), Page(url) as noisy, Page(url) as calm:
        served: list[str] = []
        real = source.units
        source.units = lambda moment, layer, *rest: served.append(layer) or real(moment, layer, *rest)  # type: ignore[func-returns-value, method-assign]
        about = {"unit": 1, "variable": "Act", "moment": 2}
        for number in range(1_000):
            noisy.say("seen", look=number, moment=1)
        noisy.say("ask_value", question=1, layer="Output", **about)
        for number in range(10):
            assert calm.ask("ask_value", number, layer="Conv", **about)["value"] is not None
        noisy.until("answer")
        assert served == ["Conv"] * 10 + ["Output"]  # a thousand at 200 a second take their time


def test_there_is_an_end_to_how_many_pages_are_open(monkeypatch: Any) -> None:
    monkeypatch.setattr(routes, "MOST_PAGES", 2)
    with stage(paused=True) as (url, _), Page(url), Page(url) as second:
        with pytest.raises(ConnectionClosed) as closed:
            Page(url)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
        second.close()
        wait_until(lambda: _opens(url))


def _opens(url: str) -> bool:
    try:
        Page(url).close()
    except ConnectionClosed:
        return False
    return True


def test_five_million_units_come_as_a_megabyte() -> None:
    source = Stage(paused=True, states=1)
    source.net = net_of(Network("huge", (Layer("Huge", (5_000_000,)),), (), (Variable("Act"),)))
    values = np.linspace(-1, 1, 5_000_000, dtype=np.float32)
    source.units = lambda *about: values  # type: ignore[method-assign]
    with stage(source) as (url, _), Page(url) as page:
        frames, _ = page.state(look=1, variable="Act")
        head, payload = frames["Huge"]
        assert payload.size == head.count <= MOST_CELLS
        assert max(page.bytes) < MOST_CELLS + 1000
        assert page.ask("ask_value", 1, layer="Huge", unit=4_999_999, variable="Act", moment=0)["value"] == 1.0


# -- connections -------------------------------------------------------------------------------------------------------

HALF = "GET / HTTP/1.1\r\nHost: {netloc}\r\nX-More: "


def raw(url: str, text: str) -> socket.socket:
    """A connection that has said so much."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WAIT_SECS)
    connection.sendall(text.format(netloc=parts.netloc).encode())
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended it, within a minute; what it said before is passed over."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_eleven_hundred_half_sent_requests_do_not_lock_the_owner_out() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1500:
        pytest.skip(f"a process may have no more than {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    try:
        with stage_process("--paused", "--states", "2") as (url, pid), ExitStack() as open_ones:
            with Page(url) as early:
                for number in range(1100):
                    open_ones.callback(raw(url, "" if number % 2 else HALF).close)
                assert early.ask("ask_value", 1, layer="Conv", unit=1, variable="Act", moment=1)["value"] is not None
            for _ in range(3):
                with Page(url) as late:
                    assert late.state(look=1, variable="Act")[0]
            assert len(os.listdir(f"/proc/{pid}/fd")) < 400
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "text",
    fast_first(
        [
            "",
            HALF,
            "GET / HTTP/1.1\r\nHost: {netloc}\r\n\r\n" + HALF,  # after a whole one
            "GET / HTTP/1.1\r\nHost: {netloc}\r\nContent-Length: 100\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: {netloc}\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET /ws HTTP/1.1\r\nHost: {netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        ],
        3,
    ),
    ids=["nothing", "half a head", "a second half", "no body", "no chunks", "a socket without a key"],
)
@pytest.mark.parametrize("dribbles", fast_first([True, False]), ids=["and dribbles", "and stops"])
def test_a_request_that_does_not_come_to_its_end_is_ended(monkeypatch: Any, text: str, dribbles: bool) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_SECS", 1.0)
    with stage(paused=True, states=1) as (url, _), Page(url) as page, raw(url, text) as half:
        done = threading.Event()

        def dribble() -> None:
            with suppress(OSError):
                while not done.wait(0.05):
                    half.sendall(b"1")

        thread = threading.Thread(target=dribble)
        if dribbles:
            thread.start()
        try:
            assert is_ended(half)
        finally:
            done.set()
            if dribbles:
                thread.join()
        assert page.state(look=1, variable="Act")[0]  # it was there before, and longer than that


def test_a_whole_request_is_answered_however_slowly_it_came(monkeypatch: Any) -> None:
    with stage(paused=True) as (url, _), raw(url, "") as slow:
        for letter in f"GET / HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nConnection: close\r\n\r\n":
            slow.sendall(letter.encode())
        assert b"401" in slow.recv(100)


def test_the_owners_connection_outlives_those_of_strangers(monkeypatch: Any) -> None:
    monkeypatch.setattr(connection_limits, "MOST_UNAUTHENTICATED", 3)
    with stage(paused=True) as (url, _), ExitStack() as open_ones:
        mine = http.client.HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECS)
        open_ones.callback(mine.close)
        cookie = cookie_of(url)

        def asked() -> int:
            mine.request("GET", "/icon.svg", headers={"Cookie": cookie})
            answer = mine.getresponse()
            answer.read()
            return answer.status

        assert asked() == 200
        kept = mine.sock
        strangers = list[socket.socket]()
        for _ in range(10):
            strangers.append(open_ones.enter_context(raw(url, HALF)))
            assert asked() == 200 and mine.sock is kept
        assert all(is_ended(stranger) for stranger in strangers[:7])
