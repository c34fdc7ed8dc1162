"""Run `tl.watch` on the session's models while it trains, as the options say.

Results in the run's log, as writer "watch" ("watch-<model>" of several); videos in `<run>/watch/`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import ArchiveBusy, BadArgument, TorcheerError
from torcheer.monitor.model_watch import Watch
from torcheer.monitor.rules import RULES, resolve_rules
from torcheer.monitor.rules.loss_spikes import LossSpike
from torcheer.monitor.watch_settings import OPTIONS, SAID_BY_LOOPS, WatchSettings, ends_run, stops
from torcheer.ranks import chosen_ranks, ranked
from torcheer.runlog.log_frames import LogPlace
from torcheer.runlog.log_writer import cut_log
from torcheer.runlog.media.media_types import Image
from torcheer.samples import Alert as WatchAlert
from torcheer.terminal import did_you_mean
from torcheer.training.loop.events import Alert, EpochDone, Event, Events, StepDone

if TYPE_CHECKING:
    from torcheer.training.session import Session

_EPOCHS = {"loss": "train loss"}  # an epoch's mean must not be taken for the loss of its last step
_ATTEMPTS, _WAIT_SECS = 50, 0.1  # for the log of a watch whose trainer was killed
_IN_NO_CONFIG = {*SAID_BY_LOOPS, "optimizer", "callback", "notify"}  # of the session, or a function
SETTINGS = ("models", "layers", *(name for name in OPTIONS if name not in _IN_NO_CONFIG))


def watch_events(session: Session, events: Events) -> Events:
    """Yield the same events; watch the models that the options name."""
    assert session.options.watch is not None
    session_watch = session.watch = SessionWatch(session, session.options.watch)
    try:
        for event in events:
            session_watch.note(event)
            yield event
            yield from session_watch.alerts()
    finally:
        session.watch = None
        session_watch.close()
    yield from session_watch.alerts()


class SessionWatch:
    """One watch for each model; their alerts become alerts of the session."""

    def __init__(self, session: Session, settings: Mapping[str, Any]) -> None:
        if not isinstance(settings, Mapping):
            raise BadArgument(f"watch: a table of settings is needed, such as {{'every': 20}}, not {settings!r}")
        for key in settings:
            if key not in SETTINGS:
                raise BadArgument(
                    f"watch: there is no {key!r}; there are {', '.join(SETTINGS)}.{did_you_mean(key, SETTINGS)}"
                )
        names = settings.get("models", list(session.models))
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in session.models:
                models = ", ".join(session.models)
                raise BadArgument(
                    f"watch: there is no model {name!r}; there is {models}.{did_you_mean(name, session.models)}"
                )
        self._session, self._names = session, names
        self._settings = {key: value for key, value in settings.items() if key != "models"}
        stops(self._settings.get("stop_on", ()), resolve_rules(self._settings.get("rules", "default")))
        self.loss_spike = self.rules[LossSpike.name]  # the session applies it: it knows the loss of every step
        self._watches: list[Watch] | None = None  # None until the session is restored
        self._alerts: list[Alert] = []
        self._epoch = 0  # sent along with the values

    def _open(self) -> list[Watch]:
        folder, ranks = self._session.directory, self._ranks_there()
        several = len(self._names) > 1
        asked = {name: value for name, value in self._settings.items() if name != "layers"}
        asked |= {"rules": self._watch_rules(), "stop_on": (), "ranks": ranks}
        watches = []
        for name in self._names if ranks else ():
            part = name if several else ""
            settings = WatchSettings.parse(
                log=None if folder is None else self._place(folder, f"watch-{part}" if part else "watch"),
                to=None if folder is None else folder / "watch" / part,
                step_of=lambda: self._session.place.step,
                on_alert=partial(self._alert, part),
                tell=self._tell,
                system_secs=0,  # the session takes them itself
                **asked,
            )
            watches.append(Watch(self._session.models[name], self._settings.get("layers"), settings))
        return watches

    def _ranks_there(self) -> str | list[int]:
        """The ranks that watch, of those that train: a run may go on on fewer."""
        count = 1 if self._session.ranks is None else self._session.ranks.count
        asked = self._settings.get("ranks", 0)
        there = sorted({rank for rank in chosen_ranks(asked, count) if rank < count})
        if not there:
            self._tell(f"watch: nothing is watched, as ranks={asked!r} names none of the {count} that train, from 0 on")
        return "all" if len(there) == count else there

    def _tell(self, text: str) -> None:
        """Report what the watch has to say; of ranks other than the first nobody shows the events."""
        self._alerts.append(Alert(text, is_logged=True))
        if not self._session.is_main:
            print(f"rank {self._session.rank}: {text}", file=sys.stderr, flush=True)

    def _place(self, run: Path, writer: str) -> LogPlace:
        """The watch's part of the run's log; what it has of steps that are trained again is cut off."""
        session = self._session
        columns = [_EPOCHS.get(name, name) for stage in session.stages
                   for name in session.columns_of((*stage.training, *stage.validation))]  # fmt: skip
        place = LogPlace(run, writer, tuple(dict.fromkeys(("loss", *columns))))
        own = replace(place, writer=ranked(writer))
        for _ in range(_ATTEMPTS):
            try:
                cut_log(own, session.place.step - 1)  # the next step to be watched has the number of steps done
                break
            except ArchiveBusy:  # the child of a trainer that was killed is still ending
                time.sleep(_WAIT_SECS)
            except (OSError, TorcheerError):  # the watch itself will say it
                break
        return place

    def note(self, event: Event) -> None:
        """Log the losses of watched steps and the columns of epochs."""
        if self._watches is None:
            self._watches = self._open()
            self._judge_stops()
        if type(event) is StepDone:
            watching = [model_watch for model_watch in self._watches if model_watch.is_watching]
            for model_watch in watching:
                model_watch.log(loss=event.loss)
            if watching and self._session.run_log is not None:
                self._session.run_log.add_losses([event])
            for model_watch in self._watches:
                model_watch.judge_step()  # before the next step, which the session's loop asks for
        elif type(event) is EpochDone:
            for model_watch in self._watches:
                model_watch.log(**{_EPOCHS.get(name, name): value for name, value in event.values.items()})
        if self._epoch != self._session.place.epoch + 1:
            self._epoch = self._session.place.epoch + 1  # later values belong to the next epoch
            for model_watch in self._watches:
                model_watch.message = f"epoch:{self._epoch}"

    def log_picture(self, name: str, picture: Any, caption: str) -> None:
        """Log an image beside the values of the first watch."""
        for model_watch in (self._watches or ())[:1]:
            model_watch.log(**{name: Image(picture, caption, "CHW")})

    def set_every(self, steps: int) -> None:
        """Watch every n-th step from now on."""
        self._settings["every"] = steps
        for model_watch in self._watches or ():
            model_watch.every = steps

    @property
    def rules(self) -> dict[str, dict[str, Any] | bool]:
        """Every rule with its settings, False where it is off."""
        settled = resolve_rules(self._settings.get("rules", "default"))
        return {name: settled.get(name, False) for name in RULES}

    def set_rules(self, rules: Any) -> None:
        """Replace the rules; `rules` has the form of "rules" in a config."""
        stops(self.stop_on, resolve_rules(rules))
        self._settings["rules"] = rules
        self.loss_spike = self.rules[LossSpike.name]
        for model_watch in self._watches or ():
            model_watch.rules = self._watch_rules()

    def _watch_rules(self) -> dict[str, Any]:
        return self.rules | {LossSpike.name: False}

    @property
    def stop_on(self) -> tuple[str, ...]:
        """Names of the rules whose next alert ends the run."""
        names = self._settings.get("stop_on", ())
        return (names,) if isinstance(names, str) else tuple(names)

    def set_stop_on(self, names: str | Sequence[str]) -> None:
        """End the run at the next alert of one of these rules."""
        self._settings["stop_on"] = stops(names, resolve_rules(self._settings.get("rules", "default")))
        self._judge_stops()

    def _judge_stops(self) -> None:
        """Have the watches judge at once what ends the run."""
        for model_watch in self._watches or ():
            model_watch.judge_for([name for name in self.stop_on if name != LossSpike.name])

    def _alert(self, model: str, alert: WatchAlert) -> None:
        if model:  # as the studio names the layers of several models
            alert = replace(alert, layer=".".join(filter(None, (model, alert.layer))))
        self._alerts.append(Alert(str(alert), alert, is_logged=True))
        if self._session.control is not None:
            self._session.control.report_alert(alert)
        self.stop_if_asked(alert)

    def stop_if_asked(self, alert: WatchAlert) -> None:
        """Stop the run where `stop_on` names the rule of an alert."""
        if ends_run(self.stop_on, alert.rule, alert.severity):
            self._session.stop_reason = self._session.stop_reason or f"the watch asks for it: {alert}"

    def alerts(self) -> Iterator[Alert]:
        """Yield the pending alerts; the log of the watch has them."""
        while self._alerts:
            yield self._alerts.pop(0)

    def close(self) -> None:
        """Close the watches; waits until they have finished."""
        for model_watch in self._watches or ():
            model_watch.close()
