"""Watching while it trains: `tl.watch` on the session's models, from the options, in `<run>/watch/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.monitor.rules import RULES, settle
from torcheer.monitor.watch import Watch, watch
from torcheer.monitor.watch_settings import stops
from torcheer.samples import Alert as Seen
from torcheer.training.loop.events import Alert, EpochDone, Event, StepDone

if TYPE_CHECKING:
    from torcheer.training.session import Session

_EPOCHS = {"loss": "train loss"}  # the mean of an epoch, which is not the loss of its last step
KNOWN = ("models", "layers", "what", "every", "rules", "video", "keep", "stop_on", "transport")


def watched(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    """The same events; on the way, the models that the options name are watched."""
    assert session.options.watch is not None
    watching = session.watching = Watching(session, session.options.watch)
    try:
        for event in events:
            watching.note(event)
            yield event
            yield from watching.news()
    finally:
        session.watching = None
        watching.close()
    yield from watching.news()


class Watching:
    """A watch for each model; their alerts are the session's."""

    def __init__(self, session: Session, settings: Mapping[str, Any]) -> None:
        if not isinstance(settings, Mapping):
            raise BadArgument(f"watch: a table of settings is needed, such as {{'every': 20}}, not {settings!r}")
        for key in settings:
            if key not in KNOWN:
                raise BadArgument(f"watch: there is no {key!r}; there are {', '.join(KNOWN)}.{nearest(key, KNOWN)}")
        names = settings.get("models", list(session.models))
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in session.models:
                there = ", ".join(session.models)
                raise BadArgument(
                    f"watch: there is no model {name!r}; there is {there}.{nearest(name, session.models)}"
                )
        self._session, self._names = session, names
        self._settings = {key: value for key, value in settings.items() if key != "models"}
        self._watches: list[Watch] | None = None  # until the session stands where it goes on from
        self._news: list[str] = []
        self._epoch = 0  # that stands beside the values

    def _open(self) -> list[Watch]:
        folder = self._session.directory
        several = len(self._names) > 1
        return [
            watch(
                self._session.models[name],
                to=None if folder is None else folder / "watch" / (name if several else ""),
                step_of=lambda: self._session.place.step,
                on_alert=partial(self._alert, name if several else ""),
                tell=self._news.append,
                **self._settings,
            )
            for name in self._names
        ]

    def note(self, event: Event) -> None:
        """Send the losses of watched steps and the columns of epochs along."""
        if self._watches is None:
            self._watches = self._open()
        if type(event) is StepDone:
            for one in self._watches:
                if one.is_watching:
                    one.log(loss=event.loss)
        elif type(event) is EpochDone:
            for one in self._watches:
                one.log(**{_EPOCHS.get(name, name): value for name, value in event.values.items()})
        if self._epoch != self._session.place.epoch + 1:
            self._epoch = self._session.place.epoch + 1  # what comes now is of the next one
            for one in self._watches:
                one.message = f"epoch:{self._epoch}"

    def look_every(self, steps: int) -> None:
        """Look at every n-th step from now on."""
        self._settings["every"] = steps
        for one in self._watches or ():
            one.every = steps

    @property
    def rules(self) -> dict[str, dict[str, Any] | bool]:
        """Every rule with its settings, False where it is off."""
        settled = settle(self._settings.get("rules", "default"))
        return {name: settled.get(name, False) for name in RULES}

    def set_rules(self, rules: Any) -> None:
        """Judge by these from now on; as "rules" of a config."""
        stops(self.stop_on, settle(rules))
        self._settings["rules"] = rules
        for one in self._watches or ():
            one.rules = rules

    @property
    def stop_on(self) -> tuple[str, ...]:
        """The rules whose next alert ends the run."""
        asked = self._settings.get("stop_on", ())
        return (asked,) if isinstance(asked, str) else tuple(asked)

    def set_stop_on(self, names: str | Sequence[str]) -> None:
        """End the run at the next alert of one of these."""
        self._settings["stop_on"] = stops(names, settle(self._settings.get("rules", "default")))
        for one in self._watches or ():
            one.stop_on = names

    def _alert(self, model: str, alert: Seen) -> None:
        if model:  # as the studio names the layers of several models
            alert = replace(alert, layer=".".join(filter(None, (model, alert.layer))))
        self._news.append(str(alert))
        if self._session.control is not None:
            self._session.control.seen(alert)
        asked = self.stop_on
        if alert.rule in asked or (alert.severity == "error" and "error" in asked):
            self._session.asked_to_stop = self._session.asked_to_stop or f"the watch asks for it: {alert}"

    def news(self) -> Iterator[Alert]:
        """What there is to tell."""
        while self._news:
            yield Alert(self._news.pop(0))

    def close(self) -> None:
        """Take the watches away, and let them finish."""
        for one in self._watches or ():
            one.close()
