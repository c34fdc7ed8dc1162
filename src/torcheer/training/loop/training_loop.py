"""The training loop: stages of epochs of rounds; a round is one batch of every pipeline."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torcheer.training.checkpoints.random_state import preserved_random
from torcheer.training.loop.evaluation import prepare_epoch
from torcheer.training.loop.events import Alert, EpochDone, Event, Events, StageBegan, StageDone, StepDone, Stopped
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.step_errors import explain_step
from torcheer.training.parallel.agreement import Agreement
from torcheer.training.parallel.batch_shares import StandInBatches
from torcheer.training.parallel.heartbeats import BETWEEN, DATA, END, HEARTBEAT
from torcheer.training.parallel.shared_update import SharedUpdate
from torcheer.training.session_parts import Stage

if TYPE_CHECKING:
    from torcheer.training.session import Session

Running = list[tuple[PipelineRunner, Iterator[Any]]]  # pipelines, each with the rest of its batches
NEVER = 1 << 62
SHARE, LEAST_SECS = 100.0, 5.0  # saving after epochs may take 1/100 of the time, at most once in 5 s


class TrainingLoop:
    """One run of a session, from its current position."""

    def __init__(self, session: Session) -> None:
        self.session, self.place = session, session.place
        self._due, self._save_secs = 0.0, 0.0
        self._precision = session.precision() if session.options.autocast else None
        self._share = None if session.ranks is None else session.ranks.share
        self._agreement = None if session.ranks is None else Agreement(session, session.ranks)
        self._notes_steps = session.options.steps_csv > 0

    def run(self) -> Events:
        """Train until the last stage is done or a stop is requested.

        The rounds are here, not in generators of their own: each that an event passes takes microseconds of a step.
        """
        session, place = self.session, self.place
        with ExitStack() as run:
            yield from session.begin_run(run)
            run.callback(HEARTBEAT.enter, END)
            self._begin()
            if session.ranks is None and session.checkpoints is not None and session.checkpoints.is_owed:
                yield from self._save()  # the last run ended because it could not; its work may be all there is to do
            while place.stage < len(session.stages):
                number, stage = place.stage, session.stages[place.stage]
                yield StageBegan(number)
                with session.training(stage) as runners:
                    place.stage += not place.round and session.is_done(stage)
                    while place.stage == number:
                        if (yield from self._begin_epoch(stage, runners)):
                            return
                        running = self._running(runners)
                        while running:
                            steps = self._round(running)
                            yield from steps  # between rounds: the consumer may save or stop here
                            if self._has_work(steps) and (yield from self._between_rounds(steps)):
                                return
                        if (yield from self._end_epoch(stage, runners)):
                            return
                yield StageDone(number, session.end_reason(number))

    def _begin(self) -> None:
        """Start the clocks: the session is at the place where this run begins."""
        HEARTBEAT.begin(self.place.step)
        self._started = self._epoch_began = self._saved_at = time.monotonic()
        self._set_due(self._started)

    def _begin_epoch(self, stage: Stage, runners: list[PipelineRunner]) -> Generator[Event, None, bool]:
        """Begin the remainder of an epoch; return whether the run was stopped."""
        session = self.session
        self._epoch_began, self._rates = time.monotonic(), session.learning_rates()
        if self._agreement is not None:
            stop_reason = yield from self._agreement.begin_epoch(self._work)
        else:
            yield from self._work()
            stop_reason = session.stop_reason if session.control is not None else ""
        if stop_reason:
            yield from self._save()
            yield Stopped(stop_reason)
            return True
        if stage.before_epoch:
            prepare_epoch(session, stage)
        if not self.place.round:
            for runner in runners:
                runner.reset()
        return False

    def _end_epoch(self, stage: Stage, runners: list[PipelineRunner]) -> Generator[Event, None, bool]:
        """Evaluate an epoch, write its row and save if it is worth it; return whether the run was stopped."""
        session, place = self.session, self.place
        if session.control is not None:
            session.control.end_rounds()
        values = session.finish_epoch(stage, runners)
        place.epoch, place.round, place.ended = place.epoch + 1, 0, []
        session.add_row(place.epoch, values)
        yield EpochDone(place.epoch, values, time.monotonic() - self._epoch_began, session.changed_rates(self._rates))
        session.run_debug_pipelines(stage)
        is_done, is_saved, stop_reason = session.is_done(stage), self._is_worth_saving(), session.stop_reason
        if self._agreement is not None:
            is_done, is_saved, stop_reason = self._agreement.end_epoch(is_done, is_saved)
        place.stage += is_done
        # On disk before callbacks change files, so that they can run again from the same state.
        is_last = place.stage == len(session.stages)
        is_changed = not is_last and bool(session.stages[place.stage].before_epoch)
        if is_done or stop_reason or is_saved or is_changed:
            yield from self._save(waits=bool(stop_reason) or is_last or is_changed)
        if stop_reason:
            yield Stopped(stop_reason)
            return True
        return False

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _running(self, runners: list[PipelineRunner]) -> Running:
        """Return the pipelines that this epoch has batches of, each with them."""
        kept = [runner for runner in runners if runner.name not in self.place.ended]
        return [(runner, runner.batches(self.place.epoch, self.place.round, self._share)) for runner in kept]

    def _round(self, running: Running) -> list[StepDone]:
        """Train the next batch of each pipeline; one that is exhausted is no longer running."""
        session, place = self.session, self.place
        steps, session.is_mid_round = [], True
        for entry in list(running):
            runner, batches = entry
            batch, loss = self._train(runner, batches)
            if batch is None:
                running.remove(entry)
                place.ended.append(runner.name)
                if (update := runner.update) is not None and update.flush():
                    place.step += 1
                    steps.append(StepDone(place.step, place.epoch + 1, place.round, runner.name, update.last_loss))
                continue
            steps.append(StepDone(place.step, place.epoch + 1, place.round + 1, runner.name, loss))
        place.round, session.is_mid_round = place.round + 1, False
        HEARTBEAT.enter(BETWEEN, place.step)
        if self._notes_steps and session.run_log is not None:
            session.run_log.add_steps(steps)
        return steps

    def _has_work(self, steps: list[StepDone]) -> bool:
        """Return whether anything is to be done before the next round."""
        session, agreement = self.session, self._agreement
        is_due = bool(
            session.changes.is_pending
            or (session.control is not None and session.control.is_due(steps))
            or time.monotonic() >= self._due
        )
        if agreement is not None:
            is_due = agreement.vote(is_due)
        is_due = is_due or self._is_written()
        return bool(is_due or session.stop_reason or session.round_callbacks or self.place.step >= self._due_step)

    def _between_rounds(self, steps: list[StepDone]) -> Generator[Event, None, bool]:
        """Do what is due between two rounds, where no step is half done; return whether the run was stopped."""
        session, place = self.session, self.place
        for callback in session.round_callbacks:
            callback(place)
        if session.has_pending_gradients():
            return False
        if self._agreement is not None:
            at_step = place.step >= self._due_step
            is_due, stop_reason = yield from self._agreement.decide(self._work, self._is_time, at_step=at_step)
        else:
            yield from self._work(steps)
            is_due, stop_reason = self._is_time(), session.stop_reason  # once: a signal may come at any moment
        if self._is_written():
            assert session.checkpoints is not None and session.checkpoints.writing is not None
            self._save_secs += session.checkpoints.writing.secs
            yield from session.finish_save()
        if is_due or stop_reason or place.step >= self._due_step:
            yield from self._save(waits=bool(stop_reason))
            if stop_reason:
                yield Stopped(stop_reason)
                return True
        return False

    def _work(self, steps: list[StepDone] | None = None) -> Iterator[Event]:
        """Apply changes that were made here before, and handle what a studio asks for."""
        session = self.session
        if session.changes.is_pending:
            yield from self._apply_changes()
        if session.control is not None and (steps is None or session.control.is_due(steps)):
            yield from self._handle_control()

    def _is_time(self) -> bool:
        """Return whether a save is due; request a stop where the time limit is reached."""
        now, limit = time.monotonic(), self.session.options.limit_secs
        is_due = now >= self._due
        if limit is not None and now - self._started >= limit and (is_due or self.place.step >= self._due_step):
            self.session.stop_reason = self.session.stop_reason or f"the time limit of {limit:g} s is reached"
        return is_due

    def _position(self) -> dict[str, int]:
        place = self.place
        return {"stage": place.stage + 1, "epoch": place.epoch + 1, "step": place.step + 1, "batch": place.round + 1}

    def _train(self, runner: PipelineRunner, batches: Iterator[Any]) -> tuple[Any, Tensor | None]:
        """Train the next batch: forward, losses, update, metrics. Annotate an exception with its position."""
        batch, update = None, runner.update
        assert update is not None
        try:
            HEARTBEAT.enter(DATA, self.place.step)
            batch = next(batches, None)
            if batch is None:
                return None, None
            update.begin()
            if self._share is not None:
                return batch, self._train_share(runner, batch)
            if self._precision is None:
                frames, samples, loss, items = self._forward(runner, batch)
            else:
                with self._precision:
                    frames, samples, loss, items = self._forward(runner, batch)
            self.place.step += update.backward(loss, items)
            if runner.metrics:
                runner.measure(frames, samples)
            return batch, loss.detach()
        except Exception as error:
            explain_step(error, runner, batch, **self._position())
            raise

    def _train_share(self, runner: PipelineRunner, batch: tuple[Any, ...]) -> Tensor | None:
        """Train this rank's part of a batch; return the loss of all of it."""
        update = runner.update
        assert isinstance(update, SharedUpdate)

        def forward() -> tuple[Any, int, Tensor, float]:
            with self._precision or nullcontext():
                return self._forward(runner, batch)

        with preserved_random() if type(batch) is StandInBatches else nullcontext():
            frames, samples, loss, items = update.run_step(forward)
            self.place.step += update.backward(loss, items)
        if runner.metrics:
            runner.measure(frames, samples)
        return update.last_loss

    def _forward(self, runner: PipelineRunner, batch: tuple[Any, ...]) -> tuple[Any, int, Tensor, float]:
        capture = self.session.capture
        if capture is not None and capture.is_due(self.place.step):
            frames, samples = capture.forward(runner, batch, self.place.step)
        else:
            frames, samples = runner.forward(batch)
        if type(batch) is StandInBatches:
            samples = 0
        return frames, samples, *runner.loss(frames, samples)

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

    def _is_written(self) -> bool:
        """Return whether a checkpoint was written in the background since the last round."""
        writing = None if self.session.checkpoints is None else self.session.checkpoints.writing
        return writing is not None and writing.is_done

    def _save(self, *, waits: bool = True) -> Iterator[Event]:
        """Write a checkpoint, in the background where it does not wait, and schedule the next."""
        began = time.monotonic()
        yield from self.session.save(waits=waits)
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
