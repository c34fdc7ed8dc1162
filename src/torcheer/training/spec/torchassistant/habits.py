"""What a config means by what it does not say: a config keeps the habits of the system that it was written for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Habits:
    """Torcheer's own, by default."""

    inference_batch: int = 32  # samples to a batch; an adapter may expect one
    names_classes: bool = True  # inference shows names of classes, not scores
    infers_by_first: bool = False  # inference runs the first pipeline, not the one that is validated
    ignores_rest: bool = False  # of what a model returns beyond its outputs
    stops_early: bool = False  # a stage without a stop condition ends when its first validated loss stops improving
    takes_first: bool = False  # of several loaders the first two, of several losses the first; not an error
    lowers_metrics: bool = False  # names of metrics are shown in small letters
    validates_training: bool = False  # a stage validates the pipeline that it trains, too


TORCHASSISTANTS = Habits(
    inference_batch=1,
    names_classes=False,
    infers_by_first=True,
    ignores_rest=True,
    stops_early=True,
    takes_first=True,
    lowers_metrics=True,
    validates_training=True,
)
