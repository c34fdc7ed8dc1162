"""Run the trials of a sweep as processes of this machine, some at a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torcheer.terminal import human_number, human_secs, plural
from torcheer.training.loop.stop_signals import STOPPED, stop_on_signals
from torcheer.training.parallel.torchrun_agent import describe_end
from torcheer.training.sweep.sweep_folder import DONE, ENDED, FAILED, SweepFolder
from torcheer.training.sweep.sweep_grid import Trial
from torcheer.training.sweep.trial_process import last_words, start_trial
from torcheer.wire.child_process import ChildProcess

_POLL_SECS: Final = 0.1
_SAVE_SECS: Final = 120.0  # for a trial to save, once it was asked to stop


@dataclass(slots=True)
class _Running:
    trial: Trial
    child: ChildProcess
    slot: int
    began: float = field(default_factory=time.monotonic)

    @property
    def secs(self) -> float:
        return time.monotonic() - self.began


class TrialQueue:
    """The trials that wait and those that run.

    - `jobs`: how many run at a time.
    - `arguments_of`: returns the arguments of `torcheer train` for a trial.
    - `say`: called with each line for the user.
    """

    def __init__(
        self,
        folder: SweepFolder,
        arguments_of: Callable[[Trial], list[str]],
        *,
        jobs: int,
        gpu_count: int = 0,
        say: Callable[[str], object] = print,
    ) -> None:
        self.folder, self.jobs, self.stop_reason = folder, jobs, ""
        self._arguments_of, self._gpu_count, self._say = arguments_of, gpu_count, say
        self._numbers = {trial.name: number for number, trial in enumerate(folder.trials, 1)}
        self._waiting = [trial for trial in folder.trials if folder.status(trial) not in ENDED]
        self._running: list[_Running] = []

    def run(self) -> str:
        """Run all; return why it stopped before the end, or ""."""
        for trial in self.folder.trials:
            if trial not in self._waiting:
                self._line(trial, f"{self.folder.status(trial)} before")
        with stop_on_signals(self):
            try:
                while (self._waiting or self._running) and not self.stop_reason:
                    self._start()
                    self._collect()
                    time.sleep(_POLL_SECS)
            finally:  # also after a second Ctrl-C, which waits no longer
                self._stop()
        return self.stop_reason

    def _start(self) -> None:
        while self._waiting and len(self._running) < self.jobs:
            trial = self._waiting.pop(0)
            slot = min(set(range(self.jobs)) - {running.slot for running in self._running})
            environment = {"CUDA_VISIBLE_DEVICES": str(slot % self._gpu_count)} if self._gpu_count > 1 else {}
            self.folder.begin(trial)
            goes_on = (self.folder.home(trial) / "checkpoints").is_dir()
            child = start_trial(self._arguments_of(trial), folder=str(Path.cwd()), environment=environment)
            self._running.append(_Running(trial, child, slot))
            self._line(trial, "goes on" if goes_on else "begins")

    def _collect(self) -> None:
        for running in list(self._running):
            running.child.wire.exchange()
            if (status := running.child.popen.poll()) is not None:
                self._running.remove(running)
                self._end(running, status)

    def _end(self, running: _Running, status: int) -> None:
        trial = running.trial
        if status == 0:
            self.folder.end(trial, DONE, running.secs)
            rows = self.folder.rows(trial)
            last = {name: value for name, value in (rows[-1] if rows else {}).items() if isinstance(value, float)}
            shown = ", ".join(f"{name} {human_number(value)}" for name, value in list(last.items())[:3])
            self._line(trial, f"done in {human_secs(running.secs)}{f': {shown}' if shown else ''}")
        elif status != STOPPED:
            words = last_words(running.child)
            if status == -signal.SIGKILL and self.stop_reason:
                words = f"it had not saved {human_secs(_SAVE_SECS)} after it was asked to stop, and was killed"
            self.folder.end(trial, FAILED, running.secs, words)
            how = f"failed with status {status}" if status > 0 else describe_end(status)
            self._line(trial, f"{how}:\n{words}")
        else:
            self._line(trial, self.folder.interruption(trial))
        running.child.close()

    def _stop(self) -> None:
        """Ask what runs to save and end, all at once; kill what does not."""
        for running in self._running:
            running.child.popen.terminate()
        if self._running:
            end = "saves and ends" if len(self._running) == 1 else "save and end"
            self._say(f"{self.stop_reason or 'stopped'}: {plural(len(self._running), 'running trial')} {end}")
        deadline = time.monotonic() + _SAVE_SECS
        try:
            for running in self._running:
                running.child.wait(deadline)
        finally:
            for running in self._running:
                if running.child.popen.poll() is None:
                    running.child.popen.kill()
                running.child.popen.wait()
                self._end(running, running.child.popen.returncode)
            self._running.clear()

    def _line(self, trial: Trial, text: str) -> None:
        self._say(f"[{self._numbers[trial.name]}/{len(self.folder.trials)}] {trial.name}: {text}")
