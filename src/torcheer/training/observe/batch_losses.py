"""The losses of all batches of a session, read without waiting for a device, and the spikes among them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torcheer.monitor.rules import resolve_rules
from torcheer.monitor.rules.loss_spikes import LossLevel, LossSpike, Spike
from torcheer.samples import Alert as AlertRecord
from torcheer.tap.device_copies import copy_to_host

if TYPE_CHECKING:
    from torcheer.training.session import Session

RULE = LossSpike.name
_BLOCK = 32  # losses that are read together: one copy from a device for so many steps


class Batch(NamedTuple):
    """One batch of one pipeline that was trained."""

    step: int  # updates before it
    pipeline: str
    epoch: int  # from 0
    number: int  # in its epoch, from 0
    loss: Any  # a tensor on its device: no step waits for it


class LossReader:
    """Reads losses in blocks, each in one copy beside the computation."""

    def __init__(self) -> None:
        self._gathered: list[Batch] = []
        self._copies: deque[tuple[list[Batch], Tensor, Any]] = deque()  # with the event that ends each

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        self._gathered.append(batch)
        if len(self._gathered) >= _BLOCK:
            self._fetch()

    def read(self, *, wait: bool = False) -> Iterator[tuple[Batch, float]]:
        """Yield the losses that have arrived, in order; with `wait` all of them."""
        if wait and self._gathered:
            self._fetch()
        while self._copies and (wait or self._copies[0][2].query()):
            batches, numbers, arrived = self._copies.popleft()
            arrived.synchronize()
            yield from zip(batches, numbers.tolist())

    def _fetch(self) -> None:
        gathered, self._gathered = self._gathered, []
        groups: dict[Any, list[Batch]] = {}  # pipelines may be on several devices
        for batch in gathered:
            if isinstance(batch.loss, Tensor) and batch.loss.numel() == 1:
                groups.setdefault((batch.loss.device, batch.loss.dtype), []).append(batch)
        for batches in groups.values():
            with torch.no_grad():
                (numbers,), arrived = copy_to_host([torch.stack([batch.loss.reshape(()) for batch in batches])])
            self._copies.append((batches, numbers, arrived))


class BatchSpikes:
    """The batches of a session whose losses jump, by the rule `loss_spike` as its watch has it set."""

    def __init__(self, session: Session) -> None:
        self._session, self._reader = session, LossReader()
        self._settings: Any = None
        self._levels: dict[str, LossLevel] = {}  # by pipeline
        self._earlier: dict[str, list[float]] | None = None  # losses before the first batch, as far as they were logged
        self._told = 0

    def add(self, batch: Batch) -> None:
        """Add the next batch."""
        if self._earlier is None:
            log = self._session.run_log
            self._earlier = log.last_losses(batch.step) if log is not None and batch.step > 0 else {}
        self._reader.add(batch)

    def alerts(self, *, wait: bool = False) -> Iterator[tuple[Batch, AlertRecord]]:
        """Yield the batches that begin a spike, each with its alert, of the losses that have arrived."""
        for batch, loss in self._reader.read(wait=wait):
            if (settings := self._rule()) is False:
                continue
            spike = self._level(batch.pipeline, settings).add(loss)
            if spike is not None and not self._is_remainder(batch) and self._told < settings["most"]:
                self._told += 1
                yield batch, self._alert(batch, spike, is_last=self._told == settings["most"])

    def _rule(self) -> Any:
        """The settings of the rule; False where it is off."""
        watch = self._session.watch
        return _DEFAULTS if watch is None else watch.loss_spike

    def _level(self, pipeline: str, settings: Any) -> LossLevel:
        if settings != self._settings:
            self._settings = settings
            self._levels.clear()
        if pipeline not in self._levels:
            level = self._levels[pipeline] = LossLevel(settings)
            for loss in (self._earlier or {}).pop(pipeline, ()):
                level.add(loss)
        return self._levels[pipeline]

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
