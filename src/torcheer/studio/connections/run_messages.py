"""What a page asks of a folder's list of runs; answered by an `Answer`, or a `Problem` that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torcheer.wire.json_codec import AtMost, Between


@dataclass(frozen=True, slots=True)
class AskRunColumns:
    """Which columns the list may have: [{"name", "group", "type", "count", "varies"}]."""

    question: Annotated[int, Between()]


@dataclass(frozen=True, slots=True)
class AskRuns:
    """Cells of the list: {"ids": the runs' numbers, "columns": {name: cells}, "revision": of the list}."""

    question: Annotated[int, Between()]
    columns: Annotated[tuple[str, ...], AtMost(100)]


@dataclass(frozen=True, slots=True)
class AskRunDetails:
    """All that is known of some runs: [{"id", "folder", "config", "results", "name", "tags", "note", …}]."""

    question: Annotated[int, Between()]
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskCurves:
    """Series of runs: {"curves": [{"run", "series", "x_name", "x", "y", "points"}], "problems": [texts]}."""

    question: Annotated[int, Between()]
    runs: tuple[int, ...]
    series: Annotated[tuple[str, ...], AtMost(16)]


@dataclass(frozen=True, slots=True)
class NoteRun:
    """Say what a run is called, its tags and a note: {"kept": where that lies now}."""

    question: Annotated[int, Between()]
    run: Annotated[int, Between()]
    name: str
    tags: Annotated[tuple[str, ...], AtMost(32)]
    note: str


@dataclass(frozen=True, slots=True)
class TagRuns:
    """Add tags to runs and take others away: {"count": how many have those now, "problems": [texts]}."""

    question: Annotated[int, Between()]
    runs: tuple[int, ...]
    add: Annotated[tuple[str, ...], AtMost(32)] = ()
    remove: Annotated[tuple[str, ...], AtMost(32)] = ()


@dataclass(frozen=True, slots=True)
class DeleteRuns:
    """Move runs to the folder's trash: {"moved": [names], "places": [paths in it], "trash", "problems": [texts]}."""

    question: Annotated[int, Between()]
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestoreRuns:
    """Move runs back from the trash, by their paths in it: {"restored": [names], "problems": [texts]}."""

    question: Annotated[int, Between()]
    places: Annotated[tuple[str, ...], AtMost(500)]


@dataclass(frozen=True, slots=True)
class AskCheckpoints:
    """What can be compared of runs: [{"run", "name", "pass": is it a recorded pass, "checkpoints": […]}].

    A checkpoint is {"step", "best", "nan", "row": the numbers of its epoch}.
    """

    question: Annotated[int, Between()]
    runs: tuple[int, ...]


RUN_REQUESTS = (
    AskRunColumns,
    AskRuns,
    AskRunDetails,
    AskCurves,
    AskCheckpoints,
    NoteRun,
    TagRuns,
    DeleteRuns,
    RestoreRuns,
)
