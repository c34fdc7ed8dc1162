"""What a session does otherwise than TorchAssistant would: a sentence for each difference that it meets.

`Built.differences` has them; `torcheer init` and `train` print them, once. What stops with an error is not here: the
error explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from torcheer.config.code_names import current_name
from torcheer.terminal import first_names
from torcheer.training.loop.evaluation import batch_limit
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.sample_means import StatefulMeter
from torcheer.training.metrics import Accuracy
from torcheer.training.spec.read.description import STAGES, Spec, part
from torcheer.training.stop_conditions import EarlyStopping

if TYPE_CHECKING:
    from torcheer.training.session import Session

PAGE = "docs/migration/torchassistant.md says why"
TEXTS = "torcheer_originals.torchassistant.preprocessors.TextPreprocessor"


class Difference(NamedTuple):
    """One row of the table: what is different, and where a session meets it."""

    sentence: str  # with {} for what meets it, where that is worth saying
    met_by: Callable[[Spec, Session], Iterator[str]]


def differences(spec: Spec, session: Session) -> list[str]:
    """Return a sentence for each difference that a session of a TorchAssistant config meets; else none."""
    if not spec.is_torchassistants:
        return []
    met = ((each.sentence, list(dict.fromkeys(each.met_by(spec, session)))) for each in DIFFERENCES)
    return [sentence.format(first_names(names, 3)) for sentence, names in met if names]


def _stops(spec: Spec, session: Session) -> Iterator[EarlyStopping]:
    return (stage.stop for stage in session.stages if isinstance(stage.stop, EarlyStopping))


def _early(spec: Spec, session: Session) -> Iterator[str]:
    return (stop.monitor for stop in _stops(spec, session))


def _rising(spec: Spec, session: Session) -> Iterator[str]:
    return (repr(stop.monitor) for stop in _stops(spec, session) if stop.mode == "max")


def _texts(spec: Spec, session: Session) -> Iterator[str]:
    for definition in spec.definitions("preprocessors"):
        if current_name(str(definition.spec.get("class", ""))) == TEXTS:
            yield definition.name


def _evaluated(session: Session) -> Iterator[tuple[PipelineRunner, int | None]]:
    """Yield the pipelines that give columns, each with the number of batches that it is measured on; None for all."""
    for stage in session.stages:
        for name in stage.validation:
            yield session.runners[name], batch_limit(stage.eval_steps, session.runners[name])
        yield from ((session.runners[name], None) for name in stage.training if name not in stage.validation)


def _uneven(spec: Spec, session: Session) -> Iterator[str]:
    """Yield the pipelines whose mean over batches is not their value: a last batch is smaller, or a metric is a ratio.

    Of an accuracy over equal batches the mean is the value; of other metrics that are computed at the end it is not.
    """
    for runner, limit in _evaluated(session):
        if not list(runner.meters()) or any(feed.is_stream for feed, _, _ in runner.inputs):
            continue
        count = len(runner) if limit is None else min(limit, len(runner))
        loaders = [feed.loader for feed, _, _ in runner.inputs]
        sizes = [feed.samples for feed, _, _ in runner.inputs]
        rest = any(
            not loader.drop_last and size and size % loader.batch_size and count * loader.batch_size > size
            for loader, size in zip(loaders, sizes)
        )
        kinds = [meter.metric for _, meter in runner.meters() if isinstance(meter, StatefulMeter)]
        if count > 1 and (rest or any(not isinstance(kind, Accuracy) for kind in kinds)):
            yield repr(runner.name)


def _trained_only(spec: Spec, session: Session) -> Iterator[str]:
    for stage in session.stages:
        unseen = (session.runners[name] for name in stage.training if name not in stage.validation)
        yield from (repr(term.shown) for runner in unseen for term, _ in runner.meters())


def _two_losses(spec: Spec, session: Session) -> Iterator[str]:
    trained = (session.runners[name] for stage in session.stages for name in stage.training)
    return (repr(runner.name) for runner in trained if len(runner.losses) > 1)


def _without_workers(spec: Spec, session: Session) -> Iterator[str]:
    for name, feed in session.feeds.items():
        if "num_workers" not in feed.loader.options:
            yield name


def _without_steps(spec: Spec, session: Session) -> Iterator[str]:
    for stage in part(spec.data, STAGES):
        if isinstance(stage.get("eval_steps"), dict):
            yield from (repr(name) for name in stage["validation_pipelines"] if name not in stage["eval_steps"])


def _debugged(spec: Spec, session: Session) -> Iterator[str]:
    return (name for stage in session.stages for name in stage.debug)


def _resumed(spec: Spec, session: Session) -> Iterator[str]:
    if session.place.round:
        yield f"batch {session.place.round} of epoch {session.place.epoch + 1}"


DIFFERENCES = (
    Difference("EarlyStopping compares each epoch with the best before it, not with the one before", _early),
    Difference("EarlyStopping waits for {} to rise; there, less is always better", _rising),
    Difference("TextPreprocessor numbers each word once, so that num_words is the size of the vocabulary", _texts),
    Difference("metrics and losses of {} are those of all samples, not means over batches", _uneven),
    Difference("pipelines that are trained and not validated have columns, too: {}", _trained_only),
    Difference("the losses of {} are added up for one step; there, each had a step of its own", _two_losses),
    Difference("data is read in the training process; for 2 worker processes, write num_workers: 2", _without_workers),
    Difference("{} has no eval_steps and is evaluated on all batches; there, on as many as the first", _without_steps),
    Difference("the interval of debug pipelines counts epochs, not batches", _debugged),
    Difference(
        "this run goes on after {}, with the same random numbers; there, it would begin the epoch anew", _resumed
    ),
)
