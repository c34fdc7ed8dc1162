"""A session under the control of whoever looks on from a studio: it acts between two steps, where nothing is half done.

The loop asks `is_due` after each round, which is a look at the clock, and goes into `attend` where it is. A pause is a
wait in there: nothing is drawn, nothing is written, and whatever ends training (Ctrl-C, SIGTERM) ends it as ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.control.control_records import Order, State
from torcheer.errors import BadArgument, TorcheerError
from torcheer.host.host import Host, reason_of
from torcheer.network.network_records import full_name
from torcheer.training.control import requested_tests
from torcheer.training.control.earlier_runs import earlier, number_of, result_of
from torcheer.training.control.isolated_tests import items_of, test_some
from torcheer.training.control.session_form import Changed, Journal, change, parameters
from torcheer.training.control.session_tables import Tables
from torcheer.training.control.session_values import Looking
from torcheer.training.loop.events import Alert, Continued, EpochDone, Event, Paused, StepDone, Stopped
from torcheer.training.loop.stop_signals import ANEW
from torcheer.training.observe.progress_lines import rounds_of

if TYPE_CHECKING:
    from torcheer.samples import Alert as Seen
    from torcheer.training.session import Session
    from torcheer.training.spec import Built

LOOK_SECS = 0.01  # between two looks at what is asked, where steps are shorter
STATE_SECS = 0.1  # between two states that are sent
WAIT_SECS = 0.05  # between two looks at signals, while it is paused
ALONE_SECS = 10.0  # that it stays paused once its viewer is gone
SOME_ITEMS = 3  # tell what the network is: one would look like none
STEPPING = ("step_trial", "step_n", "step_epoch")


class Control:
    """What a session's host says and does; one for all runs in a directory, `take` gives it another session."""

    session: Session
    tables: Tables
    looking: Looking

    def __init__(self, directory: Path | None, *, title: str = "", is_paused: bool = False) -> None:
        self.host = Host(directory, title=title)
        self.idle_secs = 0.0  # that it was paused or tested, in all
        self.anew: list[str] | None = None  # once another run is asked for: what is different in it
        self.is_waiting_for_viewer = is_paused  # one that begins paused waits for somebody to come
        self._is_paused, self._goal = is_paused, ("", 0)
        self._seed: int | None = None  # of the next Init, where another was chosen
        self.tested = -1  # the item that was tested last
        self._told: Sequence[StepDone] = ()
        self._next_look = self._next_state = 0.0
        self._busy = True
        self._later: list[Order] = []  # asked for while it tested
        self._result: dict[str, Any] | None = None

    def take(self, session: Session, built: Built | None = None) -> None:
        """Be the control of a session, which goes on from its newest checkpoint unless it has begun."""
        self._problems = session.resume()
        self.session, self._built = session, built
        session.control, self.anew, self._seed, self.tested = self, None, None, -1
        self.run, self._result, self._is_done = number_of(session.directory), None, False
        self._began, self._idle_before = time.monotonic(), self.idle_secs
        self._journal = Journal(session.directory, session.place.step)
        if not hasattr(self, "tables"):
            self.tables = Tables(self.host, session)
            for result in earlier(session.directory):
                self.tables.run(result)
        else:
            self.tables.clear()
            self.tables.begin(session)
        if hasattr(self, "looking"):
            self.looking.close()
        self.looking, self._is_introduced = Looking(self.host, session), False
        self._tell_parameters()
        self._tell("paused" if self._is_paused else "running")

    # -- at a step boundary ------------------------------------------------------------------------------------------

    def is_due(self, told: Sequence[StepDone]) -> bool:
        """Whether there may be something to do after a round; `told` are its steps."""
        if not told:  # the data of an epoch has run out
            return False
        self._told = told
        return self._busy or time.monotonic() >= self._next_look

    def attend(self) -> Iterator[Event]:
        """Do what is asked; return when the next step may come."""
        now = time.monotonic()
        told, self._told = self._told, ()
        while self._problems:
            yield Alert(self._problems.pop(0))
        if self.looking.finish():
            self._next_state = 0.0  # what stands below the picture stands below the page, too
        if told and self.tables.steps_are_due(now):
            self.tables.steps(told, now)
        self._count(bool(told))
        self._introduce()
        for order in self._orders():
            yield from self._obey(order)
        if self._is_paused and not self._is_leaving():
            yield from self._pause()
        self._settle()

    def _settle(self) -> None:
        """Before the next step."""
        now = time.monotonic()
        if self.host.viewer and now >= self._next_state:
            self._tell("running")
        self._begin_looking(now)
        self._busy = self.looking.is_busy or self._goal[0] != ""
        self._next_look = now + LOOK_SECS

    def _begin_looking(self, now: float) -> None:
        """Look at the round that comes, if there is one in this epoch."""
        place, rounds = self.session.place, rounds_of(self.session)
        if rounds is None or place.round < rounds:
            where = {
                "Run": self.run,
                "Epoch": place.epoch + 1,
                "Trial": place.round + 1,
            }  # as `counters` when it is done
            self.looking.begin(now, where, is_last=rounds is not None and place.round + 1 == rounds)

    def _introduce(self) -> None:
        """Find out what the network is by a few samples, for a first viewer, beside captures, and at the end.

        Where that fails, the next step that is looked at tells.
        """
        wanted = self.host.viewer or self._is_done or self.session.options.capture is not None
        if self._is_introduced or not wanted:
            return
        self._is_introduced = True
        count = min(items_of(self.session), SOME_ITEMS)
        if count:
            with suppress(Exception):  # the user's own code, of data or of a model; training will say so
                test_some(self.session, list(range(count)), self.looking.introducing)
        self.looking.keep_network()

    def evaluates(self) -> None:
        """The rounds of an epoch are over: what runs now is none of them."""
        self.looking.finish()

    def _count(self, is_trial: bool) -> None:
        """See whether it was stepped as far as was asked."""
        what, left = self._goal
        if what in ("step_trial", "step_n") and is_trial:
            self._goal = what, left - 1
            if left <= 1:
                self._goal, self._is_paused = ("", 0), True
        elif what == "step_epoch" and self.session.place.epoch >= left:
            self._goal, self._is_paused = ("", 0), True

    def _is_leaving(self) -> bool:
        return bool(self.session.asked_to_stop)

    # -- pausing -----------------------------------------------------------------------------------------------------

    def _pause(self) -> Iterator[Event]:
        self.tables.settle()
        self._tell("paused")
        self._began_waiting, before = time.monotonic(), self.idle_secs
        yield Paused(self.session.place.step)
        reason = ""
        alone_since: float | None = None
        while self._is_paused and not self._is_leaving():
            alone_since = self._alone_since(alone_since)
            if alone_since is not None and time.monotonic() - alone_since >= ALONE_SECS:
                self._is_paused, reason = False, f"nobody has looked on for {ALONE_SECS:g} s"
                break
            self.host.wait(WAIT_SECS)
            self._introduce()
            for order in self._orders():
                yield from self._obey(order)
        self.idle_secs = before + time.monotonic() - self._began_waiting
        yield Continued(self.idle_secs - before, reason)
        self._tell("running")

    def _alone_since(self, since: float | None) -> float | None:
        """Since when there is nobody who could have it go on; None where there is somebody, or is still to come."""
        if self.host.viewer:
            self.is_waiting_for_viewer = False
            return None
        return None if self.is_waiting_for_viewer else since or time.monotonic()

    def _orders(self) -> list[Order]:
        """What is asked for, oldest first."""
        later, self._later = self._later, []
        return later + self.host.orders()

    # -- what is asked -----------------------------------------------------------------------------------------------

    def _obey(self, order: Order) -> Iterator[Event]:
        if self._is_leaving():
            return  # too late
        try:
            if order.kind == "change":
                yield from self._change(order.name, order.value)
            elif order.action in self.can():
                self._act(order)
            else:
                raise BadArgument(f"{order.action!r} cannot be done here; there is {', '.join(self.can())}")
        except TorcheerError as error:
            self.host.alert(str(error), "warning", self.session.place.step, "studio")
            self._tell(self.host.state.status, str(error))

    def _act(self, order: Order) -> None:
        match order.action:
            case "train":
                self._is_paused, self._goal = False, ("", 0)
            case "stop":
                self._is_paused, self._goal = True, ("", 0)
            case "step_trial":
                self._go("step_trial", 1)
            case "step_n":
                self._go("step_n", order.count if order.count > 0 else State().step_n)
            case "step_epoch":
                self._go("step_epoch", self.session.place.epoch + 1)
            case "test_all":
                self._test(lambda: requested_tests.run_all(self))
            case "test_item":
                self._test(lambda: requested_tests.run_item(self, order.item))
            case "test_trial":
                self._test(lambda: requested_tests.run_item(self, (self.tested + 1) % items_of(self.session)))
            case "init":
                self._begin_anew([] if self._seed is None else [f"seed={self._seed}"])
            case "new_seed":
                self._seed = _another(self.session.options.seed if self._seed is None else self._seed)
                self._tell(self.host.state.status)

    def _go(self, what: str, far: int) -> None:
        self._is_paused, self._goal, self._busy = False, (what, far), True

    def _begin_anew(self, changes: list[str]) -> None:
        """Have the run end where all is saved; whoever runs the session begins another."""
        self.anew, self._goal = changes, ("", 0)
        self.session.asked_to_stop = self.session.asked_to_stop or ANEW

    @property
    def begins_anew(self) -> bool:
        """Whether another run is asked for, and nothing has come in between."""
        return self.anew is not None and self.session.asked_to_stop == ANEW

    # -- testing -----------------------------------------------------------------------------------------------------

    def _test(self, run: Callable[[], None]) -> None:
        """Test, and be as before; what a test raises ends the test alone."""
        began, status = time.monotonic(), self.host.state.status
        self._tell("testing")
        try:
            run()
        except TorcheerError:
            raise
        except Exception as error:  # the user's own code, of data or of a model
            raise BadArgument(f"the test failed: {type(error).__name__}: {error}") from error
        finally:
            self.idle_secs += time.monotonic() - began
            self._tell(status)

    def has_enough(self) -> bool:
        """Whether a test is to end early."""
        self._later += self.host.orders()
        return self._is_leaving() or any(order.action == "stop" for order in self._later)

    # -- changing ----------------------------------------------------------------------------------------------------

    def _change(self, name: str, value: Any) -> Iterator[Event]:
        changed = change(self.session, name, value)
        if changed is None:
            self._tell_parameters()
            return
        self._keep(changed)
        self._tell_parameters()
        yield Alert(f"{changed.name} is {_shown(changed.after)} from here on, and was {_shown(changed.before)}")
        if not name.startswith("watch."):
            yield from self.session.save()  # a killed run goes on with it

    def _keep(self, changed: Changed) -> None:
        session, place = self.session, self.session.place
        watch = session.options.watch
        if watch and changed.name.startswith("watch.") and self._built is not None and session.directory is not None:
            from torcheer.training.spec.read.config_merge import read_spec

            key = changed.name.split(".")[1]
            read_spec(session.directory, [f"watch.{key}={json.dumps(watch[key])}"]).save(session.directory)
        self._journal.note(changed, place.step, place.epoch + 1)

    # -- what is said ------------------------------------------------------------------------------------------------

    def can(self) -> tuple[str, ...]:
        """The actions that there are."""
        known = [*([] if self._is_done else ["train", "stop", *STEPPING]), "test_all"]
        known += ["test_trial", "test_item"] if items_of(self.session) else []
        return (*known, "init", "new_seed") if self._built is not None else tuple(known)

    def counters(self) -> dict[str, Any]:
        """Where the run is."""
        place = self.session.place
        epoch = place.epoch + bool(place.round)
        return {"Run": self.run, "Epoch": epoch, "Trial": place.round, "Step": place.step}

    def _tell(self, status: str, message: str = "") -> None:
        self._next_state = time.monotonic() + STATE_SECS
        session, seed = self.session, self._seed
        message = message or ("" if seed is None else f"seed {seed}, from the next Init on")
        feed = session.lanes[session.stages[0].training[0]].inputs[0][0]
        self.host.state = State(
            status=status, counters=self.counters(), can=self.can(), items=items_of(session),
            batch=feed.loader.batch_size, message=message,
        )  # fmt: skip

    def _tell_parameters(self) -> None:
        self.host.parameters = parameters(self.session, self._built.spec.data if self._built is not None else None)

    # -- what happens ------------------------------------------------------------------------------------------------

    def noting(self, events: Iterator[Event]) -> Iterator[Event]:
        """The same events; what belongs into the tables is put there."""
        for event in events:
            if type(event) is not StepDone:
                self.note(event)
            yield event

    def note(self, event: Event) -> None:
        """Something has happened."""
        if type(event) is EpochDone:
            self.tables.settle()
            self.tables.epoch(event)
            if self.host.viewer:
                self._tell_parameters()  # a schedule may have moved a rate
                self._next_state = 0.0
        elif type(event) is Stopped and not self.begins_anew:
            self._tell("done", event.reason)

    def seen(self, alert: Seen) -> None:
        """The watch has found something."""
        layer = full_name(alert.layer, self.host.network)
        self.host.alert(str(alert), alert.severity, alert.step, alert.rule, layer)

    def result(self) -> dict[str, Any]:
        """What came of the run that has ended; it is a row in the table of runs, too."""
        if self._result is None:
            idle_secs = self.idle_secs - self._idle_before
            self._result = result_of(self.session, time.monotonic() - self._began - idle_secs)
            self.tables.end_run(self._result)
        return self._result

    # -- its end -----------------------------------------------------------------------------------------------------

    def finish(self, *, stays: bool = False) -> None:
        """All is trained; where it stays, whoever looks on may test, or begin another run, until Ctrl-C."""
        self.tables.settle()
        self.result()
        self._goal, self._is_done = ("", 0), True
        self._introduce()
        self._tell("done", "all is trained")
        while stays and not self._is_leaving():
            self.host.wait(WAIT_SECS)
            self._introduce()
            for order in self._orders():
                for _ in self._obey(order):
                    pass
            self._is_paused = self.anew is not None  # a run that is begun from here waits for Train

    def close(self, why: str = "") -> None:
        """Nobody looks on any more; `why` is what ended the run, where that was not planned."""
        if hasattr(self, "looking"):
            self.looking.close()
        self.host.close(why)

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close(reason_of(error) if error is not None else "")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else repr(value)


def _another(seed: int | None) -> int:
    """A seed that is not this one."""
    return 1 if seed is None else (seed + 1) % 2**31
