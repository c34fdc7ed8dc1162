"""A host, the server's process and a page: values and orders go all the way, and nobody falls with another."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from seams import Act, Change, Host, Order, Parameter, State, Wants, start
from studio_hosts import NETWORK, tell
from studio_socket import Page
from waiting import wait_until


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Host(tmp_path, title="a pair") as host:
        host.network, host.state = NETWORK, State("running", {"Epoch": 1}, ("train", "stop"))
        host.parameters = [Parameter("lr", 0.1, editable=True)]
        host.row("train_epoch", {"Epoch": 1, "loss": 0.5})
        yield host


@contextmanager
def training(host: Host) -> Iterator[list[int]]:
    """A loop that offers a state a hundred times a second; the list grows with its steps."""
    steps: list[int] = []
    end = threading.Event()

    def loop() -> None:
        while not end.wait(0.01):
            tell(host, len(steps))
            steps.append(len(steps))

    thread = threading.Thread(target=loop)
    thread.start()
    yield steps
    end.set()
    thread.join()


def test_values_and_orders_go_all_the_way(host: Host) -> None:
    assert host.path is not None
    with start(host.path, browser=False, quiet=True) as viewer, training(host), Page(viewer.url) as page:
        if page.hello["net"] is None:  # the host was slower to answer than the page to come
            page.until("net_came")
        page.say("look", look=1, variable="Act", train={"unit": "trial"})
        shown = page.until("shown", lambda one: one["moment"] >= 0 and not one["missing"])
        page.say("seen", look=1, moment=shown["moment"])
        later = page.until("shown", lambda one: one["moment"] > shown["moment"])
        assert later["missing"] == []
        answer = page.ask("ask_value", 1, layer="in", unit=2, variable="Act", moment=later["moment"], item=1)
        steps = {one["id"]: one["step"] for heard in page.heard if isinstance(heard, dict)
                 for one in heard.get("came", [])}  # fmt: skip
        assert answer["value"] == steps[later["moment"]] + 1
        page.say("act", action="stop")
        page.say("change", name="lr", value=0.5)
        orders: list[Order] = []
        wait_until(lambda: orders.extend(host.orders()) or len(orders) == 2)
        assert orders == [Act("stop"), Change("lr", 0.5)]
        assert host.viewer == viewer.url
    wait_until(lambda: host.viewer == "")
    assert host.wants == Wants()


def test_a_value_that_is_asked_for_is_exact(host: Host, tmp_path: Path) -> None:
    values = {"in": np.array([[2**53 + 1, -(2**62) - 1, 0, 7]]), "out": np.array([[0.1, np.nan, -np.inf, 1e300, 0, 1]])}
    with start(tmp_path, browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        page.say("look", look=1, variable="Act", train={"unit": "trial"})
        wait_until(lambda: host.wants.variables)
        number = host.values.begin(1)
        for layer, value in values.items():
            assert host.values.offer(number, value, layer, "Act")
        host.values.end(number)
        page.until("shown", lambda one: one["moment"] >= 0)
        asked = [("in", 0), ("in", 1), *(("out", unit) for unit in range(4))]
        found = [page.ask("ask_value", n, layer=layer, unit=unit, variable="Act", moment=-1)
                 for n, (layer, unit) in enumerate(asked)]  # fmt: skip
    assert [one["text"] for one in found] == [str(2**53 + 1), str(-(2**62) - 1), "0.1", "NaN", "−∞", "1e+300"]
    assert [one["value"] for one in found] == [2**53 + 1, -(2**62) - 1, 0.1, None, None, 1e300]


def test_a_page_that_closes_leaves_nothing_wanted(host: Host, tmp_path: Path) -> None:
    with start(tmp_path, browser=False, quiet=True) as viewer:
        with Page(viewer.url) as page:
            page.say("look", look=1, variable="Act")
            wait_until(lambda: host.wants.variables == ("Act",))
        wait_until(lambda: host.wants == Wants())
        assert viewer.alive


def test_a_killed_server_is_replaced_and_the_training_goes_on(host: Host, tmp_path: Path) -> None:
    with training(host) as steps:
        first = start(tmp_path, browser=False, quiet=True)
        with Page(first.url) as page:
            page.say("look", look=1, variable="Act", train={"unit": "trial"})
            page.until("shown", lambda one: one["moment"] >= 0)
            os.kill(first.pid, signal.SIGKILL)
        seen = len(steps)
        wait_until(lambda: len(steps) > seen + 20)
        wait_until(lambda: host.viewer == "")
        with start(tmp_path, browser=False, quiet=True) as second, Page(second.url) as page:
            page.say("look", look=1, variable="Act", train={"unit": "trial"})
            page.until("shown", lambda one: one["moment"] >= 0 and not one["missing"])
            rows = [one for one in page.heard if isinstance(one, dict) and one["kind"] == "rows"]
            assert any(one["table"] == "train_epoch" and one["columns"]["loss"] == [0.5] for one in rows)
        first.close()


def test_a_second_viewer_prints_the_address_of_the_first(host: Host, tmp_path: Path) -> None:
    with start(tmp_path, browser=False, quiet=True) as first:
        wait_until(lambda: host.viewer == first.url)
        with start(tmp_path, browser=False, quiet=True) as second:
            wait_until(lambda: first.url in second.said)
            assert host.viewer == first.url


def test_a_host_that_ends_is_said_to_the_page_and_what_was_seen_stays(host: Host, tmp_path: Path) -> None:
    with start(tmp_path, browser=False, quiet=True) as viewer, training(host), Page(viewer.url) as page:
        page.say("look", look=1, variable="Act", train={"unit": "trial"})
        shown = page.until("shown", lambda one: one["moment"] >= 0 and not one["missing"])
        host.close()
        page.until("state_came", lambda one: one["state"]["status"] == "done")
        assert page.state(look=2, variable="Act", moment=shown["moment"])[1]["missing"] == []
        assert page.problem("act", action="train") == "'train' cannot be done here; there is nothing to do"
