"""Looking inside while it trains: every so many steps, chosen layers' values go to the archive `<run>/captures`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from torcheer.archive import Archive, Writer
from torcheer.capture.forward_pass import recording
from torcheer.capture.live_selection import parse
from torcheer.capture.values.save_policy import Save
from torcheer.config import nearest
from torcheer.errors import BadArgument, TorcheerError, UnknownLayer
from torcheer.records import Sample
from torcheer.training.loop.events import Alert, Event

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import Lane
    from torcheer.training.session import Session

EVERY = 100
KNOWN = ("layers", "every")
WILD = frozenset("*?[")


def captured(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    """The same events; on the way, layers that the options name are kept of every so many steps."""
    settings = session.options.capture
    return events if settings is None else _captured(session, events, Capture(session, settings))


def _captured(session: Session, events: Iterator[Event], capture: Capture) -> Iterator[Event]:
    session.capture = capture
    try:
        for event in events:
            yield event
            yield from capture.told()
    finally:
        session.capture = None
        capture.close()
    yield from capture.told()


class Capture:
    """Runs a step's forward pass under a recorder where it is due; what is computed stays the same.

    Steps that the archive has already, of a run that was killed behind its checkpoint, are left out.
    """

    def __init__(self, session: Session, settings: Mapping[str, Any]) -> None:
        for key in settings:
            if key not in KNOWN:
                raise BadArgument(f"capture: there is no {key!r}; there are {', '.join(KNOWN)}.{nearest(key, KNOWN)}")
        if session.directory is None:
            raise BadArgument("capture needs a directory to write to: Session(…, directory=…)")
        self._session, self.path = session, Path(session.directory) / "captures"
        self._every = _count(settings.get("every", EVERY))
        self._root = nn.Module()  # so that layers of several models have one name each: "encoder.conv1"
        self._root._modules.update(session.models)
        self._keys = _keys(settings.get("layers", "all"), session.models)
        self._last: dict[str, int] | None = None  # pipeline -> its last step in the archive; None before the first look
        self._writer: Writer | None = None
        self._reported: set[str] = set()
        self.news: list[str] = []
        if session.options.compile:
            self.news.append("captured steps run uncompiled: their results may differ in the last bits")

    def is_due(self, step: int) -> bool:
        """Whether some pipeline has a step to be captured."""
        if self._last is None:
            self._last = self._found()
        return any(step // self._every > last // self._every for last in self._last.values())

    def forward(self, lane: Lane, batch: tuple[Any, ...], step: int) -> tuple[dict[str, Any], int]:
        """What `lane.forward` gives, recorded if it is this pipeline's turn."""
        assert self._last is not None
        if step // self._every <= self._last.get(lane.name, step) // self._every:
            return lane.forward(batch)
        self._last[lane.name] = step
        history, result = None, None
        try:
            with recording(self._root, layers_to_save=Save(self._of(lane), detach=True), fused=True) as history:
                result = lane.forward(batch)
        except UnknownLayer:  # told below, where the others are kept
            if result is None:
                raise
        assert result is not None
        self._keep(lane, step, history)
        return result

    def _found(self) -> dict[str, int]:
        """The last step of each pipeline that is in the archive."""
        found = {name: -1 for stage in self._session.stages for name in stage.training}
        try:
            frames = Archive(self.path).frames if self.path.exists() else []
        except TorcheerError as error:
            return self._give_up(error)
        for frame in frames:
            name = frame["about"].get("pipeline")
            if name in found and frame["step"] is not None:
                found[name] = max(found[name], frame["step"])
        return found

    def _of(self, lane: Lane) -> Any:
        """What to save in one pipeline: not the modules of models that it does not run."""
        models = {node.model for node in self._session.nodes_of(lane.name)}
        if self._keys is None:
            return "all"
        return [key for key, model in self._keys.values() if model is None or model in models] or "none"

    def _keep(self, lane: Lane, step: int, history: Any) -> None:
        samples = []
        for name, key in self._named(lane, history):
            try:
                samples += [Sample(step, at, "value", array=value) for at, value in _values(name, history, key)]
            except TorcheerError as error:
                self._report(f"capture of {name!r} in {lane.name!r}: {error}")
        if not samples:
            return
        try:
            if self._writer is None:
                self._writer = Writer(self.path, about={"kind": "captures"})
            self._writer.step(samples, pipeline=lane.name, epoch=self._session.place.epoch + 1)
        except (TorcheerError, OSError) as error:  # a full disk
            self._last = self._give_up(error)

    def _named(self, lane: Lane, history: Any) -> list[tuple[str, Any]]:
        """What each value is called, and what the history finds it by."""
        if self._keys is None:
            return [(op.label, op.index) for op in history if op.kind == "op"]
        models = {node.model for node in self._session.nodes_of(lane.name)}
        found: list[tuple[str, Any]] = []
        for name, (key, model) in self._keys.items():
            if not WILD.isdisjoint(key):
                found += [(op.label, op.index) for op in history.find(key)]
            elif model is None or model in models:
                found.append((name, key))
        return found

    def told(self) -> Iterator[Alert]:
        """What there is to say."""
        while self.news:
            yield Alert(self.news.pop(0))

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self.news.append(text)

    def _give_up(self, error: Exception) -> dict[str, int]:
        self.news.append(f"nothing is captured from here on, training goes on: {error}")
        return {}

    def close(self) -> None:
        """Let go of the archive; a run that goes on appends to it."""
        if self._writer is not None:
            try:
                self._writer.close(seal=False)
            except OSError as error:
                self.news.append(f"captures: {error}")


def _count(every: Any) -> int:
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise BadArgument(f"capture: every={every!r} is a number of steps, 1 or more")
    return every


def _keys(layers: Any, models: Mapping[str, nn.Module]) -> dict[str, tuple[str, str | None]] | None:
    """Each name with what the recorder calls it and the model it belongs to; None for everything."""
    if layers == "all":
        return None
    if not isinstance(layers, list | tuple) or not layers or not all(isinstance(name, str) for name in layers):
        raise BadArgument(f"capture: layers={layers!r}; give names such as ['conv1', 'relu_1'], or 'all'")
    inside = {name: [path for path, _ in model.named_modules() if path] for name, model in models.items()}
    addresses = [f"{model}.{path}" for model, paths in inside.items() for path in paths]
    addresses += list(models)
    return {name: _key(name, inside, addresses) for name in layers}


def _key(name: str, inside: Mapping[str, list[str]], addresses: list[str]) -> tuple[str, str | None]:
    if name in addresses:
        owner = max((model for model in inside if name == model or name.startswith(f"{model}.")), key=len)
        return name, owner
    owners = [model for model, paths in inside.items() if name in paths]
    if len(owners) > 1:
        meant = ", ".join(f"'{model}.{name}'" for model in owners)
        raise BadArgument(f"capture: {name!r} is a layer of several models; say which: {meant}")
    if owners:
        return f"{owners[0]}.{name}", owners[0]
    known = [path for paths in inside.values() for path in paths] if len(inside) == 1 else addresses
    parse(name, known)  # an operation such as 'relu_1', or raises with the nearest name
    return name, None


def _values(name: str, history: Any, key: Any) -> Iterator[tuple[str, Tensor]]:
    """A layer's values: of several passes each."""
    found = history[key]
    passes = [found] if not hasattr(found, "passes") else list(found.passes)
    for number, one in enumerate(passes, 1):
        label = name if len(passes) == 1 else f"{name}:{number}"
        value = one.tensor_contents
        if isinstance(value, Tensor):
            yield label, value
        else:
            yield from ((f"{label}[{place}]", part) for place, part in enumerate(value) if isinstance(part, Tensor))
