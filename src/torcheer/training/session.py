"""A session: models, data, losses and stages, trained by `for event in session.run(): …`."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torcheer.disk import local_path
from torcheer.errors import BadArgument, CannotWrite, TorcheerError
from torcheer.public_names import PublicClass
from torcheer.ranks import chosen_ranks
from torcheer.runlog.machine.system_rows import SystemRows, check_secs
from torcheer.samples import Alert as AlertRecord
from torcheer.tap.device_memory import device_memory
from torcheer.terminal import ProgressCallback, ignore_progress, notice, wants_progress
from torcheer.training.batches.batch_order import Feed, mix_seeds, seed_everything
from torcheer.training.batches.excluded_samples import check_excluded, leave_out
from torcheer.training.checkpoints.checkpoint_folders import CheckpointStore
from torcheer.training.checkpoints.parameter_changes import ChangeLog
from torcheer.training.checkpoints.resume_point import shared_state_to_resume, state_to_resume
from torcheer.training.checkpoints.saved_steps import explain_saved_state, resumed_from
from torcheer.training.checkpoints.session_state import group_settings, restore, restore_weights, state_of
from torcheer.training.loop.devices import deterministic, resolve_device
from torcheer.training.loop.evaluation import batch_limit, evaluate_pipeline, evaluating, run_debug_pipeline
from torcheer.training.loop.event_observers import with_observers
from torcheer.training.loop.events import Alert, CheckpointSaved, Event, Resumed
from torcheer.training.loop.graph_forward import BoundMeasure, ProcessorRunner
from torcheer.training.loop.lazy_layers import has_lazy_layers, initialize_lazy_layers
from torcheer.training.loop.optimizer_step import Update, make_averages, make_update
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.training_loop import TrainingLoop
from torcheer.training.loop.wiring import Finding, Use, judge_wiring
from torcheer.training.observe.progress_lines import say_resumed, show_with_summary
from torcheer.training.observe.session_log import SessionLog
from torcheer.training.observe.session_notices import notify_of_events
from torcheer.training.observe.session_summary import Summary, brief, html, summarise
from torcheer.training.parallel.heartbeats import CHECKPOINT, EVALUATION, HEARTBEAT
from torcheer.training.parallel.model_layout import freeze, lay_out, read_layout, recompute
from torcheer.training.parallel.process_group import join_ranks
from torcheer.training.parallel.sharded_tensors import is_sharded
from torcheer.training.parallel.shared_update import make_shared_update
from torcheer.training.session_parts import (
    Clip,
    DebugPipeline,
    Graph,
    Measure,
    Options,
    Pipeline,
    Place,
    Processor,
    Schedule,
    Stage,
)
from torcheer.training.simple_session import (
    as_list,
    as_loader,
    as_measure,
    check_parts,
    check_tables,
    fill_in_parts,
    is_there,
    lookup,
    refuse_wiring,
    remarks,
    single_stage,
)
from torcheer.training.stop_conditions import EpochsCompleted, is_met, reason_met

if TYPE_CHECKING:
    from torcheer.training.control import Control
    from torcheer.training.observe.session_watch import SessionWatch


class Session(metaclass=PublicClass):
    """Models, data, losses and stages of a training run, and its position.

    With one model and one optimizer, pipelines may be omitted: the first loader trains, the others evaluate, batches
    are (x, y), and losses and metrics take (y_hat, y).

    - `models`: by name; they are moved to the options' device.
    - `optimizers`: by name, each over parameters of the models.
    - `loaders`: by name: a `Loader` or torch's DataLoader. Without pipelines the first trains and the others evaluate.
    - `losses`: by name: a function of (y_hat, y), or a `Measure` that says which columns it reads.
    - `stages`: what is trained until when; without any, one stage of one epoch.
    - `pipelines`, `graphs`, `processors`: for more than one model or loss: how batches run through models.
    - `metrics`: by name, as `losses`.
    - `schedules`: of learning rates, by the optimizer's name.
    - `clips`: of gradients.
    - `debug_pipelines`: batches whose outputs are shown every few epochs.
    - `options`: seed, device, checkpoints and all else: an `Options`.
    - `to`: the run directory. None writes nothing; the run of a directory that has one is resumed.
    """

    def __init__(
        self,
        *,
        models: Mapping[str, torch.nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        loaders: Mapping[str, Any],
        losses: Mapping[str, Measure | Callable[..., Any]],
        stages: Sequence[Stage] | None = None,
        pipelines: Mapping[str, Pipeline] | None = None,
        graphs: Mapping[str, Graph] | None = None,
        processors: Mapping[str, Processor] | None = None,
        metrics: Mapping[str, Measure | Callable[..., Any]] | None = None,
        schedules: Mapping[str, Schedule] | None = None,
        clips: Sequence[Clip] = (),
        debug_pipelines: Mapping[str, DebugPipeline] | None = None,
        options: Options | None = None,
        to: str | Path | None = None,
    ) -> None:
        check_tables(models=models, optimizers=optimizers, loaders=loaders, losses=losses, pipelines=pipelines)
        check_tables(graphs=graphs, processors=processors, metrics=metrics, schedules=schedules)
        self.options = options or Options()
        self.ranks = join_ranks(self.options.device)  # None for one process alone
        self.options = self._observed_here(self.options)
        self.device = resolve_device(self.options.device)
        self.models, self.optimizers, self.schedules = dict(models), dict(optimizers), dict(schedules or {})
        self.stages = as_list(stages or single_stage(list(loaders)), Stage, "stages")
        self.clips = as_list(clips, Clip, "clips")
        instead = f"write to='run' and options=Options(copy_to={str(to)!r}), which copies it there"
        self.directory = None if to is None else local_path(to, instead)
        self.place = Place()
        self.initial_schedules = {
            name: deepcopy(schedule.scheduler.state_dict()) for name, schedule in self.schedules.items()
        }
        self.initial_groups = {name: group_settings(optimizer) for name, optimizer in self.optimizers.items()}
        self.rows: list[list[dict[str, Any]]] = [[] for _ in self.stages]  # stage -> epoch -> column -> value
        # By the names of a config, for callbacks; of a session made in Python, the datasets by their loaders.
        self.datasets: dict[str, Any] = {name: getattr(loader, "dataset", loader) for name, loader in loaders.items()}
        self.preprocessors: dict[str, Any] = {}
        self.samples_to_resume: dict[str, int | None] = {}  # loader -> samples in the checkpoint that it goes on from
        self.is_mid_round = False  # True inside a round, also after an error has interrupted it
        self.stop_reason = ""  # set to request a stop; the loop stops at the next step boundary
        self.round_callbacks: list[Callable[[Place], object]] = []
        self.alerts: list[str] = []  # of all runs of this object, oldest first
        self.capture: Any = None
        self.control: Control | None = None  # connection to a studio, where there is one
        self.watch: SessionWatch | None = None  # set only while `run` is active
        self.checkpoints: CheckpointStore | None = None
        if self.directory is not None:
            self.checkpoints = CheckpointStore(
                self.directory,
                keep_last=self.options.keep_last,
                keep_best=self.options.keep_best,
                copy_to=self.options.copy_to,
                steps_csv=self.options.steps_csv,
            )
        self.run_log = None if self.checkpoints is None or not self.is_main else self.checkpoints.log
        self._logged = SessionLog(self)
        self.changes = ChangeLog(self.run_log)  # of parameters, made by hand
        self.resumed: Resumed | None = None  # what it goes on from, until that is said
        self.has_begun = False  # True once it was trained or restored
        self._has_looked = False  # True once several ranks have looked for a checkpoint
        self._readers = 0  # see `reading`
        losses, metrics = (
            {name: as_measure(measure) for name, measure in table.items()} for table in (losses, metrics or {})
        )
        parts: dict[str, Any] = {"processors": processors, "graphs": graphs, "pipelines": pipelines}
        if pipelines is None:
            parts = fill_in_parts(models, optimizers, list(loaders), list(losses), list(metrics))
        loaders = {name: as_loader(loader, name) for name, loader in loaders.items()}
        self._prepare(loaders=loaders, losses=losses, metrics=metrics, debug=debug_pipelines or {}, **parts)

    def _observed_here(self, options: Options) -> Options:
        """The options of this rank: what is observed, rank 0 observes; a watch, the ranks that it names."""
        watch, count = options.watch, 1 if self.ranks is None else self.ranks.count
        watching = chosen_ranks(watch.get("ranks", 0), count) if isinstance(watch, Mapping) else ()
        if self.is_main:
            return options
        watch = watch if self.rank in watching else None
        return replace(options, watch=watch, capture=None, profile=None, writers=(), notify=None)

    def _prepare(
        self, processors: Any, graphs: Any, loaders: Any, losses: Any, metrics: Any, pipelines: Any, debug: Any
    ) -> None:
        self._processors, self._graphs, self._pipelines = dict(processors), dict(graphs), dict(pipelines)
        for model in self.models.values():
            model.to(self.device)
        if has_lazy_layers(self.models):
            self._initialize_lazy_layers(loaders)
        self._lay_out()
        models: Mapping[str, Any] = self.models
        if self.options.compile:
            models = {name: torch.compile(model) for name, model in self.models.items()}
        processor_runners = {
            name: ProcessorRunner(
                name, processor, models, self.device if processor.device is None else torch.device(processor.device)
            )
            for name, processor in self._processors.items()
        }
        seed = self.options.seed or 0
        self.feeds = {
            name: Feed(loader, mix_seeds(seed, zlib.crc32(name.encode())), name) for name, loader in loaders.items()
        }
        self.measures = measures = {
            kind: {name: BoundMeasure(name, measure, self.device) for name, measure in table.items()}
            for kind, table in (("losses", losses), ("metrics", metrics))
        }

        def make_runner(name: str, pipeline: Any) -> PipelineRunner:
            graph = lookup(self._graphs, pipeline.graph, "graphs")
            return PipelineRunner(name, pipeline, graph, processor_runners, self.feeds, measures)

        self.runners = {name: make_runner(name, pipeline) for name, pipeline in self._pipelines.items()}
        # Separate meters: an evaluation must not reset those of training.
        self._eval_runners = {name: make_runner(name, pipeline) for name, pipeline in self._pipelines.items()}
        self.debug_pipelines = {name: (pipeline, make_runner(name, pipeline)) for name, pipeline in debug.items()}
        if self.ranks is not None:
            for runner in (*self.runners.values(), *self._eval_runners.values()):
                runner.share_metrics(self.ranks.exchange_data)
        self.averages = make_averages(self.models, self.options.ema) if self.options.ema else {}
        scaled = self._pipelines if self.options.autocast == "float16" else ()
        # One scaler per pipeline: a shared one might change its scale while another pipeline accumulates gradients.
        self.scalers = {name: torch.amp.GradScaler(self.device.type) for name in scaled}
        check_parts(self)
        check_excluded(self)
        if self.run_log is not None:
            tested = {str(number): self.columns_of(stage.validation) for number, stage in enumerate(self.stages)}
            self.run_log.heads = {"train_epoch": {"tested": tested}}

    def _initialize_lazy_layers(self, loaders: Mapping[str, Any]) -> None:
        """Give layers such as LazyLinear their sizes, before the models are spread, averaged or compiled."""
        feeds = {name: Feed(loader, 0) for name, loader in loaders.items()}
        runners = []
        for name, pipeline in self._pipelines.items():
            graph = lookup(self._graphs, pipeline.graph, "graphs")
            processors = {
                each: ProcessorRunner(each, self._processors[each], self.models, self.device)
                for each in graph.processors
            }
            bare = replace(pipeline, losses=(), metrics=())
            runners.append(PipelineRunner(name, bare, graph, processors, feeds, {"losses": {}, "metrics": {}}))
        initialize_lazy_layers(self.models, runners, self.options.seed)

    def _lay_out(self) -> None:
        """Spread the models over ranks, and have layers recomputed, as the options say."""
        options, layout = self.options, read_layout(self.options.parallel)
        if options.autocast == "float16" and options.parallel is not None:
            raise BadArgument("parallel: ranks would scale float16 losses differently; autocast='bfloat16' does not")
        self.frozen = [] if options.freeze is None else freeze(self.models, options.freeze)
        if options.activation_checkpointing is not None:
            recompute(self.models, options.activation_checkpointing)
        if self.ranks is not None:
            self.ranks.share_weights(self.models)
            lay_out(self.models, self.optimizers, layout, self.ranks, self.device)

    @property
    def is_sharded(self) -> bool:
        """Whether a forward pass needs all ranks, as parts of a model lie on others."""
        values = (value for model in self.models.values() for value in model.parameters())
        return self.ranks is not None and any(map(is_sharded, values))

    @property
    def rank(self) -> int:
        """The number of this process among those that train together; 0 for one alone."""
        return 0 if self.ranks is None else self.ranks.rank

    @property
    def is_main(self) -> bool:
        """Whether this process owns the run directory: it is alone, or rank 0."""
        return self.ranks is None or self.ranks.is_main

    @property
    def changes_data(self) -> bool:
        """Whether the data may change from epoch to epoch, as something runs before them."""
        return any(stage.before_epoch for stage in self.stages)

    def columns_of(self, pipelines: Sequence[str]) -> list[str]:
        """Return the columns that pipelines give."""
        return [term.shown for name in pipelines for term, _ in self.runners[name].meters()]

    def run(self, *, progress: bool | None = None) -> Iterator[Event]:
        """Train from the current position; yield every event as it happens.

        With a directory, a session that has not begun resumes from its newest checkpoint. `progress` prints a summary
        first, then the progress: True or False, or None for "on a terminal and in a notebook".
        """
        events = self._events()
        if self.is_main and wants_progress(progress, sys.stdout):
            return show_with_summary(self, events)
        return events if progress is False else say_resumed(events)

    def log(self, **entries: Any) -> None:
        """Log numbers and samples at this step, from the loop over `run` or from code that it calls.

        `session.log(error=0.1, image=x, text=answer)`: what is no number is a sample by its keyword (`image`, `audio`,
        `text`, `table`, `confusion`), or under any name by its type: `tl.Image`, `tl.Audio`, `tl.Text`, `tl.TableOf`,
        `tl.Confusion`. Never raises; tensors are not waited for. A metric or hook that has no session in its hands
        calls `torcheer.training.log`.
        """
        self._logged.add(entries)

    def _events(self) -> Iterator[Event]:
        if self.is_mid_round and self.checkpoints is None:
            raise BadArgument("the last run ended inside a step, with some of it done: build the session anew")
        if not self.has_begun:
            if not self.is_main or is_there(self):  # a new one was judged when it was made
                refuse_wiring(self)
            for text in remarks(self) if self.is_main else ():
                notice("training", text)
        self.has_begun, self.is_mid_round = self.has_begun and not self.is_mid_round, False
        with (
            self.reading(),
            deterministic(self.options.deterministic),
            explain_saved_state(self),
            closing(notify_of_events(self, with_observers(self, TrainingLoop(self).run()))) as events,
        ):
            while (event := self._logged.next_event(events)) is not None:
                yield self._noted(event) if type(event) is Alert else event

    def _noted(self, alert: Alert) -> Alert:
        self._note(alert)
        return alert

    def _note(self, alert: Alert) -> None:
        self.alerts.append(alert.message)
        if alert.is_logged:
            return
        step = self.place.step
        record = alert.record or AlertRecord("session", "", "", step, step, alert.message, "")
        if self.run_log is not None:
            with suppress(OSError, TorcheerError):  # a full disk; a checkpoint will report it
                record = self.run_log.add_alert(record)
        if alert.record is not None and self.control is not None:
            self.control.report_alert(record)

    def begin_run(self, run: ExitStack) -> Iterator[Event]:
        """Take the directory and resume what it has, or begin anew; what is opened for the run closes with it."""
        if self.checkpoints is None or self.run_log is None:
            if self.checkpoints is not None:
                run.callback(self.checkpoints.finish)
            self.resume()
            is_new = not self.has_begun
            self._begin()
            if is_new and self.checkpoints is not None:
                yield from self.save()
            yield from map(Alert, leave_out(self))
            return
        run.enter_context(self.checkpoints.locked())
        run.enter_context(self.run_log.noting_end(lambda: self.stop_reason))
        for problem in (*filter(None, [self.checkpoints.fetched]), *self.resume()):
            yield Alert(problem)
        self.checkpoints.note_step(self.place.step)
        is_new = not self.has_begun
        if is_new:
            self._begin()
            self.changes.begin()
            self.run_log.begin_anew()
        self.run_log.begin(asdict(self.place), self.rows)
        while self.run_log.problems:
            yield Alert(self.run_log.problems.pop(0))
        self.changes.export()
        self._logged.begin(is_new=is_new)
        run.callback(self._logged.close)
        if self.resumed is not None:  # the log ends where the checkpoint does by now
            event, self.resumed = self.resumed, None
            yield event
        if is_new:
            yield from self.save()
        yield from map(Alert, leave_out(self))
        secs = check_secs(self.options.system_secs)
        rows = SystemRows(self.directory, secs, step_of=lambda: self.place.step, memory=device_memory)
        run.callback(rows.close)

    def resume(self) -> list[str]:
        """Resume from the newest usable checkpoint, unless the session has begun.

        Return the problems of newer ones. `run` says first what it goes on from.
        """
        if self.checkpoints is None or self.has_begun or self._has_looked:
            return []
        self._has_looked = self.ranks is not None  # ranks look together, once
        state, problems = state_to_resume(self) if self.ranks is None else shared_state_to_resume(self, self.ranks)
        if state is not None:
            changes = self.restore(state)
            self._reopen_last_stage()
            self.resumed = resumed_from(self, changes)
        return problems

    def _reopen_last_stage(self) -> None:
        """Reopen a completed last stage whose stop condition no longer holds.

        It now wants more epochs.
        """
        if self.place.stage == len(self.stages):
            self.place.stage -= 1
            self.place.stage += self.is_done(self.stages[-1])

    def _begin(self) -> None:
        if not self.has_begun and self.options.seed is not None:
            place = 0 if self.ranks is None else self.ranks.share.rank
            seed_everything(mix_seeds(self.options.seed, place) if place else self.options.seed)
        self.has_begun = True

    def summary(self) -> Summary:
        """Return a printable text: layers and parameters of the models, device, samples and stages."""
        return summarise(self)

    def __repr__(self) -> str:
        return brief(self)

    def _repr_html_(self) -> str:
        return html(self)

    def state(self) -> dict[str, Any]:
        """Return everything that the results of this session depend on.

        Its tensors are live, not copies.
        """
        return state_of(self)

    def restore(self, state: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Continue from a state that `state` returned.

        Return the settings that differ from those of the state and hold from now on, by name: before and now.
        """
        changes = restore(self, state)
        self.has_begun = True
        for runner in self.runners.values():
            runner.update = None  # pending gradients are not part of a state
        return changes

    def restore_weights(self, state: Mapping[str, Any]) -> None:
        """Restore only the models and their averages from a state: what evaluation needs."""
        restore_weights(self, state)
        leave_out(self)

    @contextmanager
    def training(self, stage: Stage) -> Iterator[list[PipelineRunner]]:
        """Yield a stage's pipelines with their updates, its models in training mode."""
        runners = [self.runners[name] for name in stage.training]
        for runner in runners:  # a run that was left with pending gradients continues with them
            runner.update = runner.update or self._make_update(runner)
        self._set_modes(stage)
        try:
            yield runners
        finally:
            for runner in runners:
                runner.update = runner.update if runner.update and runner.update.is_pending else None

    def _make_update(self, runner: PipelineRunner) -> Update:
        return make_update(self, runner) if self.ranks is None else make_shared_update(self, runner)

    def nodes_of(self, pipeline: str) -> list[Any]:
        """Return the nodes, one model each, that a pipeline runs."""
        graph = self._graphs[self._pipelines[pipeline].graph]
        return [node for name in graph.processors for node in self._processors[name].nodes]

    def wiring(self) -> list[Finding]:
        """Judge which optimizer trains which parameters: what is wrong, and what is frozen."""
        trained = dict.fromkeys(name for stage in self.stages for name in stage.training)
        uses = [
            Use(node.model, node.optimizer, f"pipeline {name!r}" if len(trained) > 1 else "", name in trained)
            for name in self._pipelines
            for node in self.nodes_of(name)
        ]
        schedulers = {name: schedule.scheduler for name, schedule in self.schedules.items()}
        return judge_wiring(self.models, self.optimizers, uses, schedulers)

    def _set_modes(self, stage: Stage) -> None:
        """Put the models that a stage trains into training mode, all others into evaluation mode."""
        trained = {node.model for name in stage.training for node in self.nodes_of(name) if node.optimizer is not None}
        # Trained models last, so that parts that models share end in training mode.
        for name in sorted(self.models, key=trained.__contains__):
            self.models[name].train(name in trained)
        for module in self.frozen:
            module.eval()

    def precision(self) -> AbstractContextManager[Any]:
        """Return the autocast context of a forward pass."""
        if not self.options.autocast:
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.options.autocast))

    def is_done(self, stage: Stage) -> bool:
        """Return whether a stage's stop condition holds."""
        stop = stage.stop if stage.stop is not None else EpochsCompleted(1)
        return is_met(stop, self.rows[self.place.stage])

    def finish_epoch(self, stage: Stage, runners: Sequence[PipelineRunner]) -> dict[str, float]:
        """Evaluate, step the schedulers and return the epoch's columns.

        A pipeline that is also validated reports its values in evaluation mode.
        """
        values: dict[str, float] = {}
        for runner in runners:
            if runner.name not in stage.validation:
                values.update(self._values(runner))
        values.update(self.evaluate(stage.validation, batches=stage.eval_steps))
        for name in dict.fromkeys(node.optimizer for runner in runners for node in self.nodes_of(runner.name)):
            schedule = self.schedules.get(name) if name is not None else None
            if schedule is not None and schedule.every == "epoch":
                schedule.scheduler.step(*([values[schedule.monitor]] if schedule.monitor else []))
        return values

    def learning_rates(self) -> dict[str, float]:
        """Return the learning rates that schedulers set, by the optimizers' names; of several groups the first's."""
        groups = {name: schedule.scheduler.optimizer.param_groups for name, schedule in self.schedules.items()}
        return {name: float(parts[0]["lr"]) for name, parts in groups.items()}

    def changed_rates(self, before: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        """Return the learning rates before and now, of optimizers whose scheduler has changed it."""
        return {name: (before[name], now) for name, now in self.learning_rates().items() if now != before[name]}

    def end_reason(self, stage: int) -> str:
        """Return which stop condition ended a stage, and why; "" where it had a number of epochs."""
        return reason_met(self.stages[stage].stop, self.rows[stage])

    def evaluate(
        self,
        pipelines: str | Sequence[str] | None = None,
        *,
        batches: float | Mapping[str, float] | None = None,
        on_progress: ProgressCallback = ignore_progress,
    ) -> dict[str, float]:
        """Return the columns of pipelines in evaluation mode, pipeline by pipeline, with averaged weights if any.

        pipelines: a name or several, all of them by default. batches: how many batches of each, a float for a share of
        them; the whole data by default. on_progress: called with 1 after each batch. Of several ranks all call this,
        and get the same.
        """
        values: dict[str, float] = {}
        names = self._pipelines if pipelines is None else [pipelines] if isinstance(pipelines, str) else pipelines
        for name in names:
            lookup(self._eval_runners, name, "pipelines")
        if self.ranks is not None:
            self.ranks.share_buffers(self.models)
        with HEARTBEAT.during(EVALUATION), self.reading(), self.evaluation_mode() if names else nullcontext():
            for name in names:
                runner, share = self._eval_runners[name], None if self.ranks is None else self.ranks.share
                count = batch_limit(batches, runner)
                evaluate_pipeline(runner, count, self.precision(), on_progress, share)
                values.update(self._values(runner))
        return values

    def _values(self, runner: PipelineRunner) -> dict[str, float]:
        """Return a pipeline's columns so far, over all ranks."""
        return runner.values() if self.ranks is None else runner.merged_values(self.ranks.exchange_data)

    def batches_in(self, pipelines: Sequence[str] | None = None) -> int:
        """Return how many batches an evaluation of pipelines takes.

        0 where one of them is a stream.
        """
        try:
            return sum(len(self._eval_runners[name]) for name in (self._pipelines if pipelines is None else pipelines))
        except TypeError:
            return 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the loaders' workers from epoch to epoch; they end with the outermost body.

        The garbage collector ends a queue before the worker it belongs to, so that torch would wait 5 s for each.
        """
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                for feed in self.feeds.values():
                    feed.end_workers()

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """Run the body in evaluation mode, without gradients and with averaged weights."""
        return evaluating(self.models, self.averages)

    def run_debug_pipelines(self, stage: Stage) -> None:
        """Run the debug pipelines that are due in this epoch."""
        debug = [self.debug_pipelines[name] for name in stage.debug]
        due = [(pipeline, runner) for pipeline, runner in debug if self.place.epoch % pipeline.interval == 0]
        if due:
            with HEARTBEAT.during(EVALUATION), self.evaluation_mode():
                for pipeline, runner in due:
                    run_debug_pipeline(pipeline, runner, self.precision(), is_shown=self.is_main)

    def add_row(self, epoch: int, values: Mapping[str, float]) -> None:
        """Append the columns of an epoch, also to the log and the CSV file."""
        self.rows[self.place.stage].append({"epoch": epoch, **values})
        if self.run_log is not None:
            self.run_log.add_epochs(self.rows, self.place.step)

    def has_pending_gradients(self) -> bool:
        """Return whether accumulated gradients wait for more batches."""
        return any(runner.update is not None and runner.update.is_pending for runner in self.runners.values())

    def save(self, *, waits: bool = True) -> Iterator[Event]:
        """Write a checkpoint where there is a directory; yield its event.

        waits: False to go on while it is written; `finish_save` yields its event.
        """
        if self.has_pending_gradients():
            raise BadArgument("gradients are half gathered, and no checkpoint holds them: save after the next update")
        if self.checkpoints is not None:
            with HEARTBEAT.during(CHECKPOINT):
                try:
                    yield from self.finish_save()
                except CannotWrite:
                    self.checkpoints.save(self)  # what was trained since then is not to be lost, too
                    raise
                path = self.checkpoints.save(self, waits=waits)
            if path is not None and waits:
                yield CheckpointSaved(self.place.step, path)

    def finish_save(self) -> Iterator[Event]:
        """Wait until the checkpoint that is being written is on disk; yield its event."""
        try:
            path = None if self.checkpoints is None else self.checkpoints.finish()
        except CannotWrite:
            if self.run_log is not None:
                self.run_log.flush_steps()
            raise
        if path is not None and self.is_main:
            yield CheckpointSaved(int(path.name), path)
