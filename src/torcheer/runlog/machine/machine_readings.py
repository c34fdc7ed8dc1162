"""Read what a process and its machine use: CPU and memory from /proc, GPUs from nvidia-smi. Nothing raises."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_QUERY: Final = {  # of nvidia-smi: the column that each field becomes, and what it is multiplied by
    "utilization.gpu": ("GPU {} %", 1.0),
    "memory.used": ("GPU {} memory GB", 2**20 / 1e9),
    "power.draw": ("GPU {} power W", 1.0),
    "temperature.gpu": ("GPU {} °C", 1.0),
}
_GPU_SECS: Final = 10.0  # for an answer of nvidia-smi
_MOST_FAILURES: Final = 3  # in a row, then it is not asked again


class MachineReader:
    """Reads the numbers of one process and its machine; rates are those since the last `read`."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid, self._proc = pid, proc
        self._gpus = _Gpus(os.environ)
        self._before = self._counters()

    def read(self) -> dict[str, float]:
        """Read all numbers that can be had, by column."""
        before, now = self._before, self._counters()
        self._before = now
        cells: dict[str, float] = {}
        if before.process_secs is not None and now.process_secs is not None and now.wall_secs > before.wall_secs:
            used_secs = now.process_secs - before.process_secs
            cells["process CPU %"] = 100.0 * used_secs / (now.wall_secs - before.wall_secs)
        if now.process_bytes is not None:
            cells["process RAM GB"] = now.process_bytes / 1e9
        if before.machine is not None and now.machine is not None and now.machine[1] > before.machine[1]:
            busy, total = (after - start for after, start in zip(now.machine, before.machine))
            cells["CPU %"] = 100.0 * busy / total
        if (used_bytes := self._used_bytes()) is not None:
            cells["RAM GB"] = used_bytes / 1e9
        return {name: round(value, 3) for name, value in (cells | self._gpus.read()).items()}

    def _counters(self) -> _Counters:
        process_secs = process_bytes = machine = None
        try:
            fields = (self._proc / str(self._pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            process_secs = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            process_bytes = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):  # it has ended, or this is no Linux
            pass
        try:
            ticks = [
                int(count) for count in (self._proc / "stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
            ]
            machine = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))  # idle, and waiting for a disk
        except (OSError, ValueError, IndexError):
            pass
        return _Counters(time.monotonic(), process_secs, process_bytes, machine)

    def _used_bytes(self) -> int | None:
        try:
            lines = (self._proc / "meminfo").read_text(encoding="utf-8").splitlines()
            kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
            return 1024 * (kilobytes["MemTotal"] - kilobytes["MemAvailable"])
        except (OSError, ValueError, LookupError):
            return None


class _Counters(NamedTuple):
    """Counters at one time; None where they cannot be read."""

    wall_secs: float
    process_secs: float | None  # of CPU time
    process_bytes: int | None  # of memory
    machine: tuple[int, int] | None  # ticks of all cores: busy, all


class _Gpus:
    """The GPUs that the run may use, as nvidia-smi numbers them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        self._command = [
            "nvidia-smi", f"--query-gpu=index,{','.join(_QUERY)}", "--format=csv,noheader,nounits",
            *([f"--id={visible}"] if visible else []),
        ]  # fmt: skip
        self._failures = _MOST_FAILURES if visible in ("", "-1", "NoDevFiles") else 0

    def read(self) -> dict[str, float]:
        if self._failures >= _MOST_FAILURES:
            return {}
        try:
            done = subprocess.run(
                self._command, capture_output=True, text=True, timeout=_GPU_SECS, check=True, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError:  # no NVIDIA driver
            self._failures = _MOST_FAILURES
            return {}
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
            self._failures += 1
            return {}
        self._failures = 0
        return {name: value for line in done.stdout.splitlines() for name, value in _gpu_cells(line).items()}


def _gpu_cells(line: str) -> dict[str, float]:
    """The cells of a line of nvidia-smi; what a GPU does not tell ("[N/A]") is left out."""
    index, *values = (part.strip() for part in line.split(","))
    cells = {}
    for (column, factor), value in zip(_QUERY.values(), values):
        try:
            cells[column.format(index)] = factor * float(value)
        except ValueError:
            continue
    return cells
