"""The studio through the real jupyter-server-proxy, below a hub's path: its launcher, a port, and a path that stays."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from children import Child
from studio_pages import Pages, opened  # noqa: F401
from studio_runs import log_rows
from waiting import wait_until

pytestmark = [pytest.mark.integrations, pytest.mark.browser]
BASE = "/user/me"
SECRET = "a-password-of-jupyter"


class Jupyter(NamedTuple):
    """A Jupyter server of a folder with a run."""

    host: str
    folder: Path

    def ask(self, path: str, **headers: str) -> Any:
        """The answer to a request; None while nobody listens."""
        connection = HTTPConnection(self.host, timeout=60)
        try:
            connection.request("GET", f"{BASE}{path}", headers=headers)
            return connection.getresponse()
        except (OSError, HTTPException):
            return None

    def signed_in(self) -> dict[str, Any]:
        """Jupyter's cookie, as an option of a browser's context."""
        name, value = self.ask(f"/lab?token={SECRET}").getheader("set-cookie").split(";")[0].split("=", 1)
        cookie = {"name": name, "value": value, "domain": "127.0.0.1", "path": f"{BASE}/", "expires": -1}
        return {"cookies": [{**cookie, "httpOnly": True, "secure": False, "sameSite": "Lax"}], "origins": []}


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    pytest.importorskip("jupyter_server_proxy")
    folder, home = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("home")
    for run in ("first", "second"):
        log_rows(folder / run, "train_epoch/0", [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"ip": "127.0.0.1", "port": port, "base_url": f"{BASE}/", "open_browser": False, "allow_root": True}
    options = [f"--ServerApp.{name}={value}" for name, value in settings.items()]
    options.append("--ServerApp.jpserver_extensions=jupyter_server_proxy=True")
    folders = {f"JUPYTER_{kind}_DIR": str(home / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    with Child(
        *("-m", "jupyter_server", *options, f"--IdentityProvider.token={SECRET}"),
        cwd=folder, env={**folders, "HOME": str(home), "TORCHEER_STATE": str(home / "state")},
    ) as process:  # fmt: skip
        server = Jupyter(f"127.0.0.1:{port}", folder)
        wait_until(lambda: server.ask("/api"), "Jupyter", seen=lambda: process.error_text[-2000:])
        yield server


def reads_the_run(page: Any) -> None:
    """The socket is open (a page was given), and rows of the run come through it."""
    page.get_by_role("tab", name="Tables", exact=True).click()
    page.locator(".tables-tab .grid td", has_text="0.25").first.wait_for()


def test_the_launchers_button_opens_a_studio_of_jupyters_folder(jupyter: Jupyter, open_page: Pages) -> None:
    answer = jupyter.ask("/server-proxy/servers-info", Authorization=f"token {SECRET}")
    servers = {server["name"]: server["launcher_entry"] for server in json.load(answer)["server_processes"]}
    entry = servers["torcheer-studio"]
    assert (entry["title"], entry["enabled"]) == ("torcheer studio", True)
    assert jupyter.ask("/torcheer-studio/").status in (302, 403)  # to Jupyter's own login
    page = open_page(f"http://{jupyter.host}{BASE}/{entry['path_info']}", storage_state=jupyter.signed_in())
    assert urlsplit(page.url).path == f"{BASE}/torcheer-studio/" and "token" not in page.url
    page.locator(".runs-pane .grid tbody tr", has=page.get_by_text("first", exact=True)).dblclick()
    reads_the_run(page)


@pytest.mark.parametrize("way", ["proxy", "proxy/absolute"], ids=["stripped", "as it is"])
def test_a_studio_that_was_started_by_hand_is_there_below_its_port(
    jupyter: Jupyter, open_page: Pages, way: str
) -> None:
    base = ("--base-path", f"{BASE}/proxy/absolute/{{port}}") if way == "proxy/absolute" else ()
    options = ("--allow-host", f"http://{jupyter.host}", "--no-browser", *base)
    with Child("-m", "torcheer", "studio", jupyter.folder / "first", *options) as studio:
        url = urlsplit(studio.line())
        address = f"http://{jupyter.host}{BASE}/{way}/{url.port}/?{url.query}"
        page = open_page(address, storage_state=jupyter.signed_in())
        reads_the_run(page)
        page.reload()
        reads_the_run(page)
        page.close()
