"""Which checkpoint a session goes on from: the newest, or one from before a bad batch that is now left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torcheer.training.loop.excluded_samples import newly_left_out

if TYPE_CHECKING:
    from torcheer.training.session import Session


def state_to_resume(session: Session) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the state to go on from, None where there is none, and what is to be said about it."""
    if session.checkpoints is None:
        return None, []
    state, _, problems = session.checkpoints.newest()
    if state is None or not (samples := newly_left_out(session, state)):
        return state, problems
    newest, jump = state["place"]["step"], _first_jump(session, samples)
    state, _, problems = session.checkpoints.newest(without_nan=True, before=jump)
    step = newest if state is None else state["place"]["step"]
    if step == newest:
        return state, problems
    why = f"the weights of step {newest} are NaN"
    if jump is not None and step < jump <= newest:
        why = f"the loss jumped at step {jump}"
    return state, [f"{why}: it goes back to step {step}", *problems]


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
