"""What a page is answered, by the question: the value of an `Answer`. The page's types are made from these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from torcheer.studio.connections import messages, run_messages
from torcheer.studio.connections.messages import LayerTensors, TensorStatistics
from torcheer.wire.json_codec import OneOf, message_kind


@dataclass(frozen=True, slots=True)
class UnitValue:
    """A unit's number."""

    value: float | None  # None: missing, or not finite
    text: str  # in full precision
    index: tuple[int, ...]  # of the unit in its layer


@dataclass(frozen=True, slots=True)
class UnitTrace:
    """A unit over time."""

    moments: tuple[int, ...]
    steps: tuple[int, ...]
    values: dict[str, list[Any]]  # by variable; a number, its name where it is not finite, or None


@dataclass(frozen=True, slots=True)
class ColumnAnalysis:
    """How the newest rows of a column of tensors compare; which fields there are depends on the analysis."""

    labels: tuple[str, ...]
    total: int  # rows of the table
    matrix: list[list[float | None]] | None = None  # similarity
    points: list[tuple[float, float]] | None = None  # pca
    explained: list[float] | None = None
    order: list[int] | None = None  # clusters
    merges: list[tuple[float, float, float]] | None = None


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A column that the list of runs may have."""

    name: str
    group: Annotated[str, OneOf(("run", "config", "result"))]
    type: Annotated[str, OneOf(("text", "float", "time"))]
    count: int  # of the runs that have it
    varies: bool


@dataclass(frozen=True, slots=True)
class RunCells:
    """Cells of the list of runs."""

    ids: tuple[int, ...]  # of the runs
    columns: dict[str, Any]  # cells by the column's name
    revision: int  # of the list


@dataclass(frozen=True, slots=True)
class RunDetails:
    """All of a run but its series."""

    id: int
    folder: str
    kind: str
    status: str
    summary: str
    made_by: str
    began: float
    changed: float
    problem: str
    name: str
    tags: tuple[str, ...]
    note: str
    config: dict[str, Any]
    results: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunCurve:
    """A series of a run."""

    run: int
    series: str
    x_name: str
    x: tuple[float, ...]
    y: list[Any]
    points: int  # before it was thinned


@dataclass(frozen=True, slots=True)
class CurvesAnswer:
    """Series of runs, and why others are not there."""

    curves: tuple[RunCurve, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunNoted:
    """Where a run's name, tags and note lie now."""

    kept: str


@dataclass(frozen=True, slots=True)
class RunsTagged:
    """How many runs have the tags that were asked for."""

    count: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunsRestored:
    """Which runs were moved back from the trash."""

    restored: tuple[str, ...]  # names
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunsDeleted:
    """Which runs were moved to the trash."""

    moved: tuple[str, ...]  # names
    places: tuple[str, ...]  # paths in the trash, by which they can be moved back
    trash: str  # where they lie
    problems: tuple[str, ...]


ANSWERS: Final[dict[str, Any]] = {
    message_kind(question): answer
    for question, answer in {
        messages.AskValue: UnitValue, messages.AskTrace: UnitTrace, messages.AskAnalysis: ColumnAnalysis,
        messages.AskTensors: LayerTensors, messages.AskStatistics: TensorStatistics,
        run_messages.AskRunColumns: list[RunColumn], run_messages.AskRuns: RunCells,
        run_messages.AskRunDetails: list[RunDetails], run_messages.AskCurves: CurvesAnswer,
        run_messages.NoteRun: RunNoted, run_messages.DeleteRuns: RunsDeleted,
        run_messages.TagRuns: RunsTagged, run_messages.RestoreRuns: RunsRestored,
    }.items()
}  # fmt: skip
