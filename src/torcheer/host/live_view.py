"""`tl.live`: a model in the studio while any loop trains it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

from torcheer.control.control_records import State
from torcheer.control.loop_control import LoopControl
from torcheer.control.parameter_form import ParameterChange
from torcheer.disk import local_path
from torcheer.errors import BadArgument, NotAModel, reason_of
from torcheer.host.follow.layer_probes import LayerProbes
from torcheer.host.follow.page_follower import PageFollower
from torcheer.host.host import Host, closed_host
from torcheer.host.live_numbers import MetricRows
from torcheer.host.nonfinite_values import NonfiniteValues
from torcheer.host.optimizer_form import OptimizerForm
from torcheer.host.show_page import PageSettings
from torcheer.network.heads.token_names import TokenNames
from torcheer.public_names import PublicClass
from torcheer.ranks import ranked
from torcheer.runlog.machine.system_rows import SystemRows, check_secs
from torcheer.runlog.media.media_intake import MediaIntake
from torcheer.runlog.run_tables import logs
from torcheer.runlog.table import Table
from torcheer.runlog.table_records import TableHead
from torcheer.samples import NAN_INF
from torcheer.tap.counting.steps import followers_of
from torcheer.tap.device_memory import device_memory
from torcheer.terminal import notice
from torcheer.wire.notify.notify_targets import parse_notify
from torcheer.wire.open_viewer import Viewer, start

_CAN: Final = ("train", "stop", "step_trial", "step_n")
_STATE_SECS: Final = 0.25  # between two updates of the counters
_WAIT_SECS: Final = 0.5  # between two checks that a viewer is still connected


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The options of `live`."""

    page: PageSettings
    inputs: Any
    input_kwargs: Mapping[str, Any] | None
    optimizer: Optimizer | None
    to: str | os.PathLike[str] | None
    open_server: bool
    step_of: Callable[[], int] | None
    notify: Any
    system_secs: float

    def __post_init__(self) -> None:
        if self.optimizer is not None and not isinstance(getattr(self.optimizer, "param_groups", None), list):
            kind = type(self.optimizer).__name__
            raise BadArgument(f"optimizer: a {kind} has no param_groups; give one of torch.optim's")
        check_secs(self.system_secs)


def open_live(model: nn.Module, layers: Any, settings: LiveSettings) -> Live:
    """Show a model on a page, from its next step on."""
    if not isinstance(model, nn.Module):
        raise NotAModel(f"live needs an nn.Module, got {type(model).__name__}")
    page, to, targets = settings.page, settings.to, parse_notify(settings.notify)
    while _FINISHED:  # loops whose pages stay open until the next `live`
        viewer, finished = _FINISHED.pop()
        viewer.close()
        finished.discard()
    if to is None and not page.rank:
        to = _run_of_watch(model)
    to = None if to is None else ranked(str(local_path(to, "write to='run', and copy that folder when it ends")))
    name = page.title_of(type(model).__name__)
    host = Host(to, title=name, continues=True, notify=targets) if page.is_shown else closed_host(page.title)
    try:
        host.token_names = page.token_names
        view = Live(model, host, layers, settings)
        if to is not None and not host.closed:
            view.take_system_rows(Path(to), settings.system_secs)
    except BaseException:
        host.close()
        raise
    if settings.open_server and host.path is not None:
        try:  # it listens by now
            view.viewer = start(host.path, page.address, browser=page.browser, folder=host.folder, outlives=True)
        except BaseException:
            view.finish()
            raise
    return view


def _run_of_watch(model: nn.Module) -> Path | None:
    """The folder that a watch of the model writes to, unless it has a page already."""
    followers = followers_of(model)
    if any(isinstance(follower, PageFollower) for follower in followers):
        return None
    return next((follower.run for follower in followers if follower.run is not None), None)


class Live(metaclass=PublicClass):
    """A model shown in the studio; ends with its `with` block, or by `close`."""

    def __init__(self, model: nn.Module, host: Host, layers: Any, settings: LiveSettings) -> None:
        self.host = host
        self.viewer: Viewer | None = None
        self._system: SystemRows | None = None
        self._epoch, self._sent_at, self._message, self._in_step, self._is_watched = 0, 0.0, "", False, False
        host.values.judge = nonfinite = NonfiniteValues(
            host.pass_on, lambda: NAN_INF in self._follower.rules_of_watches
        )
        self._metrics, self._form = MetricRows(host, nonfinite.see_row), OptimizerForm(host, model, settings.optimizer)
        self._media = MediaIntake(host.report)
        self._control = LoopControl(
            host, can=self._can, counters=self.counters, settings=self._form.settings, changed=self._changed
        )  # fmt: skip
        host.table(TableHead("train_step", "Train steps", x="Step"))
        host.table(TableHead("train_epoch", "Train epochs", x="Epoch"))
        host.table(TableHead("test_epoch", "Test epochs", x="Epoch"))
        self._probes = LayerProbes(model, host, layers)
        if (settings.inputs is not None or settings.input_kwargs) and not host.closed:
            self._probes.describe(() if settings.inputs is None else settings.inputs, settings.input_kwargs)
        self._follower = PageFollower(
            self._probes, self._boundary, counters=self.counters, step_of=settings.step_of
        )  # fmt: skip
        self._send_state("running")

    def take_system_rows(self, run: Path, every_secs: float) -> None:
        """Write rows about the machine to the run's log, from a thread."""
        self._system = SystemRows(run, every_secs, step_of=lambda: self.step, memory=device_memory)

    # -- for users ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The page's address, with its token; "" where no server was started."""
        return self.viewer.url if self.viewer is not None else ""

    @property
    def path(self) -> Path | None:
        """The socket's path, for `torcheer studio PATH`."""
        return self.host.path

    @property
    def step(self) -> int:
        """The step that began last, from 0 on."""
        return max(self._follower.step, 0)

    @property
    def problems(self) -> list[str]:
        """Sentences about what cannot be shown."""
        return [*self._probes.notes, *self.host.problems]

    @property
    def token_names(self) -> TokenNames:
        """The names of tokens at attention heads: a list, or one for each item of the batch. None for none."""
        return self.host.token_names

    @token_names.setter
    def token_names(self, names: Any) -> None:
        self.host.token_names = names

    def counters(self) -> dict[str, Any]:
        """The values of the page's counters."""
        return {"Epoch": self._epoch, "Step": self.step}

    def log(self, **metrics: Any) -> None:
        """Add numbers of this step to the plot, and samples to its tab: `view.log(loss=loss, image=x)`.

        What is no number is a sample by its keyword (`image`, `audio`, `text`, `table`, `confusion`), or under any name
        by its type: `tl.Image`, `tl.Audio`, `tl.Text`, `tl.TableOf`, `tl.Confusion`. Tensors are not waited for.
        """
        self._log("train_step", metrics)

    def epoch(self, **metrics: Any) -> None:
        """Log an epoch's metrics (and samples, as `log` does) and begin the next epoch."""
        self._log("train_epoch", metrics)
        self._epoch += 1
        self._control.reached("epoch")

    def test(self, **metrics: Any) -> None:
        """Log the metrics of a test in this epoch (and samples, as `log` does)."""
        self._log("test_epoch", metrics)

    def alert(self, text: str, severity: str = "warning") -> None:
        """Show an alert on the page."""
        self.host.alert(text, severity, self.step)

    @property
    def logs(self) -> dict[str, Table]:
        """The numbers so far as tables: train_step, train_epoch, test_epoch."""
        self._metrics.flush(wait=True)
        return logs(self.host)

    def finish(self) -> None:
        """Remove the hooks and release the loop; the page stays, on a terminal also after this process."""
        self._finish("done")

    def _finish(self, status: str) -> None:
        if self._follower.closed:
            return
        self._follower.close()
        if self._system is not None:
            self._system.close()
        self._metrics.flush(wait=True)
        self._send_state(status)
        self.host.close(keeps_log=self.viewer is not None or self.host.has_samples)  # which a page reads there
        if self.viewer is not None:
            _FINISHED.append((self.viewer, self.host))

    def close(self) -> None:
        """Finish, and close the page."""
        self.finish()
        if self.viewer is not None:
            self.viewer.close()
            _FINISHED[:] = [pair for pair in _FINISHED if pair[0] is not self.viewer]
        self.host.discard()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and not self._follower.closed:
            self._message = reason_of(error)
            self.host.notifier.close(error=error)
        self._finish("done" if error is None or isinstance(error, KeyboardInterrupt) else "failed")

    # -- between two steps -------------------------------------------------------------------------------------------

    def _log(self, table: str, metrics: Mapping[str, Any]) -> None:
        step = self.step
        numbers, samples = self._media.split(metrics, step)
        if numbers or not samples:
            self._metrics.add(table, {"Epoch": self._epoch, "Step": step, **numbers})
        for media in samples:
            self._metrics.add_sample(media, step)

    def _boundary(self, step: int, test: bool) -> bool:
        """Handle requests and wait while paused; True if this must be called before every step."""
        control = self._control
        if self._in_step:  # the step before has ended
            control.reached("trial")
        self._in_step, self._is_watched = not test, self._follower.is_watched
        self._execute_orders()
        if time.monotonic() - self._sent_at >= _STATE_SECS:
            self._send_state("testing" if test else "running")
            self._form.send()
        if control.is_paused and not test:
            self._pause()
        return control.is_paused or control.has_goal

    def _pause(self) -> None:
        """Block the loop until a page lets it go on, or nobody looks on any more."""
        self._message = ""
        self._send_state("paused")
        while self._control.is_paused:
            if why := self._control.wait(_WAIT_SECS):
                self._say(f"{why}: it goes on")
            self._execute_orders()
        self._send_state("running")

    def _execute_orders(self) -> None:
        for order in self._control.orders():
            self._control.execute(order)

    def _can(self) -> tuple[str, ...]:
        return (*_CAN, *["step_epoch"] * (self._epoch > 0))  # before, nobody knows how long an epoch is

    def _changed(self, change: ParameterChange | None) -> None:
        self._form.changed(change)
        if change is not None:
            self._control.record(change, self.counters())

    def _send_state(self, status: str) -> None:
        self._sent_at = time.monotonic()
        if not self.host.closed:
            can = () if status in ("done", "failed") else self._can()
            self.host.state = State(
                status, self.counters(), can, batch=self._probes.batch, message=self._message,
                watched=self._is_watched,
            )  # fmt: skip
        self._metrics.flush()

    def _say(self, text: str) -> None:
        self._message = text
        notice("live", text)


_FINISHED: list[tuple[Viewer, Host]] = []  # whose pages read the host's folder
