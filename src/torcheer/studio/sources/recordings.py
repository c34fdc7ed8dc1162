"""Recordings: a source's moments saved to an archive, and reopened as a lazy source."""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

from torcheer.archive import Archive, Entry, Writer
from torcheer.control.control_records import Parameter, State
from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, ValueUnavailable
from torcheer.network.network_records import Net
from torcheer.records import Sample
from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording
from torcheer.studio.sources.moment_queries import RecordedValue
from torcheer.studio.sources.source import PageSource
from torcheer.studio.sources.stored_source import Names, StateOf, StoredSource
from torcheer.studio.sources.timeline import Reasons, Values
from torcheer.wire.json_codec import from_json

KIND: Final = "studio recording"
_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def saving(
    source: PageSource, moments: Sequence[Moment], state_of: StateOf, home: Path, name: str = ""
) -> Callable[[], Recording]:
    """A function that writes the source's current content to a new folder in `home`, atomically."""
    if not moments or source.net is None:
        raise ValueUnavailable("there is no state to save yet: look at the network while it runs, then save")
    if name and not _NAME.fullmatch(name):
        raise BadArgument(f"a recording cannot be called {name[:80]!r}: use up to 64 letters, digits, - and _")
    tables = [(table.head, {key: list(cells) for key, cells in table.columns.items()}, table.count)
              for table in source.tables.values()]  # fmt: skip
    first: dict[str, Any] = {
        "net": source.net, "state": source.state, "parameters": list(source.parameters),
        "alerts": list(source.alerts), "tables": tables,
    }  # fmt: skip
    folder_name, title = name or time.strftime("recording-%Y%m%d-%H%M%S"), source.title
    return lambda: _write(home, folder_name, title, first, moments, state_of)


def _write(
    home: Path, name: str, title: str, first: dict[str, Any], moments: Sequence[Moment], state_of: StateOf
) -> Recording:
    target = _new_folder(home, name)
    about = {"kind": KIND, "recording": _VERSION, "name": target.name, "title": title, "states": len(moments)}
    with explain_write_errors(home), replacing(target) as part, Writer(part, about=about) as writer:
        writer.step([], **{key: _to_json(value) for key, value in first.items()})
        for moment in moments:
            values, reasons = state_of(moment.id)
            writer.step(_samples(moment, values), moment=_to_json(moment), absences=_by_reason(reasons))
    return _listed(
        target, next((recording.id for recording in recordings_in(home) if recording.name == target.name), 0)
    )


def home_of(path: Path) -> Path:
    """The folder for a path's recordings: beside it.

    For our temporary folders, in the working directory.
    """
    temporary = path.parent.name.startswith("torcheer-") and path.parent.parent == Path(tempfile.gettempdir())
    return (Path.cwd() if temporary else path.parent) / "recordings"


def _new_folder(home: Path, name: str) -> Path:
    """A path in `home` that does not exist yet."""
    number, path = 1, home / name
    while path.exists():
        number += 1
        path = home / f"{name}-{number}"
    return path


def _samples(moment: Moment, values: Values) -> Iterator[Sample]:
    for (name, variable), value in values.items():
        yield Sample(moment.id, name, variable, value.first, value.array)


def _by_reason(reasons: Reasons) -> list[list[Any]]:
    """Group missing values by reason: `[why, variable, [layer, …]]`."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for (layer, variable), why in reasons.items():
        by_reason.setdefault((why, variable), []).append(layer)
    return [[why, variable, layers] for (why, variable), layers in by_reason.items()]


def _to_json(value: Any) -> Any:
    """Convert to JSON types.

    NaN and infinities become {"float": "nan"}, which no record of ours looks like.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): _to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if hasattr(value, "tolist"):
        return _to_json(value.tolist())
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("float") in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {key: _from_json(part) for key, part in value.items()}
    return [_from_json(part) for part in value] if isinstance(value, list) else value


# -- listing -----------------------------------------------------------------------------------------------------------


def recordings_in(home: Path | None) -> list[Recording]:
    """The recordings of a folder, by name; `id` is the index in this list."""
    return [recording for _, recording in listed_in(home)]


def listed_in(home: Path | None) -> list[tuple[Path, Recording]]:
    """The recordings of a folder, with their paths.

    Other, unreadable or vanished entries are skipped.
    """
    recordings: list[tuple[Path, Recording]] = []
    try:
        paths = sorted(path for path in home.iterdir() if not path.name.startswith(".")) if home is not None else []
    except OSError:
        return []
    for path in paths:
        try:
            recordings.append((path, _listed(path, len(recordings))))
        except (TorcheerError, OSError):
            continue
    return recordings


def _listed(path: Path, number: int) -> Recording:
    from torcheer.archive.format.archive_folder import read_about

    about = read_about(path)
    if about.get("kind") != KIND:
        raise NotAnArchive(f"{path} is an archive, but not a recording of the studio")
    states = about.get("states")
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return Recording(number, path.name, states if isinstance(states, int) else 0, size)


# -- reading -----------------------------------------------------------------------------------------------------------


class RecordingSource(StoredSource):
    """A recording as a source; values are memory-mapped on demand."""

    kind = "recording"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._archive, lost = _open_archive(self.path)
        about = self._archive.about
        if about.get("kind") != KIND:
            raise NotAnArchive(f"{self.path} is an archive, but not a recording of the studio")
        if about.get("recording") != _VERSION:
            raise NotAnArchive(f"{self.path} is a recording of another version: update torcheer")
        super().__init__(str(about.get("title") or self.path.name), self.path.parent)
        try:
            self._read(_from_json(self._archive.frames[0]["about"]))
        except (BadArgument, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ArchiveDamaged(f"{self.path} is not a whole recording: {str(error)[:200] or error!r}") from None
        self._changes.problems += lost
        if about.get("states") != len(self._moments):
            text = f"{self.path.name} has {len(self._moments)} of {about.get('states')} states; the rest is not there"
            self._changes.problems.append(text)

    def _read(self, first: dict[str, Any]) -> None:
        self.net = from_json(Net, first["net"])
        state = from_json(State, first["state"])
        self.state = State("idle", state.counters, batch=state.batch, message=f"a recording: {self.path.name}")
        self.parameters = tuple(from_json(Parameter, parameter) for parameter in first["parameters"])
        self.alerts = [from_json(AlertSeen, alert) for alert in first["alerts"]]
        self.tables = {head["name"]: _read_table(head, columns, count) for head, columns, count in first["tables"]}
        frames = self._archive.frames[1:]
        self._moments = [from_json(Moment, _from_json(frame["about"])["moment"]) for frame in frames]
        self._places: dict[int, dict[tuple[str, str], Entry]] = {
            moment.id: {(entry.layer, entry.variable): entry for entry in frame["entries"]}
            for moment, frame in zip(self._moments, frames)
        }
        self._reasons: dict[int, Reasons] = {
            moment.id: {(str(layer), str(variable)): str(why) for why, variable, layers in absences for layer in layers}
            for moment, absences in zip(self._moments, (frame["about"].get("absences", []) for frame in frames))
        }

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A value, checked when it is first read; None, with a problem reported, if it is damaged."""
        entry = self._places.get(moment, {}).get((name, variable))
        if entry is None:
            return None
        try:
            return RecordedValue(entry.item, self._archive.array(entry))
        except (TorcheerError, OSError, ValueError) as error:
            del self._places[moment][name, variable]
            self._changes.problems.append(str(error))
            return None

    def recorded_reason(self, moment: int, layer: str, variable: str) -> str:
        """The recorded reason why a layer has no value."""
        return self.reasons(moment).get((layer, variable), "")

    def reasons(self, moment: int) -> Reasons:
        """The recorded reasons for a moment's missing values."""
        return self._reasons.get(moment, {})

    def names(self, moment: int) -> Names:
        """The (layer or projection, variable) pairs of a moment."""
        return list(self._places.get(moment, {}))


def _open_archive(path: Path) -> tuple[Archive, list[str]]:
    """Open an archive; of a truncated one the intact part, and a list of what was lost."""
    try:
        return Archive(path), []
    except ArchiveDamaged:
        from torcheer.archive.verification import TrustedArchive

        archive = TrustedArchive(path)
        return archive, archive.lost[:20]


def _read_table(head: Any, columns: Any, count: Any) -> TableRows:
    if type(count) is not int or any(len(cells) != count for cells in columns.values()):
        raise BadArgument(f"a table has columns of other lengths than {count}")
    return TableRows(from_json(TableHead, head), {str(name): list(cells) for name, cells in columns.items()}, count)
