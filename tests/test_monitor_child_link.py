"""The link: a child that gets everything, says what it has to say, and is has_ended without a trace."""

from __future__ import annotations

import copy
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from children import RUN_SECS, Child, has_ended, run_python
from inspector_spine import PATH, QUIET, SCRIPTS, Diary, balanced, offer, watched
from leftovers import nothing_added, traces
from seams import Callbacks, Link, Plan, as_tensor, packed
from waiting import wait_until

from torcheer.errors import BadArgument
from torcheer.records import Sample
from torcheer.samples import Account, Delivery

HERE = Path(__file__).parent


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


def values(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if not line.startswith("closed")]


# -- the usual -------------------------------------------------------------------------------------------------------


def test_everything_arrives_in_order_and_the_child_closes(diary: Diary) -> None:
    link = watched(diary)
    assert link.process.is_alive() and link.process.exitcode is None
    assert all(offer(link, np.full(3, step), step) for step in range(100))
    account = link.stop(60.0)
    assert account == Account(100, 100) and account == link.account and link.stop() is account
    assert diary.lines() == [f"a/output {step} {3.0 * step}" for step in range(100)] + ["closed after 100"]
    assert link.heard() == [{"kind": "done", "why": "stopped", "handled": 100, "damaged": 0}] and not link.heard()
    assert not link.process.is_alive() and link.process.exitcode == 0
    link.process.join()


def test_what_comes_after_the_stop_is_refused(diary: Diary) -> None:
    link = watched(diary)
    link.stop(60.0)
    assert not offer(link, np.ones(1)) and link.account.offered == 0


def test_a_value_wakes_a_child_that_sleeps(diary: Diary) -> None:
    link = watched(diary)
    offer(link, np.ones(1), 1)
    wait_until(diary.lines)
    wait_until(lambda: link.ring.memory.words[5])  # it says that it sleeps
    offer(link, np.ones(1), 2)
    assert link.ring.memory.words[5] == 0
    wait_until(lambda: len(diary.lines()) == 2)
    link.stop(60.0)


@pytest.mark.parametrize("policy", ["latest", "block"])
def test_the_other_policies_go_through_to_the_child(diary: Diary, policy: str) -> None:
    diary.wait_secs = 0.005
    link = watched(diary, ring_bytes=1 << 16, policy=policy, block_ms=20.0)
    sent = [offer(link, np.full(500, step), step, layer=f"l{step % 2}") for step in range(60)]
    account = link.stop(60.0)
    assert balanced(account) and account.lost == 0
    if policy == "latest":
        assert all(sent) and account.dropped and set(values(diary.lines())) >= {58, 59}
    else:
        assert values(diary.lines()) == [step for step in range(60) if sent[step]]


def test_the_child_imports_no_torch_and_neither_does_the_link(tmp_path: Path) -> None:
    code = f"""
import sys
from torcheer.monitor.callbacks import packed
from torcheer.monitor.child_link import Link
from torcheer.monitor.child_plan import Plan
def close():
    import os, signal
    loaded = [name for name in ("torch", "pandas", "av", "multiprocessing") if name in sys.modules]
    open({str(tmp_path / "loaded")!r}, "w").write(repr((loaded, os.nice(0), str(signal.getsignal(signal.SIGINT)))))
link = Link(Plan(statistics=False), callbacks=packed(None, close, as_torch=True))
link.stop()
assert "torch" not in sys.modules and "multiprocessing" not in sys.modules
"""
    run_python("-c", code)
    assert (tmp_path / "loaded").read_text() == repr(([], min(os.nice(0) + 5, 19), str(signal.SIG_IGN)))


def test_a_plan_must_be_something_json_can_carry() -> None:
    with pytest.raises(BadArgument, match="the plan of a watch must be text, numbers, lists and tables"):
        Link(Plan(rules={"mine": object()}))


def test_a_model_that_is_copied_with_its_hooks_keeps_its_link(diary: Diary) -> None:
    link = watched(diary)
    assert copy.deepcopy([link]) == [link]
    link.stop(60.0)


# -- the end of it ---------------------------------------------------------------------------------------------------


@pytest.mark.timing
def test_the_child_ends_some_seconds_after_the_last_value_not_after_its_start(diary: Diary) -> None:
    link = watched(diary, plan=Plan(statistics=False, timeout_secs=1.0))
    time.sleep(1.5)
    begun, sent = time.monotonic(), 0
    while time.monotonic() - begun < 1.5:  # from the first value on
        assert link.process.is_alive()
        offer(link, np.ones(1), sent)
        sent += 1
        begun = begun if diary.lines() else time.monotonic()
        time.sleep(0.05)
    wait_until(lambda: not link.process.is_alive())
    assert [said["why"] for said in wait_until(link.heard)] == ["timeout"] and not link.heard()
    assert diary.lines()[-1] == f"closed after {sent}"
    assert not offer(link, np.ones(1))  # and nobody is started for it
    assert link.stop(60.0) == Account(sent + 1, sent, {("a", "output"): 1}) and link.process.exitcode == 0


def test_links_leave_nothing_behind(diary: Diary) -> None:
    watched(diary).stop()
    before = traces()
    for number in range(6):
        link = watched(diary, ring_bytes=1 << 16, policy=("drop", "latest", "block")[number % 3])
        offer(link, np.ones(3), number)
        assert link.stop(60.0) == Account(1, 1)
    assert nothing_added(traces(), before) and diary.lines().count("closed after 1") == 6


SCRIPT = SCRIPTS / "plain_script.py"
WRITTEN = [f"a {number} {2 * number} False" for number in range(20)] + ["closed False"]


def test_a_script_without_a_guard_that_forgets_to_stop_loses_nothing(tmp_path: Path) -> None:
    with Child(SCRIPT, tmp_path / "out", env=PATH) as process:
        process.wait(RUN_SECS)
        assert (tmp_path / "out").read_text().splitlines() == WRITTEN  # all there when the script has ended
        assert process.ends() == "script runs in the parent\n"  # once, and nothing of it is imported in the child


def test_a_script_from_standard_input_works_as_one_in_a_notebook_does(tmp_path: Path) -> None:
    text = SCRIPT.read_text().replace("neighbour.twice", "2 *").replace("import neighbour\n", "")
    assert run_python("-", tmp_path / "out", input=text, env=PATH).stdout == "script runs in the parent\n"
    assert (tmp_path / "out").read_text().splitlines() == WRITTEN


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_ctrl_c_and_a_closed_terminal_end_the_script_and_let_the_child_finish(
    tmp_path: Path, how: signal.Signals
) -> None:
    with Child(SCRIPT, tmp_path / "out", "wait", env=PATH) as process:
        process.line()
        child = int(process.line())
        os.killpg(process.pid, how)
        process.ends(-how)
        assert ("KeyboardInterrupt" in process.error_text) == (how == signal.SIGINT)
        wait_until(lambda: has_ended(child))
    assert (tmp_path / "out").read_text().splitlines() == WRITTEN


def test_modules_in_the_users_folder_that_are_named_like_pythons_own_do_not_matter(tmp_path: Path) -> None:
    for name in ("json", "signal", "select", "struct", "traceback", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    code = """
import sys
path = sys.path[:]
from torcheer.monitor.child_link import Link
from torcheer.monitor.child_plan import Plan
import subprocess, select, threading
sys.path.insert(0, sys.argv[1])
link = Link(Plan(statistics=False))
print(link.stop().restarts, link.process.exitcode)
"""
    done = run_python("-c", code, tmp_path, cwd=tmp_path.parent)
    assert done.stdout == "0 0\n", done.stderr


def test_callbacks_of_a_module_that_cannot_travel_are_imported_in_the_child(tmp_path: Path) -> None:
    (tmp_path / "locked.py").write_text(
        "import threading\nLOCK = threading.Lock()\n"
        "def value(layer, variable, step, array):\n    with LOCK:\n        print(layer, step, flush=True)\n"
    )
    (tmp_path / "main.py").write_text(
        f"import sys\nsys.path.append({str(HERE)!r})\nimport numpy as np\n"
        "from inspector_spine import QUIET, offer\nfrom locked import value\n"
        "from torcheer.monitor.callbacks import packed\nfrom torcheer.monitor.child_link import Link\n"
        "link = Link(QUIET, callbacks=packed(value, as_torch=False))\noffer(link, np.ones(1), 5)\n"
    )
    done = run_python(tmp_path / "main.py", cwd="/")
    assert done.stdout == "a 5\n", done.stderr


def test_links_do_not_keep_one_another(tmp_path: Path) -> None:
    diaries = [Diary(tmp_path / str(number)) for number in range(3)]
    links = [watched(diary) for diary in diaries]
    for number, link in enumerate(links):
        offer(link, np.ones(1), number)
    assert [link.stop(20.0) for link in links] == [Account(1, 1)] * 3
    assert [values(diary.lines()) for diary in diaries] == [[0], [1], [2]]


# -- forks -----------------------------------------------------------------------------------------------------------


def test_a_forked_process_neither_writes_nor_stops_nor_keeps_the_child(diary: Diary) -> None:
    link = watched(diary)
    offer(link, np.ones(1), 1)
    worker = os.fork()
    if not worker:
        quiet = not offer(link, np.ones(1), 2) and link.heard() == [] and link.stop().offered == 1
        quiet = quiet and link._child.wire.closed and link._child.wire.fileno() == -1
        if quiet:
            time.sleep(60)  # it outlives the link
        os._exit(1)
    time.sleep(0.2)
    offer(link, np.ones(1), 3)
    begun = time.monotonic()
    assert link.stop(30.0) == Account(2, 2) and time.monotonic() - begun < 20
    assert os.waitpid(worker, os.WNOHANG) == (0, 0)  # it did all that and sleeps
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    assert values(diary.lines()) == [1, 3]


def test_threads_may_use_one_link(diary: Diary) -> None:
    link = watched(diary)
    heard: list[Any] = []

    def work(number: int) -> None:
        for step in range(100):
            offer(link, np.full(10, step), step, str(number))
            heard.extend(link.heard())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.stop(60.0) == Account(400, 400) and heard == []


# -- callbacks -------------------------------------------------------------------------------------------------------


def test_a_callback_that_raises_loses_its_key_and_no_other(diary: Diary) -> None:
    def value(layer: str, variable: str, step: int, array: Any) -> None:
        if layer == "bad" and step == 3:
            raise ZeroDivisionError("frame 3")
        if layer == "worse":
            sys.exit("a callback that wants to leave")
        diary.value(layer, variable, step, array)

    link = Link(QUIET, callbacks=packed(value, diary.close, as_torch=False))
    for step in range(6):
        for layer in ("good", "bad", "worse"):
            offer(link, np.full(2, step), step, layer)
    assert link.stop(60.0) == Account(18, 18)
    assert [line.split()[:2] for line in diary.lines() if line.startswith("bad")] == [
        ["bad/output", str(n)] for n in range(3)
    ]
    assert sum(line.startswith("good") for line in diary.lines()) == 6
    said = [said for said in link.heard() if said["kind"] == "quarantined"]
    assert [(one["reader"], one["layer"], one["variable"], one["step"], one["error"]) for one in said] == [
        ("Callbacks", "worse", "output", 0, "SystemExit: a callback that wants to leave"),
        ("Callbacks", "bad", "output", 3, "ZeroDivisionError: frame 3"),
    ]
    assert "in value" in said[1]["trace"]


def test_a_closing_callback_that_raises_is_reported(diary: Diary) -> None:
    link = Link(QUIET, callbacks=packed(diary.value, lambda: 1 / 0, as_torch=False))
    link.stop(60.0)
    texts = [said["text"] for said in link.heard() if said["kind"] == "problem"]
    assert texts == ["Callbacks.close: ZeroDivisionError: division by zero"]


def test_callbacks_that_cannot_be_loaded_in_the_child_are_reported_and_the_rest_goes_on() -> None:
    link = Link(QUIET, callbacks=b"no pickle")
    offer(link, np.ones(1))
    assert link.stop(60.0) == Account(1, 1)
    assert [said["kind"] for said in link.heard()] == ["problem", "done"]


def test_what_cannot_travel_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()

    def value(layer: str, variable: str, step: int, array: Any) -> None:
        lock.acquire()

    with pytest.raises(BadArgument, match=r"value cannot be sent to the watching process: .*lock.*Open files, locks"):
        packed(value, as_torch=False)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(BadArgument, match=r"callbacks need cloudpickle; try pip install 'torcheer\[all\]'"):
        packed(value, as_torch=False)
    assert packed(None, None, as_torch=True) == b""


def called(callback: Callable[..., Any], sent: Delivery, as_torch: bool = True) -> None:
    """Call a callback as the child does."""
    blob = packed(callback, as_torch=as_torch)
    reader = Callbacks(blob, Plan(unique_id=4), print)
    reader._on_value = callback  # not its copy: the test wants to see what it got
    reader.take(sent)


def test_the_seeds_callbacks_get_its_keywords_and_a_tensor() -> None:
    import torch

    got: list[dict[str, Any]] = []
    called(
        lambda **keywords: got.append(keywords),
        Delivery(Sample(3, "conv", "output", -1, np.arange(3.0)), count=40, message="epoch:3"),
    )
    data = got[0].pop("input_data")
    assert got == [{"unique_id": 4, "key": "conv", "internal_message": "epoch:3", "message": "40"}]
    assert isinstance(data, torch.Tensor) and data.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, 3e38], ml_dtypes.bfloat16), np.array([1.5, 448], ml_dtypes.float8_e4m3fn),
        np.array([1.5], ml_dtypes.float8_e5m2), np.array(2.5, ml_dtypes.bfloat16), np.empty((0, 2), ml_dtypes.bfloat16),
        np.array([True]), np.array([1 + 2j], np.complex64), np.array([2**63 - 1]), np.array([7], np.uint16),
        np.array([2**64 - 1], np.uint64), np.array(1.5), np.array([1.5], np.float16),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)  # fmt: skip
def test_arrays_of_all_types_become_tensors_of_the_same_type_and_bits(array: Any) -> None:
    import torch

    tensor = as_tensor(array)
    assert str(tensor.dtype) == f"torch.{array.dtype.name}" and tuple(tensor.shape) == array.shape
    assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == array.tobytes()


def test_a_callback_of_our_own_gets_numpy_so_that_the_child_needs_no_torch() -> None:
    got: list[Any] = []

    def ours(**keywords: Any) -> None:
        got.append(type(keywords["input_data"]))

    ours.__module__ = "torcheer.inspector.data_recorder"
    called(functools.partial(ours), Delivery(Sample(3, "conv", "output", -1, np.arange(3.0))))
    assert got == [np.ndarray]


def test_a_torch_callback_in_the_child_gets_tensors_of_every_kind(tmp_path: Path) -> None:
    path = str(tmp_path / "types")

    def value(*, unique_id: int, key: str, internal_message: str, message: str, input_data: Any) -> None:
        with open(path, "a") as file:
            print(unique_id, key, internal_message, message, input_data.dtype, input_data.sum().item(), file=file)

    link = Link(Plan(statistics=False, unique_id=7), callbacks=packed(value, as_torch=True))
    offer(link, np.ones((2, 2), ml_dtypes.bfloat16), 1, "conv", message="epoch:1", count=20)
    offer(link, np.ones((), np.int64), 1, "pool")
    assert link.stop(60.0) == Account(2, 2), link.heard()
    assert Path(path).read_text() == "7 conv epoch:1 20 torch.bfloat16 4.0\n7 pool  0 torch.int64 1\n"
