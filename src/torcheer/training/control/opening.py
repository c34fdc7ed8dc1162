"""What `torcheer train` needs of a studio: a control for its session, a viewer beside it, one run after another."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torcheer.errors import BadArgument, TorcheerError
from torcheer.training.control.runs import put_away

END_SECS = 3.0  # for the viewer to end by itself

if TYPE_CHECKING:
    from torcheer.training.control import Control
    from torcheer.training.spec import Built


def control_of(built: Built, *, is_wanted: bool, is_paused: bool = False) -> tuple[Control | None, list[str]]:
    """A session's control, if it is to have one; else why it has none, where that is nobody's wish."""
    if not (is_wanted and built.session.options.studio):
        return None, []
    from torcheer.training.control import Control

    home = built.session.directory
    assert home is not None
    try:
        return Control(home, title=home.resolve().name, is_paused=is_paused), []
    except (TorcheerError, OSError) as error:
        return None, [f"no studio can look on, training goes on without: {error}"]


def begun_anew(control: Control, built: Built, trusted: Sequence[str]) -> tuple[Built, list[str]]:
    """The session of the same directory from its beginning; what it made so far lies in `earlier/`."""
    from torcheer.training.spec import reopen

    old, changes = built.session, list(control.anew or ())
    home = old.directory
    assert home is not None
    kept = put_away(home, control.result())
    new = reopen(home, changes=changes, trusted=trusted)
    if changes:
        new.spec.save(home)
    assert new.session.keeper is not None and old.keeper is not None
    new.session.keeper.take_over(old.keeper)
    what = f"with seed {new.session.options.seed}" if changes else "from the beginning"
    return new, [f"Another run begins, {what}; the one before lies under {kept}"]


@contextmanager
def viewer_of(chosen: argparse.Namespace, control: Control | None, home: Path) -> Iterator[str]:
    """The studio beside this process, where it is asked for: its address, which is the first line printed."""
    if not chosen.studio:
        yield ""
        return
    if control is None:
        raise BadArgument("--studio: this session lets no studio look on (studio=false, --no-control, or see above)")
    process = _started(home, chosen.port, browser=not chosen.no_browser and _has_screen())
    try:
        url = _address(process)
        print(url, flush=True)
        yield url
    finally:
        control.close()  # says goodbye, so that the viewer does not wait for another
        assert process.stdin is not None
        process.stdin.close()  # it ends with its parent
        try:
            process.wait(END_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(home: Path, port: int, *, browser: bool) -> subprocess.Popen[str]:
    """The viewer's process; a Ctrl-C at the terminal is not meant for it, and it ends when its standard input does."""
    command = [sys.executable, "-P", "-m", "torcheer.studio.server", str(home), "--port", str(port)]
    command += ["--parent", str(os.getpid()), *["--browser"] * browser]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def _address(process: subprocess.Popen[str]) -> str:
    """What it prints once it answers."""
    assert process.stdout is not None and process.stderr is not None
    url = process.stdout.readline().strip()
    if not url:
        process.wait()
        said = process.stderr.read().strip().rpartition("\n")[2]
        raise BadArgument(f"--studio: the studio did not start: {said or f'status {process.returncode}'}")
    threading.Thread(target=_passed_on, args=(process.stderr,), daemon=True).start()
    return url


def _passed_on(stream: TextIO) -> None:
    """Say what the viewer says; a pipe that nobody reads would stop it."""
    for line in stream:
        print(line, end="", file=sys.stderr, flush=True)


def _has_screen() -> bool:
    """Whether a browser has somewhere to appear: one in the terminal would be in the way."""
    if not sys.stdout.isatty() or os.environ.get("CI") or os.environ.get("TORCHEER_NO_BROWSER"):
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
