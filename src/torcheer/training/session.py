"""A session: models, data, losses and stages, trained by `for event in session.run(): …`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torcheer.archive.progress import Told, tell_nobody
from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.training.checkpoints.checkpoint_folders import Keeper
from torcheer.training.checkpoints.saved_steps import noting_what_is_saved
from torcheer.training.checkpoints.session_state import restore, restore_weights, state_of
from torcheer.training.loop.batch_order import Feed, mixed, seed_everything
from torcheer.training.loop.devices import deterministic, device_of
from torcheer.training.loop.evaluation import evaluate_lane, look
from torcheer.training.loop.events import Alert, CheckpointSaved, Event
from torcheer.training.loop.graph_forward import Measured, Runner
from torcheer.training.loop.optimizer_step import Update, averages_of
from torcheer.training.loop.pipeline_runner import Lane
from torcheer.training.loop.training_loop import Loop
from torcheer.training.observe.progress_lines import showing, wants_progress
from torcheer.training.observe.session_summary import Summary, brief, html, summarise
from torcheer.training.simple_session import as_loader, as_measure, completed, found, one_stage
from torcheer.training.spec.session_parts import (
    Clip,
    DebugPipeline,
    Graph,
    Measure,
    Options,
    Pipeline,
    Processor,
    Schedule,
    Stage,
)
from torcheer.training.stop_conditions import EarlyStopping, EpochsCompleted

if TYPE_CHECKING:
    from torcheer.training.control import Control
    from torcheer.training.observe.session_watch import Watching


@dataclass
class Place:
    """How far a session is."""

    stage: int = 0
    epoch: int = 0  # epochs done, across stages
    round: int = 0  # rounds done of the epoch at work
    step: int = 0  # updates done
    ended: list[str] = field(default_factory=list)  # pipelines that have run out in this epoch


class Session:
    """Everything that is trained, and how far it is.

    With one model and one optimizer the rest is filled in: the first loader trains, the others evaluate, batches are
    (x, y), and losses and metrics take (y_hat, y).
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
        directory: str | Path | None = None,
    ) -> None:
        self.options = options or Options()
        self.device = device_of(self.options.device)
        self.models, self.optimizers, self.schedules = dict(models), dict(optimizers), dict(schedules or {})
        self.stages, self.clips = list(stages or one_stage(list(loaders))), list(clips)
        self.directory = None if directory is None else Path(directory)
        self.place = Place()
        self.schedules_began = {name: deepcopy(one.scheduler.state_dict()) for name, one in self.schedules.items()}
        self.rows: list[list[dict[str, Any]]] = [[] for _ in self.stages]  # stage -> epoch -> column -> value
        self.is_torn = False  # whether a round is under way, or was left by an error
        self.asked_to_stop = ""  # why, once somebody asks; the loop stops where nothing is half done
        self.each_round: list[Callable[[Place], object]] = []
        self.alerts: list[str] = []  # of all runs of this object, the newest last
        self.capture: Any = None
        self.control: Control | None = None  # of whoever looks on from a studio
        self.watching: Watching | None = None  # while it runs
        self.keeper: Keeper | None = None
        if self.directory is not None:
            kept, every = (self.options.keep_last, self.options.keep_best), self.options.steps_csv
            self.keeper = Keeper(self.directory, keep_last=kept[0], keep_best=kept[1], steps_csv=every)
        self.has_begun = False  # whether it stands where it does because it was trained or restored
        losses, metrics = ({name: as_measure(one) for name, one in table.items()} for table in (losses, metrics or {}))
        parts: dict[str, Any] = {"processors": processors, "graphs": graphs, "pipelines": pipelines}
        if pipelines is None:
            parts = completed(models, optimizers, list(loaders), list(losses), list(metrics))
        loaders = {name: as_loader(one, name) for name, one in loaders.items()}
        self._prepare(loaders=loaders, losses=losses, metrics=metrics, debug=debug_pipelines or {}, **parts)

    def _prepare(
        self, processors: Any, graphs: Any, loaders: Any, losses: Any, metrics: Any, pipelines: Any, debug: Any
    ) -> None:
        self._processors, self._graphs, self._pipelines = dict(processors), dict(graphs), dict(pipelines)
        for model in self.models.values():
            model.to(self.device)
        models: Mapping[str, Any] = self.models
        if self.options.compile:
            models = {name: torch.compile(model) for name, model in self.models.items()}
        runners = {
            name: Runner(name, one, models, self.device if one.device is None else torch.device(one.device))
            for name, one in self._processors.items()
        }
        seed = self.options.seed or 0
        self.feeds = {name: Feed(loader, mixed(seed, zlib.crc32(name.encode()))) for name, loader in loaders.items()}
        self.measures = measures = {
            kind: {name: Measured(name, one, self.device) for name, one in table.items()}
            for kind, table in (("losses", losses), ("metrics", metrics))
        }

        def lane(name: str, one: Any) -> Lane:
            return Lane(name, one, found(self._graphs, one.graph, "graphs"), runners, self.feeds, measures)

        self.lanes = {name: lane(name, one) for name, one in self._pipelines.items()}
        self._judges = {name: lane(name, one) for name, one in self._pipelines.items()}  # meters of their own
        self._debug = {name: (one, lane(name, one)) for name, one in debug.items()}
        self.averages = averages_of(self.models, self.options.ema) if self.options.ema else {}
        scaled = (
            self._pipelines if self.options.autocast == "float16" else ()
        )  # one might change another's scale midway
        self.scalers = {name: torch.amp.GradScaler(self.device.type) for name in scaled}
        for stage in self.stages:
            self._check(stage)

    def _check(self, stage: Stage) -> None:
        """Raise where a stage names what is not there, or two columns the same."""
        names = [*stage.training, *(name for name in stage.validation if name not in stage.training)]
        columns: list[str] = []
        for name in names:
            columns += [term.shown for term, _ in found(self.lanes, name, "pipelines").meters()]
        for column in columns:
            if columns.count(column) > 1 or column == "epoch":
                raise BadArgument(f"two columns of the pipelines {', '.join(names)} are called {column!r}: rename one")
        monitor = getattr(stage.stop, "monitor", None) if isinstance(stage.stop, EarlyStopping) else None
        if monitor is not None and monitor not in columns:
            there = ", ".join(columns)
            near = nearest(monitor, columns)
            raise BadArgument(f"EarlyStopping watches {monitor!r}, and the stage has only {there}.{near}")
        for name in stage.debug:
            found(self._debug, name, "debug pipelines")
        for name in (node.optimizer for one in stage.training for node in self.nodes_of(one)):
            if name is None or name not in self.schedules or not (monitor := self.schedules[name].monitor):
                continue
            if monitor not in columns:
                there = ", ".join(columns)
                raise BadArgument(
                    f"the schedule of {name!r} looks at {monitor!r}, and a stage that trains it has only {there}."
                    f"{nearest(monitor, columns)}"
                )

    def run(self, *, progress: bool | None = None) -> Iterator[Event]:
        """Train from where the session stands; every event of it, as it happens.

        With a directory, a session that has not begun goes on from its newest checkpoint. `progress` prints a summary
        first, then how far it is: True or False, or None for "on a terminal and in a notebook".
        """
        events = self._heard()
        return showing(self, events) if wants_progress(progress) else events

    def _heard(self) -> Iterator[Event]:
        if self.is_torn and self.keeper is None:
            raise BadArgument("the last run ended inside a step, with some of it done: build the session anew")
        self.has_begun, self.is_torn = self.has_begun and not self.is_torn, False
        with deterministic(self.options.deterministic), noting_what_is_saved(self):
            for event in attended(self, self._run()):
                if type(event) is Alert:
                    self.alerts.append(event.message)
                yield event

    def _run(self) -> Iterator[Event]:
        if self.keeper is None:
            self._begin()
            yield from Loop(self).run()
            return
        with self.keeper.locked():
            for problem in self.resume():
                yield Alert(problem)
            if not self.has_begun:
                self._begin()
                yield from self.save()
            self.keeper.settle_tables(self.rows, self.place.step)
            yield from Loop(self).run()

    def resume(self) -> list[str]:
        """Go on from the newest checkpoint, unless the session has begun; what is wrong with newer ones."""
        if self.keeper is None or self.has_begun:
            return []
        state, _, problems = self.keeper.newest()
        if state is not None:
            self.restore(state)
            self._reopen_last_stage()
        return problems

    def _reopen_last_stage(self) -> None:
        """Go on with a last stage that was done, and is no longer: more epochs are asked for now."""
        if self.place.stage == len(self.stages):
            self.place.stage -= 1
            self.place.stage += self.is_done(self.stages[-1])

    def _begin(self) -> None:
        if not self.has_begun and self.options.seed is not None:
            seed_everything(self.options.seed)
        self.has_begun = True

    def summary(self) -> Summary:
        """Layers and parameters of the models, device, samples and stages, as a text to be printed."""
        return summarise(self)

    def __repr__(self) -> str:
        return brief(self)

    def _repr_html_(self) -> str:
        return html(self)

    def state(self) -> dict[str, Any]:
        """All that the numbers of this session depend on; its tensors are the live ones."""
        return state_of(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Stand where a session stood."""
        restore(self, state)
        self.has_begun = True
        for lane in self.lanes.values():
            lane.update = None  # gradients that waited are not part of a state

    def restore_weights(self, state: Mapping[str, Any]) -> None:
        """Take the models and their averages alone from a state: what evaluation needs."""
        restore_weights(self, state)

    @contextmanager
    def training(self, stage: Stage) -> Iterator[list[Lane]]:
        """A stage's pipelines with their updates, its models in training mode."""
        lanes = [self.lanes[name] for name in stage.training]
        for lane in lanes:  # whoever left in the middle of gathering gradients goes on with them
            lane.update = lane.update or self._update(lane)
        self._set_modes(stage)
        try:
            yield lanes
        finally:
            for lane in lanes:
                lane.update = lane.update if lane.update and lane.update.is_pending else None

    def _update(self, lane: Lane) -> Update:
        nodes = self.nodes_of(lane.name)
        names = list(dict.fromkeys(node.optimizer for node in nodes if node.optimizer is not None))
        if not names:
            raise BadArgument(f"pipeline {lane.name!r} trains nothing: none of its nodes names an optimizer")
        with suppress(TypeError):  # a stream has no length
            if not len(lane):
                raise BadArgument(f"pipeline {lane.name!r} has no batch to train with: its data is less than one")
        if self.options.accumulate > 1 and len({measure.counts_by for _, measure, _ in lane.losses}) > 1:
            raise BadArgument(
                f"the losses of pipeline {lane.name!r} count different items: they cannot be accumulated together"
            )
        trained = {node.model for node in nodes if node.optimizer is not None}
        optimizers = [found(self.optimizers, name, "optimizers") for name in names]
        everything = {id(one) for node in nodes for one in self.models[node.model].parameters() if one.requires_grad}
        frozen = everything - {id(one) for name in trained for one in self.models[name].parameters()}
        theirs = [one for each in optimizers for group in each.param_groups for one in group["params"]]
        theirs = [one for one in theirs if id(one) not in frozen]  # an optimizer may have other models besides
        known = {id(one) for one in theirs}
        return Update(
            optimizers,
            clips=[
                (clip, [one for one in self.models[clip.model].parameters() if id(one) in known])
                for clip in self.clips
                if clip.model in trained
            ],
            only=None if everything <= known else [one for one in theirs if one.requires_grad],
            schedules=[one for name, one in self.schedules.items() if name in names],
            averages=[part for one in self.averages.values() if (part := one.of(known)).values],
            scaler=self.scalers.get(lane.name),
            accumulate=self.options.accumulate,
        )

    def nodes_of(self, pipeline: str) -> list[Any]:
        """The models that a pipeline runs."""
        graph = self._graphs[self._pipelines[pipeline].graph]
        return [node for name in graph.processors for node in self._processors[name].nodes]

    def _set_modes(self, stage: Stage) -> None:
        """What a stage trains is in training mode; what it only passes through is not."""
        trained = {node.model for name in stage.training for node in self.nodes_of(name) if node.optimizer is not None}
        for name in sorted(self.models, key=trained.__contains__):  # models may share parts, which are trained then
            self.models[name].train(name in trained)

    def precision(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        if not self.options.autocast:
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.options.autocast))

    def is_done(self, stage: Stage) -> bool:
        """Whether a stage's stop condition holds."""
        stop = stage.stop if stage.stop is not None else EpochsCompleted(1)
        return bool(stop.is_met(self.rows[self.place.stage]))

    def finish_epoch(self, stage: Stage, lanes: Sequence[Lane]) -> dict[str, float]:
        """Evaluate, let the schedulers step; the epoch's columns.

        A pipeline that is also validated reports what it gives in evaluation mode.
        """
        values: dict[str, float] = {}
        for lane in lanes:
            if lane.name not in stage.validation:
                values.update(lane.values())
        values.update(self.evaluate(stage.validation, batches=stage.eval_steps))
        values = dict(sorted(values.items()))
        for name in dict.fromkeys(node.optimizer for lane in lanes for node in self.nodes_of(lane.name)):
            schedule = self.schedules.get(name) if name is not None else None
            if schedule is not None and schedule.every == "epoch":
                schedule.scheduler.step(*([values[schedule.monitor]] if schedule.monitor else []))
        return values

    def evaluate(
        self,
        pipelines: Sequence[str] | None = None,
        *,
        batches: int | Mapping[str, int] | None = None,
        told: Told = tell_nobody,
    ) -> dict[str, float]:
        """The columns of pipelines in evaluation mode, with averaged weights where there are some."""
        found: dict[str, float] = {}
        with self.evaluation_mode():
            for name in self._pipelines if pipelines is None else pipelines:
                count = batches.get(name) if isinstance(batches, Mapping) else batches
                found.update(evaluate_lane(self._judges[name], count, self.precision(), told))
        return dict(sorted(found.items()))

    def batches_in(self, pipelines: Sequence[str] | None = None) -> int:
        """How many batches an evaluation of pipelines goes through; 0 where one of them is a stream."""
        try:
            return sum(len(self._judges[name]) for name in (self._pipelines if pipelines is None else pipelines))
        except TypeError:
            return 0

    @contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        modes = {module: module.training for model in self.models.values() for module in model.modules()}
        for model in self.models.values():
            model.eval()
        for average in self.averages.values():
            average.swap()
        try:
            with torch.no_grad():
                yield
        finally:
            for average in self.averages.values():
                average.swap()
            for module, mode in modes.items():
                module.training = mode

    def look_at_debug(self, stage: Stage) -> None:
        """Run the debug pipelines whose turn it is."""
        due = [one for one in (self._debug[name] for name in stage.debug) if self.place.epoch % one[0].interval == 0]
        if due:
            with self.evaluation_mode():
                for pipeline, lane in due:
                    look(pipeline, lane, self.precision())

    def add_row(self, epoch: int, values: Mapping[str, float]) -> None:
        """Keep the columns of an epoch."""
        self.rows[self.place.stage].append({"epoch": epoch, **values})
        if self.keeper is not None:
            self.keeper.write_tables(self.rows)

    def is_half_done(self) -> bool:
        """Whether gradients wait for more batches."""
        return any(lane.update is not None and lane.update.is_pending for lane in self.lanes.values())

    def save(self) -> Iterator[Event]:
        """Write a checkpoint, where there is a directory for it."""
        if self.is_half_done():
            raise BadArgument("gradients are half gathered, and no checkpoint holds them: save after the next update")
        if self.keeper is not None:
            path = self.keeper.save(self)
            yield CheckpointSaved(self.place.step, path)


def attended(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    """The same events, with all that the options want done on the way."""
    from torcheer.training.observe.layer_captures import captured  # most sessions want none of them
    from torcheer.training.observe.step_profiler import profiled
    from torcheer.training.observe.tracker_writers import noting

    if session.options.watch is not None:
        from torcheer.training.observe.session_watch import watched

        events = watched(session, events)
    events = noting(session, profiled(session, captured(session, events)))
    return events if session.control is None else session.control.noting(events)
