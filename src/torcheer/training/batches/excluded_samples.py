"""Samples that a session leaves out: which ones its options name, and from where on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.terminal import first_names, plural
from torcheer.training.simple_session import lookup

if TYPE_CHECKING:
    from torcheer.training.session import Session


def check_excluded(session: Session) -> dict[str, frozenset[int]]:
    """Return the samples that are left out of each loader; raise where there are none of these numbers."""
    excluded = by_loader(session, session.options.exclude_samples)
    for name, indices in excluded.items():
        feed = lookup(session.feeds, name, "loaders")
        if feed.is_stream and indices:
            raise BadArgument(
                f"exclude_samples: the data of {name!r} is a stream, whose samples have no numbers: leave them out in "
                "its dataset"
            )
        count = feed.samples or 0
        if wrong := sorted(index for index in indices if type(index) is not int or not 0 <= index < count):
            raise BadArgument(
                f"exclude_samples: there is no sample {wrong[0]!r} in {name!r}, which has {count:,}: 0 to {count - 1:,}"
            )
        if len(indices) == count and count:
            raise BadArgument(f"exclude_samples: all {count:,} samples of {name!r} are left out; nothing is left")
    return excluded


def by_loader(session: Session, samples: Any) -> dict[str, frozenset[int]]:
    """Samples by loader; those of a plain list are of the one loader that trains."""
    if isinstance(samples, Mapping):
        return {name: frozenset(indices) for name, indices in samples.items()}
    if not samples:
        return {}
    names = training_loaders(session)
    if len(names) != 1:
        raise BadArgument(
            f"exclude_samples: {first_names(names)} train: say which one is meant, such as {names[0]}:17 after "
            f"--leave-out, or {{{names[0]!r}: [17]}}"
        )
    return {names[0]: frozenset(samples)}


def training_loaders(session: Session) -> list[str]:
    """Names of the loaders that some stage trains with."""
    pipelines = [session.runners[name] for stage in session.stages for name in stage.training]
    return list(dict.fromkeys(input.loader for runner in pipelines for _, _, input in runner.inputs))


def leave_out(session: Session) -> list[str]:
    """Leave out what the options name from here on; return messages about what is new."""
    excluded, place, messages = check_excluded(session), session.place, []
    for name, feed in session.feeds.items():
        indices = excluded.get(name, frozenset())
        if indices == feed.left_out.now:
            continue
        feed.left_out.change(place.epoch, place.round, indices)
        which = (
            f"{plural(len(indices), 'sample')} of {name} ({first_names(sorted(indices))})" if indices else "No sample"
        )
        messages.append(f"{which} left out from epoch {place.epoch + 1}, batch {place.round + 1} on")
    return messages


def newly_left_out(session: Session, state: Mapping[str, Any]) -> dict[str, frozenset[int]]:
    """The samples that the options name and a checkpoint's state does not leave out yet, by loader."""
    known = state.get("left_out", {})
    more = {
        name: indices - frozenset(known[name][-1][2] if known.get(name) else ())
        for name, indices in check_excluded(session).items()
    }
    return {name: indices for name, indices in more.items() if indices}
