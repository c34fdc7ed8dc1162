"""Reads a watch of version 0.1 (`samples/`, `alerts.jsonl`, `account.json`) as frames of a run's log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torcheer.archive import Archive

Frame = dict[str, Any]


def old_frames(home: Path, archive: Archive) -> list[Frame]:
    """The frames of an old watch's archive, its alerts behind those of the same opening, its account at the end."""
    alerts, frames, opened = list(_alerts(home / "alerts.jsonl")), list[Frame](), 0.0
    for frame in archive.frames:
        if type(until := frame["about"].get("opened")) is float:
            frames += [_frame({"alerts": [record]}) for when, record in alerts if when < until]
            alerts = [(when, record) for when, record in alerts if when >= until]
            opened = until
        about = {name: frame["about"][name] for name in ("opened",) if name in frame["about"]}
        frames.append({**frame, "about": about | {"values": frame["about"].get("rows")}})
    frames += [_frame({"alerts": [record]}) for _, record in alerts]
    account = _account(home / "account.json")
    if account is not None and account[0] >= opened:
        frames.append(_frame({"account": account[1]}))
    return frames


def _frame(about: dict[str, Any]) -> Frame:
    return {"step": None, "entries": [], "about": about}


def _alerts(file: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the time its log was opened and each alert; incomplete lines are skipped."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            record = json.loads(line)
            yield float(record.pop("opened", 0.0)), record
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue


def _account(file: Path) -> tuple[float, dict[str, Any]] | None:
    """The time a watch was closed, and its account."""
    try:
        record = json.loads(file.read_bytes())
        return float(record.pop("time_secs")), record
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None
