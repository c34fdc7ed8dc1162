"""Recordings: a source's moments saved to an archive, listed, and read again."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torcheer.archive import Archive, Writer
from torcheer.archive.verification import open_intact
from torcheer.control.control_records import Parameter, State
from torcheer.control.loop_messages import AlertSeen, Moment
from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, ValueUnavailable
from torcheer.network.network_records import Net
from torcheer.records import Sample
from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.studio.connections.messages import Recording
from torcheer.studio.sources.moment_queries import OF_WEIGHTS, Reasons, Store, Values
from torcheer.studio.sources.stored_moments import StoredMoments
from torcheer.wire.json_codec import from_json

if TYPE_CHECKING:
    from torcheer.studio.sources.source import Source

KIND: Final = "studio recording"
_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def saving(source: Source, store: Store, home: Path, name: str = "") -> Callable[[], Recording]:
    """A function that writes the source's current content to a new folder in `home`, atomically."""
    net, moments = source.net, list(store.moments)
    if not moments or net is None:
        raise ValueUnavailable("there is no state to save yet: look at the network while it runs, then save")
    if name and not _NAME.fullmatch(name):
        raise BadArgument(f"a recording cannot be called {name[:80]!r}: use up to 64 letters, digits, - and _")
    tables = [(table.head, {key: list(cells) for key, cells in table.columns.items()}, table.count)
              for table in source.tables.values()]  # fmt: skip
    first: dict[str, Any] = {
        "net": net, "state": source.state, "parameters": list(source.parameters), "alerts": list(source.alerts),
        "tables": tables,
    }  # fmt: skip
    about = {"kind": KIND, "recording": _VERSION, "title": source.title, "states": len(moments)}
    folder_name = name or time.strftime("recording-%Y%m%d-%H%M%S")
    keys = [(placed.layer.name, variable.name) for placed in net.layers for variable in net.variables
            if variable.name not in OF_WEIGHTS]  # fmt: skip

    def write() -> Recording:
        target = _new_folder(home, folder_name)
        with explain_write_errors(home), replacing(target) as part:
            with Writer(part, about={**about, "name": target.name}) as writer:
                writer.step([], **{key: _to_json(value) for key, value in first.items()})
                for moment in moments:
                    values = store.values(moment.id)
                    reasons = {key: store.why(moment.id, *key) for key in keys if key not in values}
                    writer.step(_samples(moment, values), moment=_to_json(moment), absences=_by_reason(reasons))
        numbers = [recording.id for recording in recordings_in(home) if recording.name == target.name]
        return _listed(target, numbers[0] if numbers else 0)

    return write


def home_of(path: Path) -> Path:
    """The folder for a path's recordings: beside it.

    For our temporary folders, in the working directory.
    """
    return (Path.cwd() if is_temporary(path.parent) else path.parent) / "recordings"


def is_temporary(folder: Path) -> bool:
    """True for a temporary folder of ours, which goes with the process that shows it."""
    return folder.name.startswith("torcheer-") and folder.parent == Path(tempfile.gettempdir())


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
        if not why:
            continue
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


class Recorded(NamedTuple):
    """What a recording says beside its moments."""

    title: str
    net: Net
    state: State
    parameters: tuple[Parameter, ...]
    alerts: list[AlertSeen]
    tables: dict[str, TableRows]
    problems: list[str]  # what was lost


def read_recording(path: Path, moments: StoredMoments) -> Recorded:
    """Open a recording: its moments are added to `moments`; their values are read on demand."""
    problems: list[str] = []
    archive = open_intact(path, problems)
    if archive.about.get("recording") != _VERSION:
        raise NotAnArchive(f"{path} is a recording of another version: update torcheer")
    try:
        _read_moments(archive, moments)
        recorded = _read_facts(path, archive)
    except (BadArgument, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ArchiveDamaged(f"{path} is not a whole recording: {str(error)[:200] or error!r}") from None
    problems, count, states = problems[:20], len(moments.moments), archive.about.get("states")
    if states != count:
        problems.append(f"{path.name} has {count} of {states} states; the rest is not there")
    return recorded._replace(problems=problems)


def _read_facts(path: Path, archive: Archive) -> Recorded:
    first = _from_json(archive.frames[0]["about"])
    state = from_json(State, first["state"])
    return Recorded(
        str(archive.about.get("title") or ""), from_json(Net, first["net"]),
        State("idle", state.counters, batch=state.batch, message=f"a recording: {path.name}"),
        tuple(from_json(Parameter, parameter) for parameter in first["parameters"]),
        [from_json(AlertSeen, alert) for alert in first["alerts"]],
        {head["name"]: _read_table(head, columns, count) for head, columns, count in first["tables"]}, [],
    )  # fmt: skip


def _read_moments(archive: Archive, moments: StoredMoments) -> None:
    moments.archive = archive
    for frame in archive.frames[1:]:
        moment = from_json(Moment, _from_json(frame["about"])["moment"])
        moments.moments.append(moment)
        moments.places[moment.id] = {(entry.layer, entry.variable): entry for entry in frame["entries"]}
        moments.reasons[moment.id] = {
            (str(layer), str(variable)): str(why)
            for why, variable, layers in frame["about"].get("absences", [])
            for layer in layers
        }


def _read_table(head: Any, columns: Any, count: Any) -> TableRows:
    if type(count) is not int or any(len(cells) != count for cells in columns.values()):
        raise BadArgument(f"a table has columns of other lengths than {count}")
    return TableRows(from_json(TableHead, head), {str(name): list(cells) for name, cells in columns.items()}, count)
