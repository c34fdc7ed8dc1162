"""`show`: what stands in the studio, from a line of Python."""

from __future__ import annotations

import os
import pty
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from children import run_python
from seams import PassSource, capture_for_show, open_source
from studio_socket import Page
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.studio import Network, State, Table, show

pytest.importorskip("uvicorn")
DEADLINE_SECS = 60


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary things go, so that what is left of them is seen."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def test_a_model_is_shown_with_values_gradients_and_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = model()
    x = torch.randn(2, 1, 8, 8)
    with show(net, x, browser=False, block=False) as viewer:
        assert capsys.readouterr().out.splitlines() == [viewer.url] and "token=" in viewer.url
        (place,) = folder.glob("torcheer-show-*/[!.]*")
        source = PassSource(place)
        names = [one.layer.name for one in source.net.layers]
        assert {"Act", "Grad", "r.Wt"} <= {one.name for one in source.net.variables}
        conv, last = names[1], names[-1]
        before = net[0](x)[1].detach().flatten().numpy()
        assert np.allclose(source.units(0, conv, "Net", 1), before, atol=1e-6)
        assert np.allclose(source.units(0, conv, "Act", 1), before.clip(0), atol=1e-6)  # its ReLU is part of it
        assert np.array_equal(source.units(0, last, "Grad", 0), np.ones(3))
        assert np.array_equal(source.units(0, names[-2], "r.Wt", 0, of=(last, 2)), net[3].weight[2].detach().numpy())
        source.close()
    assert all(one.grad is None for one in net.parameters())
    del viewer
    wait_until(lambda: not list(folder.glob("torcheer-show-*")), "the archive to be gone")


def test_a_recording_of_what_is_shown_outlives_its_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(folder))
    options = {"browser": False, "block": False, "title": "My net: a / b"}
    with show(model(), torch.randn(2, 1, 8, 8), **options) as viewer, Page(viewer.url) as page:
        assert page.hello["title"] == "My net: a / b"
        page.say("save_recording", name="kept")
        assert str(tmp_path / "recordings") in page.until("recordings_came")["saved"]
    del viewer
    wait_until(lambda: not list(folder.glob("torcheer-show-*")), "the archive to be gone")
    assert open_source(tmp_path / "recordings" / "kept").units(0, "0", "Act") is not None


def test_gradients_that_are_there_stay_as_they_are() -> None:
    net = model()
    net(torch.ones(1, 1, 8, 8)).sum().backward()
    before = [one.grad.clone() for one in net.parameters()]
    capture_for_show(net, torch.randn(2, 1, 8, 8))
    assert all(torch.equal(one.grad, grad) for one, grad in zip(net.parameters(), before))


@pytest.mark.parametrize("which", ["no_grad", "integers", "frozen", "many outputs"])
def test_models_without_gradients_are_captured_all_the_same(which: str) -> None:
    net: nn.Module = model()
    x = torch.randn(2, 1, 8, 8)
    if which == "integers":
        net, x = nn.Embedding(5, 3), torch.tensor([[1, 2]])
    elif which == "frozen":
        net.requires_grad_(False)
    elif which == "many outputs":
        net, x = nn.LSTM(3, 4, batch_first=True), torch.randn(1, 2, 3)
    with torch.set_grad_enabled(which != "no_grad"):
        assert len(capture_for_show(net, x)) > 1


def test_a_history_is_shown(folder: Path) -> None:
    history = tl.log_forward_pass(model(), torch.randn(1, 1, 8, 8))
    with show(history, browser=False, block=False, title="My <net>") as viewer:
        assert viewer.alive
        (place,) = folder.glob("torcheer-show-*/[!.]*")
        assert place.name == "My-net"


def test_a_path_is_shown(tmp_path: Path) -> None:
    tl.log_forward_pass(model(), torch.randn(1, 1, 8, 8)).save(tmp_path / "pass")
    with show(tmp_path / "pass", browser=False, block=False) as viewer:
        assert viewer.alive
    assert not viewer.alive


def test_a_network_and_a_table_are_shown(folder: Path) -> None:
    est = State()
    est.rec(torch.ones(1, 3), "A.Act")
    table = Table({"Name": ["a"], "Act": np.ones((1, 2, 2))}, name="patterns")
    for what in (est, est.net, table):
        with show(what, browser=False, block=False) as viewer:
            assert viewer.alive
        del viewer
    wait_until(lambda: not list(folder.rglob("control.sock")), "the socket to be gone")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((nn.Linear(1, 1),), "show\\(Linear\\): a model is shown as it runs, so give it inputs"),
        ((Network("a"), 1), "inputs go with a model, and this is a Network"),
        (
            (3,),
            "show takes a history, a model with inputs, a Network, a Table, a path, or two histories or paths, not int",
        ),
        (("nowhere/at/all",), "there is nothing at nowhere/at/all"),
    ],
)
def test_what_cannot_be_shown_says_why(arguments, text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        show(*arguments, browser=False, block=False)


SCRIPT = """
import torch
from torcheer.studio import show
show(torch.nn.Linear(2, 3), torch.ones(1, 2), browser=False)
print("after", flush=True)
"""


WATCHED = """
import sys, threading, time, traceback
def watch():
    main = threading.main_thread().ident
    def waits(frame):
        return frame.name == "wait" and frame.filename.endswith("open_viewer.py")
    while not any(map(waits, traceback.extract_stack(sys._current_frames()[main]))):
        time.sleep(0.01)
    print("it waits", flush=True)
threading.Thread(target=watch, daemon=True).start()
"""


def test_a_script_that_is_not_on_a_terminal_goes_on() -> None:
    done = run_python("-c", SCRIPT)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("http://127.0.0.1:") and lines[1] == "after"


def test_a_script_on_a_terminal_waits_for_ctrl_c() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "DISPLAY")}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-c", WATCHED + SCRIPT], environment)
    said = b""
    try:
        while b"it waits" not in said:
            said += os.read(terminal, 4096)
        assert said.startswith(b"http://127.0.0.1:") and b"after" not in said
        os.kill(pid, signal.SIGINT)
        try:
            while piece := os.read(terminal, 4096):
                said += piece
        except OSError:  # the terminal's other end is closed
            pass
        assert b"after" in said and b"Traceback" not in said
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pid = 0
    finally:
        os.close(terminal)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_what_show_saved_opens_as_any_saved_history(folder: Path) -> None:
    with show(model(), torch.randn(1, 1, 8, 8), browser=False, block=False) as viewer:
        (place,) = folder.glob("torcheer-show-*/[!.]*")
        source = open_source(place)
        assert len(source.moments) == 1 and viewer.alive
        source.close()
