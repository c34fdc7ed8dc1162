"""A watch: a model monitored while it trains, in another process."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from torcheer.errors import BadArgument, TorcheerError, reason_of, uncaught
from torcheer.history.error_notes import NO_HISTORY, explain
from torcheer.models import unwrapped
from torcheer.monitor import watch_status
from torcheer.monitor.child_link import Link
from torcheer.monitor.child_plan import Plan
from torcheer.monitor.closing_report import Ending, ending_of
from torcheer.monitor.rules import RULES, resolve_rules
from torcheer.monitor.stop_judge import StopJudge
from torcheer.monitor.watch_settings import WatchSettings, ends_run, stops
from torcheer.public_names import PublicClass
from torcheer.ranks import acts, rank_of, ranked
from torcheer.runlog.log_frames import LogPlace
from torcheer.runlog.log_writer import write_account
from torcheer.runlog.media.media_intake import MediaIntake
from torcheer.samples import Account, Alert, Delivery
from torcheer.tap.counting.steps import followers_of
from torcheer.tap.device_memory import device_memory
from torcheer.tap.module_selection import ModuleSelection, choose, classes_of, describe_hidden
from torcheer.tap.probes import Probes
from torcheer.tap.rank_parts import describe_part, rank_facts
from torcheer.tap.sample_sender import Sender
from torcheer.tap.sending.byte_limits import fair_bytes
from torcheer.tap.step_schedule import Every
from torcheer.terminal import folded, is_silenced, notice_alert, warn_or_print
from torcheer.terminal.progress import Progress
from torcheer.terminal.streams import encodable
from torcheer.vocabulary.variables import WATCHED_OF_UNITS
from torcheer.wire.notify.notifier import Notifier

_MOST_WARNINGS = 10
_PATIENCE_SECS = 2.0  # longer waits are reported
_STALLED_SECS = 10.0  # without a value that the child has handled, before closing gives it up
_POLL_SECS = 0.01
_DROPS_SECS = 0.25  # between two looks at what was dropped
_DROPS_FACTOR = 10  # by which drops must have grown to be reported again
_LAST_SECS = 1.0  # for the child to close its files after Ctrl-C while closing


def run_of_page(model: Any) -> Path | None:
    """The folder that a page of this model writes to: its watch does, too, where no other is given."""
    if not isinstance(model, nn.Module) or rank_of()[0]:
        return None
    return next((follower.run for follower in followers_of(model) if follower.run is not None), None)


class StopAsked(BaseException):
    """Ends the `with` block of a watch through all frames in between; not an error."""


class Watch(metaclass=PublicClass):
    """A model that is being watched, until `close`; what was found so far."""

    def __init__(self, model: nn.Module, layers: Any, settings: WatchSettings) -> None:
        selection = choose(model, layers)
        self.to, place = settings.to, settings.log
        if place is None and self.to is not None:
            place = LogPlace(self.to)
        self._place = None if place is None else replace(place, writer=ranked(place.writer))
        self.problems: list[str] = []  # messages about what could not be watched
        self._should_stop, self._stopped_at = (
            False,
            -1,
        )  # the last step that ran before the loop was told; -1: it was not
        self._judge: StopJudge | None = None
        self._judged_looks = 0  # up to which `stop_on` was judged
        self._drops_checked, self._drops_due = 0.0, 1  # when they were; how many are reported next
        self._told_here: set[tuple[str, int]] = set()  # rule and step of alerts that the child did not tell in time
        self._settings, self._inside, self._process = settings, False, os.getpid()
        self._rules, self._stop_on = settings.rules, settings.stop_on
        self._alerts: list[Alert] = []
        self._opened = time.time()
        self._logged: dict[str, Any] = {}  # the child's final report on its log
        self._ending: Ending | None = None
        self._error: BaseException | None = None  # that ended the `with` block
        self._link: Link | None = None
        self._media = MediaIntake(self._problem)
        self._probes: Probes | None = None
        self._model = weakref.ref(model)
        self.name = type(unwrapped(model)).__name__  # of the model's class
        self._box: watch_status.StatusBox | None = None  # status display in a notebook
        if not self._participates():
            return
        plan = Plan(
            to=str(self.to or ""), rules=settings.rules, keep=settings.keep, video=settings.video,
            system_secs=settings.system_secs, rank=rank_facts(model, selection.parameters),
            log_bytes=settings.log_bytes, prints=not is_silenced("watch"), places=classes_of(selection.modules),
            awaits_lines=bool(set(WATCHED_OF_UNITS) & set(settings.what)),
        )  # fmt: skip
        if self._place is not None:
            place = self._place
            plan = replace(plan, run=str(place.run), writer=place.writer, elsewhere=place.elsewhere)
        transport, watch_ref = settings.transport, weakref.ref(self)
        self._notifier = Notifier(
            settings.notify, title=self.name, to=self.to, tell=lambda text: _report_problem(watch_ref, text)
        )
        self._link = Link(
            plan, callbacks=settings.callback, ring_bytes=transport.bytes, policy=transport.policy,
            block_ms=transport.block_ms, tell=lambda text: _report_problem(watch_ref, text), fds=self._notifier.fds,
        )  # fmt: skip
        try:
            self._begin(model, selection, self._link)
        except BaseException as error:
            self._link.stop(0.0)
            self._notifier.close(error=error)
            raise
        self._at_exit = partial(_close, watch_ref)
        atexit.register(self._at_exit)  # registered after the link's, so that it runs first

    def _begin(self, model: nn.Module, selection: ModuleSelection, link: Link) -> None:
        """Create the sender and attach the probes."""
        settings, share = self._settings, link.ring.share_bytes
        limit = fair_bytes(selection.count_values(settings.what), share)
        self._sender = Sender(
            link.ring, limit_bytes=limit, share_bytes=share, whole=settings.whole, report=self._problem,
            backlog=lambda: link.ring.backlog,
        )  # fmt: skip
        self._probes = Probes(
            model, selection, settings.what, self._sender, schedule=settings.every, on_boundary=self._boundary
        )  # fmt: skip
        self._probes.on_places = lambda places: link.change(places=places)
        self._probes.rules, self._probes.run = tuple(self._rules), settings.to if settings.log is None else None
        self.judge_for(self._stop_on)
        for text in (describe_hidden(selection, settings.what), describe_part(selection.parameters, settings.ranks)):
            if text:
                self._problem(text)
        self._probes.attach(settings.optimizer, settings.step_of)

    def _participates(self) -> bool:
        """Whether this rank watches."""
        return acts(self._settings.ranks)

    # -- for users ---------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that began last, from 0 on."""
        return self._probes.current_step if self._probes is not None else 0

    @property
    def steps(self) -> int:
        """How many steps there were."""
        return self._probes.count if self._probes is not None else 0

    @property
    def looks(self) -> int:
        """How many of them were looked at."""
        return self._probes.watched_count if self._probes is not None else 0

    @property
    def has_part(self) -> bool:
        """Whether this process watches; of several with the same model, one does."""
        return self._probes is not None

    def __repr__(self) -> str:
        return watch_status.line(self)

    def __str__(self) -> str:
        return encodable(watch_status.text(self))

    def _repr_html_(self) -> str:
        return watch_status.html(self)

    @property
    def is_watching(self) -> bool:
        """Whether that step is one of those that are looked at."""
        return self._probes is not None and self._probes.is_watching

    @property
    def every(self) -> Every:
        """Which steps are looked at; set it (`w.every = 5`), and it holds within a moment."""
        return self._settings.every.every

    @every.setter
    def every(self, every: Any) -> None:
        self._settings.every.change(every)

    @property
    def rules(self) -> dict[str, dict[str, Any] | bool]:
        """Every rule with its settings, False where it is off; set it to whatever `rules=` takes.

        `w.rules = w.rules | {"dead_relu": {"share": 0.9}}` changes one, and leaves the others as they are.
        """
        return {name: self._rules.get(name, False) for name in RULES}

    @rules.setter
    def rules(self, rules: Any) -> None:
        settled = resolve_rules(rules)
        stops(self._stop_on, settled)
        self._rules = settled
        self.judge_for(self._stop_on)
        if self._probes is not None:
            self._probes.rules = tuple(settled)
        if self._link is not None:
            self._link.change(rules=settled)

    @property
    def stop_on(self) -> tuple[str, ...]:
        """The rules whose next alert ends the run; set it as `stop_on=`."""
        return self._stop_on

    @stop_on.setter
    def stop_on(self, stop_on: str | Sequence[str]) -> None:
        rules = stops(stop_on, self._rules)
        if self._inside:
            check_single_process(rules)
        self._stop_on = rules
        self.judge_for(rules)

    @property
    def should_stop(self) -> bool:
        """Whether an alert that `stop_on` names has come; the last watched step is judged first."""
        self.judge_step()
        if self._should_stop and self._stopped_at < 0:
            self._stopped_at = self.step
        return self._should_stop

    @should_stop.setter
    def should_stop(self, stops: bool) -> None:
        self._should_stop = stops

    def judge_for(self, stop_on: Sequence[str]) -> None:
        """Judge these rules in step with the loop; what follows from their alerts is the caller's."""
        if self._probes is None:
            return
        judge = self._judge = StopJudge(stop_on, self._rules)
        self._sender.nonfinite.found = self._judge_value if judge.judges_values else None

    def _judge_value(self, value: Delivery) -> None:
        """Judge a value that is not finite, wherever in the step it is sent."""
        judge, probes = self._judge, self._probes
        if judge is not None and probes is not None and judge.judge(value, probes.last_look):
            probes.wake()

    def judge_step(self) -> None:
        """Hear now of the last watched step what the rules of `judge_for` find; waits for the child where it must."""
        judge, link, probes = self._judge, self._link, self._probes
        if judge is None or link is None or probes is None or self._ending is not None:
            return
        is_new = probes.watched_count > self._judged_looks
        if is_new and judge.judges_values:
            self._sender.harvest(wait=True)  # of a device: what it has summed up of this step
        self._receive()
        found = judge.take_found()
        if self._should_stop or not (found or (is_new and judge.needs_child)):
            return
        is_complete = not probes.awaits_updates
        self._judged_looks = probes.watched_count if is_complete else self._judged_looks
        link.ask(judge.patience_secs(found), is_complete=is_complete, found=[asdict(alert) for alert in found])
        self._receive()
        for alert in found:
            if not any(told.rule == alert.rule and told.step >= alert.step for told in self._alerts):
                # The child is behind, or dead.
                self._told_here.add((alert.rule, alert.step))
                self._alert(asdict(alert))

    @property
    def message(self) -> str:
        """What is to stand beside the values from now on: "epoch:3"."""
        return self._sender.message if self._link is not None else ""

    @message.setter
    def message(self, text: str) -> None:
        if self._link is not None:
            self._sender.message = str(text)

    def log(self, **metrics: Any) -> None:
        """Send numbers and samples of this step: `w.log(loss=loss, image=x)`.

        What is no number is a sample by its keyword (`image`, `audio`, `text`, `table`, `confusion`), or under any name
        by its type: `tl.Image`, `tl.Audio`, `tl.Text`, `tl.TableOf`, `tl.Confusion`. Tensors are not waited for.
        """
        if self._link is None or self.closed:
            return
        step = self.step
        numbers, samples = self._media.split(metrics, step)
        for name, value in numbers.items():
            self._sender.send_metric(name, value, step)
        if samples and self.to is None:
            self._problem(f"{samples[0].kind} {samples[0].name!r} is kept nowhere: tl.watch(…, to='folder') writes it")
            return
        for name, kind, item, array, record in samples:
            self._sender.send_media(array, name, kind, step, item=item, media=record)

    @property
    def alerts(self) -> list[Alert]:
        """What looked wrong so far."""
        self._receive()
        return list(self._alerts)

    @property
    def account(self) -> Account:
        """What became of the values: offered, handled, dropped, lost; after `close` also how many were written."""
        if self._ending is not None:
            return self._ending.account
        return self._link.account if self._link is not None else Account()

    @property
    def drops(self) -> dict[tuple[str, str], int]:
        """How many values of each key found no room."""
        return dict(self.account.dropped)

    @property
    def closed(self) -> bool:
        """Whether nothing is watched any more."""
        return self._probes is None or self._probes.closed

    def close(self) -> None:
        """Take the hooks off, let the child finish, say where the results are."""
        if self._link is None or self._probes is None or self.closed or self._process != os.getpid():
            return
        self._probes.close()
        if not self._probes.count:
            self._problem(
                "no step was seen: the model was never called"
                + (" in training mode" if self._probes.only_training else "")
                + ", or only from inside something compiled (then watch the compiled model)"
            )
        self._report_missing(self._sender)
        with self._sender.guard("what the watching process says"):
            self.judge_step()
        try:
            self._link.stop(self._wait_for_child(self._link))
        except BaseException:  # Ctrl-C: do not wait any longer
            self._link.stop(_LAST_SECS)
            self._report_ending(self._link)
            raise
        self._report_ending(self._link)

    def _report_ending(self, link: Link) -> None:
        """Say where the results are, and what is missing."""
        assert self._probes is not None
        self._receive()
        self._ending = ending_of(link.account, self._place, self._logged, self._opened)
        for problem in (self._ending.problem, self._late_stop()):
            if problem:
                self._problem(problem)
        self._write_account()
        self._print_or_tell(line := self._ending.line(self._probes.count))
        self._notifier.close(line.removeprefix("torcheer: "), self._error)
        self._error = None  # its traceback holds the user's frames
        if self._box is not None:
            with self._sender.guard("what the notebook shows"):
                self._box.update(self, now=True)
        atexit.unregister(self._at_exit)

    def _late_stop(self) -> str:
        """Say that the alert which was to stop the loop came too late; "" where it did not."""
        alerts = [alert for alert in self._alerts if ends_run(self._stop_on, alert.rule, alert.severity)]
        if not alerts or self._error is not None:
            return ""
        first, last = alerts[0], self.step if self._stopped_at < 0 else self._stopped_at
        what = f"stop_on: {first.rule} of step {first.step:,} came too late to stop the loop"
        if self._stopped_at < 0:
            return f"{what}, which had ended after step {last:,}"
        return f"{what} there: it ran on to step {last:,}" if last > first.step else ""

    def _report_missing(self, sender: Sender) -> None:
        for pattern in sender.unmatched_patterns():
            self._problem(
                f"nothing that was sent matches {pattern!r} (keep=, video=); `layers=` and `what=` say what is"
            )
        variables = sender.variables
        if (
            "grad" in self._settings.what
            and {"output", "update"} <= variables
            and "grad" not in variables
            and not self.problems
        ):
            self._problem(
                "no gradient of an output came, though weights were updated: nothing went back through the passes that "
                "were watched, which are the first of each step. Without optimizer= every pass is a step"
            )

    def _write_account(self) -> None:
        try:
            if self._place is not None:
                is_sealed = bool(self._logged) and not self._logged.get("why")
                error = self._error
                failure = "" if error is None or isinstance(error, KeyboardInterrupt) else reason_of(error)
                write_account(self._place, self.account, ended=is_sealed, failure=failure)
        except (OSError, TorcheerError) as error:
            why = getattr(error, "strerror", None) or error
            self._problem(f"what became of the values cannot be written: {why}")

    def _wait_for_child(self, link: Link) -> float:
        """Wait until the child has taken what it was sent; returns how many seconds it then has to end.

        Without `drain_secs` that is as long as it gets on; from two seconds on, its progress is shown. With it, it is
        waited for up to two seconds, which is reported.
        """
        most_secs = self._settings.transport.drain_secs
        began = moved = time.monotonic()
        patience = began + (_PATIENCE_SECS if most_secs is None else min(_PATIENCE_SECS, most_secs / 2))
        handled, is_told, shows = link.ring.handled, False, None if self._settings.tell is None else False
        with Progress("torcheer.watch: reading the rest", link.waiting, "values", progress=shows) as progress:
            while (waiting := link.waiting) and link.process.is_alive():
                now = time.monotonic()
                if link.ring.handled != handled:
                    progress.add(link.ring.handled - handled)
                    handled, moved = link.ring.handled, now
                if most_secs is None and now - moved >= _STALLED_SECS:
                    return 0.0
                if now >= patience and not is_told:
                    is_told = True
                    left = (
                        "Ctrl-C drops them" if most_secs is None else f"it has {began + most_secs - now:.1f} s for them"
                    )
                    self._print_or_tell(f"torcheer: {waiting:,} values wait for the watching process; {left}")
                    if most_secs is not None:
                        break
                self._receive()
                time.sleep(_POLL_SECS)
        return _STALLED_SECS if most_secs is None else began + most_secs - time.monotonic()

    def __enter__(self) -> Watch:
        try:
            check_single_process(self._stop_on)
        except BadArgument:
            self.close()
            raise
        if self._probes is not None and self.closed:
            self._problem("it was closed before this block and looks at nothing in it; a new watch does")
        self._inside = True
        if self._probes is not None and watch_status.StatusBox.fits():
            with self._sender.guard("what the notebook shows"):
                self._box = self._box or watch_status.StatusBox(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self._inside, self._error = False, None if isinstance(error, StopAsked) else error
        folder = f", which writes to {self.to}" if self.to is not None else ""
        explain(error, self._model(), watch=f"step {self.step} of the watch{folder}", history=NO_HISTORY)
        self.close()
        return isinstance(error, StopAsked) and error.args == (id(self),)

    # -- messages of the child ---------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        with self._sender.guard("what the watching process says"):
            self._receive()
            self.judge_step()
            self._report_drops()
            if self._box is not None:
                self._box.update(self)
        if self._should_stop and self._inside:
            self._stopped_at = self.step - 1 if self._stopped_at < 0 else self._stopped_at
            raise StopAsked(id(self))

    def _report_drops(self) -> None:
        """Report values that find no room while it happens: at first at once, then whenever they are ten times more."""
        link, now = self._link, time.monotonic()
        if link is None or now - self._drops_checked < _DROPS_SECS or not link.ring.has_reader:
            return
        self._drops_checked = now
        account = link.account
        dropped = 0 if self._settings.transport.policy == "latest" else sum(account.dropped.values())
        if dropped < self._drops_due:
            return
        self._drops_due = _DROPS_FACTOR * dropped
        self._problem(
            f"the other process is behind: at step {self.step:,}, {dropped:,} of {account.offered:,} values so far "
            f"were dropped, and it has handled {account.handled:,}. Watch fewer steps (every=), fewer layers, or less "
            "of them (what=); `w.drops` has the counts of each"
        )

    def _receive(self) -> None:
        for message in self._link.heard() if self._link is not None else ():
            match message.get("kind"):
                case "alert":
                    self._alert(message)
                case "memory":
                    self._answer_memory()
                case "problem":
                    self._problem(f"the watching process: {message.get('text')}")
                case "done":
                    self._logged = message.get("log") or {}
                case "quarantined":
                    self._problem(
                        f"{message.get('layer')} ({message.get('variable')}) is left out by {message.get('reader')}: "
                        f"{message.get('error')}"
                    )

    def _answer_memory(self) -> None:
        if self._link is not None and (cells := device_memory()):
            self._link.answer(kind="memory", cells=cells)

    def _alert(self, message: Mapping[str, Any]) -> None:
        names = {field.name for field in fields(Alert)}
        alert = Alert(**{name: value for name, value in message.items() if name in names})
        if (alert.rule, alert.step) in self._told_here and message.get("kind") == "alert":
            return
        self._alerts.append(alert)
        self._notifier.alert(alert)
        if self._probes is not None:
            self._probes.announce(alert, None if self._place is None else Path(self._place.run))
        self._should_stop = self._should_stop or ends_run(self._stop_on, alert.rule, alert.severity)
        if self._settings.on_alert is None:
            notice_alert(f"{_rank_label()}{alert}", alert.severity, is_printed="is_printed" in message)
            return
        try:
            self._settings.on_alert(alert)
        except Exception as error:
            self._problem(f"on_alert failed: {type(error).__name__}: {error}")

    def _problem(self, text: str) -> None:
        """Report a problem once."""
        if text in self.problems:
            return
        self.problems.append(text)
        if len(self.problems) > _MOST_WARNINGS:
            return
        if len(self.problems) == _MOST_WARNINGS:
            text += " (what else there is stands in `problems` of the watch)"
        if self._settings.tell is not None:
            self._print_or_tell(text)
            return
        warn_or_print(f"torcheer.watch: {text}")

    def _print_or_tell(self, text: str) -> None:
        try:
            (self._settings.tell or _print)(text)
        except Exception as error:  # it may be called from anywhere in the model
            _print(f"{text} (and tell failed: {type(error).__name__}: {error})")


def check_single_process(stop_on: Sequence[str]) -> None:
    """Refuse to end one of several processes, which would leave the others waiting."""
    if stop_on and rank_of()[1] > 1:
        raise BadArgument(
            "stop_on: ending one of several processes would leave the others waiting for ever; without a `with` block "
            "(w = tl.watch(…, stop_on=…)) let them agree on `w.should_stop` (torch.distributed.all_reduce) and leave "
            "the loop together"
        )


def _report_problem(watch: weakref.ref[Watch], text: str) -> None:
    """Report a problem of the link, which lives until exit and must not keep the watch and its model alive."""
    if (target := watch()) is not None:
        target._problem(text)


def _close(watch: weakref.ref[Watch]) -> None:
    """Close the watch at exit."""
    if (target := watch()) is not None:
        target._error = uncaught()
        target.close()


def _rank_label() -> str:
    """Say which process speaks, if it is not the first."""
    rank, _ = rank_of()
    return f"rank {rank}: " if rank else ""


def _print(text: str) -> None:
    try:
        print(folded(text), file=sys.stderr)
    except (OSError, ValueError):  # stderr is closed
        return
