"""JSON lines and descriptors over a socket: whatever comes, at most the connection ends."""

from __future__ import annotations

import array
import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_viewer import Viewer
from leftovers import open_files
from seams import (
    Act,
    Change,
    Every,
    Host,
    Layer,
    Network,
    Projection,
    Variable,
    Wants,
    Wire,
    connect,
    from_json,
    to_json,
)
from waiting import wait_until

from torcheer.errors import BadArgument


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    here, there = socket.socketpair()
    one, other = Wire(here), Wire(there, line_bytes=1 << 20)
    yield one, other
    one.close()
    other.close()


def test_messages_arrive_in_their_order_and_a_descriptor_with_its_own(ends: tuple[Wire, Wire]) -> None:
    one, other = ends
    read_end, write_end = os.pipe()
    assert one.send({"kind": "first"}) and one.send({"kind": "second", "n": 2}, write_end) and one.send({"kind": "é"})
    os.close(write_end)  # the wire has its own
    found = wait_until(lambda: other.receive(), "messages")
    assert [message for message, _ in found] == [{"kind": "first"}, {"kind": "second", "n": 2}, {"kind": "é"}]
    descriptor = found[1][1]
    assert found[0][1] is None and found[2][1] is None and descriptor is not None
    os.write(descriptor, b"hello")
    assert os.read(read_end, 9) == b"hello"
    for fd in (read_end, descriptor):
        os.close(fd)


def test_many_messages_that_are_sent_at_once_arrive_one_by_one(ends: tuple[Wire, Wire]) -> None:
    one, other = ends
    assert one.send_all({"kind": "moment", "id": number} for number in range(1000)) and one.send_all([])
    found = wait_until(lambda: other.receive(), "messages")
    assert [message["id"] for message, _ in found] == list(range(1000))


def test_a_message_larger_than_the_sockets_buffers_arrives_when_it_is_read(ends: tuple[Wire, Wire]) -> None:
    other, one = ends
    assert one.send({"kind": "large", "text": "x" * 5_000_000}) and one.pending_bytes
    found = []
    while not found:
        one.flush()
        found = other.receive()
    assert len(found[0][0]["text"]) == 5_000_000 and not one.pending_bytes


def test_who_does_not_read_is_left_without_ever_being_waited_for() -> None:
    here, there = socket.socketpair()
    wire = Wire(here, outbox_bytes=1 << 20)
    count = 0
    while wire.send({"kind": "x", "text": "y" * 100_000}):
        count += 1
        assert count < 1000
    assert wire.closed and wire.why == "the other side does not read" and not wire.send({"kind": "x"})
    there.close()


def test_what_the_other_side_said_before_it_left_is_received_after_a_send_that_failed(ends: tuple[Wire, Wire]) -> None:
    one, other = ends
    one.send({"kind": "unread"})
    other.send({"kind": "bye"})
    other.close()
    assert not one.send({"kind": "late"}) and not one.send({"kind": "later"}) and not one.closed
    assert one.receive() == [({"kind": "bye"}, None)]
    assert one.exchange() == [] and one.closed and one.pending_bytes == 0


def test_where_it_is_said_the_oldest_messages_give_way_and_the_last_arrives() -> None:
    here, there = socket.socketpair()
    wire, other = Wire(here, outbox_bytes=1 << 20, drops_oldest=True), Wire(there)
    for number in range(100):
        assert wire.send({"kind": "x", "number": number, "text": "y" * 100_000})
        assert wire.pending_bytes <= (1 << 20) + 200_000
    thread = threading.Thread(target=wire.drain, args=(60.0,))
    thread.start()
    found: list[int] = []
    wait_until(
        lambda: 99 in found,
        poll=lambda: found.extend(message["number"] for message, _ in other.receive()),
        seen=lambda: found,
    )
    thread.join()
    assert found == sorted(set(found)) and found[0] == 0 and 5 < len(found) < 30 and not wire.pending_bytes
    wire.close()
    other.close()


def test_a_wake_up_ends_the_wait_and_is_no_message(ends: tuple[Wire, Wire]) -> None:
    one, other = ends
    begun, later = time.monotonic(), threading.Timer(0.05, one.wake)
    later.start()
    assert other.exchange(60.0) == [] and time.monotonic() - begun < 50 and not other.closed
    later.join()
    one.wake()
    one.send({"kind": "x"})
    assert other.exchange(60.0) == [{"kind": "x"}]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{not json\n", "a line is no message"),
        (b"[1, 2]\n", "a line is no message"),
        (b'{"kind": 3}\n', "a line is no message"),
        (b"[" * 100_000 + b"\n", "a line is no message"),
        (b'{"kind": "ring", "descriptor": true}\n', "a descriptor was announced and did not come"),
        (b"x" * (2 << 20), "a line is longer than 1,048,576 bytes"),
        (b'{"kind": "' + b"x" * (2 << 20) + b'"}\n', "a line is longer than 1,048,576 bytes"),
        (b"\xff\xfe\x00\n", "a line is no message"),
    ],
)
def test_a_line_that_is_no_message_closes_the_connection(line: bytes, why: str) -> None:
    here, there = socket.socketpair()
    wire = Wire(there, line_bytes=1 << 20)
    sender = threading.Thread(target=_send_all, args=(here, line))
    sender.start()
    wait_until(lambda: (wire.receive(), wire.closed)[1], "the end")
    sender.join()
    assert wire.why == why
    here.close()


def _send_all(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError:
        return


def test_what_came_before_a_bad_line_still_counts(ends: tuple[Wire, Wire]) -> None:
    here, there = socket.socketpair()
    here.sendall(b'{"kind": "good"}\n{bad\n')
    wire = Wire(there)
    assert wire.receive() == [({"kind": "good"}, None)] and wire.closed
    here.close()


def test_descriptors_that_nobody_asked_for_are_closed_and_too_many_end_the_connection() -> None:
    before = open_files()
    here, there = socket.socketpair()
    wire = Wire(there)
    for _ in range(20):
        rights = array.array("i", [here.fileno()])
        here.sendmsg([b'{"kind": "x"}\n'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    wait_until(lambda: (wire.receive(), wire.closed)[1], "the end")
    here.close()
    wire.close()
    assert open_files() <= before


def test_ten_thousand_corrupted_messages_close_connections_and_crash_nothing() -> None:
    draw = random.Random(8)
    good = [
        json.dumps(one).encode() + b"\n"
        for one in (
            {"kind": "join", "version": 2, "url": "http://x"},
            {"kind": "subscribe", "wants": to_json(Wants(("Act",), True, (("fc", 3),)))},
            {"kind": "act", "action": "step_n", "count": 3, "item": 0},
            {"kind": "change", "name": "lr", "value": [1, {"a": None}]},
        )
    ]
    with Host(title="target") as host:
        welcomed = 0
        for _ in range(2_000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(20)
                sock.connect(str(host.path))
                if draw.random() < 0.8:
                    _send_all(sock, good[0])
                    welcomed += bool(sock.recv(1 << 16))
                for _ in range(5):
                    _send_all(sock, _damaged(draw, draw.choice(good)))
                sock.shutdown(socket.SHUT_WR)
                _heard(sock)  # until the host has read all of it, or left
        assert welcomed > 1_000
        wait_until(lambda: host.viewer == "", "the last one to be gone")
        assert not host.problems  # nothing was the host's own fault
        host.orders()
        with Viewer(host, Wants(("Act",))) as viewer:
            assert viewer.of("welcome")[0]["title"] == "target"
            viewer.press("stop")
            assert host.wait(20) and host.orders()[-1] == Act("stop")


def _heard(sock: socket.socket) -> int:
    count = 0
    try:
        while data := sock.recv(1 << 16):
            count += len(data)
    except ConnectionResetError:
        pass
    return count


def _damaged(draw: random.Random, line: bytes) -> bytes:
    found = bytearray(line)
    for _ in range(draw.choice([0, 1, 1, 2, 8])):
        place = draw.randrange(len(found))
        match draw.randrange(4):
            case 0:
                found[place] ^= 1 << draw.randrange(8)
            case 1:
                del found[place : place + draw.randrange(1, 9)]
            case 2:
                found[place:place] = draw.randbytes(draw.randrange(1, 9))
            case _:
                found[place:place] = draw.choice([b"null", b"1e999", b"-1", b'""', b"[]", b"{}", b"\n", b"9" * 30])
        if not found:
            return b"\n"
    return bytes(found)


def test_a_path_longer_than_an_address_works(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 90) / ("b" * 90)
    with Host(folder) as host:
        assert host.path == folder / "control.sock" and host.path.is_socket()
        with Viewer(host) as viewer:
            assert viewer.of("welcome")
    assert not (folder / "control.sock").exists()


def test_nobody_listening_is_an_ordinary_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "control.sock")


# -- records as JSON -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        Network(
            "n",
            (Layer("a", (2, 3), place=(1.0, 2.0, 3.0)), Layer("b", (4,))),
            (Projection("w", "a", "b", "conv", (1, 2), stride=(2, 2)),),
            (Variable("Act", range=(0.0, 1.0)),),
        ),
        Wants(("Act", "Grad"), True, (("fc", 3),), 2, Every("epoch", 5)),
        Change("lr", [1, 2.5, "x", None, True]),
    ],
)
def test_a_record_survives_its_way_through_json(record: object) -> None:
    assert from_json(type(record), json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Wants, {"variables": "Act"}, 'Wants.variables is "Act"; it must be a list'),
        (Wants, {"variables": [3]}, "Wants.variables is 3; it must be text"),
        (Wants, {"weights": 1}, "Wants.weights is 1; it must be true or false"),
        (Wants, {"item": True}, "Wants.item is true; it must be a whole number"),
        (Wants, {"units": [["a"]]}, "Wants.units has 1 parts, not 2"),
        (Wants, None, "Wants is null; it must be an object with `variables`"),
        (Change, {}, "Change.name is missing"),
        (Every, {"unit": "trial", "count": 1e9}, "Every.count is 1000000000.0; it must be a whole number"),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(kind: type, value: object, text: str) -> None:
    with pytest.raises(BadArgument, match=text.replace("'", ".")):
        from_json(kind, value)
