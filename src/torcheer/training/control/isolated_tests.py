"""Test between two steps without affecting training.

Its random numbers, metrics and data are restored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from torcheer.errors import BadArgument
from torcheer.training.checkpoints.random_state import restore_rng, rng_state
from torcheer.training.checkpoints.session_state import stateful_parts
from torcheer.training.loop.evaluation import batch_limit

if TYPE_CHECKING:
    from torcheer.training.batches.batch_order import Feed
    from torcheer.training.loop.pipeline_runner import PipelineRunner
    from torcheer.training.session import Session

TestedBatch = tuple[str, int, dict[str, float]]  # pipeline, number of the batch or item, its columns


def tested_pipelines(session: Session) -> list[str]:
    """Return the pipelines to test.

    Those that the current stage validates, else those that it trains.
    """
    stage = session.stages[min(session.place.stage, len(session.stages) - 1)]
    return list(stage.validation or stage.training)


def count_items(session: Session) -> int:
    """Return the number of items to test; 0 where unknown, or where one rank cannot run the model."""
    names = [] if session.is_sharded else tested_pipelines(session)
    counts = [feed.samples for feed, _, _ in session.runners[names[0]].inputs] if names else []
    return min((count or 0 for count in counts), default=0)


def test_all(
    session: Session,
    around: Callable[[bool], Any],
    on_batch: Callable[[TestedBatch], None],
    should_stop: Callable[[], bool],
) -> dict[str, float] | None:
    """Return the columns of the tested pipelines over the batches of an evaluation.

    None where stopped.

    `around(is_last)` is the context of each batch, `on_batch` is called with the values of each.
    """
    stage = session.stages[min(session.place.stage, len(session.stages) - 1)]
    names, values = tested_pipelines(session), dict[str, float]()
    for name in names:
        _refuse_streams(session, name)
    with isolated(session), session.evaluation_mode():
        for name in names:
            totals, batch_runner = session.runners[name].fresh(), session.runners[name].fresh()
            steps = batch_limit(stage.eval_steps, totals)
            last = min(_length(totals), steps or _length(totals))
            for number, batch in enumerate(islice(totals.batches(None), steps), 1):
                if should_stop():
                    return None
                with around(name == names[-1] and number == last):
                    _pass(session, batch, totals, batch_runner)
                on_batch((name, number, batch_runner.values()))
            values.update(totals.values())
    return values


def test_item(session: Session, item: int, around: Callable[[], Any]) -> TestedBatch:
    """Run one sample through the first tested pipeline."""
    name = tested_pipelines(session)[0]
    count = count_items(session)
    if not 0 <= item < count:
        range_text = f"there are items 0 to {count - 1}" if count else "its data is a stream"
        raise BadArgument(f"there is no item {item} of {name!r} to test: {range_text}")
    return name, item, test_items(session, [item], around)


def test_items(session: Session, items: list[int], around: Callable[[], Any]) -> dict[str, float]:
    """Run a batch of these samples; return its columns."""
    runner = session.runners[tested_pipelines(session)[0]].fresh()
    with isolated(session), session.evaluation_mode():
        batch = tuple(_batch(feed, items) for feed, _, _ in runner.inputs)
        with around():
            _pass(session, batch, runner)
        return runner.values()


def _batch(feed: Feed, items: list[int]) -> Any:
    dataset = feed.loader.dataset
    get_items = getattr(dataset, "__getitems__", None)
    samples = get_items(items) if get_items is not None else [dataset[item] for item in items]
    return (feed.loader.collate or default_collate)(samples)


def _pass(session: Session, batch: tuple[Any, ...], *runners: PipelineRunner) -> None:
    """Run a batch through a pipeline; the meters of the last runner are for this batch alone."""
    runners[-1].reset()
    with session.precision():
        frames, samples = runners[0].forward(batch)
        for runner in runners:
            if runner.losses:
                runner.loss(frames, samples)
    for runner in runners:
        if runner.metrics:
            runner.measure(frames, samples)


def _length(runner: PipelineRunner) -> int:
    """Return the number of batches of a pipeline; 0 for a stream."""
    return 0 if any(feed.is_stream for feed, _, _ in runner.inputs) else len(runner)


def _refuse_streams(session: Session, name: str) -> None:
    """Raise for a stream that training is reading: it has only one position."""
    if session.place.round and any(feed.is_stream for feed, _, _ in session.runners[name].inputs):
        raise BadArgument(f"the data of {name!r} is a stream, which can be tested between epochs only")


@contextmanager
def isolated(session: Session) -> Iterator[None]:
    """Run the body, then restore everything that training depends on."""
    random = rng_state()
    buffers = [(buffer, buffer.detach().clone()) for model in session.models.values() for buffer in model.buffers()]
    parts = [(part, copy.deepcopy(part.state_dict())) for part in stateful_parts(session).values()]
    feeds = [(feed, dict(feed._streams), feed._resumed) for feed in session.feeds.values()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for part, state in parts:
            part.load_state_dict(state)
        for feed, streams, resumed in feeds:
            feed._streams, feed._resumed = streams, resumed
        restore_rng(random)  # last: nothing after it may draw random numbers
