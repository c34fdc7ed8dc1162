"""What `torcheer train` needs of a studio: a control for its session, a viewer beside it, one run after another."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torcheer.errors import BadArgument, TorcheerError
from torcheer.host.host import reason_of
from torcheer.training.control.earlier_runs import put_away
from torcheer.wire.viewer_process import Launched

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
    launched = Launched(home, f"--port={chosen.port}", *["--browser"] * (not chosen.no_browser and _has_screen()))
    try:
        print(launched.url, flush=True)
        yield launched.url
    except BaseException as error:
        control.close(reason_of(error))
        raise
    finally:
        control.close()  # says goodbye, so that the viewer does not wait for another
        launched.end()
        if launched.said:
            print(launched.said, file=sys.stderr, flush=True)


def _has_screen() -> bool:
    """Whether a browser has somewhere to appear: one in the terminal would be in the way."""
    if not sys.stdout.isatty() or os.environ.get("CI") or os.environ.get("TORCHEER_NO_BROWSER"):
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
