"""What a run left behind, followed while it grows: a run's folder, a watch, captures, a recording.

It shows the run's tables, its watches' statistics and alerts, and captured or recorded states as moments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from torcheer.archive.format.archive_folder import read_about
from torcheer.control.config_form import form_of
from torcheer.control.control_records import Parameter, State
from torcheer.control.loop_messages import alert_seen
from torcheer.disk import loose_json
from torcheer.errors import NotAnArchive, TorcheerError
from torcheer.network.network_records import Net, Network, full_name
from torcheer.network.placement import net_of
from torcheer.network.run_network import merge_captured, network_in, parsed_network
from torcheer.runlog.follow.followed_log import FollowedLog
from torcheer.runlog.follow.run_end import RunEnd, read_end
from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.log_reader import RunLog, has_log, is_long
from torcheer.runlog.run_tables import stamp_of, summary_of
from torcheer.runlog.tables.long_table import LongTable
from torcheer.studio.connections.messages import RanksCame, RankSeen
from torcheer.studio.files.checkpoint_weights import Checkpoints
from torcheer.studio.runs.run_facts import is_locked
from torcheer.studio.sources.recordings import KIND, read_recording
from torcheer.studio.sources.source import Changes, Source
from torcheer.studio.sources.stored_moments import CapturedMoments, StoredMoments

_FIRST_ROWS: Final = 500
_SCAN_SECS: Final = 1.0  # between two scans of the disk: a process may be writing there
_LIVE_SECS: Final = 0.2  # the same beside a host
_MOST_PARAMETERS: Final = 300


class LogSource(Source):
    """A run as it lies on disk; files written later are noticed, too."""

    kind = "run"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """`path` is a run's folder, the archive of its captures, or a recording."""
        self.path = Path(path)
        kind = read_about(self.path).get("kind") if (self.path / "archive.json").is_file() else ""
        if kind not in ("", KIND, "captures"):
            raise NotAnArchive(
                f"{self.path} is an archive of {str(kind or 'values')[:40]!r}, which the studio cannot show; it shows "
                f"what history.save() wrote, captures of a training run, and its own recordings"
            )
        self.folder = self.path
        self._stamps: dict[str, Any] = {}
        self._parts: dict[str, tuple[Callable[[], Any], Callable[[], None]]] = {}  # its stamp, and what reads it
        self._next_scan, self._scan_secs, self._is_live = 0.0, _SCAN_SECS, False
        if kind == KIND:
            self._open_recording()
        else:
            self._open_run(captures=self.path if kind else self.path / "captures")

    def _open_recording(self) -> None:
        self.kind, moments = "recording", StoredMoments(self._problem)
        super().__init__(self.path.name, self.path.parent, moments)
        recorded = read_recording(self.path, moments)
        self.title, self.net, self.state = recorded.title or self.title, recorded.net, recorded.state
        self.parameters, self.alerts, self.tables = recorded.parameters, recorded.alerts, {**recorded.tables}
        self._changes = Changes(problems=recorded.problems)

    def _open_run(self, captures: Path) -> None:
        self._captures = CapturedMoments(captures, Checkpoints(self.path), self._problem)
        home = self.path.parent if captures == self.path else self.path
        super().__init__(self.path.resolve().name, home / "recordings", self._captures)
        self._log, self._log_problems = FollowedLog(self.path), list[str]()
        self._shows_tail = False  # True while only the last rows of a long log are shown
        self._ended: tuple[Any, RunEnd] = (None, RunEnd())  # how it ended, with the stamp of the log that says so
        self._network: Network | None = None  # as described by the run
        self._logged_network: dict[str, Any] | None = None  # the same as it is in the log
        self.parameters = _parameters(self.path / "spec.json")
        self._parts = {
            "network": (lambda: _stamp(self.path, "network.json"), self._read_network),
            "log": (lambda: stamp_of(self.path), self._read_log),
            "captures": (lambda: _stamp(captures, "*.index"), self._read_captures),
            "checkpoints": (lambda: _stamp(self.path / "checkpoints", "*/MANIFEST.json"), self._read_checkpoints),
        }
        self._scan()
        self._changes = Changes(problems=self._changes.problems)  # the initial content is not a change

    def leave_to_host(self) -> None:
        """Read from now on only what a host does not send, as it comes: all of the log but its network."""
        self._parts = {"log": (lambda: stamp_of(self.path), self._read_log)}
        self._is_live, self._scan_secs = True, _LIVE_SECS

    def read_to_end(self) -> None:
        """Read at once what was logged: a host says that it has ended."""
        self._scan()
        while self._log.is_behind or self._shows_tail:
            self._scan()

    def poll(self) -> Changes:
        """The changes on disk since the last call."""
        if self._parts and time.monotonic() >= self._next_scan:
            self._scan()
        return super().poll()

    def _scan(self) -> None:
        began, before = time.monotonic(), self.moments
        for part, (stamp_now, read_part) in self._parts.items():
            try:
                stamp = stamp_now()
                if stamp and self._stamps.get(part) != stamp:
                    self._stamps[part] = stamp
                    read_part()
            except (TorcheerError, OSError, ValueError) as error:  # damaged, or being removed or replaced
                self._problem(str(error)[:500])
        self._note_moments({moment.id for moment in before})
        self._set_state(self._state())
        now = time.monotonic()
        pause_secs = max(self._scan_secs, 20 * (now - began) * (self._scan_secs > 0))  # at most 5% of the time
        self._next_scan = now + (0.0 if self._shows_tail or self._log.is_behind else pause_secs)

    def _note_moments(self, before: set[int]) -> None:
        ids = {moment.id for moment in self.moments}
        self._changes.moments_gone += sorted(before - ids)
        self._changes.moments_came += [moment for moment in self.moments if moment.id not in before]

    def _state(self) -> State:
        counters: dict[str, Any] = {}
        for name, x in (("train_epoch", "Epoch"), ("train_step", "Step"), (METRICS, "Step")):
            table = self.tables.get(name)
            if table is not None and table.count and x in table.columns and x not in counters:
                counters[x] = table.columns[x][-1]
        message = summary_of(self.tables) if self.tables else f"{len(self.moments)} captured states"
        if self._shows_tail:
            message = "the last rows; more are being read"
        end = self._end()
        if end.status == "failed":
            message = end.why
        elif end.why:
            message = f"{message} · {end.why}"
        watched = self._log.is_watched
        return State(end.status or "done", counters, batch=self._captures.batch, message=message, watched=watched)

    def _end(self) -> RunEnd:
        """How the run ended; "running" while a process writes to it."""
        if is_locked(self.path):
            return RunEnd("running")
        if self._stamps.get("log") != self._ended[0]:
            self._ended = self._stamps.get("log"), read_end(self.path)
        return self._ended[1]

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Read the tables, the watches' statistics, alerts, and the network where no file describes it.

        Of a long log its last rows at first; all of it with the next scan.
        """
        if not self.tables and is_long(self.path):
            self._shows_tail = True
            for name, table in RunLog(self.path).tail(_FIRST_ROWS).items():
                self.tables[name] = replace(table, restarts=-1)  # those that come restart it
            self._stamps.pop("log", None)
            return
        self._show_tables(self._log.refresh(), self._log.tables)
        if not self._is_live:
            self._describe_logged()
        self._read_facts()

    def _show_tables(self, changed: set[str], tables: Mapping[str, LongTable]) -> None:
        if self._log.is_behind:
            self._stamps.pop("log", None)
        if not self._log.is_behind or not self._shows_tail:
            self._shows_tail = False
            self.tables |= tables
            self._changes.tables |= changed & tables.keys()

    def _describe_logged(self) -> None:
        """Show the network that was logged last, unless a file describes it."""
        record = self._log.network
        if record is None or record == self._logged_network or (self.path / "network.json").is_file():
            return
        self._logged_network, self._network = record, parsed_network(record)
        self._describe(net_of(self._network) if self._network is not None else None)
        self._read_captures_again()

    def _read_facts(self) -> None:
        """Take problems, alerts and samples."""
        log = self._log
        for text in [text for text in log.problems if text not in self._log_problems]:
            self._problem(text)
        self._log_problems = log.problems
        self._add_alerts(alert_seen(alert, full_name(alert.layer, self._network), alert.id) for alert in log.alerts)
        self._changes.samples |= self.samples.update(log.samples)
        seen = tuple(RankSeen(**asdict(row)) for row in log.ranks)
        ranks = RanksCame(seen, log.rank_count) if seen else None
        if ranks != self.ranks:
            self.ranks, self._changes.ranks = ranks, True

    def _read_captures(self) -> None:
        if self._captures.read(self._network):
            layers, variables = self._captures.layers()
            merged = merge_captured(self._network, self.title, layers, variables)
            self._describe(net_of(merged) if layers else None)

    def _read_checkpoints(self) -> None:
        """Refresh the checkpoints; without captures, their steps are the moments."""
        if self._captures.read_checkpoints(self._network is not None) and self._network is not None:
            self._describe(net_of(merge_captured(self._network, self.title, {}, [])))

    def _read_network(self) -> None:
        self._network = network_in(self.path)
        self._read_captures_again()

    def _read_captures_again(self) -> None:
        self._captures.read_again()
        for part in ("captures", "checkpoints"):
            self._stamps.pop(part, None)

    def _describe(self, net: Net | None) -> None:
        self._set_net(net)
        self._captures.projections = [projection.name for projection in (net.projections if net else ())
                                      if projection.kind]  # fmt: skip


def holds_run(path: Path) -> bool:
    """Whether a folder has anything that a run leaves behind."""
    left = ("run.json", "metrics", "captures/archive.json")
    return any((path / name).exists() for name in left) or has_log(path)


def _stamp(folder: Path, pattern: str) -> tuple[Any, ...]:
    """A fingerprint that changes when a file of that name is written to."""
    stats = []
    for path in sorted(folder.glob(pattern)):
        try:
            stats.append((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(stats)


def _parameters(spec: Path) -> tuple[Parameter, ...]:
    """The config of a finished run, as read-only parameters."""
    try:
        config = loose_json(spec)
        parameters = form_of(config) if isinstance(config, dict) else []
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ()
    return tuple(replace(parameter, editable=False) for parameter in parameters[:_MOST_PARAMETERS])
