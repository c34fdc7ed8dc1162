"""Write a run, a recording or a recorded pass as one HTML file that needs no server and no network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from torcheer.archive.format.archive_folder import read_about
from torcheer.control.loop_messages import Moment
from torcheer.disk import write_file
from torcheer.errors import BadArgument, TorcheerError
from torcheer.history import ModelHistory
from torcheer.runlog.run_folder import RunFolder
from torcheer.studio.connections.messages import ReportCame
from torcheer.studio.files.file_source import FileSource
from torcheer.studio.graph_answers import backward_answer, compressed, text_message
from torcheer.studio.report.report_blocks import Blocks, pack
from torcheer.studio.report.report_html import ReportFile
from torcheer.studio.report.report_samples import SampleRoom
from torcheer.studio.report.report_scenes import add_scenes, choose_moments
from torcheer.studio.report.report_source import ReportSource, messages_to_a_page
from torcheer.studio.report.report_summary import summary_of_report
from torcheer.studio.report.report_tables import fold_tables, layer_statistics
from torcheer.studio.report.report_tensors import add_tensors
from torcheer.studio.runs.foreign_run import FOREIGN
from torcheer.studio.sources.foreign_source import ForeignSource
from torcheer.studio.sources.log_source import LogSource
from torcheer.studio.sources.open_source import describe_unknown, kind_of, runs_below
from torcheer.studio.sources.pass_source import PassSource
from torcheer.studio.sources.source import Source
from torcheer.terminal import first_names, human_bytes
from torcheer.wire.temporary_folders import TemporaryFolder

_GRAPH_SHARE, _TABLES_SHARE, _SAMPLES_SHARE, _TENSORS_SHARE = 0.4, 0.35, 0.15, 0.4  # of the room that is left
_LAST_WORDS: Final = 8000  # bytes for what is known only at the end: sentences about what is left out


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written."""

    path: Path
    size_bytes: int
    left_out: tuple[str, ...]  # sentences

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        left_out = "".join(f"\n  left out: {sentence}" for sentence in self.left_out)
        return f"{self.path}: {human_bytes(self.size_bytes)}{left_out}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """What a report has room for, and its title."""

    steps: Sequence[int] | None  # whose values are kept; None: some of all
    most_bytes: int
    title: str  # empty: the name of the run or the model


def report_of(what: Any, path: str | os.PathLike[str], settings: ReportSettings) -> Report:
    """Write a report of a history, or of what lies at a path."""
    if isinstance(what, RunFolder):
        what = what.path
    if isinstance(what, str | os.PathLike):
        return write_report(Path(what), Path(path), settings)
    if not isinstance(what, ModelHistory):
        raise BadArgument(
            f"report takes a history or the path of a run, not {type(what).__name__}; of a model and inputs it is "
            f"report(log_forward_pass(model, x), {os.fspath(path)!r})"
        )
    folder = TemporaryFolder("report")
    try:
        return write_report(_saved(what, folder.path / "history"), Path(path), settings)
    finally:
        folder.remove()


def _saved(history: ModelHistory, path: Path) -> Path:
    history.save(path)
    return path


def write_report(run: Path, path: Path, settings: ReportSettings) -> Report:
    """Write a report of what lies at `run` to `path`."""
    source = _open_at_rest(run)
    try:
        moments = choose_moments(source.moments, settings.steps)
        reduced = ReportSource(source, settings.title, moments)
        html, left_out = _Writer(source, reduced, run, settings.most_bytes).html(moments)
    finally:
        source.close()
    write_file(path, html)
    return Report(path, len(html.encode()), left_out)


def _open_at_rest(path: Path) -> Source:
    """Open what a run left so far, without a word to its process."""
    kind = kind_of(path)
    if kind == "folder":
        runs = first_names([str(run.relative_to(path)) for run in runs_below(path)])
        raise BadArgument(f"report: {path} is a folder of runs; name one of them: {runs or 'there is none in it'}")
    if kind == "archive" and read_about(path).get("kind") == "history":
        return PassSource(path)
    if kind == "file":
        return FileSource(path)
    if kind == "live" and path.is_socket():
        path = path.parent
    if not kind:
        raise BadArgument(f"report: {describe_unknown(path)}")
    if kind in FOREIGN:
        return ForeignSource(path, kind)
    source = LogSource(path)
    if source.kind == "run":
        source.read_to_end()
    return source


class _Writer:
    """Fills a report: what is small first, then what there is room for."""

    def __init__(self, source: Source, reduced: ReportSource, path: Path, most_bytes: int) -> None:
        self._source, self._reduced, self._path, self._most_bytes = source, reduced, path, most_bytes
        self._file = ReportFile()
        self._blocks = Blocks(most_bytes - self._file.size_bytes)
        self._left_out: list[str] = []

    def html(self, moments: list[Moment]) -> tuple[str, tuple[str, ...]]:
        """The file's text, and sentences about what is left out."""
        summary, graph = summary_of_report(self._source, self._path), self._add_graph()
        self._add_backward()
        self._add_tables(moments)
        reserved = self._reserve_messages(summary)
        samples = SampleRoom(self._blocks, self._source.samples, _SAMPLES_SHARE)
        self._left_out += add_tensors(self._blocks, self._source, moments, _TENSORS_SHARE)
        shown, notes = add_scenes(self._blocks, self._reduced, moments)
        self._left_out += notes + self._other_states(moments)
        self._reduced.samples, notes = samples.fill()
        self._left_out += notes
        self._blocks.release(reserved)
        self._reduced = replace_moments(self._reduced, shown)
        report = replace(summary, left_out=tuple(self._left_out), graph=graph)
        self._blocks.add(["messages"], self._messages(report))
        return self._file.html(f"{self._reduced.title} · torcheer report", self._blocks.text()), report.left_out

    def _add_graph(self) -> bool:
        """Add the drawing, as the answer to a page that asks for it; False without one."""
        if self._reduced.net is None:
            return False
        try:
            text = self._source.graph(self._reduced.net)
            parts = {"drawing": compressed(text.drawing, 7), "details": compressed(text.details(), 7)}
        except (TorcheerError, OSError, ValueError) as error:
            self._left_out.append(f"The graph: {error}.")
            return False
        size = sum(map(len, parts.values()))
        if size <= self._blocks.left_bytes * _GRAPH_SHARE:
            if all(self._blocks.add(["ask_graph", part], text_message(text, 0)) for part, text in parts.items()):
                return True
        self._left_out.append(f"The graph: it takes {human_bytes(size)}.")
        return False

    def _add_backward(self) -> None:
        """Add the steps of a backward pass, as the answer to a page that asks for them."""
        if not self._reduced.backward_steps:
            return
        steps = backward_answer(self._source, 0, compression=7)
        if len(steps) > self._blocks.left_bytes * _GRAPH_SHARE or not self._blocks.add(["ask_backward"], steps):
            self._left_out.append(f"The steps of the backward pass: they take {human_bytes(len(steps))}.")
            self._reduced.backward_steps = 0

    def _add_tables(self, moments: list[Moment]) -> None:
        self._left_out += fold_tables(self._reduced, int(self._blocks.left_bytes * _TABLES_SHARE))
        statistics = layer_statistics(self._reduced, moments)
        if statistics is not None:
            self._reduced.tables[statistics.head.name] = statistics

    def _reserve_messages(self, summary: ReportCame) -> int:
        """Keep room for the messages; without the tables if they do not fit with them."""
        reserved = len(pack(self._messages(summary))) + _LAST_WORDS
        if reserved > self._blocks.left_bytes and self._reduced.tables:
            self._reduced.tables = {}
            self._left_out.append("All tables and plots: there was no room for them.")
            reserved = len(pack(self._messages(summary))) + _LAST_WORDS
        if reserved > self._blocks.left_bytes:
            least = self._most_bytes + (reserved - self._blocks.left_bytes) * 4 // 3 + 1000
            raise BadArgument(
                f"report: the page, the network and the summary alone take {human_bytes(least)}, more than most_bytes="
                f"{self._most_bytes:,}; give at least {least:,}"
            )
        self._blocks.reserve(reserved)
        return reserved

    def _messages(self, summary: ReportCame) -> bytes:
        return f"[{','.join(messages_to_a_page(self._reduced, summary))}]".encode()

    def _other_states(self, moments: list[Moment]) -> list[str]:
        notes = []
        others = len(self._source.moments) - len(moments)
        if others:
            notes.append(f"{others:,} further recorded states; steps= (--steps) chooses which are kept.")
        if self._source.state.batch > 1 and moments:
            notes.append(f"The other items of the batch of {self._source.state.batch}: pictures show the first.")
        return notes


def replace_moments(source: ReportSource, moments: list[Moment]) -> ReportSource:
    """The same source with other moments."""
    tables, samples = source.tables, source.samples
    chosen = ReportSource(source, source.title, moments)
    chosen.tables, chosen.samples, chosen.backward_steps = tables, samples, source.backward_steps
    return chosen
