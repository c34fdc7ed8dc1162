"""The losses of all batches of a session, read without waiting for a device, and the spikes among them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.monitor.rules import resolve_rules
from torcheer.monitor.rules.loss_spikes import LossLevel, LossSpike, Spike
from torcheer.samples import Alert as AlertRecord
from torcheer.tap.device_copies import copy_to_host

if TYPE_CHECKING:
    from torcheer.training.session import Session

RULE = LossSpike.name


@dataclass(slots=True)
class Batch:
    """One batch of one pipeline that was trained."""

    step: int  # updates before it
    pipeline: str
    epoch: int  # from 0
    number: int  # in its epoch, from 0
    loss: Any  # a tensor on its device, as no step waits for it; a number once it was read


class LossReader:
    """Reads losses in blocks, each in one copy beside the computation."""

    def __init__(self) -> None:
        self._copies: deque[tuple[list[Batch], Tensor, Any]] = deque()  # with the event that ends each
        self._arrived: list[Batch] = []  # whose losses are numbers, not taken yet

    @property
    def has_losses(self) -> bool:
        """True while losses are on their way, or have arrived."""
        return bool(self._copies or self._arrived)

    def add(self, batches: Iterable[Batch]) -> None:
        """Begin to read the losses of the next batches."""
        groups: dict[Any, list[Batch]] = {}  # pipelines may be on several devices
        for batch in batches:
            loss = batch.loss
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                continue
            if loss.is_cpu:  # a tenth of what a stack and a copy take
                batch.loss = loss.item()
                self._arrived.append(batch)
            else:
                groups.setdefault((loss.device, loss.dtype), []).append(batch)
        for group in groups.values():
            with torch.no_grad():
                (numbers,), arrived = copy_to_host([torch.stack([batch.loss.reshape(()) for batch in group])])
            self._copies.append((group, numbers, arrived))

    def receive(self, *, wait: bool = False) -> None:
        """Set the losses of batches to the numbers that have arrived; with `wait` to all of them."""
        while self._copies and (wait or self._copies[0][2].query()):
            batches, numbers, arrived = self._copies.popleft()
            arrived.synchronize()
            for batch, loss in zip(batches, numbers.tolist()):
                batch.loss = loss
            self._arrived += batches

    def take(self, *, wait: bool = False) -> list[Batch]:
        """Return the batches whose losses have arrived, in order; with `wait` all of them."""
        self.receive(wait=wait)
        arrived, self._arrived = self._arrived, []
        return arrived


class BatchSpikes:
    """The batches of a session whose losses jump, by the rule `loss_spike` as its watch has it set."""

    def __init__(self, session: Session) -> None:
        self._session, self.reader = session, LossReader()
        self._settings: Any = None
        self._levels: dict[str, LossLevel] = {}  # by pipeline
        self._earlier: dict[str, list[float]] = {}  # losses before the first batch, as far as they were logged
        self._told = 0

    def begin(self, step: int) -> None:
        """Begin with the first batch, before which there were so many updates."""
        log = self._session.run_log
        self._earlier = log.last_losses(step) if log is not None and step > 0 else {}

    def alerts(self, *, wait: bool = False) -> Iterator[tuple[Batch, AlertRecord]]:
        """Yield the batches that begin a spike, each with its alert, of the losses that have arrived."""
        batches, settings = self.reader.take(wait=wait), self._rule()
        if settings is False:
            return
        for batch in batches:
            spike = self._level(batch.pipeline, settings).add(batch.loss)
            if spike is not None and not self._is_remainder(batch) and self._told < settings["most"]:
                self._told += 1
                yield batch, self._alert(batch, spike, is_last=self._told == settings["most"])

    def _rule(self) -> Any:
        """The settings of the rule; False where it is off."""
        watch = self._session.watch
        return _DEFAULTS if watch is None else watch.loss_spike

    def _level(self, pipeline: str, settings: Any) -> LossLevel:
        if settings is not self._settings and settings != self._settings:
            self._settings = settings
            self._levels.clear()
        level = self._levels.get(pipeline)
        if level is None:
            level = self._levels[pipeline] = LossLevel(settings)
            for loss in self._earlier.pop(pipeline, ()):
                level.add(loss)
        return level

    def _is_remainder(self, batch: Batch) -> bool:
        """Whether a batch is what an epoch has left: the loss of less than half as many samples varies more."""
        for feed, _, _ in self._session.runners[batch.pipeline].inputs:
            indices = feed.indices(batch.epoch, batch.number)
            if indices is not None and 2 * len(indices) < (feed.loader.batch_size or 0):
                return True
        return False

    def _alert(self, batch: Batch, spike: Spike, *, is_last: bool) -> AlertRecord:
        finding, step = spike.finding, batch.step + 1  # as people count
        name = "loss" if len(self._levels) == 1 else f"{batch.pipeline} loss"
        text = finding.what + (" (this rule tells no more in this run)" if is_last else "")
        return AlertRecord(RULE, name, "metric", step, step, text, finding.advice, values=dict(finding.values))


_DEFAULTS = resolve_rules([RULE])[RULE]
