"""A run directory at rest: its tables, what its watch found wrong, and captured layers as moments."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torcheer.archive import Archive, Entry
from torcheer.control.config_form import form_of
from torcheer.control.control_records import Parameter, State
from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.network.network_records import Layer, Net, Network, full_name
from torcheer.network.placement import net_of
from torcheer.network.run_network import Checkpoints, merge_captured, network_in
from torcheer.runlog.run_tables import stamp_of, summary_of, tables_of
from torcheer.studio.connections.messages import AlertSeen, Moment
from torcheer.studio.sources.moment_queries import Value
from torcheer.studio.sources.source import Changes, alert_key
from torcheer.studio.sources.stored_source import Names, Resting

_LOOK_SECS: Final = 1.0  # between two looks at the disk: somebody may be writing there
_MOST_MOMENTS: Final = 2000
_MOST_PARAMETERS: Final = 300
_MOST_ALERTS: Final = 2000
_WRITTEN: Final = ("*.index", "alerts.jsonl", "*/alerts.jsonl")
_VARIABLES: Final = {"value": "Act", "output": "Act", "grad": "Grad", "gradient": "Grad"}


class RunSource(Resting):
    """A run that nobody hosts; what is written to it later is seen, too."""

    def __init__(self, path: str | os.PathLike[str], *, captured: Path | None = None) -> None:
        """`captured` is where captures lie; where that is all there is, it is the path itself."""
        self.path = Path(path)
        self._captured = captured or self.path / "captures"
        home = self.path.parent if captured else self.path
        super().__init__(self.path.resolve().name, home / "recordings")
        self._captures: Archive | None = None
        self._places: dict[int, dict[tuple[str, str], Entry]] = {}
        self._identity = (0, 0)  # of the file that the captures lie in
        self._first, self._seen = 0, 0  # the id of their first moment; how many frames were read
        self._stamps: dict[str, Any] = {}
        self._network: Network | None = None  # as it was described
        self._checkpoints = Checkpoints(self.path)
        self._next_look = 0.0
        self.parameters = _parameters(self.path / "spec.json")
        self._look()
        self._changes = Changes(problems=self._changes.problems)  # all that was there is not new

    def poll(self) -> Changes:
        """What was written since."""
        if time.monotonic() >= self._next_look:
            self._look()
        return super().poll()

    def _look(self) -> None:
        began = time.monotonic()
        for what, stamp, act in (
            ("tables", stamp_of(self.path), self._read_tables),
            ("network", _stamp(self.path, "network.json"), self._read_network),
            ("captures", _stamp(self._captured), self._read_captures),
            ("checkpoints", _stamp(self.path / "checkpoints", "*/MANIFEST.json"), self._read_checkpoints),
            ("alerts", _stamp(self.path / "watch"), self._read_alerts),
        ):
            if stamp and self._stamps.get(what) != stamp:
                self._stamps[what] = stamp
                try:
                    act()
                except (TorcheerError, OSError, ValueError) as error:
                    self._changes.problems.append(str(error)[:500])
        state = self._state()
        if state != self.state:
            self.state, self._changes.state = state, True
        now = time.monotonic()
        self._next_look = now + max(_LOOK_SECS, 20 * (now - began) * (_LOOK_SECS > 0))  # at most 5% of the time

    def _state(self) -> State:
        counters: dict[str, Any] = {}
        for name, x in (("train_epoch", "Epoch"), ("train_step", "Step")):
            table = self.tables.get(name)
            if table is not None and table.count and x in table.columns:
                counters[x] = table.columns[x][-1]
        message = summary_of(self.tables) if self.tables else f"{len(self._moments)} captured states"
        return State("done", counters, batch=self._batch(), message=message)

    def _batch(self) -> int:
        ends = [self._places.get(moment.id, {}) for moment in (*self._moments[:1], *self._moments[-1:])]
        return max((_batch(list(places.values())) for places in ends if places), default=0)

    # -- what there is -----------------------------------------------------------------------------------------------

    def _read_tables(self) -> None:
        for name, table in tables_of(self.path).items():
            before = self.tables.get(name)
            if before is not None and (before.head != table.head or before.count > table.count):
                table.restarts = before.restarts + 1
            self.tables[name] = table
            self._changes.tables.add(name)

    def _read_alerts(self) -> None:
        known = {alert_key(one) for one in self.alerts}
        for alert in alerts_of(self.path / "watch", self._network)[-_MOST_ALERTS:]:
            if alert_key(alert) not in known:
                self.alerts.append(alert)
                self._changes.alerts.append(alert)

    def _read_captures(self) -> None:
        if (identity := _identity(self._captured)) != self._identity or self._captures is None:
            self._identity = identity
            self._forget_captures()  # another run has begun here
        self._captures = archive = _opened(self._captured, self._changes.problems)
        frames = list(enumerate(archive.frames))[self._seen :]
        self._seen = len(archive.frames)
        for place, frame in frames[:: -(-len(frames) // _MOST_MOMENTS)] if frames else []:
            number = self._first + place
            moment = Moment(number, frame["step"] or 0, _counters(frame))
            entries = {
                (full_name(one.layer, self._network), _VARIABLES.get(one.variable, one.variable)): one
                for one in frame["entries"]
            }
            if entries:
                self._moments.append(moment)
                self._changes.moments_came.append(moment)
                self._places[number] = entries
        if frames:
            self._describe()

    def _read_checkpoints(self) -> None:
        """The weights that were saved; where nothing was captured, they are all there is to see."""
        self._checkpoints.refresh()
        if self._captures is not None or self._network is None:
            return
        kept = [one for one in self._moments if one.step in self._checkpoints.steps]
        self._changes.moments_gone += [one.id for one in self._moments if one not in kept]
        number = max((one.id for one in self._moments), default=-1)
        new = [step for step in self._checkpoints.steps if all(one.step != step for one in kept)]
        came = [Moment(number + place, step) for place, step in enumerate(new, 1)]
        self._moments = [*kept, *came]
        self._changes.moments_came += came
        self._show(net_of(merge_captured(self._network, self.title, {}, [])))

    def _forget_captures(self) -> None:
        self._changes.moments_gone += [one.id for one in self._moments]
        self._first = max((one.id for one in self._moments), default=-1) + 1
        self._moments, self._places, self._seen = [], {}, 0

    def _describe(self) -> None:
        """The network as far as captures know it: what was captured, in the order in which it was."""
        found: dict[str, Layer] = {}
        variables: dict[str, None] = {}
        for places in self._places.values():
            batch = _batch(list(places.values()))
            for (name, variable), entry in places.items():
                if name not in found and (layer := _layer(name, entry, batch)) is not None:
                    found[name] = layer
                variables[variable] = None
        self._show(net_of(merge_captured(self._network, self.title, found, list(variables))) if found else None)

    def _show(self, net: Net | None) -> None:
        if net != self.net:
            self.net, self._changes.net = net, True

    def _read_network(self) -> None:
        self._network = network_in(self.path)
        self._identity = (0, 0)  # layers may have other names now: captures are read again
        for what in ("captures", "checkpoints"):
            self._stamps.pop(what, None)

    def _saved_weights(self, moment: int, name: str) -> Value | None:
        step = next((one.step for one in self._moments if one.id == moment), -1)
        found = self._checkpoints.weights(step, name)
        return None if found is None else Value(-1, found)

    def told_why(self, moment: int, layer: str, variable: str) -> str:
        """A run keeps what its captures were told to."""
        return "it was not captured at this step"

    def value(self, moment: int, name: str, variable: str) -> Value | None:
        """A captured value."""
        if variable == "Wt":
            return self._saved_weights(moment, name)
        entry = self._places.get(moment, {}).get((name, variable))
        if entry is None or self._captures is None:
            return None
        try:
            return Value(entry.item, self._captures.array(entry))
        except (TorcheerError, OSError, ValueError) as error:
            del self._places[moment][name, variable]
            self._changes.problems.append(str(error))
            return None

    def names(self, moment: int) -> Names:
        """Layers and variables that a moment has."""
        weights = [one.name for one in (self.net.projections if self.net else ()) if one.kind]
        return [*self._places.get(moment, {}), *((name, "Wt") for name in weights)]


def _opened(path: Path, problems: list[str]) -> Archive:
    """An archive; of a damaged one what can be trusted."""
    try:
        return Archive(path)
    except ArchiveDamaged:
        from torcheer.archive.verification import examine

        found = examine(path)
        problems += found.lost[:20]
        return found


def _identity(folder: Path) -> tuple[int, int]:
    """Other captures in a folder of the same name are another file."""
    try:
        found = (folder / "archive.json").stat()
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_mtime_ns


def _counters(frame: dict[str, Any]) -> dict[str, Any]:
    about = frame["about"] if isinstance(frame.get("about"), dict) else {}
    found: dict[str, Any] = {}
    if isinstance(about.get("epoch"), int):
        found["Epoch"] = about["epoch"]
    if isinstance(about.get("pipeline"), str):
        found["Name"] = about["pipeline"]
    return found


def _batch(entries: list[Entry]) -> int:
    """How many items a batch has: what most values begin with."""
    lengths = Counter(one.shape[0] for one in entries if one.shape)
    return int(lengths.most_common(1)[0][0]) if lengths else -1


def _layer(name: str, entry: Entry, batch: int) -> Layer | None:
    """A captured value as a layer; a single number is none."""
    if not entry.shape:
        return None
    shape = tuple(entry.shape[1:] if entry.shape[0] == batch else entry.shape)
    return Layer(name, shape, view="maps" if len(shape) > 3 else "auto")


def alerts_of(watch: Path, network: Network | None = None) -> list[AlertSeen]:
    """What a run's watches found wrong, by step; a log that cannot be read has nothing to say."""
    from torcheer.runlog.watch_reader import open_watch

    found: list[AlertSeen] = []
    for folder in (watch, *sorted(path for path in watch.glob("*") if path.is_dir())):
        if not (folder / "alerts.jsonl").is_file() or not (folder / "samples").is_dir():
            continue
        prefix = "" if folder == watch else folder.name
        try:
            alerts = open_watch(folder).alerts
        except (TorcheerError, OSError, ValueError):
            continue
        for one in alerts:
            named = replace(one, layer=".".join(part for part in (prefix, one.layer) if part))
            found.append(AlertSeen(str(named), one.severity, one.step, one.rule, full_name(named.layer, network)))
    return sorted(found, key=lambda one: one.step)


def _stamp(folder: Path, *names: str) -> tuple[Any, ...]:
    """What differs when something is written to a folder of an archive, or of watches."""
    found = []
    for path in sorted(path for name in names or _WRITTEN for path in folder.glob(name)):
        try:
            found.append((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(found)


def _parameters(spec: Path) -> tuple[Parameter, ...]:
    """The config of a run that is over: to be read, not to be changed."""
    try:
        found = json.loads(spec.read_bytes())
        lines = form_of(found) if isinstance(found, dict) else []
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ()
    return tuple(replace(one, editable=False) for one in lines[:_MOST_PARAMETERS])
