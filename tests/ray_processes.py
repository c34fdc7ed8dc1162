"""The processes of a Ray cluster on this machine, as the kernel knows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def dashboards() -> list[tuple[list[str], dict[str, str]]]:
    """The command and the environment of each process that would serve a dashboard for the cluster joined here."""
    import ray

    of_this_cluster = f"--gcs-address={ray.get_runtime_context().gcs_address}"
    commands = {process: words(process / "cmdline") for process in Path("/proc").glob("[0-9]*")}
    return [
        (command, environment(process))
        for process, command in commands.items()
        if of_this_cluster in command and any(word.endswith("dashboard/dashboard.py") for word in command)
    ]


def environment(process: Path) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words(process / "environ"))}


def words(file: Path) -> list[str]:
    try:
        return file.read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended meanwhile
        return []


def assert_no_dashboard(started: Any) -> None:
    """Check what `dashboards` has returned: a process of Ray that is to make its usage reports, which are off, too."""
    ((command, variables),) = started
    assert "--disable-frontend" in command and "--modules-to-load=UsageStatsHead" in command
    assert variables["RAY_USAGE_STATS_ENABLED"] == "0"
