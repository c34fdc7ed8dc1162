"""Opens a path as a source: a run, live or at rest, a recording, a recorded pass, or a folder of these."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from torcheer.archive.format.archive_folder import read_about
from torcheer.control.control_records import State
from torcheer.errors import BadArgument, TorcheerError, UnknownLayer
from torcheer.modelfiles import ENDINGS, is_model_file
from torcheer.network.heads.token_names import TokenNames
from torcheer.studio.connections.messages import Recording, Run
from torcheer.studio.files.file_source import FileSource
from torcheer.studio.runs.foreign_run import FOREIGN, foreign_kind
from torcheer.studio.runs.run_facts import SOCKET
from torcheer.studio.runs.run_index import RunIndex, relative_name
from torcheer.studio.sources.foreign_source import ForeignSource
from torcheer.studio.sources.live_source import LiveSource
from torcheer.studio.sources.log_source import LogSource, holds_run
from torcheer.studio.sources.pass_source import PassSource
from torcheer.studio.sources.recordings import KIND, listed_in
from torcheer.studio.sources.source import Source
from torcheer.studio.sources.timeline import Timeline
from torcheer.terminal import first_names
from torcheer.wire.socket_lines import connect

_ARCHIVES: Final = ("history", "captures", KIND)  # that can be shown
_DEEPEST: Final = 3  # levels of nested folders that are searched for runs
_MOST_RUNS: Final = 20_000
_MOST_FOLDERS: Final = 50_000
_PATIENCE_SECS: Final = 2.0  # with what is opened first, before the address is printed
_FIRST_SECS: Final = 0.5  # of reading runs before anything is shown
_MOST_LOOKED_AT: Final = 32  # runs of those that were changed last
_READ_SECS: Final = 0.5  # of reading runs before pages hear of those


def open_source(path: str | os.PathLike[str], *, url: str = "") -> Source:
    """Open a path as a source; raises if it is unknown.

    `url` is the viewer's, sent to a live host.
    """
    target = Path(path)
    kind = kind_of(target)
    if kind in ("live", "run"):
        return LiveSource(target if target.is_socket() else target / SOCKET, url=url)
    if kind == "archive":
        return PassSource(target) if read_about(target).get("kind") == "history" else LogSource(target)
    if kind == "file":
        return FileSource(target)
    if kind in FOREIGN:
        return ForeignSource(target, kind)
    if kind == "folder":
        return open_catalog(target, url=url).first()
    raise BadArgument(describe_unknown(target))


def kind_of(path: Path) -> str:
    """Classify a path: "live" (a socket), "run", "archive", "file" (a model's), "events", "lightning", "folder", ""."""
    if path.is_socket():
        return "live"
    if is_model_file(path):
        return "file"
    if not path.is_dir():
        return ""
    if (path / "run.json").is_file():
        return "run"
    if (path / "archive.json").is_file():
        return "archive"
    if os.path.lexists(path / SOCKET):
        return "live"
    return "run" if holds_run(path) else _foreign_kind(path) or "folder"


def _foreign_kind(path: Path) -> str:
    try:
        return foreign_kind(os.listdir(path))
    except OSError:
        return ""


def is_live(path: Path) -> bool:
    """True if a host is listening in a run's directory."""
    if not os.path.lexists(path / SOCKET):
        return False
    try:
        connect(path / SOCKET).close()
    except (OSError, ValueError):
        return False
    return True


def _nothing(title: str, message: str) -> Source:
    """A source without content that says what would help."""
    source = Source(title, None, Timeline())
    source.state = State("idle", message=message)
    return source


def describe_unknown(path: Path) -> str:
    """Say why a path cannot be shown: it is not there, or it is something else."""
    if not os.path.lexists(path):
        near = path.parent
        while not near.exists() and near != near.parent:
            near = near.parent
        return f"{path} is not there; {near} has {_list_names(near)}. Give a run directory, or a folder of runs"
    kind = "a file" if path.is_file() else "neither a file nor a folder"
    return (
        f"{path} is {kind} that the studio cannot show. Give a run directory (with run.json), a folder of runs, a "
        f"recording, what history.save() wrote, or a model's file: {', '.join(ENDINGS)}"
    )


def _list_names(folder: Path) -> str:
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return "nothing that can be read"
    return first_names(names, 6) or "nothing in it"


# -- folders -----------------------------------------------------------------------------------------------------------


class _Opening:
    """A source that a thread opens: a hostile file takes as long as reading is allowed to."""

    def __init__(self, path: Path, url: str) -> None:
        self._path, self._url = path, url
        self._opened: Source | Exception | None = None
        self._thread = Thread(target=self._open, name="torcheer-opening", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            self._opened = open_source(self._path, url=self._url)
        except Exception as error:  # raised where it is waited for
            self._opened = error

    def wait(self, secs: float) -> Source | None:
        """The source; None where it is not open in so long. Raises why it cannot be opened."""
        self._thread.join(secs)
        if isinstance(self._opened, Exception):
            raise self._opened
        return self._opened


class PathCatalog:
    """The catalog of `torcheer studio PATH`: one source, or a folder of runs to choose from."""

    def __init__(
        self, path: str | os.PathLike[str], *, url: str = "", title: str = "", token_names: TokenNames = ()
    ) -> None:
        self.path, self.url, self.title, self._token_names = Path(path), url, title, token_names
        kind = kind_of(self.path)
        if not kind:
            raise BadArgument(describe_unknown(self.path))
        self._folder = kind == "folder"
        self._paths: list[Path] = []  # of runs, in the order of discovery, so that ids are stable
        self._homes: list[Path] = []
        self._recordings: list[Path] = []
        self._finding = Lock()
        self.index = RunIndex(self.path, kind_of, is_live) if self._folder else None
        self.runs: tuple[Run, ...] = ()  # of the folder, as of the last `refresh`
        self.run = -1
        self._opening: _Opening | None = None  # what is shown first, where that takes long
        self._first = self._open_folder() if self._folder else self._open_in_time(self.path)
        self._add_home(self._first)
        reading = Thread(target=self._refresh_index, args=(self._paths, _FIRST_SECS), daemon=True)
        reading.start()
        reading.join(_PATIENCE_SECS)  # a run that cannot be read in time is listed later

    def first(self) -> Source:
        """The source that is shown first: of a folder the live run, or the newest."""
        return self._first

    def refresh(self) -> bool:
        """Scan for runs, and read some of those that changed; True if the list changed. From any thread."""
        if not self._folder or self.index is None:
            before, self.runs = self.runs, ()
            return before != ()
        return self._refresh_index(self._paths if self.index.waiting else self._scan(), _READ_SECS)

    def _refresh_index(self, paths: list[Path], budget_secs: float) -> bool:
        if self.index is None:
            return False
        changed = self.index.refresh(paths, budget_secs)
        before, self.runs = self.runs, tuple(self.index.listed())
        return changed or self.runs != before

    def _scan(self) -> list[Path]:
        with self._finding:
            listed = set(self._paths)
            self._paths += [path for path in runs_below(self.path) if path not in listed]
            return list(self._paths)

    def _open_folder(self) -> Source:
        runs = self._scan()
        if runs:
            self.run = _best(runs, self.index)
            return self._open(runs[self.run])
        message = f"no runs in {self.path} yet: `torcheer train CONFIG --studio` makes one, and it shows up here"
        return _nothing(f"no runs in {self.path.name or self.path} yet", message)

    def find_first_run(self) -> Source | None:
        """What has appeared in an empty folder: a run in it, or of its own; None until then."""
        if self._opening is not None:
            return self._opened()
        if not self._folder or self.run >= 0:
            return None
        if kind_of(self.path) in ("run", "live", "archive"):
            self._folder, source = False, self._open(self.path)
        elif self.runs:
            self.run = _best(self._paths, self.index)
            source = self._open(self._paths[self.run])
        else:
            return None
        self._add_home(source)  # so that its recordings are listed
        return source

    def _open(self, path: Path) -> Source:
        try:
            return self._open_in_time(path)
        except (TorcheerError, OSError, ValueError) as error:
            return _nothing(f"{path.name} cannot be shown", str(error))

    def _open_in_time(self, path: Path) -> Source:
        """Open a source, or show for now that it is being opened; what torcheer wrote does not take long."""
        if kind_of(path) not in ("file", *FOREIGN):
            return open_source(path, url=self.url)
        opening = _Opening(path, self.url)
        source = opening.wait(_PATIENCE_SECS)
        if source is None:
            self._opening = opening
            return _nothing(f"reading {path.name}", "it takes long to read, and is shown as soon as that is done")
        return source

    def _opened(self) -> Source | None:
        """What took long to open, or why it cannot be shown; None until then."""
        if self._opening is None:
            return None
        try:
            source = self._opening.wait(0)
        except (TorcheerError, OSError, ValueError) as error:
            source = _nothing(f"{self.path.name} cannot be shown", str(error))
        if source is not None:
            self._opening = None
            self._add_home(source)
        return source

    def open_run(self, id: int) -> Source:
        """Open another run of the folder."""
        if not self._folder or not 0 <= id < len(self._scan()):
            raise UnknownLayer(f"there is no run {id}; there are {len(self.runs)}")
        source = open_source(self._paths[id], url=self.url)
        self._add_home(source)
        return source

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The recordings on disk, of all sources that were opened so far."""
        listed = {path: recording for home in self._homes for path, recording in listed_in(home)}
        numbered = set(self._recordings)
        self._recordings += [path for path in listed if path not in numbered]
        return tuple(
            Recording(number, listed[path].name, listed[path].states, listed[path].bytes)
            for number, path in enumerate(self._recordings)
            if path in listed
        )

    def open_recording(self, id: int) -> Source:
        """Open a recording of the list."""
        if not any(recording.id == id for recording in self.recordings):
            raise UnknownLayer(f"there is no recording {id}; there are {len(self.recordings)}")
        return LogSource(self._recordings[id])

    def _add_home(self, source: Source) -> None:
        source.token_names = self._token_names
        if source.home is not None and source.home not in self._homes:
            self._homes.append(source.home)


def open_catalog(
    path: str | os.PathLike[str], *, url: str = "", title: str = "", token_names: TokenNames = ()
) -> PathCatalog:
    """Open a path with all of its sources; raises if it is unknown."""
    return PathCatalog(path, url=url, title=title, token_names=token_names)


def runs_in(folder: str | os.PathLike[str]) -> list[Run]:
    """The runs of a folder; their `id` is the index in this list."""
    return list(index_of(folder).listed())


def index_of(folder: str | os.PathLike[str], check: Callable[[Path], object] | None = None) -> RunIndex:
    """The index of a folder's runs, all of them read.

    `check` raises for a run that may not be read; why is its summary then.
    """
    index = RunIndex(Path(folder), kind_of, is_live, check)
    for _ in range(2):  # the first may list what was known before, the second looks for what has changed since
        index.refresh(runs_below(Path(folder)), math.inf)
    return index


def runs_below(folder: Path) -> list[Path]:
    """Runs and archives in a folder, by name; nested folders are searched, except those of runs."""
    runs: list[Path] = []
    waiting, searched = [(str(folder), 0)], 0
    while waiting and len(runs) < _MOST_RUNS and searched < _MOST_FOLDERS:
        parent, depth = waiting.pop(0)
        searched += 1
        for child, is_link in _folders_in(parent):
            if os.path.isfile(f"{child}/run.json"):  # most are runs: of 10,000 each look at a file counts
                runs.append(Path(child))
                continue
            path = Path(child)
            kind = kind_of(path)
            if kind in ("folder", *FOREIGN) and depth + 1 < _DEEPEST and not is_link:
                waiting.append((child, depth + 1))
            if kind in ("run", "live", *FOREIGN) or (kind == "archive" and _can_open(path)):
                runs.append(path)
    return runs


def _folders_in(parent: str) -> list[tuple[str, bool]]:
    """The folders in a folder by name, without hidden ones, and whether each is a link; none if it is unreadable."""
    try:
        with os.scandir(parent) as entries:
            folders = [(each.path, each.is_symlink()) for each in entries if each.name[0] != "." and each.is_dir()]
    except OSError:
        return []
    return sorted(folders)


def _can_open(path: Path) -> bool:
    try:
        return read_about(path).get("kind") in _ARCHIVES
    except (TorcheerError, OSError):
        return False


def _best(runs: list[Path], index: RunIndex | None) -> int:
    """The number of the run to show first: a live one, or the one that was changed last.

    Of runs that the index knows, only those that were the last ones then are looked at again.
    """
    best = [number for number, path in enumerate(runs) if os.path.lexists(f"{path}/{SOCKET}") and is_live(path)]
    if not best and index is not None:
        known = index.known_changes()
        times = [(known.get(relative_name(path, index.folder), math.inf), number) for number, path in enumerate(runs)]
        latest = heapq.nlargest(_MOST_LOOKED_AT, times)
        best = [number for _, number in (*latest, *(pair for pair in times if pair[0] == math.inf))]
    return max(best or range(len(runs)), key=lambda number: (_changed(runs[number]), number))


def _changed(path: Path) -> float:
    try:
        times = [part.stat().st_mtime for part in (path, path / "metrics", path / "checkpoints") if part.exists()]
    except OSError:
        return 0.0
    return max(times, default=0.0)
