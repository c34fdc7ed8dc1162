"""The training loop: stages of epochs of rounds; a round is one batch of every pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torcheer.training.loop.events import Alert, EpochDone, Event, StageBegan, StageDone, StepDone, Stopped
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.step_errors import explain_step
from torcheer.training.session_parts import Stage

if TYPE_CHECKING:
    from torcheer.training.session import Session

NEVER = 1 << 62
SHARE, LEAST_SECS = 100.0, 2.0  # saving after epochs may take 1/100 of the time, at most once in 2 s


class TrainingLoop:
    """One run of a session, from its current position."""

    def __init__(self, session: Session) -> None:
        self.session, self.place = session, session.place
        self._started = self._epoch_began = self._due = time.monotonic()
        self._set_due(self._started)
        self._saved_at, self._save_secs = self._started, 0.0
        self._precision, self._notes_steps = session.precision(), session.options.steps_csv > 0

    def run(self) -> Iterator[Event]:
        """Train until the last stage is done or a stop is requested."""
        session, place = self.session, self.place
        while place.stage < len(session.stages):
            number, stage = place.stage, session.stages[place.stage]
            yield StageBegan(number)
            with session.training(stage) as runners:
                place.stage += not place.round and session.is_done(stage)
                while place.stage == number:
                    for event in self._epoch(stage, runners):
                        yield event
                        if isinstance(event, Stopped):
                            return
            yield StageDone(number)

    def _epoch(self, stage: Stage, runners: list[PipelineRunner]) -> Iterator[Event]:
        """Train the remainder of an epoch, evaluate it and write its row."""
        session, place = self.session, self.place
        self._epoch_began = time.monotonic()
        if session.changes.is_pending:
            yield from self._apply_changes()
        if session.control is not None:
            yield from self._handle_control()
            if session.stop_reason:
                yield from self._save()
                yield Stopped(session.stop_reason)
                return
        if not place.round:
            for runner in runners:
                runner.reset()
        for event in self._rounds(runners):
            yield event
            if isinstance(event, Stopped):
                return
        if session.control is not None:
            session.control.end_rounds()
        values = session.finish_epoch(stage, runners)
        place.epoch, place.round, place.ended = place.epoch + 1, 0, []
        session.add_row(place.epoch, values)
        yield EpochDone(place.epoch, values, time.monotonic() - self._epoch_began)
        session.run_debug_pipelines(stage)
        is_done = session.is_done(stage)
        place.stage += is_done
        if is_done or session.stop_reason or self._is_worth_saving():
            yield from self._save()
        if session.stop_reason:
            yield Stopped(session.stop_reason)

    def _rounds(self, runners: list[PipelineRunner]) -> Iterator[Event]:
        """Run rounds until every pipeline is exhausted.

        Save only between rounds, where no step is half done.
        """
        session, place = self.session, self.place
        running = [
            (runner, runner.batches(place.epoch, place.round)) for runner in runners if runner.name not in place.ended
        ]
        while running:
            steps, session.is_mid_round = [], True
            for entry in list(running):
                runner, batches = entry
                batch = self._next_batch(runner, batches)
                if batch is None:
                    running.remove(entry)
                    place.ended.append(runner.name)
                    if runner.update is not None and runner.update.flush():
                        place.step += 1
                        steps.append(
                            StepDone(place.step, place.epoch + 1, place.round, runner.name, runner.update.last_loss)
                        )
                    continue
                loss = self._train(runner, batch)
                steps.append(StepDone(place.step, place.epoch + 1, place.round + 1, runner.name, loss))
            place.round, session.is_mid_round = place.round + 1, False
            if self._notes_steps and session.run_log is not None:
                session.run_log.add_steps(steps)
            yield from steps  # between rounds: the consumer may save or stop here
            for callback in session.round_callbacks:
                callback(place)
            if session.changes.is_pending and not session.has_pending_gradients():
                yield from self._apply_changes()
            if session.control is not None and session.control.is_due(steps) and not session.has_pending_gradients():
                yield from self._handle_control()
            if session.stop_reason or time.monotonic() >= self._due or place.step >= self._due_step:
                if session.has_pending_gradients():
                    continue
                yield from self._save_and_check_time()
                if session.stop_reason:
                    yield Stopped(session.stop_reason)
                    return

    def _next_batch(self, runner: PipelineRunner, batches: Iterator[tuple[Any, ...]]) -> tuple[Any, ...] | None:
        try:
            return next(batches, None)
        except Exception as error:
            explain_step(error, runner, None, **self._position())
            raise

    def _position(self) -> dict[str, int]:
        place = self.place
        return {"stage": place.stage + 1, "epoch": place.epoch + 1, "step": place.step + 1, "batch": place.round + 1}

    def _train(self, runner: PipelineRunner, batch: tuple[Any, ...]) -> torch.Tensor:
        """Train one batch; annotate an exception with its position."""
        try:
            return self._step(runner, batch)
        except Exception as error:
            explain_step(error, runner, batch, **self._position())
            raise

    def _step(self, runner: PipelineRunner, batch: tuple[Any, ...]) -> torch.Tensor:
        """Train one batch: forward, losses, update, metrics."""
        update, capture = runner.update, self.session.capture
        assert update is not None
        update.begin()
        with self._precision:
            if capture is not None and capture.is_due(self.place.step):
                frames, samples = capture.forward(runner, batch, self.place.step)
            else:
                frames, samples = runner.forward(batch)
            loss, items = runner.loss(frames, samples)
        self.place.step += update.backward(loss, items)
        runner.measure(frames, samples)
        return loss.detach()

    def _apply_changes(self) -> Iterator[Event]:
        """Apply the changes of parameters that were made here before this run was interrupted."""
        for message in self.session.changes.apply_due(self.session):
            yield Alert(message, is_logged=True)
        if self.session.control is not None:
            self.session.control.send_changes()

    def _handle_control(self) -> Iterator[Event]:
        """Handle requests of a studio; exclude the time of a pause from all timers."""
        control = self.session.control
        assert control is not None
        before = control.idle_secs
        yield from control.handle_requests()
        paused_secs = control.idle_secs - before
        self._started, self._epoch_began = self._started + paused_secs, self._epoch_began + paused_secs
        self._due, self._saved_at = self._due + paused_secs, self._saved_at + paused_secs

    def _save_and_check_time(self) -> Iterator[Event]:
        """Save; request a stop where the time limit is reached."""
        limit = self.session.options.limit_secs
        if limit is not None and time.monotonic() - self._started >= limit:
            self.session.stop_reason = f"the time limit of {limit:g} s is reached"
        yield from self._save()

    def _save(self) -> Iterator[Event]:
        """Write a checkpoint and schedule the next."""
        began = time.monotonic()
        yield from self.session.save()
        self._saved_at = time.monotonic()
        self._save_secs = self._saved_at - began
        self._set_due(self._saved_at)

    def _set_due(self, now: float) -> None:
        """Schedule the next save or check of the time limit."""
        options = self.session.options
        self._due = now + options.checkpoint_secs
        if options.limit_secs is not None:
            self._due = min(self._due, max(now, self._started + options.limit_secs))
        self._due_step = self.place.step + options.checkpoint_steps if options.checkpoint_steps else NEVER

    def _is_worth_saving(self) -> bool:
        """Return whether to save after this epoch: it was long enough, or may be the best."""
        since = time.monotonic() - self._saved_at
        return bool(self.session.options.keep_best) or since >= max(SHARE * self._save_secs, LEAST_SECS)
