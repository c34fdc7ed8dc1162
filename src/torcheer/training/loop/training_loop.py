"""The training loop: stages of epochs of rounds, each round one batch of every pipeline in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torcheer.training.loop.events import EpochDone, Event, StageBegan, StageDone, StepDone, Stopped
from torcheer.training.loop.pipeline_runner import Lane
from torcheer.training.loop.step_errors import explain_step
from torcheer.training.spec.session_parts import Stage

if TYPE_CHECKING:
    from torcheer.training.session import Session

NEVER = 1 << 62
SHARE, LEAST_SECS = 100.0, 2.0  # saving epochs may take a hundredth of the time; tiny ones are not all saved


class Loop:
    """One run of a session, from where it stands."""

    def __init__(self, session: Session) -> None:
        self.session, self.place = session, session.place
        self._started = self._epoch_began = self._due = time.monotonic()
        self._set_due(self._started)
        self._saved_at, self._save_secs = self._started, 0.0
        self._precision, self._notes_steps = session.precision(), session.options.steps_csv > 0

    def run(self) -> Iterator[Event]:
        """Train until the last stage is done or somebody asks to stop."""
        session, place = self.session, self.place
        while place.stage < len(session.stages):
            number, stage = place.stage, session.stages[place.stage]
            yield StageBegan(number)
            with session.training(stage) as lanes:
                place.stage += not place.round and session.is_done(stage)
                while place.stage == number:
                    for event in self._epoch(stage, lanes):
                        yield event
                        if isinstance(event, Stopped):
                            return
            yield StageDone(number)

    def _epoch(self, stage: Stage, lanes: list[Lane]) -> Iterator[Event]:
        """The rest of an epoch, its evaluation and its row."""
        session, place = self.session, self.place
        self._epoch_began = time.monotonic()
        if session.control is not None:
            yield from self._controlled()
            if session.asked_to_stop:
                yield from self._saved()
                yield Stopped(session.asked_to_stop)
                return
        if not place.round:
            for lane in lanes:
                lane.reset()
        for event in self._rounds(lanes):
            yield event
            if isinstance(event, Stopped):
                return
        if session.control is not None:
            session.control.evaluates()
        values = session.finish_epoch(stage, lanes)
        place.epoch, place.round, place.ended = place.epoch + 1, 0, []
        session.add_row(place.epoch, values)
        yield EpochDone(place.epoch, values, time.monotonic() - self._epoch_began)
        session.look_at_debug(stage)
        is_done = session.is_done(stage)
        place.stage += is_done
        if is_done or session.asked_to_stop or self._is_worth_saving():
            yield from self._saved()
        if session.asked_to_stop:
            yield Stopped(session.asked_to_stop)

    def _rounds(self, lanes: list[Lane]) -> Iterator[Event]:
        """Round after round until every pipeline has run out; saved at their ends, where nothing is half done."""
        session, place = self.session, self.place
        running = [(lane, lane.batches(place.epoch, place.round)) for lane in lanes if lane.name not in place.ended]
        while running:
            told, session.is_torn = [], True
            for one in list(running):
                lane, batches = one
                batch = self._next(lane, batches)
                if batch is None:
                    running.remove(one)
                    place.ended.append(lane.name)
                    if lane.update is not None and lane.update.flush():
                        place.step += 1
                        told.append(
                            StepDone(place.step, place.epoch + 1, place.round, lane.name, lane.update.last_loss)
                        )
                    continue
                loss = self._train(lane, batch)
                told.append(StepDone(place.step, place.epoch + 1, place.round + 1, lane.name, loss))
            place.round, session.is_torn = place.round + 1, False
            if self._notes_steps and session.keeper is not None:
                session.keeper.note_steps(told)
            yield from told  # here, where whoever listens may save or leave
            for look in session.each_round:
                look(place)
            if session.control is not None and session.control.is_due(told) and not session.is_half_done():
                yield from self._controlled()
            if session.asked_to_stop or time.monotonic() >= self._due or place.step >= self._due_step:
                if session.is_half_done():
                    continue
                yield from self._attend()
                if session.asked_to_stop:
                    yield Stopped(session.asked_to_stop)
                    return

    def _next(self, lane: Lane, batches: Iterator[tuple[Any, ...]]) -> tuple[Any, ...] | None:
        try:
            return next(batches, None)
        except Exception as error:
            explain_step(error, lane, None, **self._where())
            raise

    def _where(self) -> dict[str, int]:
        place = self.place
        return {"stage": place.stage + 1, "epoch": place.epoch + 1, "step": place.step + 1, "batch": place.round + 1}

    def _train(self, lane: Lane, batch: tuple[Any, ...]) -> torch.Tensor:
        """One batch, and where it was on an exception that it raises."""
        try:
            return self._step(lane, batch)
        except Exception as error:
            explain_step(error, lane, batch, **self._where())
            raise

    def _step(self, lane: Lane, batch: tuple[Any, ...]) -> torch.Tensor:
        """One batch: forward, losses, update, metrics."""
        update, capture = lane.update, self.session.capture
        assert update is not None
        update.begin()
        with self._precision:
            if capture is not None and capture.is_due(self.place.step):
                frames, samples = capture.forward(lane, batch, self.place.step)
            else:
                frames, samples = lane.forward(batch)
            loss, items = lane.loss(frames, samples)
        self.place.step += update.backward(loss, items)
        lane.measure(frames, samples)
        return loss.detach()

    def _controlled(self) -> Iterator[Event]:
        """Do what somebody who looks on asks for; the time that it pauses counts for nothing here."""
        control = self.session.control
        assert control is not None
        before = control.idle_secs
        yield from control.attend()
        passed = control.idle_secs - before
        self._started, self._epoch_began = self._started + passed, self._epoch_began + passed
        self._due, self._saved_at = self._due + passed, self._saved_at + passed

    def _attend(self) -> Iterator[Event]:
        """Save; see whether time is up."""
        limit = self.session.options.limit_secs
        if limit is not None and time.monotonic() - self._started >= limit:
            self.session.asked_to_stop = f"the time limit of {limit:g} s is reached"
        yield from self._saved()

    def _saved(self) -> Iterator[Event]:
        """Write a checkpoint, and say when the next is due."""
        began = time.monotonic()
        yield from self.session.save()
        self._saved_at = time.monotonic()
        self._save_secs = self._saved_at - began
        self._set_due(self._saved_at)

    def _set_due(self, now: float) -> None:
        """When to save next, or to look at the clock."""
        options = self.session.options
        self._due = now + options.checkpoint_secs
        if options.limit_secs is not None:
            self._due = min(self._due, max(now, self._started + options.limit_secs))
        self._due_step = self.place.step + options.checkpoint_steps if options.checkpoint_steps else NEVER

    def _is_worth_saving(self) -> bool:
        """Whether an epoch was long enough to be saved for itself, or may be the best."""
        since = time.monotonic() - self._saved_at
        return bool(self.session.options.keep_best) or since >= max(SHARE * self._save_secs, LEAST_SECS)
