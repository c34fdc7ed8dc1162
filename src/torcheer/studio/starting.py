"""The viewer as a process of its own, started from Python: its address printed, the browser opened, no orphans."""

from __future__ import annotations

import atexit
import html
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from torcheer.errors import CannotWrite

_BEGIN: Final = """\
# torcheer.studio.server: serves a page that shows a network
import sys
first, rest = sys.argv[1], sys.argv[2].splitlines()
sys.path[:] = [first, *sys.path, *(entry for entry in rest if entry not in sys.path)]
from torcheer.studio.server import main
sys.exit(main(sys.argv[3:]))
"""
_START_SECS: Final = 30.0
_END_SECS: Final = 3.0
_STARTED: set[Viewer] = set()  # `tl.show(model, x)` keeps no reference, and its page stays
_INLINE: Final = """\
<div id="{id}"><a href="{link}" target="_blank" rel="noopener">open the studio in a tab of its own</a></div>
<script>
(function () {{
  var place = document.getElementById({id_text}), name = location.hostname;
  if (!place || (name !== "localhost" && name !== "127.0.0.1")) return;
  var frame = document.createElement("iframe");
  frame.src = "http://" + name + ":" + {rest_text};
  frame.title = "torcheer studio";
  frame.style.cssText = "display:block;width:100%;height:640px;border:1px solid #8884";
  place.prepend(frame);
}})();
</script>
"""


class Viewer:
    """A viewer that runs: `url` opens it, `close()` ends it; it also ends when this process does."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, printed: IO[bytes]) -> None:
        self.url, self.pid = url, process.pid
        self._process, self._printed = process, printed
        _STARTED.add(self)

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What the process has printed about its troubles."""
        return _text(self._printed)

    def close(self) -> None:
        """End it; training and whatever else is looked at go on."""
        _STARTED.discard(self)
        end(self._process)

    def wait(self) -> None:
        """Until it ends, or Ctrl-C."""
        self._process.wait()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({self.url if self.alive else 'ended'})"


def start(path: str | os.PathLike[str], *, port: int = 0, browser: bool | None = None, quiet: bool = False) -> Viewer:
    """Show a run, a folder of runs, a recording or a host's socket; the URL with its token is the first line printed.

    `browser=None` opens one where that makes sense: on a terminal with a display. In a notebook the page stands below
    the cell.
    """
    printed = tempfile.TemporaryFile()
    process = _started(Path(path), port, printed)
    try:
        url = _first_line(process, printed)
    except BaseException:
        end(process)
        raise
    if not quiet:
        print(url, flush=True)
    if browser or (browser is None and not quiet and can_browse()):
        browse(url)
    if browser is not False and not quiet and in_notebook():
        display(url)
    return Viewer(process, url, printed)


def end(process: subprocess.Popen[bytes]) -> None:
    """Let a process end by closing its standard input; kill one that does not."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_END_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _started(path: Path, port: int, printed: IO[bytes]) -> subprocess.Popen[bytes]:
    """A fresh interpreter in a session of its own: a Ctrl-C meant for the loop does not end it."""
    if not sys.executable:
        raise CannotWrite("there is no Python to start the studio with: sys.executable is empty")
    paths = "\n".join(entry for entry in sys.path if entry and "\n" not in entry)
    server = [str(path), "--port", str(port), "--parent", str(os.getpid())]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BEGIN, str(Path(__file__).parents[2]), paths, *server],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, start_new_session=True,
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},  # the cores are for the training
    )  # fmt: skip


def _first_line(process: subprocess.Popen[bytes], printed: IO[bytes]) -> str:
    """The address that the server prints; an error with what it said instead."""
    assert process.stdout is not None
    deadline, found = time.monotonic() + _START_SECS, b""
    while not found.endswith(b"\n"):
        left = deadline - time.monotonic()
        ready = select.select([process.stdout], [], [], max(0.0, left))[0]
        piece = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not piece:
            why = "has ended" if ready else f"has not answered for {_START_SECS:.0f} s"
            if ready:
                process.wait(_END_SECS)
            raise CannotWrite(f"the studio could not be started: it {why}. {_text(printed) or 'It said nothing.'}")
        found += piece
    return found.decode().splitlines()[0]


def _text(printed: IO[bytes]) -> str:
    size = os.fstat(printed.fileno()).st_size
    return os.pread(printed.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace").strip()


# -- where it is seen --------------------------------------------------------------------------------------------------


def can_browse() -> bool:
    """Whether somebody sits before a screen of this machine."""
    if os.environ.get("TORCHEER_NO_BROWSER") or os.environ.get("CI") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def browse(url: str) -> None:
    """Open the browser, by a file that only this user may read: arguments of processes are there for all to see."""
    file = Path(tempfile.mkdtemp(prefix="torcheer-studio-")) / "open.html"
    atexit.register(shutil.rmtree, file.parent, ignore_errors=True)
    link = html.escape(url, quote=True)
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><a href="{link}">studio</a>')
    webbrowser.open(file.as_uri())


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    kernel = sys.modules.get("ipykernel")
    return kernel is not None and "IPython" in sys.modules and _shell() is not None


def _shell() -> Any:
    from IPython import get_ipython

    shell = get_ipython()
    return shell if shell is not None and getattr(shell, "kernel", None) is not None else None


def display(url: str) -> None:
    """Show the page below the cell."""
    from IPython import display as shown

    shown.display(shown.HTML(inline(url)))  # type: ignore[no-untyped-call]


def inline(url: str) -> str:
    """The page in a frame, under the notebook's own host name: as another site it would be sent no cookie."""
    parts = urlsplit(url)
    name = f"torcheer-studio-{parts.port}-{os.urandom(4).hex()}"
    rest = f"{parts.port}{parts.path}?{parts.query}"
    return _INLINE.format(
        id=name, id_text=json.dumps(name), link=html.escape(url, quote=True), rest_text=json.dumps(rest)
    )
