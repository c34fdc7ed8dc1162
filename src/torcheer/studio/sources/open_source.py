"""From a path to what is shown: a live host, a run, a recording, a recorded pass, or a folder of these."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final

from torcheer.archive.format.archive_folder import read_about
from torcheer.errors import BadArgument, NotAnArchive, TorcheerError, UnknownLayer
from torcheer.runlog.run_tables import summary_at
from torcheer.studio.connections.messages import Recording, Run
from torcheer.studio.sources.changing_source import Following, Nothing
from torcheer.studio.sources.history_source import HistorySource
from torcheer.studio.sources.live_source import LiveSource
from torcheer.studio.sources.recordings import KIND, RecordingSource, listed_in
from torcheer.studio.sources.run_source import RunSource
from torcheer.studio.sources.source import Source
from torcheer.wire.socket_lines import connect

SOCKET: Final = "control.sock"
_DEEPEST: Final = 3  # folders in folders that are looked through for runs
_MOST_RUNS: Final = 500
_MOST_FOLDERS: Final = 5000
_OPENERS: Final[dict[str, Callable[[Path], Source]]] = {
    KIND: RecordingSource, "history": HistorySource, "captures": lambda path: RunSource(path, captured=path),
}  # fmt: skip


def open_source(path: str | os.PathLike[str], *, url: str = "") -> Source:
    """What stands at a path, opened; raises where that is nothing we know. `url` is told to a live host."""
    found = Path(path)
    kind = kind_of(found)
    if kind == "live":
        return LiveSource(found if found.name == SOCKET else found / SOCKET, url=url)
    if kind == "run":
        return _run(found, url)
    if kind == "archive":
        return _archive(found)
    if kind == "folder":
        return open_place(found, url=url).first()
    raise BadArgument(_unknown(found))


def kind_of(path: Path) -> str:
    """ "live" (a socket), "run", "archive", "folder" or "" where there is nothing."""
    if path.is_socket():
        return "live"
    if not path.is_dir():
        return ""
    if (path / "run.json").is_file():
        return "run"
    if (path / "archive.json").is_file():
        return "archive"
    if os.path.lexists(path / SOCKET):
        return "live"
    return "run" if (path / "metrics").is_dir() or (path / "captures" / "archive.json").is_file() else "folder"


def _run(path: Path, url: str) -> Source:
    """A run: live as soon as, and whenever, somebody hosts it."""

    def look(current: Source) -> Source | None:
        if isinstance(current, LiveSource) or not is_live(path):
            return None
        return LiveSource(path / SOCKET, url=url, before=current)

    resting = RunSource(path)
    return Following(look(resting) or resting, look)


def is_live(path: Path) -> bool:
    """Whether a host answers in a run's directory."""
    if not os.path.lexists(path / SOCKET):
        return False
    try:
        connect(path / SOCKET).close()
    except (OSError, ValueError):
        return False
    return True


def _archive(path: Path) -> Source:
    kind = read_about(path).get("kind")
    opener = _OPENERS.get(kind) if isinstance(kind, str) else None
    if opener is None:
        raise NotAnArchive(
            f"{path} is an archive of {str(kind or 'values')[:40]!r}, which the studio cannot show; it shows what "
            f"history.save() wrote, captures of a training run, and its own recordings"
        )
    return opener(path)


def _unknown(path: Path) -> str:
    if not os.path.lexists(path):
        near = path.parent
        while not near.exists() and near != near.parent:
            near = near.parent
        return f"{path} is not there; {near} has {_few(near)}. Give a run directory, or a folder of runs"
    what = "a file" if path.is_file() else "neither a file nor a folder"
    return (
        f"{path} is {what} that the studio cannot show. Give a run directory (with run.json), a folder of runs, a "
        f"recording, or what history.save() wrote"
    )


def _few(folder: Path) -> str:
    try:
        names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
    except OSError:
        return "nothing that can be read"
    return (", ".join(names[:6]) + (", …" if len(names) > 6 else "")) or "nothing in it"


# -- folders -----------------------------------------------------------------------------------------------------------


class Place:
    """What `torcheer studio PATH` shows: one thing, or a folder of runs to choose from."""

    def __init__(self, path: str | os.PathLike[str], *, url: str = "", title: str = "") -> None:
        self.path, self.url, self.title = Path(path), url, title
        kind = kind_of(self.path)
        if not kind:
            raise BadArgument(_unknown(self.path))
        self._folder = kind == "folder"
        self._paths: list[Path] = []  # of runs, in the order in which they were found: ids stay
        self._homes: list[Path] = []
        self._recordings: list[Path] = []
        self._finding = Lock()
        self.runs: tuple[Run, ...] = ()  # of the folder, as they were at the last look
        self.run = -1
        self._first = self._opened_folder() if self._folder else open_source(self.path, url=url)
        self._note(self._first)
        self.look()

    def first(self) -> Source:
        """What is shown at first: of a folder the run that is live, or the newest."""
        return self._first

    def look(self) -> bool:
        """See which runs there are now, and how far they are; whether that is another list. From any thread."""
        paths = self._found() if self._folder else []
        there = [(number, path) for number, path in enumerate(paths) if os.path.lexists(path)]  # some were deleted
        before, self.runs = self.runs, tuple(_listed(number, path, self.path) for number, path in there)
        return self.runs != before

    def _found(self) -> list[Path]:
        with self._finding:
            known = set(self._paths)
            self._paths += [path for path in runs_below(self.path) if path not in known]
            return list(self._paths)

    def _opened_folder(self) -> Source:
        runs = self._found()
        if runs:
            self.run = _best(runs)
            return self._open(runs[self.run])
        return Following(Nothing(self.path), self._began)

    def _began(self, current: Source) -> Source | None:
        """In a folder that was empty: the first run that turns up."""
        if current.kind != "nothing" or not (runs := self._found()):
            return None
        self.run = _best(runs)
        self.look()
        source = self._open(runs[self.run])
        self._note(source)  # what is saved of it can be opened
        return source

    def _open(self, path: Path) -> Source:
        try:
            return open_source(path, url=self.url)
        except (TorcheerError, OSError, ValueError) as error:
            return Nothing(path, str(error))

    def open_run(self, id: int) -> Source:
        """Another run of the folder."""
        if not self._folder or not 0 <= id < len(self._found()):
            raise UnknownLayer(f"there is no run {id}; there are {len(self.runs)}")
        source = open_source(self._paths[id], url=self.url)
        self._note(source)
        return source

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The recordings of all that was opened so far, as they are on disk now."""
        listed = {path: one for home in self._homes for path, one in listed_in(home)}
        known = set(self._recordings)
        self._recordings += [path for path in listed if path not in known]
        return tuple(
            Recording(number, listed[path].name, listed[path].states, listed[path].bytes)
            for number, path in enumerate(self._recordings)
            if path in listed
        )

    def open_recording(self, id: int) -> Source:
        """A recording of the list."""
        if not any(one.id == id for one in self.recordings):
            raise UnknownLayer(f"there is no recording {id}; there are {len(self.recordings)}")
        return RecordingSource(self._recordings[id])

    def _note(self, source: Source) -> None:
        if source.home is not None and source.home not in self._homes:
            self._homes.append(source.home)


def open_place(path: str | os.PathLike[str], *, url: str = "", title: str = "") -> Place:
    """What stands at a path, with all that can be chosen there; raises where that is nothing we know."""
    return Place(path, url=url, title=title)


def runs_in(folder: str | os.PathLike[str]) -> list[Run]:
    """The runs of a folder; their `id` is the place in this list."""
    return [_listed(number, path, Path(folder)) for number, path in enumerate(runs_below(Path(folder)))]


def runs_below(folder: Path) -> list[Path]:
    """Runs and archives in a folder, by name; folders in folders are looked through, but not those of runs."""
    found: list[Path] = []
    waiting, looked = [(folder, 0)], 0
    while waiting and len(found) < _MOST_RUNS and looked < _MOST_FOLDERS:
        here, depth = waiting.pop(0)
        looked += 1
        try:
            inside = sorted(one for one in here.iterdir() if one.is_dir() and not one.name.startswith("."))
        except OSError:
            continue
        for one in inside:
            kind = kind_of(one)
            if kind == "folder" and depth + 1 < _DEEPEST and not one.is_symlink():
                waiting.append((one, depth + 1))
            elif kind in ("run", "live") or (kind == "archive" and _is_known(one)):
                found.append(one)
    return found


def _is_known(path: Path) -> bool:
    try:
        return read_about(path).get("kind") in _OPENERS
    except (TorcheerError, OSError):
        return False


def _best(runs: list[Path]) -> int:
    """The run to be shown first."""
    return max(range(len(runs)), key=lambda number: (is_live(runs[number]), _changed(runs[number]), number))


def _changed(path: Path) -> float:
    try:
        times = [one.stat().st_mtime for one in (path, path / "metrics", path / "checkpoints") if one.exists()]
    except OSError:
        return 0.0
    return max(times, default=0.0)


def _listed(number: int, path: Path, folder: Path) -> Run:
    name = str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name
    live = is_live(path)
    return Run(number, name, "live" if live else "ended", _summary(path))


def _summary(path: Path) -> str:
    try:
        if (path / "archive.json").is_file():
            about: dict[str, Any] = read_about(path)
            if about.get("kind") == KIND:
                return f"a recording, {about.get('states')} states"
            return (
                f"a recorded pass of {about.get('model') or 'a model'}"
                if about.get("kind") == "history"
                else "captures"
            )
        return summary_at(path)
    except (TorcheerError, OSError, ValueError, TypeError) as error:
        return f"cannot be read: {str(error)[:100]}"
