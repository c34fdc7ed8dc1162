"""A run's log as a viewer holds it: what was written is read once, and kept in tables of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torcheer.ranks import split_rank
from torcheer.records import garbage_collection_off
from torcheer.runlog.log_frames import COUNTS, EPOCHS, LOSSES, METRICS, STATISTICS, STEPS
from torcheer.runlog.log_reader import column_for, head_of, read_alerts, refuse_earlier, tested_columns
from torcheer.runlog.log_rows import Rows, join_rows
from torcheer.runlog.log_stream import LogFrame, LogStream, writers_in
from torcheer.runlog.media.logged_samples import LoggedSample, read_samples
from torcheer.runlog.ranks.rank_board import RankBoard, RankRow, merge_alerts
from torcheer.runlog.ranks.rank_facts import ONE_PROCESS, RankFacts
from torcheer.runlog.ranks.rank_steps import RankFrame, RankSteps
from torcheer.runlog.table_records import Column, TableHead
from torcheer.runlog.tables.folded_cells import CellBlock
from torcheer.runlog.tables.long_table import LongTable
from torcheer.runlog.training_tables import WITHOUT_STEPS, Tables, loss_column, shown_tables
from torcheer.samples import Alert, Key
from torcheer.vocabulary.array_statistics import BINS, EDGES, TABLE

_SHOWN: Final = frozenset(row.name for row in TABLE if row.is_plotted)
_COUNTED: Final = [COUNTS.index(row.name) for row in TABLE if row.is_count and row.name != "count"]
_COLUMNS: Final = ("Step", *STATISTICS[1:], *(COUNTS[place] for place in _COUNTED))
_MOST_NUMBERS: Final = 2_000_000  # of all tables of statistics
_MOST_CELLS: Final = 4_000_000  # of another table, tensors included
_HISTOGRAM_EVERY: Final = 8  # older rows of statistics, of which one keeps its histogram
_NUMBERS_A_ROW: Final = len(_COLUMNS) + BINS // _HISTOGRAM_EVERY
_FRAMES_AT_ONCE, _ROWS_AT_ONCE = 1000, 10_000
_PARTS_AT_ONCE: Final = 4  # of so many frames or rows in a `refresh`, so that it takes less than a second
MOST_ALERTS: Final = 2000
MOST_SAMPLES: Final = 20_000  # then the oldest quarter is left out
_PARTS: Final = (EPOCHS, STEPS, LOSSES)  # tables that are shown together: `training_tables`
_MERGED: Final = frozenset((METRICS, "train_step"))  # tables in which a step has one row, whoever logged its cells

Statistics = dict[Key, list[tuple[int, dict[str, Any]]]]


class FollowedLog:
    """The tables, alerts and samples of a run's log so far; `refresh` reads what was written since."""

    def __init__(self, run: Path) -> None:
        refuse_earlier(run)
        self.path = run
        self.tables: dict[str, LongTable] = {}
        self.statistics: dict[str, LongTable] = {}  # those of them that are a watched layer's
        self._writers: dict[Path, LogStream] = {}
        self._identities: dict[Path, Any] = {}
        self._cleared_at: dict[tuple[Path, str], int] = {}  # of a part of a shown table, the frame that cleared it last
        self.is_behind = False  # whether there is more than the last call of `refresh` has read
        self._start()

    def _start(self) -> None:
        self._networks: dict[Path, dict[str, Any]] = {}  # the last one of each writer, as JSON
        self.alerts: list[Alert] = []  # the last ones, by step; layers begin with the model's name if there are several
        self.samples: list[LoggedSample] = []  # what people logged beside numbers, by step
        self._rules: dict[Path, list[str]] = {}  # of each watch, those that it applies
        self._heads: dict[str, dict[str, Any]] = dict(WITHOUT_STEPS)
        self._pipelines: list[str] = []
        self._changed: set[str] = set()
        self._parts: set[tuple[Path, str]] = set()  # of shown tables, that have rows there
        self._facts: dict[Path, RankFacts] = {}  # of each rank's log
        self._boards: dict[str, RankBoard] = {}  # of each model that several ranks train
        self._merged: dict[str, RankSteps] = {}
        self._waiting: dict[Path, LogFrame] = {}  # of several ranks, the frame that comes next
        self._shows_cleared = False  # whether a table shows rows of a part that was cleared since

    @property
    def problems(self) -> list[str]:
        """Sentences about what was lost."""
        late = sum(steps.late for steps in self._merged.values())
        text = f"{late:,} values of ranks that lag far behind the others are left out here; tl.load has them"
        return [*(problem for writer in self._writers.values() for problem in writer.problems), *[text] * bool(late)]

    @property
    def network(self) -> dict[str, Any] | None:
        """The network, as JSON, of the writer that logged one."""
        return next((self._networks[path] for path in sorted(self._networks)), None)

    @property
    def is_watched(self) -> bool:
        """Whether the rules of a watch have judged the layers of this run."""
        return any(self._rules.values())

    def refresh(self) -> set[str]:
        """Read what was written since the last call; return the names of the tables that have changed.

        Of very much a part; then `is_behind`, and the next call reads on.
        """
        self._changed, self.is_behind = set(), False
        if self._find_writers():
            self._read_again()
        self._read()
        is_outdated = self._shows_cleared or any(writer.is_outdated for writer in self._writers.values())
        if is_outdated and not self.is_behind:
            self._read_again()
            self._read()
        return self._changed

    def _find_writers(self) -> bool:
        """Find the logs; True if files that were read are others now."""
        are_others = False
        for place in writers_in(self.path):
            known = self._writers.get(place.path)
            if known is None or self._identities[place.path] != place.identity:
                self._writers[place.path], self._identities[place.path] = LogStream(place), place.identity
                if known is not None:
                    are_others, self._cleared_at = True, {}
        return are_others

    def _read_again(self) -> None:
        """Begin from the start: what was read no longer holds."""
        for table in self.tables.values():
            table.clear()
        self._start()
        self._changed = set(self.tables)
        for writer in self._writers.values():
            writer.rewind()

    def _read(self) -> None:
        alerts, samples = len(self.alerts), len(self.samples)
        for writers in self._groups():
            with garbage_collection_off():
                self.is_behind |= all(self._take(writers) for _ in range(_PARTS_AT_ONCE))
        known = {alert.id for alert in self.alerts}
        for board in self._boards.values():
            self.alerts += [alert for alert in board.alerts() if alert.id not in known]
        if len(self.alerts) > alerts:
            self.alerts = sorted(self.alerts, key=lambda alert: alert.step)[-MOST_ALERTS:]
        if len(self.samples) > samples:
            self.samples.sort(key=lambda sample: sample.step)
            if len(self.samples) > MOST_SAMPLES:
                del self.samples[: -(MOST_SAMPLES * 3 // 4)]

    def _groups(self) -> list[list[LogStream]]:
        """The writers, those of several ranks together."""
        groups: dict[str, list[LogStream]] = {}
        for writer in self._writers.values():
            groups.setdefault(split_rank(writer.place.path.name)[0], []).append(writer)
        return [*groups.values()]

    def _next_frames(self, writers: list[LogStream]) -> Iterator[tuple[LogStream, LogFrame]]:
        """Yield new frames; those of several ranks by step, so that values of one step come together."""
        if len(writers) == 1:
            yield from ((writers[0], new) for new in writers[0].new_frames())
            return
        unread = list(writers)
        while True:
            for writer in [writer for writer in unread if writer.place.path not in self._waiting]:
                if (new := next(writer.new_frames(), None)) is not None:
                    self._waiting[writer.place.path] = new
                else:
                    unread.remove(writer)
            waiting = [writer for writer in writers if writer.place.path in self._waiting]
            if not waiting:
                return
            first = min(waiting, key=lambda writer: self._waiting[writer.place.path].step or -1)
            yield first, self._waiting.pop(first.place.path)

    def _take(self, writers: list[LogStream]) -> bool:
        """Take some frames; False once there are none."""
        tables, statistics, count = dict[Path, dict[str, list[Rows]]](), Statistics(), 0
        for number, (writer, frame) in enumerate(self._next_frames(writers)):
            rows = tables.setdefault(writer.place.path, {})
            for table in frame.about.get("cleared", ()):
                rows.pop(table, None)
                self._clear(writer, table, frame.number)
            for table in frame.tables:
                is_cleared = frame.number <= self._cleared_at.get((writer.place.path, table), 0)
                if not is_cleared and (new := frame.rows(table)) is not None:
                    rows.setdefault(table, []).append(writer.held(frame).rows(table, new))
                    count += len(new)
            facts = self._note_rank(writer, frame)
            if frame.has_values():
                merged = self._merged.setdefault(writer.place.model, RankSteps()) if facts.of > 1 else None
                count += _add_statistics(statistics, writer, frame, facts, merged)
            self._take_facts(writer, frame)
            if number >= _FRAMES_AT_ONCE or count >= _ROWS_AT_ONCE:
                break
        else:
            number = -1
        for path, parts in tables.items():
            self._parts.update((path, table) for table in parts if table.startswith(_PARTS))
            self._put_rows(self._writers[path].place.owner, {table: join_rows(rows) for table, rows in parts.items()})
        self._put_statistics(statistics)
        return number >= 0

    def _note_rank(self, writer: LogStream, frame: LogFrame) -> RankFacts:
        """Compare a rank's frame with those of others; the facts of that rank, of one process where there is one."""
        place = writer.place
        if "rank" in frame.about:
            self._facts[place.path] = RankFacts.parse(frame.about["rank"], place.rank)
            self._boards.setdefault(place.model, RankBoard()).note_rank(self._facts[place.path])
        facts = self._facts.get(place.path, ONE_PROCESS)
        if facts.of > 1:
            self._boards[place.model].note_frame(facts.rank, frame)
        return facts

    @property
    def rank_count(self) -> int:
        """How many processes there are, with a log or without."""
        return max((board.count for board in self._boards.values()), default=1)

    @property
    def ranks(self) -> list[RankRow]:
        """The ranks of a run of several processes, compared; of several models the first one's."""
        return next((rows for board in self._boards.values() if (rows := board.rows)), [])

    def _take_facts(self, writer: LogStream, frame: LogFrame) -> None:
        held, about = writer.held(frame), frame.about
        if "rules" in about:
            self._rules[writer.place.path] = list(about["rules"])
        for name, head in about.get("heads", {}).items():
            self._heads[name] = head
            if name in self.tables or head.get("columns"):
                self._table(name).set_head(head_of(name, head))
                self._changed.add(name)
        if "network" in about:
            self._networks[writer.place.path] = about["network"]
        for alert in read_alerts(about.get("alerts", []), held):
            self._add_alert(
                writer.place.rank, replace(alert, layer=".".join(filter(None, (writer.place.model, alert.layer))))
            )
        if "samples" in about:
            found = read_samples(frame, writer.report)
            self.samples += [sample for sample in found if held.has(sample.step)]

    def _add_alert(self, rank: int, alert: Alert) -> None:
        """Add an alert; one that another rank has raised at the same step stands once."""
        kind, writer = (alert.rule, alert.layer, alert.variable, alert.step), alert.id.partition(":")[0]
        for old in self.alerts if self._boards else ():
            if (old.rule, old.layer, old.variable, old.step) == kind and old.id.partition(":")[0] != writer:
                return
        self.alerts += merge_alerts([(rank, alert)])

    def _clear(self, writer: LogStream, name: str, number: int) -> None:
        """Remove the rows of a table; of a part of one, by reading the log again without the part's earlier rows."""
        part = (writer.place.path, name)
        if name in self.tables:
            self.tables[name].clear()
            self._changed.add(name)
        elif part in self._parts and number > self._cleared_at.get(part, 0):
            self._cleared_at[part], self._shows_cleared = number - 1, True

    # -- tables ------------------------------------------------------------------------------------------------------

    def _put_rows(self, owner: str, rows: Tables) -> None:
        """Add rows as the log has them to the tables that people see."""
        if not rows:
            return
        self._name_losses(rows)
        for name, shown in shown_tables(rows, tested_columns(self._heads), self._pipelines).items():
            table, cells = self._table(name), shown.cells
            if owner:
                cells = {f"{owner} {column}": block for column, block in cells.items()}
            if self._heads.get(name, {}).get("steps", True):
                cells = {"Step": CellBlock.integers(shown.steps)} | cells | {"Step": CellBlock.integers(shown.steps)}
            table.put_columns(shown.steps, cells)
            table.limit(_MOST_CELLS // max(table.numbers_a_row, 1))
            self._changed.add(name)

    def _name_losses(self, rows: Tables) -> None:
        """Note the pipelines that have losses; once there are two, the first one's column has its name."""
        new = [name.partition("/")[2] for name in rows if name.startswith((STEPS, LOSSES))]
        before, self._pipelines = self._pipelines, list(dict.fromkeys([*self._pipelines, *new]))
        if len(before) == 1 and len(self._pipelines) > 1 and "train_step" in self.tables:
            self.tables["train_step"].rename("loss", loss_column(before[0], self._pipelines))

    def _table(self, name: str) -> LongTable:
        if name not in self.tables:
            head = head_of(name, self._heads.get(name, {}))
            self.tables[name] = LongTable(head, column_for, merges=name in _MERGED)
        return self.tables[name]

    def _put_statistics(self, statistics: Statistics) -> None:
        """Add rows of statistics; all of these tables share a number of cells."""
        count = len(self.statistics)
        for layer, variable in statistics:
            if (name := f"{layer} {variable}") not in self.statistics:
                head = TableHead(name, f"{layer} · {variable}", "Step", layer=layer)
                table = LongTable(head, _statistic_column, tensors_every=_HISTOGRAM_EVERY)
                self.tables[name] = self.statistics[name] = table
        if len(self.statistics) > count:
            for table in self.statistics.values():
                table.limit(_MOST_NUMBERS // (len(self.statistics) * _NUMBERS_A_ROW))
        for (layer, variable), rows in statistics.items():
            name = f"{layer} {variable}"
            table = self.statistics[name]
            if self._boards:  # another rank's part of a step that is there already
                while rows and table.amend(*rows[0]):
                    del rows[0]
            table.put(rows)
            self._changed.add(name)


def _add_statistics(
    statistics: Statistics, writer: LogStream, frame: LogFrame, facts: RankFacts, merged: RankSteps | None
) -> int:
    """Add a row for each value of a frame to those of its layer and variable; return how many."""
    model, step, names = writer.place.model, frame.step, frame.names
    if not writer.held(frame).has(step):
        return 0
    numbers, counts, histograms = frame.numbers("statistics"), frame.numbers("counts"), frame.histograms()
    if merged is not None:
        values = RankFrame(facts, step, names, numbers, counts, frame.hashes, histograms)
        for (layer, variable), row, totals, histogram in merged.add(values):
            cells = dict(zip(_COLUMNS, (step, *row[1:].tolist(), *totals[_COUNTED].tolist())))
            if histogram is not None:
                cells["histogram"] = histogram
            key = (f"{model}.{layer}" if model else layer, variable)
            rows = statistics.setdefault(key, [])
            if rows and rows[-1][0] == step:
                del rows[-1]
            rows.append((step, cells))
        return len(names)
    counted, binned = counts[:, _COUNTED].tolist(), counts[:, COUNTS.index("binned")].tolist()
    for place, (name, statistic) in enumerate(zip(names, numbers[:, 1:].tolist())):
        cells = dict(zip(_COLUMNS, (step, *statistic, *counted[place])))
        if histograms is not None and binned[place] >= 0:
            cells["histogram"] = histograms[binned[place]].copy()
        layer = f"{model}.{name[0]}" if model else name[0]
        statistics.setdefault((layer, name[1]), []).append((step, cells))
    return len(names)


def _statistic_column(name: str, types: set[type], shape: tuple[int, ...]) -> Column:
    if name == "Step":
        return Column(name, "int", plotted=False)
    if name == "histogram":
        return Column(name, "tensor", shape, plotted=False, edges=EDGES[1:-1])
    return Column(name, "int" if name in COUNTS else "float", plotted=name in _SHOWN)
