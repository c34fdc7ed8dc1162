"""Recordings: the moments of a source on disk, in an archive; opened again, they are read when they are looked at."""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

from torcheer.archive import Archive, Entry, Writer
from torcheer.control.control_records import Parameter, State
from torcheer.errors import ArchiveDamaged, BadArgument, CannotWrite, NotAnArchive, TorcheerError, ValueUnavailable
from torcheer.network.network_records import Net
from torcheer.records import Sample
from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording
from torcheer.studio.sources.moment_queries import Value
from torcheer.studio.sources.source import Source
from torcheer.studio.sources.stored_source import Names, Resting, StateOf
from torcheer.studio.sources.timeline import Reasons, Values
from torcheer.wire.json_codec import read

KIND: Final = "studio recording"
_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def saving(
    source: Source, moments: Sequence[Moment], state_of: StateOf, home: Path, name: str = ""
) -> Callable[[], Recording]:
    """What writes all that a source shows now to a new folder in `home`; it is there whole or not at all."""
    if not moments or source.net is None:
        raise ValueUnavailable("there is no state to save yet: look at the network while it runs, then save")
    if name and not _NAME.fullmatch(name):
        raise BadArgument(f"a recording cannot be called {name[:80]!r}: use up to 64 letters, digits, - and _")
    tables = [(one.head, {key: list(cells) for key, cells in one.columns.items()}, one.count)
              for one in source.tables.values()]  # fmt: skip
    first: dict[str, Any] = {
        "net": source.net, "state": source.state, "parameters": list(source.parameters),
        "alerts": list(source.alerts), "tables": tables,
    }  # fmt: skip
    called, title = name or time.strftime("recording-%Y%m%d-%H%M%S"), source.title
    return lambda: _written(home, called, title, first, moments, state_of)


def _written(
    home: Path, name: str, title: str, first: dict[str, Any], moments: Sequence[Moment], state_of: StateOf
) -> Recording:
    target = _new(home, name)
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        home.mkdir(parents=True, exist_ok=True)
        about = {"kind": KIND, "recording": _VERSION, "name": target.name, "title": title, "states": len(moments)}
        with Writer(part, about=about, fsync="interval") as writer:
            writer.step([], **{key: _plain(one) for key, one in first.items()})
            for moment in moments:
                values, reasons = state_of(moment.id)
                writer.step(_samples(moment, values), moment=_plain(moment), absences=_by_reason(reasons))
        part.rename(target)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, TorcheerError) or not isinstance(error, OSError):
            raise
        raise CannotWrite(f"no recording can be written to {home}: {error.strerror or error}") from error
    return _listed(target, next((one.id for one in recordings_in(home) if one.name == target.name), 0))


def home_of(path: Path) -> Path:
    """Where recordings of what lies at a path go: beside it; a private folder of ours goes away with who made it."""
    temporary = path.parent.name.startswith("torcheer-") and path.parent.parent == Path(tempfile.gettempdir())
    return (Path.cwd() if temporary else path.parent) / "recordings"


def _new(home: Path, name: str) -> Path:
    """A folder that is not there yet."""
    number, found = 1, home / name
    while found.exists():
        number += 1
        found = home / f"{name}-{number}"
    return found


def _samples(moment: Moment, values: Values) -> Iterator[Sample]:
    for (name, variable), value in values.items():
        yield Sample(moment.id, name, variable, value.first, value.array)


def _by_reason(reasons: Reasons) -> list[list[Any]]:
    """Why values are missing, each reason once: `[why, variable, [layer, …]]`."""
    found: dict[tuple[str, str], list[str]] = {}
    for (layer, variable), why in reasons.items():
        found.setdefault((why, variable), []).append(layer)
    return [[why, variable, layers] for (why, variable), layers in found.items()]


def _plain(value: Any) -> Any:
    """As JSON holds it; a number that is none as {"float": "nan"}, which no record of ours looks like."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("float") in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {key: _restored(one) for key, one in value.items()}
    return [_restored(one) for one in value] if isinstance(value, list) else value


# -- what there is -----------------------------------------------------------------------------------------------------


def recordings_in(home: Path | None) -> list[Recording]:
    """The recordings of a folder, by name; `id` is the place in this list."""
    return [one for _, one in listed_in(home)]


def listed_in(home: Path | None) -> list[tuple[Path, Recording]]:
    """The same with their folders; what is no recording, cannot be read or has just gone is left out."""
    found: list[tuple[Path, Recording]] = []
    try:
        paths = sorted(path for path in home.iterdir() if not path.name.startswith(".")) if home is not None else []
    except OSError:
        return []
    for path in paths:
        try:
            found.append((path, _listed(path, len(found))))
        except (TorcheerError, OSError):
            continue
    return found


def _listed(path: Path, number: int) -> Recording:
    from torcheer.archive.format.archive_folder import read_about

    about = read_about(path)
    if about.get("kind") != KIND:
        raise NotAnArchive(f"{path} is an archive, but not a recording of the studio")
    states = about.get("states")
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return Recording(number, path.name, states if isinstance(states, int) else 0, size)


# -- opened again ------------------------------------------------------------------------------------------------------


class RecordingSource(Resting):
    """A recording as a source; values come from the file's memory when they are looked at."""

    kind = "recording"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._archive, lost = _opened(self.path)
        about = self._archive.about
        if about.get("kind") != KIND:
            raise NotAnArchive(f"{self.path} is an archive, but not a recording of the studio")
        if about.get("recording") != _VERSION:
            raise NotAnArchive(f"{self.path} is a recording of another version: update torcheer")
        super().__init__(str(about.get("title") or self.path.name), self.path.parent)
        try:
            self._read(_restored(self._archive.frames[0]["about"]))
        except (BadArgument, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ArchiveDamaged(f"{self.path} is not a whole recording: {str(error)[:200] or error!r}") from None
        self._changes.problems += lost
        if about.get("states") != len(self._moments):
            text = f"{self.path.name} has {len(self._moments)} of {about.get('states')} states; the rest is not there"
            self._changes.problems.append(text)

    def _read(self, first: dict[str, Any]) -> None:
        self.net = read(Net, first["net"])
        state = read(State, first["state"])
        self.state = State("idle", state.counters, batch=state.batch, message=f"a recording: {self.path.name}")
        self.parameters = tuple(read(Parameter, one) for one in first["parameters"])
        self.alerts = [read(AlertSeen, one) for one in first["alerts"]]
        self.tables = {head["name"]: _rowed(head, columns, count) for head, columns, count in first["tables"]}
        frames = self._archive.frames[1:]
        self._moments = [read(Moment, _restored(frame["about"])["moment"]) for frame in frames]
        self._places: dict[int, dict[tuple[str, str], Entry]] = {
            moment.id: {(entry.layer, entry.variable): entry for entry in frame["entries"]}
            for moment, frame in zip(self._moments, frames)
        }
        self._reasons: dict[int, Reasons] = {
            moment.id: {(str(layer), str(variable)): str(why) for why, variable, layers in told for layer in layers}
            for moment, told in zip(self._moments, (frame["about"].get("absences", []) for frame in frames))
        }

    def value(self, moment: int, name: str, variable: str) -> Value | None:
        """A value, checked when it is first read; None, and a problem said, where it is damaged."""
        entry = self._places.get(moment, {}).get((name, variable))
        if entry is None:
            return None
        try:
            return Value(entry.item, self._archive.array(entry))
        except (TorcheerError, OSError, ValueError) as error:
            del self._places[moment][name, variable]
            self._changes.problems.append(str(error))
            return None

    def told_why(self, moment: int, layer: str, variable: str) -> str:
        """Why a layer has no value, as was said when it was recorded."""
        return self.reasons(moment).get((layer, variable), "")

    def reasons(self, moment: int) -> Reasons:
        """All that was said of a moment's missing values."""
        return self._reasons.get(moment, {})

    def names(self, moment: int) -> Names:
        """Layers, or projections, and variables that a moment has."""
        return list(self._places.get(moment, {}))


def _opened(path: Path) -> tuple[Archive, list[str]]:
    """An archive; of one that was cut what can be trusted, and what was lost."""
    try:
        return Archive(path), []
    except ArchiveDamaged:
        from torcheer.archive.verification import Examined

        found = Examined(path)
        return found, found.lost[:20]


def _rowed(head: Any, columns: Any, count: Any) -> TableRows:
    if type(count) is not int or any(len(cells) != count for cells in columns.values()):
        raise BadArgument(f"a table has columns of other lengths than {count}")
    return TableRows(read(TableHead, head), {str(name): list(cells) for name, cells in columns.items()}, count)
