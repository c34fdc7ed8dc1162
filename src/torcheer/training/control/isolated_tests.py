"""Testing between two steps, which training does not notice: its random numbers, metrics and data stay as they were."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from torcheer.errors import BadArgument
from torcheer.training.checkpoints.random_state import restore_rng, rng_state
from torcheer.training.checkpoints.session_state import stateful_parts

if TYPE_CHECKING:
    from torcheer.training.loop.batch_order import Feed
    from torcheer.training.loop.pipeline_runner import Lane
    from torcheer.training.session import Session

Trial = tuple[str, int, dict[str, float]]  # the pipeline, the number of the batch or item, its columns


def tested(session: Session) -> list[str]:
    """The pipelines that are tested: those that the stage at work is evaluated on, else those that it trains."""
    stage = session.stages[min(session.place.stage, len(session.stages) - 1)]
    return list(stage.validation or stage.training)


def items_of(session: Session) -> int:
    """How many items there are to test; 0 where unknown."""
    names = tested(session)
    counts = [feed.samples for feed, _, _ in session.lanes[names[0]].inputs] if names else []
    return min((count or 0 for count in counts), default=0)


def test_all(
    session: Session, around: Callable[[bool], Any], told: Callable[[Trial], None], should_stop: Callable[[], bool]
) -> dict[str, float] | None:
    """The columns of the pipelines that are tested, over all batches that an epoch's end looks at; None where stopped.

    `around(is_last)` is entered for each batch, `told` gets what each batch gave.
    """
    stage = session.stages[min(session.place.stage, len(session.stages) - 1)]
    names, found = tested(session), dict[str, float]()
    for name in names:
        _refuse_streams(session, name)
    with undisturbed(session), session.evaluation_mode():
        for name in names:
            steps = stage.eval_steps.get(name) if isinstance(stage.eval_steps, Mapping) else stage.eval_steps
            whole, each = session.lanes[name].fresh(), session.lanes[name].fresh()
            last = min(_length(whole), steps or _length(whole))
            for number, batch in enumerate(islice(whole.batches(0), steps), 1):
                if should_stop():
                    return None
                with around(name == names[-1] and number == last):
                    _pass(session, batch, whole, each)
                told((name, number, each.values()))
            found.update(whole.values())
    return dict(sorted(found.items()))


def test_item(session: Session, item: int, around: Callable[[], Any]) -> Trial:
    """One sample through the first of the pipelines that are tested."""
    name = tested(session)[0]
    count = items_of(session)
    if not 0 <= item < count:
        there = f"there are items 0 to {count - 1}" if count else "its data is a stream"
        raise BadArgument(f"there is no item {item} of {name!r} to test: {there}")
    return name, item, test_some(session, [item], around)


def test_some(session: Session, items: list[int], around: Callable[[], Any]) -> dict[str, float]:
    """What a batch of these samples gives."""
    lane = session.lanes[tested(session)[0]].fresh()
    with undisturbed(session), session.evaluation_mode():
        batch = tuple(_batch(feed, items) for feed, _, _ in lane.inputs)
        with around():
            _pass(session, batch, lane)
        return lane.values()


def _batch(feed: Feed, items: list[int]) -> Any:
    dataset = feed.loader.dataset
    several = getattr(dataset, "__getitems__", None)
    samples = several(items) if several is not None else [dataset[item] for item in items]
    return (feed.loader.collate or default_collate)(samples)


def _pass(session: Session, batch: tuple[Any, ...], *lanes: Lane) -> None:
    """A batch through a pipeline; of its meters the last ones are for this batch alone."""
    lanes[-1].reset()
    with session.precision():
        frames, samples = lanes[0].forward(batch)
        for lane in lanes:
            if lane.losses:
                lane.loss(frames, samples)
    for lane in lanes:
        lane.measure(frames, samples)


def _length(lane: Lane) -> int:
    """Batches of a pipeline; 0 for a stream."""
    return 0 if any(feed.is_stream for feed, _, _ in lane.inputs) else len(lane)


def _refuse_streams(session: Session, name: str) -> None:
    """A stream that training reads from has one place only."""
    if session.place.round and any(feed.is_stream for feed, _, _ in session.lanes[name].inputs):
        raise BadArgument(f"the data of {name!r} is a stream, which can be tested between epochs only")


@contextmanager
def undisturbed(session: Session) -> Iterator[None]:
    """Whatever runs inside, training goes on as if it had not."""
    random = rng_state()
    buffers = [(one, one.detach().clone()) for model in session.models.values() for one in model.buffers()]
    others = [(one, copy.deepcopy(one.state_dict())) for one in stateful_parts(session).values()]
    feeds = [(feed, dict(feed._streams), feed._resumed) for feed in session.feeds.values()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for part, state in others:
            part.load_state_dict(state)
        for feed, streams, resumed in feeds:
            feed._streams, feed._resumed = streams, resumed
        restore_rng(random)  # last: nothing after it may draw
