"""Name the samples behind an alert: which batch it was about, what its samples are, which of them is not finite."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from torcheer.errors import reason_of
from torcheer.samples import Alert as AlertRecord
from torcheer.terminal import first_names, plural
from torcheer.training.batches.excluded_samples import training_loaders
from torcheer.training.loop.events import Alert, EpochDone, Events, StepDone
from torcheer.training.observe.batch_losses import RULE as LOSS_SPIKE
from torcheer.training.observe.batch_losses import Batch, BatchSpikes
from torcheer.training.observe.sample_facts import SampleFacts, describe_samples, origin_of

if TYPE_CHECKING:
    from torcheer.training.session import Session

RULES = ("nan_inf", "exploding_gradient")  # about one batch more than about the model
_MOST_BATCHES = 10_000  # that are remembered
_BLOCK = 32  # steps whose losses are read together: one copy from a device for so many
_FAR = 10  # times the median of a batch
_MOST_READ = 5  # alerts of a run whose samples are read again
_NAMED, _DESCRIBED, _LEFT_OUT = 16, 4, 64  # samples of a batch: named, described, in a command that leaves them out


def name_samples(session: Session, events: Events) -> Events:
    """Yield the same events and alerts of spikes of the loss; behind an alert about a batch, one with its samples."""
    batches = BatchHistory(session)
    for event in events:
        kind = type(event)
        if kind is StepDone:
            has_losses = batches.add(event)  # type: ignore[arg-type]
            yield event
            if has_losses:
                yield from batches.spikes()
            continue
        if kind is not Alert:  # a device has been waited for, or there is no step to keep from going on
            yield from batches.spikes(wait=True)
        yield event
        if kind is Alert and event.record is not None and event.record.rule in RULES:  # type: ignore[union-attr]
            yield from batches.alerts(event.record)  # type: ignore[union-attr]
        elif kind is EpochDone:
            yield from batches.check(event)  # type: ignore[arg-type]
    yield from batches.spikes(wait=True)


class BatchHistory:
    """The last batches of a session, with their losses."""

    def __init__(self, session: Session) -> None:
        self._session, self._batches = session, deque[Batch](maxlen=_MOST_BATCHES)
        self._spikes = BatchSpikes(session)
        self._steps: list[StepDone] = []  # the last ones, of which no batches were made yet
        self._step = -1  # updates before the first of them; -1 before the first batch
        self._named: set[tuple[str, int, int]] = set()
        self._reads = 0

    def add(self, event: StepDone) -> bool:
        """Remember a batch; return whether losses may have arrived."""
        self._steps.append(event)  # the rest is done for a block at once: between kernels all Python is slow
        if self._step < 0:
            self._step = max(event.step - 1, 0)
            self._spikes.begin(self._step)
        if len(self._steps) >= _BLOCK:
            self._close_block()
        return self._spikes.reader.has_losses

    def _close_block(self) -> None:
        """Make batches of the last steps. A batch's own update is the last of its step, whether there is one or not."""
        befores = [self._step, *(event.step for event in self._steps)]
        batches = [
            Batch(step, event.pipeline, event.epoch - 1, event.round - 1, event.loss)
            for step, event in zip(befores, self._steps)
        ]
        self._step, self._steps = befores[-1], []
        self._batches += batches
        self._spikes.reader.add(batches)

    def spikes(self, *, wait: bool = False) -> Iterator[Alert]:
        """Yield alerts of jumps of the loss that are known by now, each with the samples of its batch behind it."""
        if wait:
            self._close_block()
        for batch, record in self._spikes.alerts(wait=wait):
            yield Alert(str(record), record)
            if self._session.watch is not None:
                self._session.watch.stop_if_asked(record)
            yield from self._name(batch, record.rule)

    def alerts(self, record: AlertRecord) -> Iterator[Alert]:
        """Yield an alert that names the samples of the batch that another is about, each batch once."""
        self._close_block()
        batch = self._first_not_finite() if record.rule == "nan_inf" else None
        batch = batch or next((batch for batch in self._batches if batch.step >= record.since), None)
        if batch is not None:
            yield from self._name(batch, record.rule)

    def check(self, event: EpochDone) -> Iterator[Alert]:
        """Yield an alert where an epoch's numbers are not finite: also a session without a watch learns of it."""
        if not all(math.isfinite(value) for value in event.values.values() if isinstance(value, float)):
            if (batch := self._first_not_finite()) is not None:
                yield from self._name(batch, "nan_inf")

    def _first_not_finite(self) -> Batch | None:
        """The first batch whose loss is not finite; weights that it spoiled spoil all later ones."""
        self._spikes.reader.receive(wait=True)
        return next((batch for batch in self._batches if not _is_finite(batch.loss)), None)

    def _name(self, batch: Batch, rule: str) -> Iterator[Alert]:
        identity = batch.pipeline, batch.epoch, batch.number
        if identity in self._named:
            return
        self._named.add(identity)
        step = batch.step + 1  # as people count
        where = f"step {step}, batch {batch.number + 1} of epoch {batch.epoch + 1}"
        for _, _, input in self._session.runners[batch.pipeline].inputs:
            text, values = self._samples(input.loader, batch, rule)
            message = f"{where} of {input.loader}: {text}"
            record = AlertRecord("samples", "", "samples", step, step, message, "", values={"rule": rule, **values})
            yield Alert(message, record)

    def _samples(self, loader: str, batch: Batch, rule: str) -> tuple[str, dict[str, Any]]:
        feed = self._session.feeds[loader]
        indices = feed.indices(batch.epoch, batch.number)
        if indices is None:
            return "it is a stream, its samples have no numbers", {}
        values: dict[str, Any] = {"loader": loader, "samples": indices}
        text = f"{plural(len(indices), 'sample')} {first_names(indices, _NAMED)}"
        if self._reads >= _MOST_READ:
            return text, values
        self._reads += 1
        try:
            facts = feed.read_apart(batch.epoch, batch.number, describe_samples)
        except Exception as error:  # whatever the user's dataset does there
            return f"{text} (they could not be read again: {reason_of(error)})", values
        bad = [place for place, fact in enumerate(facts) if not fact.is_finite]
        values["not_finite"] = [indices[place] for place in bad]
        shown = (bad or sorted(range(len(facts)), key=lambda place: -facts[place].largest))[:_DESCRIBED]
        self._show(loader, batch, [(indices[place], facts[place]) for place in shown])
        lines = [
            f"{indices[place]} ({origin_of(feed.loader.dataset, indices[place])}): {facts[place].text}"
            for place in shown
        ]
        heading = "; not finite: " if bad else "; all are finite, the largest numbers: "
        suspects = bad or (_suspects(facts) if rule == LOSS_SPIKE else [])
        return (
            f"{text}{heading}{' | '.join(lines)}.{self._advice(loader, [indices[place] for place in suspects])}",
            values,
        )

    def _advice(self, loader: str, indices: list[int]) -> str:
        if self._session.directory is None or not 0 < len(indices) <= _LEFT_OUT:
            return ""
        prefix = "" if training_loaders(self._session) == [loader] else f"{loader}:"
        numbers = ",".join(map(str, indices))
        return f" Train on without: torcheer train {self._session.directory} --leave-out {prefix}{numbers}"

    def _show(self, loader: str, batch: Batch, samples: list[tuple[int, SampleFacts]]) -> None:
        """Log images among the samples as such, where there is a watch with a folder."""
        watch = self._session.watch
        if watch is None or self._session.directory is None:
            return
        for index, facts in samples:
            if facts.picture is not None:
                caption = f"sample {index} of {loader}, step {batch.step + 1}: {facts.text}"
                watch.log_picture(f"sample {index}", facts.picture, caption)


def _is_finite(loss: Any) -> bool:
    """Whether a loss is a finite number; so is one that cannot be read."""
    return not isinstance(loss, float) or math.isfinite(loss)


def _suspects(facts: list[SampleFacts]) -> list[int]:
    """The places of samples whose numbers are far larger than the others'; without such ones, of all."""
    usual = median(fact.largest for fact in facts)
    return [place for place, fact in enumerate(facts) if fact.largest > _FAR * usual] or list(range(len(facts)))
