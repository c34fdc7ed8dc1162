"""Capture chosen layers' values every n training steps in the archive `<run>/captures`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from torcheer.archive import Archive, Writer
from torcheer.capture import recording
from torcheer.capture.values.save_policy import Save
from torcheer.errors import BadArgument, TorcheerError, UnknownLayer
from torcheer.history.lookup import named_matches
from torcheer.records import Sample
from torcheer.selection import keys_of, parse
from torcheer.tap.step_schedule import Every, Schedule
from torcheer.terminal import did_you_mean
from torcheer.training.loop.events import Alert, Events

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner
    from torcheer.training.session import Session

EVERY = 100
SETTINGS = ("layers", "every")
CONFIG = "capture (config)"  # the verb in the grammar of layers


def capture_events(session: Session, events: Events) -> Events:
    """Yield the same events; capture the layers that the options name every n steps."""
    settings = session.options.capture
    return events if settings is None else _capture_events(session, events, StepCapture(session, settings))


def _capture_events(session: Session, events: Events, capture: StepCapture) -> Events:
    session.capture = capture
    try:
        for event in events:
            yield event
            yield from capture.alerts()
    finally:
        session.capture = None
        capture.close()
    yield from capture.alerts()


class StepCapture:
    """Run the forward pass of due steps under a recorder, which changes no result.

    Steps that the archive already has, from a run killed after its checkpoint, are skipped.
    """

    def __init__(self, session: Session, settings: Mapping[str, Any]) -> None:
        for key in settings:
            if key not in SETTINGS:
                raise BadArgument(
                    f"capture: there is no {key!r}; there are {', '.join(SETTINGS)}.{did_you_mean(key, SETTINGS)}"
                )
        if session.directory is None:
            raise BadArgument("capture needs a directory to write to: Session(…, to=…)")
        self._session, self.path = session, Path(session.directory) / "captures"
        self._every = Every(_count(settings.get("every", EVERY)))
        self._root = nn.Module()  # one name for each layer of several models: "encoder.conv1"
        self._root._modules.update(session.models)
        self._keys = _keys(settings.get("layers", "all"), session.models)
        self._schedules: dict[str, Schedule] | None = None  # by pipeline; None until the archive is read
        self._writer: Writer | None = None
        self._reported: set[str] = set()
        self.messages: list[str] = []
        if session.options.compile:
            self.messages.append("captured steps run uncompiled: their results may differ in the last bits")

    def is_due(self, step: int) -> bool:
        """Return whether some pipeline may have a step to capture."""
        if self._schedules is None:
            self._schedules = self._resume_schedules()
        return any(step >= schedule.next_step for schedule in self._schedules.values())

    def forward(self, runner: PipelineRunner, batch: tuple[Any, ...], step: int) -> tuple[dict[str, Any], int]:
        """Run `runner.forward`, recorded where this pipeline is due."""
        assert self._schedules is not None
        schedule = self._schedules.get(runner.name)
        # A run that goes on begins before the archive's last step, which is no start over.
        if schedule is None or step < schedule.next_step or not schedule.due(step):
            return runner.forward(batch)
        history, result = None, None
        try:
            with recording(
                self._root, layers_to_save=Save(self._save_selection(runner), detach=True), fused=True
            ) as history:
                result = runner.forward(batch)
        except UnknownLayer:  # reported below; the other layers are kept
            if result is None:
                raise
        assert result is not None
        self._write_samples(runner, step, history)
        return result

    def _resume_schedules(self) -> dict[str, Schedule]:
        """Return a schedule for each pipeline, which goes on after its last step in the archive."""
        last_steps = {name: -1 for stage in self._session.stages for name in stage.training}
        try:
            frames = Archive(self.path).frames if self.path.exists() else []
        except TorcheerError as error:
            return self._give_up(error)
        for frame in frames:
            name = frame["about"].get("pipeline")
            if name in last_steps and frame["step"] is not None:
                last_steps[name] = max(last_steps[name], frame["step"])
        return {name: Schedule(self._every, after=step) for name, step in last_steps.items()}

    def _save_selection(self, runner: PipelineRunner) -> Any:
        """Return what to save in one pipeline: no modules of models that it does not run."""
        models = {node.model for node in self._session.nodes_of(runner.name)}
        if self._keys is None:
            return "all"
        return [key for key, model in self._keys.values() if model is None or model in models] or "none"

    def _write_samples(self, runner: PipelineRunner, step: int, history: Any) -> None:
        samples = []
        for name, key in self._value_keys(runner, history):
            try:
                samples += [Sample(step, label, "value", array=value) for label, value in _values(name, history, key)]
            except TorcheerError as error:
                self._report(f"capture of {name!r} in {runner.name!r}: {error}")
        if not samples:
            return
        try:
            if self._writer is None:
                self._writer = Writer(self.path, about={"kind": "captures"})
            self._writer.step(samples, pipeline=runner.name, epoch=self._session.place.epoch + 1)
        except (TorcheerError, OSError) as error:  # a full disk
            self._schedules = self._give_up(error)

    def _value_keys(self, runner: PipelineRunner, history: Any) -> list[tuple[str, Any]]:
        """Return the name of each value and its key in the history."""
        if self._keys is None:
            return [(op.label, op.index) for op in history if op.kind == "op"]
        models = {node.model for node in self._session.nodes_of(runner.name)}
        keys: list[tuple[str, Any]] = []
        for name, (key, model) in self._keys.items():
            if parse(key, history.facts.module_types, CONFIG).form in ("pattern", "class", "function", "position"):
                keys += named_matches(history, key)
            elif model is None or model in models:
                keys.append((name, key))
        return keys

    def alerts(self) -> Iterator[Alert]:
        """Yield the pending messages."""
        while self.messages:
            yield Alert(self.messages.pop(0))

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self.messages.append(text)

    def _give_up(self, error: Exception) -> dict[str, Schedule]:
        self.messages.append(f"nothing is captured from here on, training goes on: {error}")
        return {}

    def close(self) -> None:
        """Close the archive without sealing it; a resumed run appends to it."""
        if self._writer is not None:
            try:
                self._writer.close(seal=False)
            except OSError as error:
                self.messages.append(f"captures: {error}")


def _count(every: Any) -> int:
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise BadArgument(f"capture: every={every!r} is a number of steps, 1 or more")
    return every


def _keys(layers: Any, models: Mapping[str, nn.Module]) -> dict[str, tuple[Any, str | None]] | None:
    """Return each name with the recorder's name and its model; None for everything."""
    names = list(keys_of(layers, CONFIG))
    if "all" in names:
        return None
    if not names:
        raise BadArgument(f"capture: layers={layers!r}; give names such as ['conv1', 'relu_1'], or 'all'")
    inside = {name: [path for path, _ in model.named_modules() if path] for name, model in models.items()}
    addresses = [f"{model}.{path}" for model, paths in inside.items() for path in paths]
    addresses += list(models)
    classes = {f"{model}.{path}": module for model in models for path, module in models[model].named_modules() if path}
    return {str(name): _key(name, inside, addresses, classes) for name in names if name != "none"}


def _key(
    name: Any, inside: Mapping[str, list[str]], addresses: list[str], modules: Mapping[str, nn.Module]
) -> tuple[Any, str | None]:
    if name in addresses:
        owner = max((model for model in inside if name == model or name.startswith(f"{model}.")), key=len)
        return name, owner
    owners = [model for model, paths in inside.items() if name in paths]
    if len(owners) > 1:
        choices = ", ".join(f"'{model}.{name}'" for model in owners)
        raise BadArgument(f"capture: {name!r} is a layer of several models; say which: {choices}")
    if owners:
        return f"{owners[0]}.{name}", owners[0]
    if len(inside) == 1:
        modules = {path.partition(".")[2]: module for path, module in modules.items()}
    parse(name, modules, CONFIG)  # an operation, a pattern or a class; or raises with the nearest name
    return name, None


def _values(name: str, history: Any, key: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield a layer's values, one for each pass."""
    layer = history[key]
    for number, layer_pass in enumerate(layer, 1):
        label = name if len(layer) == 1 else f"{name}:{number}"
        value = layer_pass.tensor_contents
        if isinstance(value, Tensor):
            yield label, value
        else:
            yield from ((f"{label}[{place}]", part) for place, part in enumerate(value) if isinstance(part, Tensor))
