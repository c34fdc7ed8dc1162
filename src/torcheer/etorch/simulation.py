"""`Simulation`: runs a hand-written loop, with logs, from the studio's buttons.

These are Init, Train, Stop, Step, Test and New seed.

A task implements `init(seed)`, `train_trial(trial)`, `test_item(item)`, or some of them; these determine the buttons.
Between two trials, or two tested items, the page's orders are handled; counters say where to resume.
"""

from __future__ import annotations

import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

from torcheer.control.control_records import Act, State
from torcheer.control.loop_control import LoopControl
from torcheer.control.parameter_form import CHANGES, ParameterChange, Parameters
from torcheer.errors import BadArgument
from torcheer.etorch.etorch_network import Network
from torcheer.etorch.netview import NetView
from torcheer.etorch.simulation_logs import KINDS, Logs, means, row_of
from torcheer.host.host import Host, closed_host
from torcheer.public_names import PublicClass
from torcheer.runlog.table import Table
from torcheer.wire.page_address import address_of

_SEND_SECS = 0.1  # between two state messages of a running simulation
_OVER: Any = object()  # marks an exhausted generator
_NEEDS = {
    "init": ("init", "new_seed"), "train_trial": ("train", "step_trial", "step_epoch", "step_run", "step_n", "stop"),
    "test_item": ("test_trial", "test_item", "test_all", "stop"),
}  # fmt: skip


class Simulation(metaclass=PublicClass):
    """Runs a task from code or from a page: `Simulation("RA25", task, net=net).run()`.

    A task is any object, or module, with some of
    - `init(seed)`: reset, with this random seed;
    - `train_trial(trial)`: run one of an epoch's `task.trials`; returns numbers by name (optionally a "Name", too);
    - `test_item(item)`: test one of `task.items`; returns numbers, text and tensors by name.

    - `name`: shown above the page.
    - `task`: what is run, as above.
    - `net`: the network that the page shows.
    """

    def __init__(
        self, name: str, task: Any, *, net: Network | None = None, patterns: Table | None = None, error: str = "Err"
    ) -> None:
        """`error` names the number that is 0 for a correct trial; `patterns` are shown as a table."""
        self.name, self.task, self.net, self.error = name, task, net, error
        self.can = tuple(
            dict.fromkeys(action for verb, actions in _NEEDS.items() if hasattr(task, verb) for action in actions)
        )
        if not self.can:
            raise BadArgument(f"a task has {', '.join(_NEEDS)}, or one of them; {type(task).__name__} has none")
        self.parameters = Parameters()
        self._add_default_parameters()
        self._control = LoopControl(
            closed_host(name), can=lambda: self.can, counters=self._position, settings=self.parameters.settings,
            changed=self._changed, act=self._act, is_paused=True,
        )  # fmt: skip
        self.logs = Logs(patterns)
        self.status = "idle"
        self.message = self.verdict = ""  # current activity; how the last run ended
        self.run_number = self.epoch = self.trial = 0
        self.host: Host | None = None
        self.view: NetView | None = None
        self.viewer: Any = None
        self._begun = self._over = False
        self._rows: list[Mapping[str, Any]] = []  # of the trials of this epoch
        self._zeros, self._first_zero = 0, -1
        self._tested = -1  # the last tested item
        self._test: Iterator[None] | None = None  # the test that is under way; yields after each item
        self._counters: dict[str, Any] = {}
        self._sent_at = 0.0

    def _add_default_parameters(self) -> None:
        group: Any = {"group": "Simulation"}
        if "init" in self.can:
            self.parameters.add("seed", 1, minimum=0, doc="of the next Init; run r begins from seed + r", **group)
        if "train" in self.can:
            self.parameters.add("epochs", 100, minimum=1, doc="the most that a run has", **group)
            self.parameters.add("runs", 1, minimum=1, doc="that Train makes, one after the other", **group)
            self.parameters.add(
                "zero_stop", 5, minimum=0, doc="epochs in a row without an error that end a run; 0: none do", **group
            )
        if "train" in self.can and "test_all" in self.can:
            self.parameters.add(
                "test_every", 5, minimum=0, doc="epochs between two tests of all items; 0: none", **group
            )

    def parameter(self, name: str, value: Any, *, change: Callable[[Any], Any] | None = None, **settings: Any) -> None:
        """Add a parameter of the task to the page's form: `sim["lr"]`.

        `change` is called with each new value; `settings` may be doc, minimum, maximum, choices, group, editable.
        """
        self.parameters.add(name, value, change=change, **{"group": "Task", **settings})
        self._send_parameters()

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def __setitem__(self, name: str, value: Any) -> None:
        before = self.parameters[name]
        self.parameters[name] = value
        after = self.parameters[name]
        self._changed(ParameterChange(name, before, after) if after != before else None)

    def _changed(self, change: ParameterChange | None) -> None:
        """Log a change of a parameter once a run has begun, and send the form."""
        if change is not None and self._begun:
            self.logs.add(CHANGES[0], change.row(self._position()))
        self._send_parameters()

    def _position(self) -> dict[str, int]:
        return {"Run": self.run_number, "Epoch": self.epoch, "Trial": self.trial}

    # -- from code ---------------------------------------------------------------------------------------------------

    def init(self, seed: int | None = None) -> None:
        """Reset to run 0 with a seed (default: the parameter `seed`), and clear the logs."""
        if seed is not None:
            self["seed"] = seed
        self._halt()
        self.logs.wipe(*KINDS)
        with self._reporting_errors():
            self._begin(0)
        self._show(now=True)
        self._send_state(
            "paused" if "train" in self.can else "idle", f"seed {self['seed']}" if "seed" in self.parameters else ""
        )

    def train(self, epochs: int | None = None) -> Table:
        """Train until all runs are over, or for `epochs` epochs; return the log of epochs."""
        self._control.go_on(*("epoch", epochs) if epochs is not None else ())
        self._drive()
        return self.logs["train_epoch"]

    def step(self, trials: int = 1) -> None:
        """Train for `trials` trials."""
        self._control.go_on("trial", trials)
        self._drive()

    def test(self) -> Table:
        """Test all items; return the log of trials."""
        self._test = self._testing()
        self._drive()
        return self.logs["test_trial"]

    def test_item(self, item: int) -> dict[str, Any]:
        """Test one item, which is shown but not logged; return its row."""
        return self._test_item(item)

    # -- from the page -----------------------------------------------------------------------------------------------

    def listen(self, to: str | os.PathLike[str] | None = None) -> Host:
        """Listen for a viewer in the folder `to`, such as `torcheer studio FOLDER`; starts none."""
        if self.host is None or self.host.closed:
            self.host = self._control.host = Host(to, title=self.name)
            self.view = NetView(self.net, host=self.host) if self.net is not None else None
            self._send_parameters()
            self.logs.show(self.host)
            self._send_state(self.status, self.message)
        return self.host

    def open(self, *, port: int = 0, browser: bool | None = None, **where: Any) -> Simulation:
        """Start the studio and print its address; a second call does nothing.

        `where` may be `host`, `base_path` and `allowed_hosts`, as for `tl.show`.
        """
        if self.viewer is None:
            from torcheer.wire.open_viewer import start

            address, host = address_of(port, **where), self.listen()
            assert host.path is not None
            self.viewer = start(host.path, address, browser=browser, folder=host.folder, outlives=True)
        return self

    def run(self, *, open: bool = True, port: int = 0, browser: bool | None = None, **where: Any) -> None:
        """Execute the page's orders until Ctrl-C or `close`; closing the page stops nothing.

        `port`, `browser` and `where` are those of `open`.
        """
        try:
            host = self.listen()
            if open:
                self.open(port=port, browser=browser, **where)
            if not self._begun:
                self._try(self.init)
            while not host.closed:
                self._execute_orders()
                if self._is_idle():
                    host.wait(1.0)
                else:
                    self._try(self._advance)
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Close the studio; counters, logs and the network stay."""
        self._halt()
        if self.view is not None:
            self.view.close()
        if self.viewer is not None:
            self.viewer.close()
        if self.host is not None:
            self.host.close()
        self.viewer = None

    def _execute_orders(self) -> None:
        for order in self._control.orders():
            self._control.execute(order)

    def _halt(self) -> None:
        """Stop training and testing."""
        self._test = None
        self._control.pause()

    def _is_idle(self) -> bool:
        return self._control.is_paused and self._test is None

    def _try(self, call: Callable[[], None]) -> None:
        """Call a function that runs the task.

        If it fails, the simulation is paused and the page shows why.
        """
        try:
            call()
        except Exception as error:  # raised by the task
            print(f"torcheer: {self.name} is paused: {type(error).__name__}: {error}", file=sys.stderr)
            traceback.print_exc()

    def _act(self, order: Act) -> None:
        """Act on a button; training begins and ends by the control's own."""
        match order.action:
            case "init":
                self._try(self.init)
            case "new_seed":
                self["seed"] = random.SystemRandom().randrange(1, 2**31)
                self._send_state(self.status, f"seed {self['seed']}, from the next Init on")
            case "test_trial":
                self._test = self._testing(((self._tested + 1) % self.task.items,))
            case "test_item":
                self._check_item(order.item)
                self._test = self._testing((order.item,))
            case "test_all":
                self._test = self._testing()
            case "stop":
                self._test = None
                self._finish("stopped")

    def _drive(self) -> None:
        while not self._is_idle():
            self._advance()
            self._execute_orders()

    def _advance(self) -> None:
        """Train the next trial, or test the next item."""
        with self._reporting_errors():
            if self._test is None:
                self._train()
            elif next(self._test, _OVER) is _OVER:
                self._test = None
        if self._is_idle():
            self._finish()

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Report an exception of the task on the page, and re-raise it."""
        try:
            yield
        except Exception as error:
            self._halt()
            self._send_state("paused", f"{type(error).__name__}: {error}")
            if self.host is not None:
                self.host.alert(f"{type(error).__name__}: {error}", severity="error", rule="task")
            raise

    def _finish(self, message: str = "") -> None:
        status = "done" if self._over else "paused" if "train" in self.can else "idle"
        if self.view is not None:
            self.view.flush()
        self._send_state(status, message or (self.verdict if self._over else self.message))

    # -- training ----------------------------------------------------------------------------------------------------

    def _begin(self, run: int) -> None:
        if hasattr(self.task, "init"):
            self.task.init(self._seed(run))
        self.run_number, self.epoch, self.trial = run, 0, 0
        self._rows, self._zeros, self._first_zero = [], 0, -1
        self._begun, self._over = True, False
        self._counters = self._counters_for(0, {})

    def _seed(self, run: int) -> int:
        return int(self.parameters.get("seed", 0)) + run

    def _counters_for(self, trial: int, row: Mapping[str, Any]) -> dict[str, Any]:
        """The page's counters; a task that cannot train has neither runs nor epochs."""
        name = {"Name": row["Name"]} if "Name" in row else {}
        runs = {"Run": self.run_number, "Epoch": self.epoch} if "train" in self.can else {}
        return {**runs, "Trial": trial, **name}

    def _train(self) -> None:
        """Train one trial; a finished run starts the next."""
        if not self._begun or self._over:
            self._begin(self.run_number + 1 if self._begun else 0)
        ended = self._train_trial()
        for unit, is_done in (("trial", True), ("epoch", ended), ("run", self._over)):
            if is_done:
                self._control.reached(unit)
        if self._over and self.run_number + 1 >= self["runs"]:
            self._control.pause()
        if ended and self._test_due():
            self._test = self._testing(status="running")

    def _train_trial(self) -> bool:
        """Run one trial; True if it ended an epoch."""
        row = row_of(self.task.train_trial(self.trial), "train_trial")
        self._rows.append(row)
        self._counters = self._counters_for(self.trial, row)
        self.trial += 1
        ended = bool(self.trial >= self.task.trials)
        self._show(epoch=ended)
        self._send_state("running", often=True)
        if ended:
            self._end_epoch()
        return ended

    def _end_epoch(self) -> None:
        row = {"Run": self.run_number, "Epoch": self.epoch, **means(self._rows)}
        self.logs.add("train_epoch", row)
        self._zeros = self._zeros + 1 if row.get(self.error) == 0 else 0
        if self._zeros == 1 and self._first_zero < 0:
            self._first_zero = self.epoch
        self._rows, self.trial, self.epoch = [], 0, self.epoch + 1
        enough = 0 < self["zero_stop"] <= self._zeros
        if enough or self.epoch >= self["epochs"]:
            self._over = True
            why = f"{self._zeros} epochs without an error" if enough else f"all {self.epoch} epochs done"
            self.verdict = self.message = f"run {self.run_number} is over: {why}"
            columns = {"Run": self.run_number, "Seed": self._seed(self.run_number), "Epochs": self.epoch}
            self.logs.add("run", {**columns, "FirstZero": self._first_zero, **means([row], without=("Run", "Epoch"))})

    # -- testing -----------------------------------------------------------------------------------------------------

    def _test_due(self) -> bool:
        every = int(self.parameters.get("test_every", 0))
        return every > 0 and (self.epoch % every == 0 or self._over)

    def _testing(self, items: tuple[int, ...] | None = None, status: str = "testing") -> Iterator[None]:
        """Test some items, or all, which are then logged."""
        if not self._begun:
            self._begin(0)
        if items is None:
            self.logs.wipe("test_trial")
        rows = []
        for item in range(self.task.items) if items is None else items:
            row = self._test_item(item, status)
            rows.append(row)
            if items is None:
                self.logs.add("test_trial", {**self._counters_for(item, row), **row})
            yield
        if items is None and rows and "train" in self.can:
            self.logs.add("test_epoch", {"Run": self.run_number, "Epoch": self.epoch, **means(rows)})

    def _test_item(self, item: int, status: str = "testing") -> dict[str, Any]:
        self._check_item(item)
        row, self._tested = row_of(self.task.test_item(item), "test_item"), item
        self._counters = self._counters_for(item, row)
        self._show(test=True)
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in row.items() if isinstance(value, Real))
        self._send_state(status, f"{row.get('Name', item)}: {numbers}", often=True)
        return row

    def _check_item(self, item: int) -> None:
        if not 0 <= item < self.task.items:
            raise BadArgument(f"there is no item {item} to test: they are 0 to {self.task.items - 1}")

    # -- updates -----------------------------------------------------------------------------------------------------

    def _show(self, *, test: bool = False, epoch: bool = False, now: bool = False) -> None:
        """Update the network view, as often as the page subscribed to."""
        if self.view is not None:
            self.view.update(self._counters, test=test, epoch=epoch, now=now)

    def _send_state(self, status: str, message: str = "", *, often: bool = False) -> None:
        """Publish status and message; `often` throttles messages of the same status."""
        before, self.status, self.message = self.status, status, message
        if self.host is None or self.host.closed:
            return
        now = time.monotonic()
        if status != before or not often or now - self._sent_at >= _SEND_SECS:
            self._sent_at = now
            batch = self.view.batch if self.view is not None else 0
            items = getattr(self.task, "items", 0)
            self.host.state = State(status, dict(self._counters), self.can, items, batch, message=message, unit="trial")

    def _send_parameters(self) -> None:
        if self.host is not None:
            self.host.parameters = self.parameters.records
