"""The viewer as a process: how it starts, what it prints, and that nothing of it is left."""

from __future__ import annotations

import gc
import http.client
import os
import re
import signal
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from children import Child, has_ended, run_python
from seams import child_process, listen, open_viewer, run_viewer, serve_path, start, viewer_process
from studio_runs import log_rows
from studio_socket import Page, cookie_of
from waiting import WAIT_SECS, wait_until

from torcheer.errors import BadArgument, CannotWrite
from torcheer.studio import Viewer
from torcheer.training.control import Control

URL = re.compile(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has trained for two epochs and ended."""
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"format": 1}')
    log_rows(folder, "train_epoch/0", [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    return folder


@pytest.fixture
def viewer(run: Path) -> Iterator[Viewer]:
    with start(run, browser=False, quiet=True) as viewer:
        yield viewer


# -- from Python -------------------------------------------------------------------------------------------------------


def test_the_first_line_printed_is_the_address_with_its_token(run: Path, capfd: Any) -> None:
    with start(run, browser=False) as viewer:
        assert capfd.readouterr().out == f"{viewer.url}\n"
        assert URL.fullmatch(viewer.url)
        assert viewer.alive and viewer.pid != os.getpid()


def test_a_run_is_shown_with_what_its_directory_holds(viewer: Viewer) -> None:
    with Page(viewer.url) as page:
        assert (page.hello["source"], page.hello["controller"]) == ("run", "nobody")
        assert page.until("rows", lambda rows: rows["table"] == "train_epoch")["columns"]["loss"] == [0.5, 0.25]
        assert page.problem("act", action="train").startswith("nothing runs here")


def test_the_server_has_no_torch(viewer: Viewer) -> None:
    with Page(viewer.url) as page:
        assert page.hello["version"] == 2  # all that it needs has been imported
    assert "libtorch" not in Path(f"/proc/{viewer.pid}/maps").read_text()


def test_all_that_the_server_imports_does_without_torch() -> None:
    names = (
        "server, routes, cli, graph_answers, run_outcome, viewer_owner, server_errors, connections.auth, "
        "connections.message_handlers, connections.source_pages, connections.page_connection, "
        "connections.subscriptions, sources.open_source"
    )
    modules = ", ".join(f"torcheer.studio.{name}" for name in names.split(", "))
    code = f"import sys, {modules}; print('torch' in sys.modules, 'IPython' in sys.modules)"
    done = run_python("-c", code)
    assert done.stdout == "False False\n", done.stderr


def test_closing_it_ends_the_process(run: Path) -> None:
    viewer = start(run, browser=False, quiet=True)
    with Page(viewer.url):
        viewer.close()
    assert not viewer.alive
    assert has_ended(viewer.pid)
    assert repr(viewer) == "Viewer(ended)"
    viewer.close()  # again does nothing


def test_it_stays_when_nobody_keeps_it(run: Path) -> None:
    pid = start(run, browser=False, quiet=True).pid
    gc.collect()
    (kept,) = [viewer for viewer in open_viewer._STARTED if viewer.pid == pid]
    with Page(kept.url) as page:
        assert page.hello["version"] == 2
    kept.close()
    assert kept not in open_viewer._STARTED


def test_two_servers_may_show_the_same_run_and_have_different_keys(run: Path) -> None:
    with start(run, browser=False, quiet=True) as one, start(run, browser=False, quiet=True) as other:
        cookies = [cookie_of(viewer.url) for viewer in (one, other)]
        assert cookies[0].partition("=")[0] != cookies[1].partition("=")[0]
        connection = http.client.HTTPConnection(urlsplit(other.url).netloc, timeout=60)
        connection.request("GET", "/", headers={"Cookie": cookies[0]})
        assert connection.getresponse().status == 401


def test_a_cookie_from_before_a_restart_is_refused(run: Path) -> None:
    with start(run, browser=False, quiet=True) as before:
        cookie, port = cookie_of(before.url), urlsplit(before.url).port
    assert port is not None
    with start(run, port=port, browser=False, quiet=True) as after:
        connection = http.client.HTTPConnection(urlsplit(after.url).netloc, timeout=60)
        connection.request("GET", "/", headers={"Cookie": cookie})
        assert connection.getresponse().status == 401


def test_what_the_server_printed_stands_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match=r"the studio could not be started: it has ended\. .*nothing-here"):
        start(tmp_path / "nothing-here", browser=False, quiet=True)


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_SCRIPT", "import time\ntime.sleep(600)")
    for name, value in {"_START_SECS": 0.2, "_END_SECS": 0.1}.items():
        monkeypatch.setattr(viewer_process, name, value)
    with pytest.raises(CannotWrite, match=r"it has not answered for 0\.2 s\. It said nothing"):
        start(run, browser=False, quiet=True)
    chosen = Namespace(studio=True, port=0, no_browser=True, host=None, base_path="", allow_host=[])
    with (
        pytest.raises(CannotWrite, match="has not answered"),
        Control(run) as control,
        run_viewer(chosen, control, run),
    ):
        pass  # as `torcheer train --studio` begins


def test_a_port_that_is_in_use_is_named(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotWrite, match=rf"127\.0\.0\.1:{port} cannot be listened on: .*--port 0"):
            start(run, port=port, browser=False, quiet=True)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(BadArgument, match=f"there is no port {port}"):
        listen(port=port)


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(BadArgument, match=r"203\.0\.113\.1:0 cannot be listened on"):
        listen("203.0.113.1")


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(BadArgument, match=r"the studio needs uvicorn: pip install 'torcheer\[all\]'"):
        listen()


def test_the_server_opens_a_browser_where_it_is_told_to(run: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\ncat "${{1#file://}}" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    with Child("-P", "-m", "torcheer.studio.server", run, "--browser", env={"BROWSER": f"{browser} %s"}) as process:
        url = process.line()
        wait_until(lambda: (tmp_path / "opened").exists() and url in (tmp_path / "opened").read_text())
        assert (tmp_path / "opened").read_text().count(url) >= 1


# -- no orphans --------------------------------------------------------------------------------------------------------

PARENT = """\
import os, sys, time
from torcheer.wire.open_viewer import start
viewer = start(sys.argv[1], browser=False)
print(viewer.pid, flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(600)
    os._exit(0)
{end}
"""


@pytest.mark.parametrize(
    ("end", "how"),
    [("time.sleep(600)", "killed"), ("time.sleep(600)", "fork"), ("", "ends"), ("raise SystemExit(3)", "fails")],
)
def test_it_ends_with_the_process_that_started_it(run: Path, end: str, how: str) -> None:
    code = PARENT.format(end=end)
    with Child("-c", code, run, how) as parent:
        assert URL.fullmatch(parent.line())
        pid = int(parent.line())
        if how in ("killed", "fork"):
            assert not has_ended(pid)
            parent.send_signal(signal.SIGKILL)
        parent.wait(WAIT_SECS)
        wait_until(lambda: has_ended(pid))


# -- the command -------------------------------------------------------------------------------------------------------


def torcheer(*arguments: str | Path) -> Child:
    """`torcheer studio …`."""
    return Child("-m", "torcheer", "studio", *arguments)


@pytest.mark.parametrize("with_a_page", [False, True])
def test_ctrl_c_ends_the_command_with_130_and_without_a_traceback(run: Path, with_a_page: bool) -> None:
    with torcheer(run) as command:
        url = command.line()
        assert URL.fullmatch(url)
        page = Page(url) if with_a_page else None
        command.send_signal(signal.SIGINT)
        assert command.ends(130) == "" == command.error_text
        if page is not None:
            page.close()


def test_a_second_ctrl_c_ends_it_at_once_while_pages_hang(run: Path) -> None:
    with torcheer(run) as command, socket.socket() as hanging:
        hanging.connect(("127.0.0.1", urlsplit(command.line()).port or 0))
        hanging.sendall(b"GET / HTTP/1.1\r\n")  # and no end of it
        command.send_signal(signal.SIGINT)
        time.sleep(0.05)
        command.send_signal(signal.SIGINT)
        command.ends(130)
        assert command.returncode == 130


def test_the_command_serves_a_folder_of_runs(run: Path) -> None:
    with torcheer(run.parent, "--no-browser") as command, Page(command.line()) as page:
        assert [one["name"] for one in page.hello["runs"]] == ["first"]
        assert page.hello["run"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["nothing-here"],
            "there is nothing at nothing-here; name a run, a folder of runs, a recording or a model's file",
        ),
        (["{run}", "--port", "99999"], "there is no port 99999"),
        (["{run}", "--port", "{taken}"], "cannot be listened on"),
    ],
)
def test_the_command_says_what_is_wrong_and_ends_with_1(run: Path, arguments: list[str], text: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with torcheer(*(one.format(run=run, taken=port) for one in arguments)) as command:
            assert command.ends(1) == ""
            assert command.error_text.startswith("torcheer studio: ") and text in command.error_text
            assert "Traceback" not in command.error_text


def test_without_a_host_it_listens_on_loopback_alone(run: Path) -> None:
    with torcheer(run) as command:
        port = urlsplit(command.line()).port
        socket.create_connection(("127.0.0.1", port), 60).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 60)


def test_another_address_is_listened_on_with_a_warning_and_its_name_is_a_host(run: Path) -> None:
    with torcheer(run, "--host", "127.0.0.2") as command:
        url = command.line()
        wait_until(lambda: "others in the network can reach 127.0.0.2" in command.error_text)
        with Page(url) as page:
            assert url.startswith("http://127.0.0.2:") and page.hello["version"] == 2


def test_on_every_address_only_the_one_that_was_asked_is_a_host(run: Path) -> None:
    with torcheer(run, "--host", "0.0.0.0") as command:
        url = command.line()
        assert URL.fullmatch(url)
        wait_until(lambda: "others in the network can reach" in command.error_text)
        port = urlsplit(url).port
        for address, host, status in (
            ("127.0.0.3", f"127.0.0.3:{port}", 401),
            ("127.0.0.3", f"127.0.0.4:{port}", 421),
            ("127.0.0.3", f"evil.example:{port}", 421),
        ):
            connection = http.client.HTTPConnection(address, port, timeout=60)
            connection.request("GET", "/", headers={"Host": host})
            assert (connection.getresponse().status, host) == (status, host)
            connection.close()


def test_a_path_that_cannot_be_shown_leaves_the_port_free(tmp_path: Path) -> None:
    with pytest.raises(BadArgument):
        serve_path(tmp_path / "nothing")


# -- where it is seen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "terminal", "opens"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({}, True, False),
        ({"DISPLAY": ":0"}, False, False),
        ({"DISPLAY": ":0", "TORCHEER_NO_BROWSER": "1"}, True, False),
        ({"DISPLAY": ":0", "CI": "true"}, True, False),
    ],
)
def test_a_browser_opens_only_where_somebody_sits(
    monkeypatch: Any, environment: dict[str, str], terminal: bool, opens: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "TORCHEER_NO_BROWSER", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert open_viewer.can_browse() is opens


def test_the_token_is_handed_to_the_browser_in_a_private_file(monkeypatch: Any) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_viewer.browse("http://127.0.0.1:1/?token=secret&x=1")
    file = Path(urlsplit(opened[0]).path)
    assert "secret" not in opened[0]
    assert "url=http://127.0.0.1:1/?token=secret&amp;x=1" in file.read_text()
    assert file.parent.stat().st_mode & 0o077 == 0


def test_in_a_notebook_it_stands_below_the_cell_and_its_address_above(run: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    code = f"from torcheer.wire.open_viewer import start\nviewer = start({str(run)!r})"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    printed, shown = notebook.cells[0].outputs
    assert URL.fullmatch(printed["text"].strip())
    page = shown["data"]["text/html"]
    assert "<iframe" not in page and 'createElement("iframe")' in page  # its address is that of the notebook's host
    assert printed["text"].strip() in page


def test_outside_a_notebook_nothing_is_shown_inline() -> None:
    assert not open_viewer.in_notebook()


def test_no_test_ever_opens_a_browser_by_itself(run: Path, monkeypatch: Any) -> None:
    opened: list[str] = []
    monkeypatch.setattr(open_viewer, "browse", opened.append)
    with start(run, quiet=True):
        pass
    assert opened == []
