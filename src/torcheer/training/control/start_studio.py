"""Studio support of `torcheer train`.

A control for its session, a viewer process, consecutive runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torcheer.errors import BadArgument, TorcheerError, reason_of
from torcheer.training.checkpoints.earlier_runs import archive_run
from torcheer.wire.open_viewer import can_browse, say_it_stays
from torcheer.wire.page_address import chosen_address, ways_to
from torcheer.wire.viewer_process import ViewerProcess

if TYPE_CHECKING:
    from torcheer.training.control import Control
    from torcheer.training.spec import Built


def open_control(built: Built, *, is_wanted: bool, is_paused: bool = False) -> tuple[Control | None, list[str]]:
    """Open a session's control where it is wanted.

    Else return None, with the problem where it failed.
    """
    if not (is_wanted and built.session.options.studio):
        return None, []
    from torcheer.training.control import Control

    home = built.session.directory
    assert home is not None
    try:
        return Control(home, title=home.resolve().name, is_paused=is_paused), []
    except (TorcheerError, OSError) as error:
        return None, [f"no studio can look on, training goes on without: {error}"]


def start_next_run(control: Control, built: Built, trusted: Sequence[str]) -> tuple[Built, list[str]]:
    """Move the last run to `earlier/` and reopen the session from its beginning."""
    from torcheer.training.spec import reopen

    old, changes = built.session, list(control.restart_changes or ())
    home = old.directory
    assert home is not None
    result = control.result()
    assert old.run_log is not None
    old.run_log.close()
    folder = archive_run(home, result)
    if old.ranks is not None:
        old.ranks.from_main(changes)  # the others reopen it, too
    new = reopen(home, changes=changes, trusted=trusted)
    if changes:
        new.spec.save(home)
    assert new.session.checkpoints is not None and old.checkpoints is not None
    new.session.checkpoints.take_over(old.checkpoints)
    detail = f"with seed {new.session.options.seed}" if changes else "from the beginning"
    return new, [f"Another run begins, {detail}; the one before lies under {folder}"]


@contextmanager
def run_viewer(chosen: argparse.Namespace, control: Control | None, home: Path) -> Iterator[str]:
    """Run the studio as a second process with --studio; on a terminal it stays when training has ended.

    Yield its address, the first line printed.
    """
    if not chosen.studio:
        yield ""
        return
    if control is None:
        raise BadArgument("--studio: this session lets no studio look on (studio=false, --no-control, or see above)")
    browser = ["--browser"] * (not chosen.no_browser and can_browse())
    address = chosen_address(chosen)
    launched = ViewerProcess(home, *address.options(), *browser, outlives=True)
    try:
        print(launched.url, *ways_to(launched.url, address), sep="\n", flush=True)
        yield launched.url
    except BaseException as error:
        control.close(reason_of(error))
        raise
    finally:
        control.close()  # announces the end, so that the viewer does not wait for another trainer
        if launched.stays and launched.process.poll() is None:
            say_it_stays(launched.url)
        else:
            launched.end()
        if launched.error_output:
            print(launched.error_output, file=sys.stderr, flush=True)
