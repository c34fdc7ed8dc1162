"""Fresh processes to measure in, with a limit on how long each may take, and what the measurements ran on."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
# In half of all processes glibc hands memory back to the system in every step, and takes it again by page faults.
KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}


def python(*arguments: str, limit_secs: float | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on one thread; past the limit it is ended with all that it started, and TimeoutExpired raised."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), **environment}
    settings["PYTHONDONTWRITEBYTECODE"] = ""  # an installed package is compiled once, not in every process
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own: a peer's Graphviz ends with it
    )
    try:
        output, errors = process.communicate(timeout=limit_secs)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def version_of(package: str) -> str:
    """An installed package's version, "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def processor() -> str:
    """What this machine computes with."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def resident(field: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
