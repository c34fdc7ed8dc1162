"""Control of a session from a studio.

It acts between two steps, where no update is half done.

The loop calls `is_due` after each round, which only reads the clock, and `handle_requests` where it is due. A pause is
a wait inside of that: no random number is drawn, nothing is written, and Ctrl-C or SIGTERM end training as usual.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.control.control_records import Act, State
from torcheer.control.loop_control import STEP_UNITS, LoopControl
from torcheer.control.parameter_form import ParameterChange
from torcheer.errors import BadArgument, TorcheerError, reason_of
from torcheer.host.host import Host
from torcheer.network.network_records import full_name
from torcheer.training.checkpoints.earlier_runs import run_number, run_result
from torcheer.training.control import requested_tests
from torcheer.training.control.isolated_tests import count_items, test_items
from torcheer.training.control.session_form import form_parameters, settings_of
from torcheer.training.control.session_tables import SessionTables
from torcheer.training.control.session_values import ValueProbes
from torcheer.training.loop.events import Alert, Continued, EpochDone, Event, Events, Paused, StepDone, Stopped
from torcheer.training.loop.stop_signals import RESTART
from torcheer.training.observe.progress_lines import rounds_of
from torcheer.training.parallel.heartbeats import EVALUATION, HEARTBEAT, PAUSE

if TYPE_CHECKING:
    from torcheer.samples import Alert as WatchAlert
    from torcheer.training.session import Session
    from torcheer.training.spec import Built

POLL_SECS = 0.01  # between two polls for requests, where steps are shorter
STATE_SECS = 0.1  # between two states that are sent
WAIT_SECS = 0.05  # between two checks for signals, while paused
STEPS = [action for action in STEP_UNITS if action != "step_run"]
SOME_ITEMS = 3  # samples that describe the network: a batch of 1 would look like no batch axis


class Control:
    """Control of the session of a directory.

    One for all its runs, `take` gives it the next session.

    - `directory`: the run directory, where it listens at `control.sock`; None: nowhere.
    - `title`: of the page.
    - `is_paused`: wait before the first step until a studio says Train.
    """

    session: Session
    tables: SessionTables
    probes: ValueProbes

    def __init__(self, directory: Path | None, *, title: str = "", is_paused: bool = False) -> None:
        self.host = Host(directory, title=title, writer="live" if directory is None else "")
        self.idle_secs = 0.0  # total time of pauses and tests
        self.restart_changes: list[str] | None = (
            None  # KEY=VALUE changes of the next run; None until a restart is requested
        )
        self.buttons = LoopControl(
            self.host, can=self.available_actions, act=self._act, settings=lambda: settings_of(self.session),
            changed=self._changed, counters=self.counters, is_paused=is_paused,
        )  # fmt: skip
        self._seed: int | None = None  # of the next Init, where New seed was pressed
        self.tested = -1  # index of the last tested item
        self._steps: Sequence[StepDone] = ()
        self._next_poll = self._next_state = 0.0
        self._is_busy = True
        self._messages: list[str] = []  # about changed parameters, that are still to be yielded
        self._result: dict[str, Any] | None = None

    def take(self, session: Session, built: Built | None = None) -> None:
        """Control a session, which resumes from its newest checkpoint unless it has begun."""
        self._problems = session.resume()
        self.session, self._built = session, built
        session.control, self.restart_changes, self._seed, self.tested = self, None, None, -1
        self.run, self._result, self._is_done = run_number(session.directory), None, False
        self._began, self._idle_before = time.monotonic(), self.idle_secs
        if not hasattr(self, "tables"):
            self.tables = SessionTables(self.host, session)
        else:
            self.tables.begin(session)
        if hasattr(self, "probes"):
            self.probes.close()
        self.probes, self._is_network_described = ValueProbes(self.host, session), False
        self._changes_sent = 0
        self.send_changes()
        self._send_state("paused" if self.buttons.is_paused else "running")

    # -- at a step boundary ------------------------------------------------------------------------------------------

    def is_due(self, steps: Sequence[StepDone]) -> bool:
        """Return whether requests should be handled after a round with these steps."""
        if not steps:  # the data of an epoch has run out
            return False
        self._steps = steps
        return self._is_busy or time.monotonic() >= self._next_poll

    def handle_requests(self) -> Iterator[Event]:
        """Handle all pending requests; return when the next step may run."""
        now = time.monotonic()
        steps, self._steps = self._steps, ()
        while self._problems:
            yield Alert(self._problems.pop(0))
        if self.probes.finish():
            self._next_state = 0.0  # send the state now, so that the page's counters match the values
        if steps and self.tables.steps_are_due(now):
            self.tables.add_steps(steps, now)
        if steps:
            self.buttons.reached("trial")
        self._describe_network()
        yield from self._execute_orders()
        if self.buttons.is_paused and not self._is_stopping():
            yield from self._pause()
        self._prepare_next_step()

    def _prepare_next_step(self) -> None:
        """Send the state and start the probes for the next step."""
        now = time.monotonic()
        if self.host.viewer and now >= self._next_state:
            self._send_state("running")
        self._begin_probing(now)
        self._is_busy = self.probes.is_busy or self.buttons.has_goal
        self._next_poll = now + POLL_SECS

    def _begin_probing(self, now: float) -> None:
        """Probe the next round, if this epoch has another."""
        place, rounds = self.session.place, rounds_of(self.session)
        if rounds is None or place.round < rounds:
            where = {
                "Run": self.run,
                "Epoch": place.epoch + 1,
                "Batch": place.round + 1,
            }  # as `counters` when it is done
            self.probes.begin(now, where, is_last=rounds is not None and place.round + 1 == rounds)

    def _describe_network(self) -> None:
        """Describe the network from a few samples.

        For a first viewer, beside captures, and at the end.

        Where that fails, the next probed step describes it.
        """
        wanted = self.host.viewer or self._is_done or self.session.options.capture is not None
        if self._is_network_described or not wanted:
            return
        self._is_network_described = True
        count = min(count_items(self.session), SOME_ITEMS)
        if count:
            with suppress(Exception):  # user code of data or model; training will report it
                test_items(self.session, list(range(count)), self.probes.observe_network)
        self.probes.write_network()

    def end_rounds(self) -> None:
        """End probing: the rounds of an epoch are over, evaluation follows."""
        self.probes.finish()

    def _is_stopping(self) -> bool:
        return bool(self.session.stop_reason)

    # -- pausing -----------------------------------------------------------------------------------------------------

    def _pause(self) -> Iterator[Event]:
        self.tables.flush_steps()
        self._send_state("paused")
        self._began_waiting, before = time.monotonic(), self.idle_secs
        yield Paused(self.session.place.step)
        reason = ""
        with HEARTBEAT.during(PAUSE):
            while self.buttons.is_paused and not self._is_stopping():
                reason = self.buttons.wait(WAIT_SECS)
                self._describe_network()
                yield from self._execute_orders()
        self.idle_secs = before + time.monotonic() - self._began_waiting
        yield Continued(self.idle_secs - before, reason)
        self._send_state("running")

    # -- orders ------------------------------------------------------------------------------------------------------

    def _execute_orders(self) -> Iterator[Event]:
        """Execute the waiting orders; yield what is to be said about them. Those after Init are the next run's."""
        orders = self.buttons.orders()
        while not self._is_stopping() and (order := next(orders, None)) is not None:
            if refusal := self.buttons.execute(order):
                self._send_state(self.host.state.status, refusal)
            while self._messages:
                yield Alert(self._messages.pop(0), is_logged=True)

    def _act(self, order: Act) -> None:
        match order.action:
            case "test_all":
                self._test(lambda: requested_tests.run_all(self))
            case "test_item":
                self._test(lambda: requested_tests.run_item(self, order.item))
            case "test_trial":
                self._test(lambda: requested_tests.run_item(self, (self.tested + 1) % count_items(self.session)))
            case "init":
                self._request_restart([] if self._seed is None else [f"seed={self._seed}"])
            case "new_seed":
                self._seed = _next_seed(self.session.options.seed if self._seed is None else self._seed)
                self._send_state(self.host.state.status)

    def _request_restart(self, changes: list[str]) -> None:
        """End the run at a step boundary, with all saved.

        The caller of the session then starts the next.
        """
        self.restart_changes = changes
        if self.buttons.has_goal:
            self.buttons.go_on()  # the next run has none
        self.session.stop_reason = self.session.stop_reason or RESTART

    @property
    def is_restart_requested(self) -> bool:
        """True where a restart is requested and no signal has overridden it."""
        return self.restart_changes is not None and self.session.stop_reason == RESTART

    # -- testing -----------------------------------------------------------------------------------------------------

    def _test(self, run: Callable[[], None]) -> None:
        """Run a test and restore the status; an error ends only the test."""
        began, status = time.monotonic(), self.host.state.status
        self._send_state("testing")
        try:
            with HEARTBEAT.during(EVALUATION):
                run()
        except TorcheerError:
            raise
        except Exception as error:  # user code of data or model
            raise BadArgument(f"the test failed: {type(error).__name__}: {error}") from error
        finally:
            self.idle_secs += time.monotonic() - began
            self._send_state(status)

    def should_stop_test(self) -> bool:
        """Return whether a test should end early."""
        return self.buttons.is_stop_waiting() or self._is_stopping()

    # -- changing ----------------------------------------------------------------------------------------------------

    def _changed(self, change: ParameterChange | None) -> None:
        """Record a change where it is made: a run that resumes before it makes it again."""
        try:
            if change is not None:
                self._messages.append(str(change))
                self._write_watch_settings(change)
                self.session.changes.add(change, self.session.place)
        finally:  # also where the disk is full: the change holds all the same
            self.send_changes()

    def send_changes(self) -> None:
        """Send the parameters; log the changes that were not sent yet, where the session does not do it."""
        rows = self.session.changes.rows
        for step, epoch, name, before, after in rows[self._changes_sent :] if self.session.run_log is None else ():
            self.buttons.record(ParameterChange(name, before, after), {"Step": step, "Epoch": epoch})
        self._changes_sent = len(rows)
        self._send_parameters()

    def _write_watch_settings(self, change: ParameterChange) -> None:
        session, watch = self.session, self.session.options.watch
        if watch and change.name.startswith("watch.") and self._built is not None and session.directory is not None:
            from torcheer.training.spec.read.config_merge import read_spec

            key = change.name.split(".")[1]
            read_spec(session.directory, [f"watch.{key}={json.dumps(watch[key])}"]).save(session.directory)

    # -- state -------------------------------------------------------------------------------------------------------

    def available_actions(self) -> tuple[str, ...]:
        """Return the available actions."""
        actions = [*([] if self._is_done else ["train", "stop", *STEPS])]
        actions += [] if self.session.is_sharded else ["test_all"]  # it would need the other ranks
        actions += ["test_trial", "test_item"] if count_items(self.session) else []
        return (*actions, "init", "new_seed") if self._built is not None else tuple(actions)

    def counters(self) -> dict[str, Any]:
        """Return the counters of the current position."""
        place = self.session.place
        epoch = place.epoch + bool(place.round)
        return {"Run": self.run, "Epoch": epoch, "Batch": place.round, "Step": place.step}

    def _send_state(self, status: str, message: str = "") -> None:
        self._next_state = time.monotonic() + STATE_SECS
        session, seed = self.session, self._seed
        message = message or ("" if seed is None else f"seed {seed}, from the next Init on")
        feed = session.runners[session.stages[0].training[0]].inputs[0][0]
        self.host.state = State(
            status=status, counters=self.counters(), can=self.available_actions(), items=count_items(session),
            batch=feed.loader.batch_size, message=message, watched=session.options.watch is not None,
        )  # fmt: skip

    def _send_parameters(self) -> None:
        self.host.parameters = form_parameters(self.session, self._built.spec.data if self._built is not None else None)

    # -- events ------------------------------------------------------------------------------------------------------

    def record_events(self, events: Events) -> Events:
        """Yield the same events; add rows to the tables."""
        for event in events:
            if type(event) is not StepDone:
                self.record(event)
            yield event

    def record(self, event: Event) -> None:
        """Update tables and state for an event."""
        if type(event) is EpochDone:
            self.buttons.reached("epoch")
            self.tables.flush_steps()
            self.tables.add_epoch(event)
            if self.host.viewer:
                self._send_parameters()  # a schedule may have moved a rate
                self._next_state = 0.0
        elif type(event) is Stopped and not self.is_restart_requested:
            self._send_state("done", event.reason)

    def report_alert(self, alert: WatchAlert) -> None:
        """Send the viewer an alert that no log of the run has."""
        if not alert.id:
            self.host.pass_on(replace(alert, layer=full_name(alert.layer, self.host.network)))

    def result(self) -> dict[str, Any]:
        """Return the result of the run that has ended; also a row in the table of runs."""
        if self._result is None:
            idle_secs = self.idle_secs - self._idle_before
            self._result = run_result(self.session, time.monotonic() - self._began - idle_secs)
            self.tables.end_run(self._result)
        return self._result

    # -- end --------------------------------------------------------------------------------------------------------

    def finish(self, *, stays: bool = False) -> None:
        """Finish a completed run.

        With `stays`, the viewer may test or start another run until Ctrl-C.
        """
        self.tables.flush_steps()
        self.result()
        self._is_done = True
        self._describe_network()
        self._send_state("done", "all is trained")
        while stays and not self._is_stopping():
            self.host.wait(WAIT_SECS)
            self._describe_network()
            for _ in self._execute_orders():
                pass
        if self.restart_changes is not None:  # a run that is started from here waits for Train
            self.buttons.pause()

    def close(self, why: str = "") -> None:
        """Close the connection; `why` is the reason of an unplanned end."""
        if hasattr(self, "probes"):
            self.probes.close()
        if hasattr(self, "tables"):
            self.tables.close()
        self.host.close(why)

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(reason_of(error) if error is not None else "")


def _next_seed(seed: int | None) -> int:
    """Return another seed."""
    return 1 if seed is None else (seed + 1) % 2**31
