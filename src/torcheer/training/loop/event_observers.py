"""Wrap the events of a session with the observers that its options name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.training.loop.events import Events
from torcheer.training.observe.batch_samples import name_samples

if TYPE_CHECKING:
    from torcheer.training.session import Session


def with_observers(session: Session, events: Events) -> Events:
    """Yield the same events and those of captures, profiler, trackers, watch and control."""
    from torcheer.training.observe.layer_captures import capture_events  # imported here: most sessions use none
    from torcheer.training.observe.step_profiler import profile_events
    from torcheer.training.trackers.tracker_writers import write_metrics

    if session.options.watch is not None:
        from torcheer.training.observe.session_watch import watch_events

        events = watch_events(session, events)
    events = name_samples(session, events)
    events = write_metrics(session, profile_events(session, capture_events(session, events)))
    return events if session.control is None else session.control.record_events(events)
