"""The viewer's side of a host: real sockets, real rings, real kills."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seams import (
    Act,
    AlertSeen,
    Change,
    Host,
    Layer,
    LiveSource,
    Network,
    Order,
    Parameter,
    Ring,
    State,
    Variable,
    Wants,
    viewer_connection,
)
from studio_hosts import NETWORK, Liar, started, tell
from waiting import wait_until

LOOK = Wants(("Act",), weights=True)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(tmp_path, title="test") as one:
        one.network = NETWORK
        yield one


@pytest.fixture
def source(host: Host) -> Iterator[LiveSource]:
    assert host.path is not None
    one = LiveSource(host.path, url="http://127.0.0.1:1/")
    wait_until(lambda: one.net is not None, poll=one.poll)
    yield one
    one.close()


def looked_at(host: Host, source: LiveSource, wants: Wants = LOOK) -> None:
    source.wants(wants)
    wait_until(lambda: host.wants == wants, poll=source.poll)


def shown(host: Host, source: LiveSource, *steps: int) -> None:
    """Offer states and wait for each: none may be dropped."""
    for step in steps:
        assert tell(host, step)
        wait_until(lambda: source.moments and source.moments[-1].step == step, poll=source.poll)  # noqa: B023


def test_all_that_a_host_says_arrives(host: Host, source: LiveSource) -> None:
    assert source.title == "test" and source.kind == "live" and source.connected and host.viewer == source.url
    assert [one.layer for one in source.net.layers] == list(NETWORK.layers)  # type: ignore[union-attr]
    host.state = State("running", {"Epoch": 3}, ("stop",), message="training")
    host.parameters = [Parameter("lr", 0.1, editable=True, minimum=0.0)]
    host.alert("too large", "error", 4, "explode", "in")
    host.row("train_epoch", {"Epoch": 1, "loss": 0.5, "name": "a", "cells": np.eye(2)})
    wait_until(
        lambda: source.state.status == "running" and source.parameters and source.alerts and source.tables,
        poll=source.poll,
    )
    assert source.state == host.state and source.parameters == tuple(host.parameters)
    assert source.alerts == [AlertSeen("too large", "error", 4, "explode", "in", source.alerts[0].id)]
    table = source.tables["train_epoch"]
    assert (table.head.x, table.count) == ("Epoch", 1)
    assert table.columns == {"Epoch": [1], "loss": [0.5], "name": ["a"], "cells": [[[1.0, 0.0], [0.0, 1.0]]]}


def test_an_order_that_comes_after_the_end_does_not_hide_how_it_ended(host: Host, source: LiveSource) -> None:
    host.state = State("done", message="100 epochs")
    host.close()
    source.order(Act("step"))
    wait_until(lambda: not source.connected, poll=source.poll)
    assert (source.state.status, source.state.message) == ("done", "100 epochs")


def test_what_is_new_is_said_once(host: Host, source: LiveSource) -> None:
    source.poll()
    host.state = State("running")
    host.alert("hm")
    host.row("run", {"Run": 1})
    found: list[Any] = []
    wait_until(
        lambda: (found.append(source.poll()), source.tables and source.alerts and source.state.status == "running")[1]
    )
    changes = [one for one in found if one]
    assert sum(one.state for one in changes) == 1 and not any(one.net for one in changes)
    assert [alert.text for one in changes for alert in one.alerts] == ["hm"]
    assert {name for one in changes for name in one.tables} == {"run"}
    assert not source.poll()


def test_states_can_be_looked_at(host: Host, source: LiveSource) -> None:
    looked_at(host, source)
    shown(host, source, 3, 4)
    first, second = source.moments
    assert (first.step, first.counters, first.test) == (3, {"Epoch": 0, "Trial": 3}, False)
    assert source.units(first.id, "in", "Act", 2).tolist() == [5, 5, 5, 5]  # type: ignore[union-attr]
    assert source.units(second.id, "out", "Act", 1).tolist() == [10, 11, 12, 13, 14, 15]  # type: ignore[union-attr]
    assert source.units(second.id, "in", "r.Wt", 0, ("out", 5)).tolist() == [80, 84, 88, 92]  # type: ignore[union-attr]
    assert source.units(second.id, "in", "r.DWt", 0, ("out", 5)).tolist() == [20, 21, 22, 23]  # type: ignore[union-attr]
    assert source.units(first.id, "in", "Grad", 0) is None
    assert source.raster("in", "Act", 0, 10).tolist() == [[3, 4]] * 4  # type: ignore[union-attr]
    assert source.trace("out", 5, ("Act",), 0)["values"] == {"Act": [8.0, 9.0]}


def test_items_that_several_pages_look_at_come_of_a_batch_that_is_too_large_to_be_sent(
    host: Host, source: LiveSource
) -> None:
    looked_at(host, source, Wants(("Act",), item=7, items=(3, 7, 60, 900)))
    batch = np.arange(64, dtype=np.float32)[:, None].repeat(1 << 18, 1)  # 1 MB an item
    host.network = Network("wide", (Layer("wide", (1 << 18,)),), (), (Variable("Act"),))
    wait_until(lambda: source.net is not None and source.net.name == "wide", poll=source.poll)
    found = [host.values.begin(1), host.values.begin(2)]  # the first one tells how large the ring has to be
    for number in found:
        host.values.offer(number, batch, "wide", "Act")
        host.values.end(number)
    if not wait_until(lambda: source.moments or host.values.dropped == 2, poll=source.poll) or not source.moments:
        number = host.values.begin(3)
        assert host.values.offer(number, batch, "wide", "Act")
        host.values.end(number)
    wait_until(lambda: source.moments, poll=source.poll)
    values = [source.units(source.moments[-1].id, "wide", "Act", item) for item in (3, 7, 60, 8)]
    assert [None if one is None else set(one) for one in values] == [{3.0}, {7.0}, {60.0}, None]


def test_moments_that_go_are_named_and_one_that_is_looked_at_stays(host: Host) -> None:
    assert host.path is not None
    source = LiveSource(host.path, most_states=6)
    wait_until(lambda: source.net is not None, poll=source.poll)
    looked_at(host, source)
    came: list[int] = []
    gone: list[int] = []

    def poll() -> None:
        changes = source.poll()
        came.extend(one.id for one in changes.moments_came)
        gone.extend(changes.moments_gone)

    for step in range(40):
        assert tell(host, step)
        wait_until(lambda: (poll(), step in [one.step for one in source.moments])[1])  # noqa: B023
        if step == 2:
            source.pin({source.moments[-1].id})
            pinned = source.moments[-1].id
    assert len(source.moments) == 6 and pinned in [one.id for one in source.moments]
    assert sorted(set(came) - set(gone)) == [one.id for one in source.moments]
    source.close()


def test_many_states_between_two_looks_all_arrive(host: Host, source: LiveSource) -> None:
    looked_at(host, source)
    sent = [step for step in range(60) if tell(host, step)]
    wait_until(lambda: not host.values._ready)  # announced, and nobody has read
    wait_until(lambda: source.moments and source.moments[-1].step == sent[-1], poll=source.poll)
    assert [one.step for one in source.moments] == sent
    for one in source.moments:
        assert source.units(one.id, "in", "Act", 0).tolist() == [one.step] * 4  # type: ignore[union-attr]


def test_a_larger_ring_takes_over(host: Host, source: LiveSource) -> None:
    looked_at(host, source)
    shown(host, source, 1)
    big = np.arange(4.0)[None] + np.zeros((1_500_000, 1))  # 48 MB in all: only a part is sent
    for step in range(2, 30):
        number = host.values.begin(step, {})
        host.values.offer(number, big, "in", "Act")
        host.values.offer(number, np.zeros((8, 1 << 19)), "w", "Wt")  # 32 MB
        host.values.end(number)
        source.poll()
    wait_until(lambda: (tell(host, 99), source.moments[-1].step == 99)[1], poll=source.poll)
    assert source.units(source.moments[-1].id, "in", "Act", 0).tolist() == [99] * 4  # type: ignore[union-attr]


def test_orders_reach_the_host(host: Host, source: LiveSource) -> None:
    source.order(Act("step_n", 5))
    source.order(Act("test_item", item=3))
    source.order(Change("lr", 0.01))
    found: list[Order] = []
    wait_until(lambda: (found.extend(host.orders()), len(found) == 3)[1], poll=source.poll)
    assert found == [
        Act("step_n", 5),
        Act("test_item", item=3),
        Change("lr", 0.01),
    ]


def test_a_goodbye_is_no_accident(host: Host, source: LiveSource) -> None:
    looked_at(host, source)
    shown(host, source, 1)
    host.close()
    wait_until(lambda: source.state.status == "done", poll=source.poll)
    assert source.state.can == () and not source.connected and source.fileno() == -1
    assert source.units(source.moments[0].id, "in", "Act", 0) is not None


def test_a_second_viewer_is_told_where_the_first_is_and_takes_over_when_that_goes(
    host: Host, source: LiveSource
) -> None:
    assert host.path is not None
    second = LiveSource(host.path, url="http://127.0.0.1:2/")
    wait_until(lambda: source.url in second.state.message, poll=second.poll)
    assert second.state.status == "idle" and second.state.can == () and second.busy == source.url
    source.close()
    wait_until(lambda: second.connected and second.net is not None, poll=second.poll)
    assert host.viewer == second.url and second.busy == ""
    second.close()


def test_the_viewer_that_this_process_started_takes_over_from_one_of_a_run_before(
    host: Host, source: LiveSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed is resumed with --studio: the page that was left open has found it first."""
    assert host.path is not None
    wait_until(lambda: source.connected, poll=source.poll)
    url = "http://127.0.0.1:2/"
    monkeypatch.setattr(viewer_connection, "started_urls", {url})
    started = LiveSource(host.path, url=url)
    wait_until(lambda: started.connected and started.net is not None, poll=started.poll)
    wait_until(lambda: source.busy == url, poll=source.poll)
    assert host.viewer == url and source.state.status == "idle" and url in source.state.message
    started.close()


def test_without_a_host_it_waits_and_says_so(tmp_path: Path) -> None:
    source = LiveSource(tmp_path / "control.sock")
    assert not source.poll() and "waiting" in source.state.message and source.net is None
    source.wants(LOOK)
    source.order(Act("train"))
    assert source.units(0, "in", "Act") is None and source.fileno() == -1
    with Host(tmp_path) as host:
        host.network = NETWORK
        wait_until(lambda: host.wants == LOOK, poll=source.poll)  # what was wanted before it came
    source.close()


def test_a_killed_host_leaves_what_was_seen_and_its_successor_goes_on(tmp_path: Path) -> None:
    source = LiveSource(tmp_path / "control.sock")
    with started(tmp_path, 0, 5) as first:
        source.wants(LOOK)
        wait_until(lambda: len(source.moments) > 3 and source.tables, poll=source.poll)
        first.kill()
        assert first.wait() == -signal.SIGKILL
        wait_until(lambda: source.state.status == "lost", poll=source.poll)
        assert "stays" in source.state.message and source.state.can == ()
        seen = [one.id for one in source.moments]
        assert source.units(seen[-1], "out", "Act", 0) is not None
        assert source.tables["train_epoch"].columns["Epoch"] == [0, 1, 2, 3, 4]
        with started(tmp_path, 3, 4):  # it resumes from a checkpoint of epoch 3
            wait_until(
                lambda: source.moments[-1].id > seen[-1] and source.tables["train_epoch"].count == 7, poll=source.poll
            )
        assert [one.id for one in source.moments][: len(seen)] == seen
        assert source.units(seen[-1], "out", "Act", 0) is not None
        assert source.tables["train_epoch"].columns["Epoch"] == [0, 1, 2, 3, 4, 5, 6]
        assert source.state.status in ("running", "lost")
        source.close()


def test_recordings_go_into_the_run_but_not_into_a_folder_that_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Host(None) as host:
        assert LiveSource(host.path or "").home == tmp_path / "recordings"
    assert LiveSource(tmp_path / "run" / "control.sock").home == tmp_path / "run" / "recordings"


# -- tables ------------------------------------------------------------------------------------------------------------


def test_rows_that_come_late_and_a_table_that_is_cleared(host: Host) -> None:
    for epoch in range(30_000):
        host.row("train_step", {"Step": epoch, "loss": 0.5})
    assert host.path is not None
    source = LiveSource(host.path)
    wait_until(lambda: "train_step" in source.tables and source.tables["train_step"].count == 30_000, poll=source.poll)
    assert source.tables["train_step"].columns["Step"] == list(range(30_000))
    before = source.tables["train_step"].restarts
    host.clear("train_step")
    wait_until(lambda: source.tables["train_step"].count == 0, poll=source.poll)
    assert source.tables["train_step"].restarts > before
    host.row("train_step", {"Step": 1, "other": 2.5})
    wait_until(
        lambda: source.tables["train_step"].count == 1 and "other" in source.tables["train_step"].columns,
        poll=source.poll,
    )
    assert source.tables["train_step"].columns == {"Step": [1], "loss": [None], "other": [2.5]}
    source.close()


# -- hosts that lie ----------------------------------------------------------------------------------------------------


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Liar]:
    one = Liar(tmp_path / "control.sock")
    yield one
    one.close()


@pytest.fixture
def victim(liar: Liar) -> Iterator[LiveSource]:
    one = LiveSource(liar.path)
    liar.meet(one)
    wait_until(lambda: one.connected, poll=one.poll)
    yield one
    one.close()


def is_fine(liar: Liar, victim: LiveSource) -> Any:
    """Whether a good message still arrives, whatever was said before."""
    message = f"fine {time.monotonic()}"
    liar.say({"kind": "state_came", "state": {"message": message}})
    return wait_until(lambda: victim.state.message == message, poll=victim.poll)


def test_a_welcome_of_another_version_is_told(liar: Liar) -> None:
    source = LiveSource(liar.path)
    liar.meet(source, welcome=False)
    assert liar.heard[0]["kind"] == "join" and liar.heard[0]["version"] == 2
    problems: list[str] = []
    liar.say({"kind": "welcome", "version": 99, "title": ""})
    wait_until(lambda: (problems.extend(source.poll().problems), problems)[1])
    assert "version 99" in problems[0] and "same torcheer" in problems[0]
    source.close()


KINDS = ("network_came", "state_came", "parameters_came", "alerts_came", "problem", "moment_came")
BAD: list[tuple[str, dict[str, Any]]] = [
    *(("network_came", {"network": one}) for one in (7, {"name": "x", "layers": [3]}, None)),
    *(
        ("network_came", {"network": {"name": "x", "layers": [{"name": "a", "shape": one}]}})
        for one in ([-5], [10**9] * 2)
    ),
    *(("state_came", {"state": one}) for one in ({"status": 3}, None, [])),
    *(("parameters_came", {"parameters": one}) for one in ({}, [{"name": []}], 5)),
    *((kind, {}) for kind in KINDS),
    *(("moment_came", {"moment": {"id": one, "step": 0}}) for one in ("x", -1, 10**30, True, None)),
    ("moment_came", {"moment": {"id": 1}}),
    ("alerts_came", {"alerts": [{"text": 5}]}),
]


@pytest.mark.parametrize(("kind", "rest"), BAD)
def test_a_message_that_means_nothing_is_reported_and_left_out(
    liar: Liar, victim: LiveSource, kind: str, rest: dict[str, Any]
) -> None:
    problems: list[str] = []
    liar.say({"kind": kind, **rest})
    wait_until(lambda: (problems.extend(victim.poll().problems), problems)[1])
    assert kind in problems[0]
    assert is_fine(liar, victim)
    assert victim.net is None and victim.moments == []


def test_unknown_kinds_are_for_later_versions(liar: Liar, victim: LiveSource) -> None:
    liar.say({"kind": "smell", "rose": True})
    assert is_fine(liar, victim)
    assert victim.poll().problems == []


def test_garbage_ends_the_connection_and_nothing_else(liar: Liar, victim: LiveSource) -> None:
    for garbage in (b"\xff\xfe\x00\n", b"not json\n", b"[]\n", b'{"kind": 3}\n', b"[" * 100_000 + b"\n"):
        liar.raw(garbage)
        wait_until(lambda: victim.state.status == "lost", poll=victim.poll)
        victim._next_try = 0.0
        liar.meet(victim)
        wait_until(lambda: victim.connected, poll=victim.poll)
    assert is_fine(liar, victim)


def test_messages_with_random_damage_never_raise(liar: Liar, victim: LiveSource) -> None:
    rng = random.Random(8)
    good: list[Any] = [
        {"kind": "network_came", "network": asdict(NETWORK)},
        {"kind": "state_came", "state": asdict(State("running", {"a": 1}))},
        {"kind": "parameters_came", "parameters": [asdict(Parameter("lr", 0.1))]},
        {"kind": "alerts_came", "alerts": [{"text": "a", "severity": "error", "step": 3, "rule": "r", "layer": "l"}]},
        {"kind": "moment_came", "moment": {"id": 0, "step": 1, "counters": {}, "test": False}},
        {"kind": "problem", "text": "p"},
    ]  # fmt: skip
    for number in range(3000):
        message = json.loads(json.dumps(rng.choice(good)))
        damage(message, rng)
        liar.say(message)
        if number % 50 == 0:
            victim.poll()
            if victim.net is not None:
                for one in victim.net.layers[:3]:
                    victim.units(0, one.layer.name, "r.Wt", 0, ("out", 1))
    wait_until(lambda: not liar.wire.pending_bytes if liar.wire else True, poll=victim.poll)
    assert is_fine(liar, victim)


def damage(value: Any, rng: random.Random) -> None:
    """Change something somewhere inside, but never the kind."""
    strange = [None, -1, 10**20, 1.5, "x", [], {}, True, [[]], "\ud800", float("nan"), {"a": []}]
    while True:
        keys = [key for key in value if key != "kind"] if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.7:
            value = value[key]
            continue
        value[key] = rng.choice(strange)
        return


def test_descriptors_that_are_no_ring_are_refused_and_closed(liar: Liar, victim: LiveSource) -> None:
    before = len(os.listdir("/proc/self/fd"))
    read, write = os.pipe()
    empty, noise, unsealed = (os.memfd_create(name) for name in ("empty", "noise", "unsealed"))
    os.write(noise, os.urandom(100_000))
    ring = Ring(1 << 20)
    os.write(unsealed, bytes(ring.memory._all))  # it could be made smaller under whoever reads it
    ring.close()
    for fd in (read, empty, noise, unsealed, os.open("/dev/null", os.O_RDONLY)):
        liar.say({"kind": "ring_came"}, fd)
        os.close(fd)
        problems: list[str] = []
        wait_until(lambda: (problems.extend(victim.poll().problems), problems)[1])  # noqa: B023
        assert "ring" in problems[0]
    os.close(write)
    assert is_fine(liar, victim)
    assert len(os.listdir("/proc/self/fd")) <= before


def offered(ring: Ring, step: int, array: Any, layer: str = "in", item: int = 0) -> bool:
    data = np.ascontiguousarray(array)
    about = {"layer": layer, "variable": "Act", "step": step, "item": item}
    about |= {"type": data.dtype.name, "shape": list(data.shape)}
    return ring.offer(about, data.nbytes, lambda view: view.__setitem__(slice(None), data.tobytes()))


def test_a_ring_that_is_damaged_or_never_announced_does_no_harm(liar: Liar, victim: LiveSource) -> None:
    liar.say({"kind": "network_came", "network": asdict(NETWORK)})
    rng = random.Random(1)
    for round_number in range(6):
        ring = Ring(1 << 20)
        liar.say({"kind": "ring_came"}, ring.fd)
        for step in range(20):
            offered(ring, step, np.ones((2, 4), np.float32))
        for _ in range(200 * round_number):
            place = rng.randrange(4096 if round_number % 2 else 0, 40_000)
            ring.memory._all[place] = rng.randrange(256)
        with pytest.raises(PermissionError):
            os.ftruncate(ring.fd, 0)  # it is sealed
        assert is_fine(liar, victim)
        ring.memory.fd = os.dup(ring.fd)
    liar.say({"kind": "moment_came", "moment": {"id": 3, "step": 3, "counters": {}, "test": False}})
    assert is_fine(liar, victim)


def test_values_that_are_never_announced_do_not_pile_up(
    liar: Liar, victim: LiveSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.studio.sources.timeline._MOST_INCOMPLETE", 4 << 20)
    ring = Ring(8 << 20)
    liar.say({"kind": "ring_came"}, ring.fd)
    sent = 0
    while sent < 200:
        sent += offered(ring, sent, np.zeros((8, 8192), np.float32))
        victim.poll()
    assert is_fine(liar, victim)
    waiting = sum(value.array.nbytes for state in victim.timeline._incomplete.values() for value in state.values())
    assert waiting <= 4 << 20
    liar.say({"kind": "moment_came", "moment": {"id": sent - 1, "step": 3, "counters": {}, "test": False}})
    wait_until(lambda: victim.moments, poll=victim.poll)
    assert victim.timeline.bytes == 8 * 8192 * 4 and not victim.timeline._incomplete
    ring.close()


def test_memory_is_flat_over_ten_thousand_states(liar: Liar, victim: LiveSource) -> None:
    ring, sizes = Ring(8 << 20), list[int]()
    liar.say({"kind": "ring_came"}, ring.fd)
    for number in range(10_000):
        assert offered(ring, number, np.full((16, 1024), number, np.float32))
        liar.say({"kind": "moment_came", "moment": {"id": number, "step": number, "counters": {}, "test": False}})
        if number % 50 == 49:
            wait_until(lambda: victim.moments and victim.moments[-1].id == number, poll=victim.poll)  # noqa: B023
        if number in (1999, 9999):
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert len(victim.moments) == 500 and victim.timeline.bytes == 500 * 16 * 1024 * 4
    assert sizes[1] < sizes[0] + (16 << 20)  # 512 MB have come in between
    ring.close()


def test_a_host_that_never_answers_is_given_up(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.studio.sources.live_source._HANDSHAKE_SECS", 0.05)
    source = LiveSource(liar.path)
    liar.meet(source, welcome=False)
    assert wait_until(lambda: "does not answer" in source.state.message, poll=source.poll)
    source.close()
