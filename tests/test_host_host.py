"""`Host`: one viewer at a time is told everything, and training is never in its hands."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import Child, run_python
from host_viewer import Viewer, connected
from seams import (
    BATCH_BYTES,
    LEAST_RING,
    MOST_RING,
    Act,
    Change,
    Host,
    HostBusy,
    Layer,
    Network,
    Parameter,
    State,
    TableHead,
    Variable,
    Wants,
)
from torch import nn
from waiting import wait_until

ACT = Wants(("Act",))
NET = Network("net", (Layer("fc", (4,)), Layer("wide", (1000, 1000))), (), (Variable("Act"), Variable("Wt", "weight")))


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(title="a net") as made:
        made.network = NET
        yield made


def state(host: Host, value: Any, layer: str = "fc", variable: str = "Act", step: int = 0) -> int:
    number = host.values.begin(step, {"Step": step})
    host.values.offer(number, value, layer, variable)
    host.values.end(number)
    return number


# -- who may come ----------------------------------------------------------------------------------------------------


def test_only_its_owner_may_connect_and_the_socket_goes_with_the_host(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        assert host.path == tmp_path / "control.sock" and stat.S_IMODE(host.path.stat().st_mode) == 0o600
    assert not (tmp_path / "control.sock").exists()
    with Host() as private:
        folder = private.path.parent if private.path else Path()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_a_second_host_in_the_same_directory_is_refused_and_the_first_is_not_disturbed(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        with pytest.raises(HostBusy, match=r"another process listens at .*control.sock.*Stop it, or take another"):
            Host(tmp_path)
        with Viewer(host) as viewer:
            assert viewer.of("welcome")
    Host(tmp_path).close()


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    script = f"import os; from torcheer.host.host import Host; h = Host({str(tmp_path)!r}); os.kill(os.getpid(), 9)"
    run_python("-c", script, status=-signal.SIGKILL)
    assert (tmp_path / "control.sock").is_socket()
    with Host(tmp_path) as host, Viewer(host) as viewer:
        assert viewer.of("welcome")


def test_a_file_of_that_name_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "control.sock").write_text("mine")
    with pytest.raises(HostBusy, match="is no socket"):
        Host(tmp_path)
    assert (tmp_path / "control.sock").read_text() == "mine"


def test_a_process_that_ends_by_itself_leaves_no_socket(tmp_path: Path) -> None:
    script = f"from torcheer.host.host import Host; h = Host({str(tmp_path)!r}); raise SystemExit(3)"
    run_python("-c", script, status=3)
    assert not (tmp_path / "control.sock").exists()


def test_a_second_viewer_is_told_where_the_first_one_is(host: Host) -> None:
    with Viewer(host, url="http://first"):
        second = Viewer(host, url="http://second")
        assert second.of("busy") == [{"kind": "busy", "url": "http://first"}]
        wait_until(lambda: (second.hear(), second.wire.closed)[1], "the door to be closed")
        assert host.viewer == "http://first"
    with Viewer(host, url="http://third"):
        assert host.viewer == "http://third"


def test_a_viewer_comes_in_past_a_dozen_that_say_nothing(host: Host) -> None:
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(12)]
    for connection in silent:
        connection.connect(str(host.path))
    with Viewer(host) as viewer:
        assert viewer.of("welcome")
    for connection in silent:
        connection.close()


def test_importing_the_viewers_side_loads_no_torch() -> None:
    modules = "torcheer.wire.socket_lines, torcheer.wire.json_codec, torcheer.host.host"
    script = f"import sys, {modules}; print('torch' in sys.modules)"
    assert run_python("-c", script).stdout == "False\n"


# -- what is told ----------------------------------------------------------------------------------------------------


def test_a_viewer_is_told_everything_when_it_comes_and_then_what_changes(host: Host) -> None:
    host.state = State("running", {"Step": 3})
    host.parameters = [Parameter("lr", 0.1, editable=True)]
    host.alert("loss is not a number", "error", 3, "nan", "fc")
    with Viewer(host) as viewer:
        assert viewer.last("network_came")["network"]["layers"][0]["name"] == "fc"
        assert viewer.last("state_came")["state"]["counters"] == {"Step": 3}
        assert viewer.last("parameters_came")["parameters"][0]["value"] == 0.1
        (alert,) = wait_until(lambda: viewer.alerts(), "the alert")
        assert alert == {
            "text": "loss is not a number", "severity": "error", "step": 3, "rule": "nan", "layer": "fc",
            "id": alert["id"], "follows": "", "began_here": False,
        }  # fmt: skip
        host.state = State("paused", {"Step": 4})
        viewer.last("state_came", lambda message: message["state"]["status"] == "paused")
        count = len(viewer.of("network_came"))
        host.network = Network("net", NET.layers, (), NET.variables)  # equal, so nothing to say
        host.state = State("done")
        viewer.last("state_came", lambda message: message["state"]["status"] == "done")
        assert len(viewer.of("network_came")) == count


def test_a_state_that_changes_all_the_time_is_told_now_and_then_and_the_last_one_for_certain(host: Host) -> None:
    with Viewer(host) as viewer:
        for step in range(5000):
            host.state = State("running", {"Step": step})
        viewer.last("state_came", lambda message: message["state"]["counters"] == {"Step": 4999})
        assert len(viewer.of("state_came")) < 500


def test_rows_come_to_who_is_there_and_to_who_comes_late(host: Host) -> None:
    host.table(TableHead("train_epoch", "Train epochs", x="Epoch"))
    for epoch in range(3):
        host.row("train_epoch", {"Epoch": epoch, "loss": torch.tensor(0.5), "map": np.eye(2), "name": "a"})
    with Viewer(host) as viewer:
        wait_until(lambda: len(viewer.rows("train_epoch").get("Epoch", [])) == 3, "three rows")
        host.row("train_epoch", {"Epoch": 3, "loss": float("nan"), "accuracy": 0.9})
        wait_until(lambda: len(viewer.rows("train_epoch").get("accuracy", [])) == 4, "a new column")
        found = viewer.rows("train_epoch")
    assert found["Epoch"] == [0, 1, 2, 3] and str(found["loss"]) == "[0.5, 0.5, 0.5, nan]"
    assert found["accuracy"] == [None, None, None, 0.9] and found["map"][0] == [[1.0, 0.0], [0.0, 1.0]]
    with Viewer(host) as late:
        wait_until(lambda: str(late.rows("train_epoch")) == str(found), "the same again")  # NaN is equal to nothing
        head = late.log.tables["train_epoch"].head
        assert [(one.name, one.type) for one in head.columns] == [
            ("Epoch", "int"), ("loss", "float"), ("map", "tensor"), ("name", "text"), ("accuracy", "float"),
        ]  # fmt: skip


def test_a_cleared_table_begins_anew(host: Host) -> None:
    host.row("run", {"seed": 1})
    with Viewer(host) as viewer:
        wait_until(lambda: viewer.rows("run").get("seed") == [1], "a row")
        host.clear("run")
        host.row("run", {"seed": 2})
        assert wait_until(lambda: viewer.rows("run").get("seed") == [2], "only the new row")


# -- values ----------------------------------------------------------------------------------------------------------


def test_nobody_looks_nothing_is_copied_and_no_memory_is_held(host: Host) -> None:
    values = host.values
    assert state(host, torch.ones(2, 4)) == -1 and values._ring is None
    with Viewer(host) as viewer:
        assert state(host, torch.ones(2, 4)) == -1 and values._ring is None
        viewer.want(ACT)
        assert state(host, torch.ones(2, 4)) >= 0 and values._ring is not None
        viewer.moments()
        viewer.want(Wants())
        assert values._ring is None
        viewer.want(ACT)
        number = state(host, torch.ones(3, 4))
        wait_until(lambda: (number, "fc", "Act") in (viewer.hear(), viewer.values)[1], "a value through another ring")
        assert viewer.rings == 2
    wait_until(lambda: host.wants == Wants(), "the host to notice")
    assert values._ring is None


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool,
    torch.complex64, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_of_any_type_arrive_as_they_were(host: Host, dtype: torch.dtype) -> None:
    value = torch.arange(-4, 4).reshape(2, 4).to(torch.float32).to(dtype)
    with Viewer(host, ACT) as viewer:
        number = state(host, value)
        assert viewer.moments()[0]["id"] == number
        array = np.asarray(viewer.values[number, "fc", "Act"].array).astype(np.complex64)
        assert np.array_equal(array, value.to(torch.complex64).numpy())


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (torch.ones(3, 4), (3, 4)),
        (torch.ones(4), (1, 4)),
        (torch.ones(2, 2), (1, 2, 2)),  # the units of one item, in another shape
        (torch.ones(4, 3).t(), (3, 4)),
        (torch.ones(4, requires_grad=True)[None] * 2, (1, 4)),
        (np.ones((5, 4)), (5, 4)),
        ([1.0, 2.0, 3.0, 4.0], (1, 4)),
        (torch.ones(()), (1,)),
        (torch.ones(0, 4), (0, 4)),
    ],
)
def test_the_first_axis_is_always_the_batch(host: Host, value: Any, shape: tuple[int, ...]) -> None:
    with Viewer(host, ACT) as viewer:
        number = state(host, value)
        viewer.moments()
        assert viewer.values[number, "fc", "Act"].array.shape == shape


def test_of_a_large_batch_some_items_are_sent_and_the_wanted_one_is_among_them(host: Host) -> None:
    value = torch.arange(40.0)[:, None].expand(40, 100_000)  # 400 kB an item
    with Viewer(host) as viewer:
        for place, item in enumerate((0, 17, 39, 99)):
            viewer.want(Wants(("Act",), item=item))
            number = state(host, value, "other")
            viewer.moments(place + 1)
            sample = viewer.values[number, "other", "Act"]
            items = sample.array[:, 0].tolist()
            assert sample.array.nbytes <= BATCH_BYTES and items[0] == sample.item
            assert min(item, 39) in items


def test_one_item_can_be_sent_alone(host: Host) -> None:
    with Viewer(host, ACT) as viewer:
        number = host.values.begin(0)
        assert host.values.offer(number, torch.ones(4), "fc", "Act", item=7)
        host.values.end(number)
        viewer.moments()
        assert viewer.values[number, "fc", "Act"].item == 7


def test_a_variable_that_nobody_looks_at_is_not_copied(host: Host) -> None:
    with Viewer(host, ACT) as viewer:
        number = host.values.begin(0)
        assert not host.values.offer(number, torch.ones(4), "fc", "Grad") and not host.values.offer(
            number, torch.ones(4), "w", "Wt"
        )
        assert host.values.offer(number, torch.ones(4), "fc", "Act")
        host.values.end(number)
        viewer.moments()
        viewer.want(Wants(weights=True))
        number = state(host, torch.ones(4, 4), "w", "Wt")
        viewer.moments(2)
        assert viewer.values[number, "w", "Wt"].item == -1 and viewer.values[number, "w", "Wt"].array.shape == (4, 4)


def test_the_ring_grows_with_what_is_sent_and_a_state_lies_in_one_ring_whole(host: Host) -> None:
    large = torch.rand(1, 1000, 1000)  # 4 MB, more than an eighth of the least ring
    assert large.nbytes > LEAST_RING // 8
    with Viewer(host, ACT) as viewer:
        state(host, torch.ones(2, 4))
        viewer.moments()
        number = host.values.begin(1)
        host.values.offer(number, torch.ones(2, 4), "fc", "Act")
        assert not host.values.offer(number, large, "wide", "Act")  # not in this ring
        host.values.end(number)
        number = host.values.begin(2)
        assert host.values.offer(number, large, "wide", "Act") and host.values.offer(
            number, torch.ones(2, 4), "fc", "Act"
        )
        host.values.end(number)
        found = [one["id"] for one in viewer.moments(2)]
        assert found == [0, number] and viewer.rings == 2 and host.values.dropped == 1
        assert np.array_equal(viewer.values[number, "wide", "Act"].array, large.numpy())


def test_a_value_that_is_too_large_for_any_ring_is_left_out_and_said_once(host: Host) -> None:
    huge = torch.zeros(1, 1).expand(1, MOST_RING // 8 // 4 + 1024)
    with Viewer(host, ACT) as viewer, pytest.warns(RuntimeWarning, match=r"huge \(Act\) is not shown: one item"):
        for step in range(2):
            number = host.values.begin(step)
            assert not host.values.offer(number, huge, "huge", "Act") and host.values.offer(
                number, torch.ones(4), "fc", "Act"
            )
            host.values.end(number)
        assert len(viewer.moments(2)) == 2 and len(host.problems) == 1


def test_a_viewer_that_does_not_read_gets_no_more_states_and_later_again(host: Host) -> None:
    with Viewer(host, ACT) as viewer:
        value, numbers = torch.rand(1, 250_000), []
        for step in range(300):  # 300 MB, through a ring that holds far less
            numbers.append(state(host, value, "other", step=step))
        assert numbers[-1] == -1 and host.values.dropped > 100
        announced = [one["id"] for one in viewer.moments(3)]
        assert all((number, "other", "Act") in viewer.values for number in announced)
        number = state(host, value, "other")
        assert number >= 0
        viewer.moments(len(announced) + 1)


@pytest.mark.parametrize("value", ["text", torch.ones(4).to_sparse(), torch.ones(4, device="meta"), object(), None])
def test_what_cannot_be_shown_is_said_and_never_raised(host: Host, value: Any) -> None:
    with Viewer(host, ACT), pytest.warns(RuntimeWarning, match="torcheer: fc"):
        number = host.values.begin(0)
        assert not host.values.offer(number, value, "fc", "Act")
        assert host.values.offer(number, torch.ones(4), "fc", "Act")
        host.values.end(number)


def test_numbers_of_states_that_never_were_do_nothing(host: Host) -> None:
    with Viewer(host, ACT):
        assert not host.values.offer(-1, torch.ones(4), "fc", "Act") and not host.values.offer(
            99, torch.ones(4), "fc", "Act"
        )
        host.values.end(-1)
        host.values.end(99)


# -- orders ----------------------------------------------------------------------------------------------------------


def test_orders_come_in_their_order_and_a_paused_loop_is_woken(host: Host) -> None:
    with Viewer(host) as viewer:
        assert host.orders() == [] and not host.wait(0.01)
        threading.Timer(0.2, lambda: viewer.press("step_n", count=3)).start()
        assert host.wait(20) and host.wait(20)
        viewer.wire.send({"kind": "change", "name": "lr", "value": 0.5})
        wait_until(lambda: len(host._board.inbox) == 2, "both")
        assert host.orders() == [Act("step_n", 3), Change("lr", 0.5)]
        assert host.orders() == []


@pytest.mark.timing
def test_a_paused_loop_is_woken_when_the_viewer_goes(host: Host) -> None:
    viewer = Viewer(host)
    threading.Timer(0.2, viewer.wire.close).start()
    began = time.monotonic()
    assert not host.wait(60) and time.monotonic() - began < 30
    assert host.viewer == ""


def test_a_paused_loop_answers_ctrl_c(tmp_path: Path) -> None:
    script = f"""
        from torcheer.host.host import Host
        host = Host({str(tmp_path)!r})
        try:
            print("waits", flush=True)
            host.wait(60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with Child("-c", script) as process:
        assert process.line() == "waits"
        process.send_signal(signal.SIGINT)
        assert process.line() == "interrupted"


# -- a viewer's end, a process's end ---------------------------------------------------------------------------------

OTHER = """
    import time
    from torcheer.wire.socket_lines import connect
    from torcheer.wire.json_codec import to_json
    from torcheer.control.control_records import Wants
    wire = connect({path!r})
    wire.send({{"kind": "join", "version": 2, "url": "http://other"}})
    wire.send({{"kind": "subscribe", "wants": to_json(Wants(("Act",)))}})
    print("there", flush=True)
    while not wire.closed:
        wire.receive()
        time.sleep(0.01)
"""


@pytest.fixture
def other(host: Host) -> Iterator[Child]:
    """A viewer in another process."""
    with Child("-c", OTHER.format(path=str(host.path))) as process:
        wait_until(lambda: host.wants == ACT, "the other process to look")
        yield process


def test_a_killed_viewer_is_noticed_and_another_may_come(host: Host, other: Child) -> None:
    assert host.viewer == "http://other" and state(host, torch.ones(2, 4)) >= 0
    other.kill()
    wait_until(lambda: host.viewer == "" and host.wants == Wants(), "the host to notice")
    assert state(host, torch.ones(2, 4)) == -1
    with Viewer(host, ACT) as viewer:
        state(host, torch.ones(2, 4))
        viewer.moments()


@pytest.mark.timing
def test_a_stopped_viewer_holds_nothing_up(host: Host, other: Child) -> None:
    other.send_signal(signal.SIGSTOP)
    value = torch.rand(1, 250_000)
    longest = 0.0
    for step in range(2000):
        began = time.monotonic()
        host.state = State("running", {"Step": step, "text": "x" * 1000})
        host.row("train_step", {"Step": step, "loss": 0.1})
        state(host, value, "other", step=step)
        longest = max(longest, time.monotonic() - began)
    assert longest < 5 and host.values.dropped > 0 and host.viewer == "http://other"
    other.send_signal(signal.SIGCONT)
    wait_until(lambda: host._service and not host._service._viewer.wire.pending_bytes, "it to read on")


def test_a_forked_process_may_use_the_host_and_does_no_harm(host: Host) -> None:
    with Viewer(host, ACT) as viewer:
        child = os.fork()
        if not child:
            good = host.values.begin(0) == -1 and not host.values.offer(0, torch.ones(4), "fc", "Act") and host.closed
            host.state = State("done")
            host.row("run", {"x": 1})
            host.close()
            os._exit(0 if good and host.orders() == [] else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert host.path and host.path.exists()
        state(host, torch.ones(2, 4))
        viewer.moments()
        assert not viewer.rows("run") and viewer.last("state_came")["state"]["status"] == "idle"


def test_a_viewer_sees_the_end_though_a_forked_worker_lives_on(tmp_path: Path) -> None:
    script = f"""
        import os, time
        from torcheer.host.host import Host
        host = Host({str(tmp_path)!r})
        while not host.viewer: time.sleep(0.01)
        if not os.fork(): time.sleep(600); os._exit(0)
        os.kill(os.getpid(), 9)
    """
    with Child("-c", script):
        wire = wait_until(lambda: connected(tmp_path / "control.sock"), "a host")
        wire.send({"kind": "join", "version": 2, "url": "http://x"})
        assert wait_until(lambda: (wire.receive(), wire.closed)[1], "the end to be seen")


class Holds(nn.Module):
    def __init__(self, host: Host) -> None:
        super().__init__()
        self.fc, self.host = nn.Linear(2, 2), host


def test_a_model_that_holds_a_host_can_be_copied_and_saved(host: Host) -> None:
    model = Holds(host)
    assert copy.deepcopy(model).host is host
    again = pickle.loads(pickle.dumps(model)).host
    assert again.closed and again.title == "a net" and again.values.begin(0) == -1 and again.orders() == []
    file = io.BytesIO()
    torch.save(model, file)
    again.close()


def test_a_closed_host_says_goodbye_and_is_deaf(host: Host) -> None:
    viewer = Viewer(host, ACT)
    host.row("run", {"x": 1})
    wait_until(lambda: viewer.rows("run") == {"x": [1]}, "the row")
    host.close()
    wait_until(lambda: (viewer.hear(), viewer.wire.closed)[1], "the end")
    assert viewer.messages[-1]["kind"] == "bye"
    host.close()
    host.state = State("done")
    host.row("run", {"x": 2})
    host.alert("x")
    assert (
        host.closed
        and host.values.begin(0) == -1
        and not host.wait(0.01)
        and host.viewer == ""
        and host.wants == Wants()
    )
