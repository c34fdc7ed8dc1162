"""Name the samples behind an alert: which batch it was about, what its samples are, which of them is not finite."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torcheer.errors import reason_of
from torcheer.samples import Alert as AlertRecord
from torcheer.terminal import first_names, plural
from torcheer.training.loop.events import Alert, EpochDone, Event, StepDone
from torcheer.training.loop.excluded_samples import training_loaders
from torcheer.training.observe.sample_facts import SampleFacts, describe_samples, origin_of

if TYPE_CHECKING:
    from torcheer.training.session import Session

RULES = ("nan_inf", "exploding_gradient")  # about one batch more than about the model
_MOST_BATCHES = 10_000  # that are remembered
_MOST_READ = 5  # alerts of a run whose samples are read again
_NAMED, _DESCRIBED = 16, 4  # samples of a batch


def name_samples(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    """Yield the same events; behind an alert about a batch, one that names its samples."""
    batches = BatchHistory(session)
    for event in events:
        kind = type(event)
        if kind is StepDone:
            batches.add(event)  # type: ignore[arg-type]
        yield event
        if kind is Alert and event.record is not None and event.record.rule in RULES:  # type: ignore[union-attr]
            yield from batches.alerts(event.record)  # type: ignore[union-attr]
        elif kind is EpochDone:
            yield from batches.check(event)  # type: ignore[arg-type]


class _Batch(NamedTuple):
    """One batch of one pipeline that was trained."""

    step: int  # updates before it
    pipeline: str
    epoch: int  # from 0
    number: int  # in its epoch, from 0
    loss: Any  # a tensor on its device: nobody waits for it before there is an alert


class BatchHistory:
    """The last batches of a session, with their losses."""

    def __init__(self, session: Session) -> None:
        self._session, self._batches = session, deque[_Batch](maxlen=_MOST_BATCHES)
        self._step: int | None = None  # updates before the next batch
        self._named: set[tuple[str, int, int]] = set()
        self._reads = 0

    def add(self, event: StepDone) -> None:
        """Remember a batch. Its own update is the last of its step, whether there is one or not."""
        step = event.step - 1 if self._step is None else self._step
        self._batches.append(_Batch(max(step, 0), event.pipeline, event.epoch - 1, event.round - 1, event.loss))
        self._step = event.step

    def alerts(self, record: AlertRecord) -> Iterator[Alert]:
        """Yield an alert that names the samples of the batch that another is about, each batch once."""
        batch = self._first_not_finite() if record.rule == "nan_inf" else None
        batch = batch or next((batch for batch in self._batches if batch.step >= record.since), None)
        if batch is not None:
            yield from self._name(batch, record.rule)

    def check(self, event: EpochDone) -> Iterator[Alert]:
        """Yield an alert where an epoch's numbers are not finite: also a session without a watch learns of it."""
        if not all(math.isfinite(value) for value in event.values.values() if isinstance(value, float)):
            if (batch := self._first_not_finite()) is not None:
                yield from self._name(batch, "nan_inf")

    def _first_not_finite(self) -> _Batch | None:
        """The first batch whose loss is not finite; weights that it spoiled spoil all later ones."""
        losses = [batch for batch in self._batches if isinstance(batch.loss, torch.Tensor) and batch.loss.numel() == 1]
        if not losses:
            return None
        numbers = torch.stack([batch.loss.reshape(()).float().to(losses[-1].loss.device) for batch in losses])
        places = torch.nonzero(~torch.isfinite(numbers)).reshape(-1).tolist()
        return losses[places[0]] if places else None

    def _name(self, batch: _Batch, rule: str) -> Iterator[Alert]:
        identity = batch.pipeline, batch.epoch, batch.number
        if identity in self._named:
            return
        self._named.add(identity)
        step = batch.step + 1  # as people count
        where = f"step {step}, batch {batch.number + 1} of epoch {batch.epoch + 1}"
        for _, _, input in self._session.runners[batch.pipeline].inputs:
            text, values = self._samples(input.loader, batch)
            what = f"{where} of {input.loader}: {text}"
            record = AlertRecord("samples", "", "samples", step, step, what, "", values={"rule": rule, **values})
            yield Alert(what, record)

    def _samples(self, loader: str, batch: _Batch) -> tuple[str, dict[str, Any]]:
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
        told = "; not finite: " if bad else "; all are finite, the largest numbers: "
        return f"{text}{told}{' | '.join(lines)}.{self._advice(loader, values['not_finite'])}", values

    def _advice(self, loader: str, indices: list[int]) -> str:
        if self._session.directory is None or not 0 < len(indices) <= _NAMED:
            return ""
        prefix = "" if training_loaders(self._session) == [loader] else f"{loader}:"
        numbers = ",".join(map(str, indices))
        return f" Train on without: torcheer train {self._session.directory} --leave-out {prefix}{numbers}"

    def _show(self, loader: str, batch: _Batch, samples: list[tuple[int, SampleFacts]]) -> None:
        """Log images among the samples as such, where there is a watch with a folder."""
        watch = self._session.watch
        if watch is None or self._session.directory is None:
            return
        for index, facts in samples:
            if facts.picture is not None:
                caption = f"sample {index} of {loader}, step {batch.step + 1}: {facts.text}"
                watch.log_picture(f"sample {index}", facts.picture, caption)
