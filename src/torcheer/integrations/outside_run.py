"""A run that somebody else's loop writes: the one way from their metrics to our log, rules and watch."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from torcheer.disk import write_file
from torcheer.errors import BadArgument, TorcheerError, reason_of, uncaught
from torcheer.host.follow.described_model import DescribedModel
from torcheer.host.live_numbers import MetricRows
from torcheer.integrations.loop_settings import plain_settings
from torcheer.integrations.metric_judge import MetricJudge, is_number
from torcheer.monitor.model_watch import Watch, check_single_process
from torcheer.monitor.watch_settings import WatchSettings
from torcheer.network.network_records import Network
from torcheer.public_names import PublicClass
from torcheer.ranks import ranked
from torcheer.records import Sample
from torcheer.runlog.log_frames import EVERYTHING, METRICS, LogPlace
from torcheer.runlog.log_reader import RunLog, has_log
from torcheer.runlog.log_writer import LogWriter, begin_anew
from torcheer.runlog.machine.system_rows import SYSTEM_SECS, SystemRows, check_secs
from torcheer.runlog.media.media_intake import MediaIntake
from torcheer.runlog.run_folder import begin_run, end_run
from torcheer.runlog.table_records import TableHead
from torcheer.runlog.tables.histogram_rows import histogram_head, rebinned
from torcheer.samples import Alert
from torcheer.tap.device_memory import device_memory
from torcheer.terminal import folded, notice_alert, warn_or_print
from torcheer.vocabulary.array_statistics import statistics_of
from torcheer.wire.json_codec import to_json

WRITER: Final = "live"  # the loop's own name in the log of a run
SUMMARY: Final = "summary"  # a table of one row: what a loop says of its run as a whole
CONFIG: Final = "spec.json"
_MOST_TRIES: Final = 5  # passes that are looked at for a network
_COUNTERS: Final = {"epoch": "Epoch"}  # columns that count, and are no results


class OutsideRun(metaclass=PublicClass):
    """A run's folder, written by a loop that is not ours; `torcheer studio` shows it while it grows.

    run = OutsideRun("runs/first", made_by="my loop", config={"lr": 0.1})
    run.log({"loss": loss, "digits": tl.Image(x)}, step=3)
    run.finish()

    - `folder`: of the run; ranks other than 0 write beside it (`<folder>@rank1`)
    - `made_by`: stands in the list of runs
    - `config`: the settings of the run, also nested; `configure` adds more
    - `keep_until`: of an earlier run in this folder, the steps up to this one hold; -1 for none, None for all
    - `rules`, `stop_on`: which alerts there are, and which of them set `should_stop`, as for `tl.watch`
    - `system_secs`: seconds between two rows about CPU, memory and GPUs; 0 for none

    A value that cannot be kept is reported once, in `problems`, and raises nothing; entries that are no dict and a
    step that is no number are errors. Logging does not wait for a GPU; `histogram` does, as it reads all numbers at
    once. In a forked process, such as a worker of a DataLoader, nothing is written.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, made_by: str, config: Mapping[str, Any] | None = None,
        keep_until: int | None = None, rules: Any = "default", stop_on: str | Sequence[str] = (),
        system_secs: float = SYSTEM_SECS,
    ) -> None:  # fmt: skip
        self.folder = Path(ranked(os.fspath(folder)))
        self.step = 0  # the largest that was logged
        self.problems: list[str] = []  # sentences about what could not be kept
        self.alerts: list[Alert] = []
        self.watched: Watch | None = None  # of the model, once there is one
        self._process, self._lock, self._announced = os.getpid(), threading.RLock(), set[str]()
        self._judge = MetricJudge(rules, stop_on, self.report)
        self._described: DescribedModel | None = None  # whose network is drawn, once a pass has shown it
        self._tries = 0  # passes that were looked at for it
        self._media, self._rows = MediaIntake(self.report), MetricRows(self)
        every_secs = check_secs(system_secs)
        self._writer: LogWriter | None = None
        self._writer = self._open(made_by, keep_until)
        self.config: dict[str, Any] = {}
        self.configure(config or {})
        self._system = SystemRows(self.folder, every_secs, step_of=lambda: self.step, memory=device_memory)
        self._at_exit = partial(_finish_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    def _open(self, made_by: str, keep_until: int | None) -> LogWriter:
        is_continued = has_log(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        begin_run(self.folder, made_by=made_by)
        writer = LogWriter(self.folder, WRITER, tell=self.report, goes_on="The loop goes on.", waits_for_room=True)
        if writer.why:
            raise BadArgument(f"{self.folder} cannot be written to: {writer.why}. Close what writes to it, or use "
                              "another folder")  # fmt: skip
        if is_continued and keep_until == -1:
            begin_anew(writer)
        elif is_continued:
            writer.cut(**({} if keep_until is None else {"step": keep_until}))
        writer.commit_in_background()
        return writer

    # -- what a loop says --------------------------------------------------------------------------------------------

    def log(self, entries: Mapping[str, Any], step: int) -> None:
        """Log numbers, texts and samples (`tl.Image`, …) of a step; those of one step are one row, whenever they come.

        Nested dicts become names with dots: {"val": {"loss": 1}} is "val.loss".
        """
        if self.closed:
            return
        with self._lock:
            self.end_pass()
            step = int(step)
            self.step = max(step, self.step)
            values, samples = self._media.split(flat_names(entries), step)
            cells = {_COUNTERS.get(name, name): value for name, value in values.items()}
            if cells:
                self._rows.add(METRICS, {**cells, "Step": step})
            for media in samples:
                self._rows.add_sample(media, step)
            self._rows.flush()

    def histogram(self, name: str, values: Any, step: int) -> None:
        """Log the distribution of an array or tensor, in the bins that a watch has."""
        if not self.closed:
            numbers = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else values
            self._histogram(name, list(statistics_of(numbers).histogram), step)

    def histogram_counts(self, name: str, limits: Sequence[float], counts: Sequence[float], step: int) -> None:
        """Log a histogram that was made elsewhere; `limits` are the upper edges of its bins."""
        if not self.closed:
            self._histogram(name, rebinned(limits, counts), step)

    def _histogram(self, name: str, counts: list[int], step: int) -> None:
        head = histogram_head(name)
        self._announce(head)
        self.row(head.name, {"Step": int(step), "histogram": counts})

    def summarize(self, entries: Mapping[str, Any]) -> None:
        """Replace what is said of the run as a whole: its best accuracy, its number of parameters."""
        writer = self._writer
        if writer is not None and entries and not self.closed:
            self._announce(TableHead(SUMMARY, "Summary"))
            writer.clear(SUMMARY)
            writer.row(SUMMARY, dict(flat_names(entries)), self.step)

    def _announce(self, head: TableHead) -> None:
        if self._writer is not None and head.name not in self._announced:
            self._announced.add(head.name)
            self._writer.head(head, steps=head.x == "Step")

    def configure(self, config: Any) -> None:
        """Add settings to those of the run: a mapping, a namespace, a dataclass; what is no JSON becomes text."""
        config = {**self.config, **plain_settings(config)}
        if (config != self.config or not (self.folder / CONFIG).exists()) and not self.closed:
            self.config = config
            write_file(self.folder / CONFIG, json.dumps(config, indent=1, ensure_ascii=False) + "\n")

    def alert(self, text: str, severity: str = "warning", *, title: str = "") -> None:
        """Add an alert of the loop itself."""
        self._take_alert(Alert("", title, "", self.step, self.step, text, "", severity))

    # -- the model ---------------------------------------------------------------------------------------------------

    def watch(self, model: nn.Module, layers: Any = None, **options: Any) -> Watch:
        """Watch a model as `tl.watch` does, with its options, in this run; metrics are judged beside its values.

        Its next pass, up to the next `log`, shows its network.
        """
        if self.watched is not None and not self.watched.closed:
            raise BadArgument(f"{self.folder} watches a {self.watched.name} already; close that watch first")
        check_single_process(options.get("stop_on", self._judge.stop_on))
        judged = {"rules": self._judge.rules, "stop_on": self._judge.stop_on}
        place = LogPlace(self.folder, "watch", (EVERYTHING,))  # the numbers are in this run's own log
        own = {"to": self.folder, "on_alert": self._note_alert, "system_secs": 0}
        self.watched = Watch(model, layers, WatchSettings.parse(log=place, **own | judged | options))
        self.begin_pass(model)
        return self.watched

    def describe(self, model: nn.Module, inputs: Any, input_kwargs: Mapping[str, Any] | None = None) -> None:
        """Draw a model's network, as an extra pass shows it, which leaves no trace in the model."""
        self._finder(model).finder.run_once(inputs, input_kwargs)

    def begin_pass(self, model: nn.Module) -> None:
        """Draw a model's network, as the pass shows it that begins now; `end_pass` ends it. Only the first time."""
        if self._described is None and not self.closed:
            self._described = self._finder(model)
            self._described.observe(None, None)

    def end_pass(self) -> None:
        """End the pass that `begin_pass` began; if it showed nothing, the next one is awaited, a few times."""
        if self._described is None or self._tries >= _MOST_TRIES:
            return
        self._tries += 1
        self._described.finder.end_observation()
        if self._described.is_described or self._tries == _MOST_TRIES:
            self._described.finder.close()
            self._tries = _MOST_TRIES
        else:
            self._described.observe(None, None)

    def _finder(self, model: nn.Module) -> DescribedModel:
        return DescribedModel(model, self, None, self.report)

    @property
    def network(self) -> Network | None:
        """What `DescribedModel` has found; setting it writes it to the log."""
        return None

    @network.setter
    def network(self, network: Network) -> None:
        if self._writer is not None:
            self._writer.network(to_json(network))

    @property
    def should_stop(self) -> bool:
        """True once a rule that `stop_on` names has raised an alert."""
        return self._judge.should_stop or (self.watched is not None and self.watched.should_stop)

    @property
    def last_step(self) -> int:
        """The last step in the log, of earlier runs in this folder, too; -1 without one."""
        self.flush()
        table = RunLog(self.folder).tail(1).get(METRICS)
        return max(table.columns["Step"]) if table is not None and table.count else -1

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once nothing is written any more; also in a forked process."""
        return self._writer is None or self._process != os.getpid()

    @property
    def is_finished(self) -> bool:
        """True once `finish` was called."""
        return self._writer is None

    def flush(self) -> None:
        """Write what was logged so far: other processes see it then."""
        writer = self._writer
        if writer is not None and not self.closed:
            with self._lock:
                self._rows.flush(wait=True)
                writer.commit()

    def finish(self, error: BaseException | str | None = None) -> None:
        """Write the rest, and how the run ended: with `error` (or its reason) as failed. A second call does nothing."""
        if self.closed:
            return
        with self._lock:
            self._rows.flush(wait=True)
            if self._described is not None:
                self._described.finder.close()
            if self.watched is not None:
                self.watched.close()
            for alert in self._judge.close():
                self._take_alert(alert)
            self._system.close()
            writer, self._writer = self._writer, None
            if writer is not None:
                why = error if isinstance(error, str) else "" if error is None else reason_of(error)
                is_failed = bool(error) and not isinstance(error, KeyboardInterrupt)
                status = "failed" if is_failed else "done"
                writer.end(status, why)
                writer.close()
                try:
                    end_run(self.folder, status, why)
                except (OSError, TorcheerError) as problem:
                    warn_or_print(f"torcheer: run.json does not say how the run ended: {problem}")
        atexit.unregister(self._at_exit)

    def __enter__(self) -> OutsideRun:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self.finish(error)

    def __deepcopy__(self, memo: dict[int, Any]) -> OutsideRun:
        return self  # trainers copy their callbacks

    # -- what `MetricRows` hands over --------------------------------------------------------------------------------

    def row(self, table: str, cells: Mapping[str, Any]) -> None:
        """Write a row; numbers of a step are judged."""
        writer = self._writer
        if writer is None or self.closed:
            return
        try:
            writer.row(table, cells, int(cells["Step"]))
            if table == METRICS:
                self._apply_rules({name: cell for name, cell in cells.items() if is_number(cell)})
        except Exception as error:
            self.report(f"a row of {table} cannot be kept: {type(error).__name__}: {error}")

    def sample(self, sample: Sample, record: Mapping[str, Any], when: float) -> None:
        """Write a sample."""
        try:
            if self._writer is not None:
                self._writer.sample(sample, record, when)
        except Exception as error:
            self.report(f"{sample.variable} {sample.layer!r} cannot be kept: {type(error).__name__}: {error}")

    def _apply_rules(self, numbers: dict[str, Any]) -> None:
        """Let the rules of the watch judge the numbers, or those in this process while there is none."""
        step = int(numbers.pop("Step"))
        if self.watched is not None and not self.watched.closed:
            self.watched.log(**numbers)
            return
        for alert in self._judge.judge(numbers, step):
            self._take_alert(alert)

    def _take_alert(self, alert: Alert) -> None:
        if self._writer is not None and not self.closed:
            self._note_alert(self._writer.alert(alert))

    def _note_alert(self, alert: Alert) -> None:
        self.alerts.append(alert)
        text = str(alert) if alert.rule else f"{alert.layer}: {alert.what}".removeprefix(": ")
        notice_alert(text, alert.severity)

    def report(self, text: str) -> None:
        """Warn of something that is not kept as it was given; the same text once."""
        if text in self.problems:
            return
        self.problems.append(text)
        if self._writer is not None:  # else what opens it raises
            warn_or_print(f"torcheer: {text}")


def say(text: str) -> None:
    """Print a line for the person who runs the loop."""
    try:
        print(folded(f"torcheer: {text}"), file=sys.stderr)
    except (OSError, ValueError):  # stderr is closed
        return


def flat_names(entries: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Entries without nested dicts, whose names are joined by dots; without what is None."""
    flat: dict[str, Any] = {}
    for name, value in entries.items():
        if isinstance(value, Mapping):
            flat |= flat_names(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat


def _finish_at_exit(run: weakref.ref[OutsideRun]) -> None:
    if (target := run()) is not None:
        try:
            target.finish(uncaught())
        except (OSError, TorcheerError) as error:
            say(f"the end of the run cannot be written: {error}")
