"""Start a viewer from Python: print its URL, open the browser, show the page below a notebook's cell."""

from __future__ import annotations

import atexit
import html
import json
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from torcheer.disk import has_unix
from torcheer.public_names import PublicClass
from torcheer.wire.page_address import PageAddress, allowed_by_environment, parse_host, ways_to
from torcheer.wire.temporary_folders import TemporaryFolder
from torcheer.wire.viewer_process import ViewerProcess

_STARTED: set[Viewer] = set()  # `tl.show(model, x)` keeps no reference, and its page must stay
_INLINE: Final = """\
<div id="{id}"><a href="{link}" target="_blank" rel="noopener">open the studio in a tab of its own</a></div>
<script>
(function () {{
  var place = document.getElementById({id_text}), name = location.hostname, source = "";
  var config = document.getElementById("jupyter-config-data");
  if (name === "localhost" || name === "127.0.0.1") source = "http://" + name + ":" + {address_text};
  else if ({hosts}.indexOf(location.host) >= 0)
    source = ({base} || ((config && JSON.parse(config.textContent).baseUrl) || "/") + {proxied}) + {query};
  if (!place || !source) return;
  place.querySelector("a").href = source;
  var frame = document.createElement("iframe");
  frame.src = source;
  frame.title = "torcheer studio";
  frame.style.cssText = "display:block;width:100%;height:640px;border:1px solid #8884";
  place.prepend(frame);
}})();
</script>
"""


class Viewer(metaclass=PublicClass):
    """A running viewer: `url` opens it, `close()` ends it; it also ends when this process does, unless it `stays`."""

    def __init__(self, viewer: ViewerProcess) -> None:
        self.url, self.pid = viewer.url, viewer.process.pid
        self._viewer, self._process = viewer, os.getpid()
        self.closes: list[Callable[[], None]] = []  # called by `close`: what ends with the viewer in this process
        _STARTED.add(self)
        if viewer.stays:
            atexit.register(self._say_it_stays)

    @property
    def stays(self) -> bool:
        """Whether it goes on when this process has ended: on a terminal, for a run that others may still look at."""
        return self._viewer.stays

    def _say_it_stays(self) -> None:
        if self in _STARTED and self.alive and self._process == os.getpid():
            say_it_stays(self.url)

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._viewer.process.poll() is None

    @property
    def said(self) -> str:
        """What the process has written to its standard error."""
        return self._viewer.error_output

    def close(self) -> None:
        """End the viewer; the process that it shows goes on."""
        _STARTED.discard(self)
        atexit.unregister(self._say_it_stays)
        self._viewer.end()
        while self.closes:
            self.closes.pop()()

    def wait(self) -> None:
        """Block until the viewer ends, or Ctrl-C."""
        self._viewer.process.wait()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({self.url if self.alive else 'ended'})"


class NoViewer(Viewer):
    """What a process gets that shows nothing: of several ranks, those that were not asked to."""

    def __init__(self) -> None:
        self.url, self.pid, self.closes = "", 0, []

    stays = alive = False
    said = ""

    def close(self) -> None:
        """There is nothing to end."""

    def wait(self) -> None:
        """There is nothing to wait for."""


def start(
    path: str | os.PathLike[str], address: PageAddress | None = None, *, port: int = 0, browser: bool | None = None,
    quiet: bool = False, title: str = "", folder: TemporaryFolder | None = None, outlives: bool = False,
    options: Sequence[str] = (),
) -> Viewer:  # fmt: skip
    """Show a run, a folder of runs, a recording or a host's socket; the URL with its token is the first line printed.

    `browser=None` opens one on a terminal with a display. In a notebook the page appears below the cell. The viewer
    holds `folder`, too. `outlives`: it shows a run, and stays after this process where a person sits at a terminal.
    `options`: further arguments of its server, as another path to compare with.
    """
    for viewer in [viewer for viewer in _STARTED if not viewer.alive]:
        viewer.close()  # it was killed
    address = address or PageAddress(port)
    process = ViewerProcess(path, *options, *address.options(), f"--title={title}", folder=folder, outlives=outlives)
    if not quiet:
        ways = [] if in_notebook() else ways_to(process.url, address)  # there the page stands below the cell
        print(process.url, *ways, sep="\n", flush=True)
    if browser or (browser is None and not quiet and can_browse()):
        browse(process.url)
    if browser is not False and not quiet and in_notebook():
        display(process.url, address)
    return Viewer(process)


def say_it_stays(url: str) -> None:
    """Print how long a page stays whose process ends now."""
    text = (
        f"torcheer: the page stays at {url}\n  until it is closed there, this terminal is, or nobody looked for an hour"
    )
    with suppress(OSError, ValueError):  # stderr is closed
        print(text, file=sys.stderr, flush=True)


# -- browser and notebook ----------------------------------------------------------------------------------------------


def can_browse() -> bool:
    """Whether this is a terminal on a machine with a display."""
    if os.environ.get("TORCHEER_NO_BROWSER") or os.environ.get("CI") or not sys.stdout.isatty():
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def browse(url: str) -> None:
    """Open the browser through a file that only this user may read: all users can read the arguments of processes."""
    if not has_unix():  # Windows shows arguments to their user alone
        webbrowser.open(url)
        return
    folder = TemporaryFolder("studio")
    atexit.register(folder.remove)
    file = folder.path / "open.html"
    link = html.escape(url, quote=True)
    file.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><a href="{link}">studio</a>',
        encoding="utf-8",
    )
    webbrowser.open(file.as_uri())


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    kernel = sys.modules.get("ipykernel")
    return kernel is not None and "IPython" in sys.modules and _shell() is not None


def _shell() -> Any:
    from IPython import get_ipython

    shell = get_ipython()
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None


def display(url: str, address: PageAddress | None = None) -> None:
    """Show the page below the cell."""
    from IPython import display as ipython

    ipython.display(ipython.HTML(inline(url, address)))  # type: ignore[no-untyped-call]


def inline(url: str, address: PageAddress | None = None) -> str:
    """The page as an iframe under the notebook's host name: on another site the browser would send no cookie.

    On another machine, where the notebook's host was allowed, through jupyter-server-proxy.
    """
    parts, address = urlsplit(url), address or PageAddress()
    name = f"torcheer-studio-{parts.port}-{os.urandom(4).hex()}"
    hosts = [parse_host(host)[0] for host in (*address.allowed_hosts, *allowed_by_environment())]
    return _INLINE.format(
        id=name, id_text=json.dumps(name), link=html.escape(url, quote=True),
        address_text=json.dumps(f"{parts.port}{parts.path}?{parts.query}"), hosts=json.dumps(hosts),
        base=json.dumps(parts.path if address.base_path else ""), proxied=json.dumps(f"proxy/{parts.port}/"),
        query=json.dumps(f"?{parts.query}"),
    )  # fmt: skip
