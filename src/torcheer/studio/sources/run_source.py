"""A run directory without a host, as a source.

It shows the run's tables, its watches' statistics and alerts, and captured layers as moments.
"""

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
from torcheer.errors import TorcheerError
from torcheer.network.network_records import Layer, Net, Network, full_name
from torcheer.network.placement import net_of
from torcheer.network.run_network import Checkpoints, merge_captured, network_in, parsed_network
from torcheer.runlog.log_reader import RunLog
from torcheer.runlog.run_tables import stamp_of, summary_of, tables_of
from torcheer.runlog.writer_log import open_intact
from torcheer.studio.connections.messages import AlertSeen, Moment
from torcheer.studio.sources.moment_queries import RecordedValue
from torcheer.studio.sources.source import Changes, alert_key
from torcheer.studio.sources.stored_source import Names, StoredSource
from torcheer.studio.sources.watch_tables import renew

_SCAN_SECS: Final = 1.0  # between two scans of the disk: a process may be writing there
_MOST_MOMENTS: Final = 2000
_MOST_PARAMETERS: Final = 300
_MOST_ALERTS: Final = 2000
_VARIABLES: Final = {"value": "Act", "output": "Act", "grad": "Grad", "gradient": "Grad"}


class RunSource(StoredSource):
    """A run without a host; files written later are noticed, too."""

    def __init__(self, path: str | os.PathLike[str], *, captured: Path | None = None) -> None:
        """`captured` is the folder of the captures; the path itself if it holds nothing else."""
        self.path = Path(path)
        self._captured = captured or self.path / "captures"
        home = self.path.parent if captured else self.path
        super().__init__(self.path.resolve().name, home / "recordings")
        self._captures: Archive | None = None
        self._places: dict[int, dict[tuple[str, str], Entry]] = {}
        self._identity = (0, 0)  # inode and time of the captures' file
        self._first, self._seen = 0, 0  # id of the captures' first moment; number of frames read
        self._stamps: dict[str, Any] = {}
        self._log_problems: list[str] = []
        self._network: Network | None = None  # from network.json
        self._checkpoints = Checkpoints(self.path)
        self._log = RunLog(self.path)
        self._next_scan = 0.0
        self.parameters = _parameters(self.path / "spec.json")
        self._scan()
        self._changes = Changes(problems=self._changes.problems)  # the initial content is not a change

    def poll(self) -> Changes:
        """The changes on disk since the last call."""
        if time.monotonic() >= self._next_scan:
            self._scan()
        return super().poll()

    def _scan(self) -> None:
        began = time.monotonic()
        for part, stamp, read_part in (
            ("network", _stamp(self.path, "network.json"), self._read_network),
            ("log", stamp_of(self.path), self._read_log),
            ("captures", _stamp(self._captured), self._read_captures),
            ("checkpoints", _stamp(self.path / "checkpoints", "*/MANIFEST.json"), self._read_checkpoints),
        ):
            if stamp and self._stamps.get(part) != stamp:
                self._stamps[part] = stamp
                try:
                    read_part()
                except (TorcheerError, OSError, ValueError) as error:
                    self._changes.problems.append(str(error)[:500])
        state = self._state()
        if state != self.state:
            self.state, self._changes.state = state, True
        now = time.monotonic()
        self._next_scan = now + max(_SCAN_SECS, 20 * (now - began) * (_SCAN_SECS > 0))  # at most 5% of the time

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

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Read the tables, the watches' statistics, alerts, and the network where no file describes it."""
        self._log.refresh()
        self._changes.problems += [text for text in self._log.problems if text not in self._log_problems][:20]
        self._log_problems = self._log.problems
        if self._network is None and (record := self._log.network) is not None:
            self._network = parsed_network(record)
            self._set_net(net_of(self._network) if self._network is not None else None)
        for name, table in (tables_of(self.path, self._log) | self._log.statistics()).items():
            renew(self.tables, name, table)
            self._changes.tables.add(name)
        self._add_alerts()

    def _add_alerts(self) -> None:
        known = {alert_key(alert) for alert in self.alerts}
        for logged in self._log.alerts[-_MOST_ALERTS:]:
            layer = full_name(logged.layer, self._network)
            alert = AlertSeen(str(logged), logged.severity, logged.step, logged.rule, layer, logged.id)
            if alert_key(alert) not in known:
                self.alerts.append(alert)
                self._changes.alerts.append(alert)

    def _read_captures(self) -> None:
        if (identity := _identity(self._captured)) != self._identity or self._captures is None:
            self._identity = identity
            self._forget_captures()  # another run has started here
        self._captures = archive = open_intact(self._captured, lost := list[str]())
        self._changes.problems += lost[:20]
        frames = list(enumerate(archive.frames))[self._seen :]
        self._seen = len(archive.frames)
        for position, frame in frames[:: -(-len(frames) // _MOST_MOMENTS)] if frames else []:
            number = self._first + position
            moment = Moment(number, frame["step"] or 0, _counters(frame))
            entries = {
                (full_name(entry.layer, self._network), _VARIABLES.get(entry.variable, entry.variable)): entry
                for entry in frame["entries"]
            }
            if entries:
                self._moments.append(moment)
                self._changes.moments_came.append(moment)
                self._places[number] = entries
        if frames:
            self._describe()

    def _read_checkpoints(self) -> None:
        """Refresh the checkpoints; without captures, their steps are the moments."""
        self._checkpoints.refresh()
        if self._captures is not None or self._network is None:
            return
        kept = [moment for moment in self._moments if moment.step in self._checkpoints.steps]
        self._changes.moments_gone += [moment.id for moment in self._moments if moment not in kept]
        last = max((moment.id for moment in self._moments), default=-1)
        new_steps = [step for step in self._checkpoints.steps if all(moment.step != step for moment in kept)]
        added = [Moment(last + position, step) for position, step in enumerate(new_steps, 1)]
        self._moments = [*kept, *added]
        self._changes.moments_came += added
        self._set_net(net_of(merge_captured(self._network, self.title, {}, [])))

    def _forget_captures(self) -> None:
        self._changes.moments_gone += [moment.id for moment in self._moments]
        self._first = max((moment.id for moment in self._moments), default=-1) + 1
        self._moments, self._places, self._seen = [], {}, 0

    def _describe(self) -> None:
        """Describe the network from the captures: their layers, in the order of capture."""
        layers: dict[str, Layer] = {}
        variables: dict[str, None] = {}
        for places in self._places.values():
            batch = _batch(list(places.values()))
            for (name, variable), entry in places.items():
                if name not in layers and (layer := _layer(name, entry, batch)) is not None:
                    layers[name] = layer
                variables[variable] = None
        self._set_net(net_of(merge_captured(self._network, self.title, layers, list(variables))) if layers else None)

    def _set_net(self, net: Net | None) -> None:
        if net != self.net:
            self.net, self._changes.net = net, True

    def _read_network(self) -> None:
        self._network = network_in(self.path)
        self._identity = (0, 0)  # layers may be renamed: read the captures again
        for part in ("captures", "checkpoints"):
            self._stamps.pop(part, None)

    def _saved_weights(self, moment: int, name: str) -> RecordedValue | None:
        step = next((stored.step for stored in self._moments if stored.id == moment), -1)
        weights = self._checkpoints.weights(step, name)
        return None if weights is None else RecordedValue(-1, weights)

    def recorded_reason(self, moment: int, layer: str, variable: str) -> str:
        """The reason for a missing value: a run only has what was captured."""
        return "it was not captured at this step"

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A captured value."""
        if variable == "Wt":
            return self._saved_weights(moment, name)
        entry = self._places.get(moment, {}).get((name, variable))
        if entry is None or self._captures is None:
            return None
        try:
            return RecordedValue(entry.item, self._captures.array(entry))
        except (TorcheerError, OSError, ValueError) as error:
            del self._places[moment][name, variable]
            self._changes.problems.append(str(error))
            return None

    def names(self, moment: int) -> Names:
        """The (layer or projection, variable) pairs of a moment."""
        weights = [projection.name for projection in (self.net.projections if self.net else ()) if projection.kind]
        return [*self._places.get(moment, {}), *((name, "Wt") for name in weights)]


def _identity(folder: Path) -> tuple[int, int]:
    """The inode and time of the captures' file: they differ for other captures at the same path."""
    try:
        status = (folder / "archive.json").stat()
    except OSError:
        return (0, 0)
    return status.st_ino, status.st_mtime_ns


def _counters(frame: dict[str, Any]) -> dict[str, Any]:
    about = frame["about"] if isinstance(frame.get("about"), dict) else {}
    counters: dict[str, Any] = {}
    if isinstance(about.get("epoch"), int):
        counters["Epoch"] = about["epoch"]
    if isinstance(about.get("pipeline"), str):
        counters["Name"] = about["pipeline"]
    return counters


def _batch(entries: list[Entry]) -> int:
    """The batch size: the most common first length."""
    lengths = Counter(entry.shape[0] for entry in entries if entry.shape)
    return int(lengths.most_common(1)[0][0]) if lengths else -1


def _layer(name: str, entry: Entry, batch: int) -> Layer | None:
    """A captured value as a layer; None for a scalar."""
    if not entry.shape:
        return None
    shape = tuple(entry.shape[1:] if entry.shape[0] == batch else entry.shape)
    return Layer(name, shape, view="maps" if len(shape) > 3 else "auto")


def _stamp(folder: Path, *patterns: str) -> tuple[Any, ...]:
    """A fingerprint that changes when the folder of an archive, or a file of that name, is written to."""
    stats = []
    for path in sorted(path for name in patterns or ("*.index",) for path in folder.glob(name)):
        try:
            stats.append((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(stats)


def _parameters(spec: Path) -> tuple[Parameter, ...]:
    """The config of a finished run, as read-only parameters."""
    try:
        config = json.loads(spec.read_bytes())
        parameters = form_of(config) if isinstance(config, dict) else []
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ()
    return tuple(replace(parameter, editable=False) for parameter in parameters[:_MOST_PARAMETERS])
