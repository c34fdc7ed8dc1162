"""`tl.live`: a model in the studio while any loop trains it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

from torcheer.control.control_records import Order, State
from torcheer.errors import BadArgument, NotAModel
from torcheer.host.follow.layer_probes import Probing
from torcheer.host.follow.loop_follower import Following
from torcheer.host.host import Host, nowhere, reason_of
from torcheer.host.live_numbers import Numbers
from torcheer.host.optimizer_form import Form
from torcheer.runlog.run_logs import logs
from torcheer.runlog.table import Table
from torcheer.runlog.table_records import TableHead
from torcheer.tap.tensor_copies import rank_of
from torcheer.wire.open_viewer import Viewer, start

__all__ = ["Live", "live"]

_CAN: Final = ("train", "stop", "step_trial", "step_n")  # and "step_epoch", once an epoch has ended
_STATE_SECS: Final = 0.25  # between two tellings of the counters
_WAIT_SECS: Final = 0.5  # between two looks at whether anybody is still there
_STEP_N: Final = 10


def live(
    model: nn.Module,
    *,
    inputs: Any = None,
    optimizer: Optimizer | None = None,
    to: str | os.PathLike[str] | None = None,
    port: int = 0,
    browser: bool | None = None,
    open_server: bool = True,
    title: str | None = None,
    step_of: Callable[[], int] | None = None,
) -> Live:
    """Show a model in the studio while it trains, in any loop; the first line printed is the page's address.

    with tl.live(model, optimizer=optimizer) as view:
        for x, y in loader: …; view.log(loss=loss)

    Layers, shapes and places are found by looking at the first pass, or at one of our own with `inputs`. Pages can
    pause the loop, go on step by step, and change the optimizer's settings. `to` is a run's directory, where
    `torcheer studio` finds it; `open_server=False` starts no page, one may come later.
    """
    if not isinstance(model, nn.Module):
        raise NotAModel(f"live needs an nn.Module, got {type(model).__name__}")
    if optimizer is not None and not isinstance(getattr(optimizer, "param_groups", None), list):
        raise BadArgument(f"optimizer: a {type(optimizer).__name__} has no param_groups; give one of torch.optim's")
    while _LEFT:  # pages of loops that have ended, left open to be looked at; this is another
        _LEFT.pop().close()
    rank, _ = rank_of()  # of several processes with the same model one is enough
    host = nowhere(title or "") if rank else Host(to, title=title or type(model).__name__)
    try:
        view = Live(model, host, inputs=inputs, optimizer=optimizer, step_of=step_of)
    except BaseException:
        host.close()
        raise
    if open_server and host.path is not None:
        try:
            view.viewer = start(host.path, port=port, browser=browser)  # it finds a host that has its say
        except BaseException:
            view.finish()
            raise
    return view


class Live:
    """A model that is shown; ends with its `with` block, or by `close`."""

    def __init__(
        self, model: nn.Module, host: Host, *, inputs: Any = None,
        optimizer: Optimizer | None = None, step_of: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.host = host
        self.viewer: Viewer | None = None
        self._epoch, self._steps_left, self._told_at = 0, -1, 0.0  # -1: runs until it is stopped
        self._message, self._to_epoch = "", -1  # the epoch that it is to stop before
        self._numbers, self._form = Numbers(host), Form(host, model, optimizer)
        host.table(TableHead("train_step", "Train steps", x="Step"))
        host.table(TableHead("train_epoch", "Train epochs", x="Epoch"))
        host.table(TableHead("test_epoch", "Test epochs", x="Epoch"))
        self._probing = Probing(model, host)
        if inputs is not None and not host.closed:
            self._probing.describe(inputs)
        self._following = Following(self._probing, self._boundary, counters=self.counters, step_of=step_of)
        self._tell("running")

    # -- for users ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The page's address, with its token; "" where no server was started."""
        return self.viewer.url if self.viewer is not None else ""

    @property
    def path(self) -> Path | None:
        """The socket that `torcheer studio` can be given."""
        return self.host.path

    @property
    def step(self) -> int:
        """The step that began last, from 0 on."""
        return max(self._following.step, 0)

    @property
    def problems(self) -> list[str]:
        """What cannot be shown, in words."""
        return [*self._probing.notes, *self.host.problems]

    def counters(self) -> dict[str, Any]:
        """What stands in the page's line of counters."""
        return {"Epoch": self._epoch, "Step": self.step}

    def log(self, **metrics: Any) -> None:
        """Add numbers of this step to the plot: `view.log(loss=loss)`. Tensors are not waited for."""
        self._numbers.add("train_step", {"Epoch": self._epoch, "Step": self.step, **metrics})

    def epoch(self, **metrics: Any) -> None:
        """An epoch has ended, with these numbers."""
        self._numbers.add("train_epoch", {"Epoch": self._epoch, "Step": self.step, **metrics})
        self._epoch += 1
        if self._epoch == self._to_epoch:
            self._steps_left = 0

    def test(self, **metrics: Any) -> None:
        """A test of this epoch has ended, with these numbers."""
        self._numbers.add("test_epoch", {"Epoch": self._epoch, "Step": self.step, **metrics})

    def alert(self, text: str, severity: str = "warning") -> None:
        """Say something on the page."""
        self.host.alert(text, severity, self.step)

    @property
    def logs(self) -> dict[str, Table]:
        """The numbers so far as tables: train_step, train_epoch, test_epoch."""
        self._numbers.flush(wait=True)
        return logs(self.host)

    def finish(self) -> None:
        """Take the hooks off and let go of the loop; the page stays, as it is, for as long as this process runs."""
        if self._following.closed:
            return
        self._following.close()
        self._numbers.flush(wait=True)
        self._tell("done", can=())
        self.host.close()
        if self.viewer is not None:
            _LEFT.append(self.viewer)

    def close(self) -> None:
        """The same, and end the page."""
        self.finish()
        if self.viewer is not None:
            self.viewer.close()
            _LEFT[:] = [viewer for viewer in _LEFT if viewer is not self.viewer]

    def __enter__(self) -> Live:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and not self._following.closed:
            self._message = reason_of(error)
        self.finish()

    # -- between two steps -------------------------------------------------------------------------------------------

    def _boundary(self, step: int, test: bool) -> bool:
        """Do what was asked for, wait where it is paused; whether every step is to be asked about."""
        self._obey(self.host.orders())
        now = time.monotonic()
        if now - self._told_at >= _STATE_SECS:
            self._tell("testing" if test else "running")
            self._form.tell()
        if self._steps_left == 0 and not test:
            self._pause()
        if self._steps_left > 0 and not test:
            self._steps_left -= 1
        return self._steps_left >= 0 or self._epoch < self._to_epoch

    def _pause(self) -> None:
        """Hold the loop until somebody lets it go on, or nobody is there who could."""
        self._message = ""
        self._tell("paused")
        while self._steps_left == 0:
            if not self.host.viewer:
                self._steps_left = self._to_epoch = -1
                self._say("whoever paused this run is gone: it goes on")
            else:
                self.host.wait(_WAIT_SECS)
                self._obey(self.host.orders())
        self._tell("running")

    def _obey(self, orders: list[Order]) -> None:
        for order in orders:
            if order.kind == "change":
                self._form.change(order.name, order.value)
                continue
            self._to_epoch = self._epoch + 1 if order.action == "step_epoch" else -1
            match order.action:
                case "train" | "step_epoch":
                    self._steps_left = -1
                case "stop":
                    self._steps_left = 0
                case "step_trial":
                    self._steps_left = 1
                case "step_n":
                    self._steps_left = max(order.count or _STEP_N, 1)

    def _tell(self, status: str, can: tuple[str, ...] = _CAN) -> None:
        self._told_at = time.monotonic()
        if not self.host.closed:
            batch, text = self._probing.batch, self._message
            can = (*can, *["step_epoch"] * (can != () and self._epoch > 0))
            self.host.state = State(status, self.counters(), can, batch=batch, step_n=_STEP_N, message=text)
        self._numbers.flush()

    def _say(self, text: str) -> None:
        self._message = text
        self.host.alert(text, "info", self.step)
        try:
            print(f"torcheer: {text}", file=sys.stderr)
        except (OSError, ValueError):  # nobody is there to read it
            return


_LEFT: list[Viewer] = []
