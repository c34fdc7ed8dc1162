"""Which checkpoint a session goes on from: the newest, or one from before a bad batch that is now left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.disk import patiently
from torcheer.training.batches.excluded_samples import newly_left_out
from torcheer.training.checkpoints.checkpoint_files import read_checkpoint
from torcheer.training.checkpoints.checkpoint_folders import NewestCheckpoint

if TYPE_CHECKING:
    from torcheer.training.parallel.session_ranks import SessionRanks
    from torcheer.training.session import Session


def state_to_resume(session: Session) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the state to go on from, None where there is none, and what is to be said about it."""
    state, _, problems = _find(session)
    return state, problems


def shared_state_to_resume(session: Session, ranks: SessionRanks) -> tuple[dict[str, Any] | None, list[str]]:
    """The same on several ranks: the first one finds the checkpoint, all of them read it."""
    state, path, problems = _find(session) if ranks.is_main else (None, None, [])
    found = ranks.from_main(None if state is None else {"path": str(path), "rows": state["rows"]})
    if found is not None and state is None:
        path = Path(found["path"])
        state = {**patiently(lambda: read_checkpoint(path), path), "rows": found["rows"]}
    ranks.wait()  # rank 0 removes checkpoints when it saves
    return state, problems


def _find(session: Session) -> NewestCheckpoint:
    if session.checkpoints is None:
        return None, None, []
    state, path, problems = session.checkpoints.newest()
    if state is None or not (samples := newly_left_out(session, state)):
        return state, path, problems
    newest, jump = state["place"]["step"], _first_jump(session, samples)
    state, path, problems = session.checkpoints.newest(without_nan=True, before=jump)
    step = newest if state is None else state["place"]["step"]
    if step == newest:
        return state, path, problems
    why = f"the weights of step {newest} are NaN"
    if jump is not None and step < jump <= newest:
        why = f"the loss jumped at step {jump}"
    return state, path, [f"{why}: it goes back to step {step}", *problems]


def _first_jump(session: Session, samples: Mapping[str, frozenset[int]]) -> int | None:
    """The step of the first jump of the loss whose batch had one of these samples, by the alerts of the log."""
    alerts = [] if session.run_log is None else session.run_log.alerts()
    steps = [
        alert.step
        for alert in alerts
        if alert.rule == "samples" and alert.values.get("rule") == "loss_spike"
        if not samples.get(alert.values.get("loader", ""), frozenset()).isdisjoint(alert.values.get("samples", ()))
    ]
    return min(steps, default=None)
