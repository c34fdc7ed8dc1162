"""Answers what pages ask of the list of runs, in threads: reading a hundred logs must not hold up other pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from torcheer.errors import BadArgument, TorcheerError
from torcheer.studio.comparison.run_checkpoints import LATEST, checkpoints_of, choose_checkpoint
from torcheer.studio.connections import run_messages
from torcheer.studio.connections.messages import Answer
from torcheer.studio.connections.page_connection import PageConnection
from torcheer.studio.runs.foreign_run import FOREIGN
from torcheer.studio.runs.run_curves import RunCurves
from torcheer.studio.runs.run_index import RunIndex, relative_name
from torcheer.studio.runs.run_notes import RunNotes, read_notes, write_notes
from torcheer.studio.runs.run_removal import TRASH, move_to_trash, take_back
from torcheer.studio.runs.run_table import indexed_run, list_cells, list_columns, run_details

if TYPE_CHECKING:
    from torcheer.studio.connections.message_handlers import Hub

T = TypeVar("T")
R = TypeVar("R")
_MOST_RUNS: Final = 500  # of one question
_MOST_CURVES: Final = 500
_MOST_WAITING: Final = 32  # questions


class RunRequests:
    """The questions on a folder's runs, one at a time."""

    def __init__(
        self, hub: Hub, reporting_errors: Callable[[PageConnection, int], AbstractContextManager[None]]
    ) -> None:
        self._reporting_errors = reporting_errors
        self._hub, self._curves = hub, dict[int, RunCurves]()
        self._answering, self._tasks = asyncio.Lock(), set[asyncio.Task[None]]()

    def handle(self, page: PageConnection, request: Any) -> None:
        """Answer a question when its turn has come."""
        if len(self._tasks) >= _MOST_WAITING:
            raise BadArgument("too many questions on runs are waiting; ask again when those are answered")
        index = self._hub.catalog.index
        if index is None:
            raise BadArgument("this is no folder of runs, so there is no list of them")
        if len(getattr(request, "runs", ())) > _MOST_RUNS:
            raise BadArgument(f"{len(request.runs)} runs at once; at most {_MOST_RUNS} of one question")
        task = asyncio.create_task(self._answer(page, index, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, page: PageConnection, index: RunIndex, request: Any) -> None:
        with self._reporting_errors(page, request.question):
            async with self._answering:
                value = await asyncio.to_thread(_ANSWERS[type(request)], self, index, request)
            page.reply(Answer(request.question, value))
            if isinstance(request, _CHANGES):
                await asyncio.to_thread(self._hub.catalog.refresh)
                for viewer in self._hub.pages:
                    viewer.queue("runs")

    # -- answers, in a thread ------------------------------------------------------------------------------------------

    def list_columns(self, index: RunIndex, _: run_messages.AskRunColumns) -> Any:
        """The columns that the list may have."""
        return list_columns(index)

    def list_cells(self, index: RunIndex, request: run_messages.AskRuns) -> Any:
        """The cells of some columns."""
        return list_cells(index, request.columns)

    def details(self, index: RunIndex, request: run_messages.AskRunDetails) -> Any:
        """All of some runs."""
        return [run_details(index, number) for number in request.runs]

    def curves(self, index: RunIndex, request: run_messages.AskCurves) -> Any:
        """Series of some runs."""
        if len(request.runs) * len(request.series) > _MOST_CURVES:
            raise BadArgument(f"{len(request.runs) * len(request.series)} curves; at most {_MOST_CURVES} are drawn")
        reader = self._curves.setdefault(id(index), RunCurves(index))
        return reader.answer(request.runs, request.series)

    def checkpoints(self, index: RunIndex, request: run_messages.AskCheckpoints) -> Any:
        """What can be compared of some runs."""
        return [_comparable(index, number) for number in request.runs]

    def note(self, index: RunIndex, request: run_messages.NoteRun) -> Any:
        """Keep a name, tags and a note."""
        run = indexed_run(index, request.run)
        notes = RunNotes(request.name.strip(), tuple(dict.fromkeys(request.tags)), request.note.strip())
        kept = write_notes(index.path_of(request.run), notes, foreign=run.facts.kind in FOREIGN)
        index.forget_stamp(request.run)
        return {"kept": str(kept)}

    def tag(self, index: RunIndex, request: run_messages.TagRuns) -> Any:
        """Change the tags of runs; names and notes stay."""

        def change(number: int) -> None:
            run = indexed_run(index, number)
            notes = read_notes(index.path_of(number))
            tags = [tag for tag in (*notes.tags, *request.add) if tag not in request.remove]
            changed = replace(notes, tags=tuple(dict.fromkeys(tags)))
            write_notes(index.path_of(number), changed, foreign=run.facts.kind in FOREIGN)
            index.forget_stamp(number)

        done, problems = _each(request.runs, change)
        return {"count": len(done), "problems": problems}

    def delete(self, index: RunIndex, request: run_messages.DeleteRuns) -> Any:
        """Move runs to the trash; those that cannot be moved stay, and it says why."""

        def move(number: int) -> tuple[str, str]:
            run, path = indexed_run(index, number), index.path_of(number)
            if run.facts.kind in FOREIGN:
                raise BadArgument(f"{path} is {run.facts.made_by}'s, and only read here; delete it where it lies")
            moved = move_to_trash(path, index.folder, is_live=index.status.get(number) == "live")
            return index.name_of(number), str(moved.relative_to(index.folder / TRASH))

        moved, problems = _each(request.runs, move)
        names, places = [name for name, _ in moved], [place for _, place in moved]
        return {"moved": names, "places": places, "trash": str(index.folder / TRASH), "problems": problems}

    def restore(self, index: RunIndex, request: run_messages.RestoreRuns) -> Any:
        """Move runs back from the trash."""
        restored, problems = _each(request.places, lambda place: take_back(place, index.folder))
        return {"restored": [relative_name(path, index.folder) for path in restored], "problems": problems}


def _each(items: Iterable[T], change: Callable[[T], R]) -> tuple[list[R], list[str]]:
    """Change one after the other; return what came of those that could be changed, and why the others could not."""
    done, problems = list[R](), list[str]()
    for item in items:
        try:
            done.append(change(item))
        except (TorcheerError, OSError) as error:
            problems.append(str(error))
    return done, problems


def _comparable(index: RunIndex, number: int) -> dict[str, Any]:
    run = indexed_run(index, number)
    saved = [
        {"step": each.step, "best": each.is_best, "nan": each.has_nan, "row": each.row}
        for each in checkpoints_of(index.path_of(number))
    ]
    name = run.facts.notes.name or index.name_of(number)
    return {"run": number, "name": name, "pass": run.facts.kind == "archive", "checkpoints": saved}


def compared_path(index: RunIndex | None, run: int, step: int) -> Path:
    """The path of a run, or of its checkpoint at a step; -1 for the newest."""
    if index is None:
        raise BadArgument("this is no folder of runs, so there are none to compare")
    indexed_run(index, run)
    path = index.path_of(run)
    if step < 0 and not (path / "checkpoints").is_dir():
        return path
    return choose_checkpoint(path, str(step) if step >= 0 else LATEST).path


_ANSWERS: Final[dict[type, Callable[[RunRequests, RunIndex, Any], Any]]] = {
    run_messages.AskRunColumns: RunRequests.list_columns,
    run_messages.AskRuns: RunRequests.list_cells,
    run_messages.AskRunDetails: RunRequests.details,
    run_messages.AskCurves: RunRequests.curves,
    run_messages.AskCheckpoints: RunRequests.checkpoints,
    run_messages.NoteRun: RunRequests.note,
    run_messages.TagRuns: RunRequests.tag,
    run_messages.DeleteRuns: RunRequests.delete,
    run_messages.RestoreRuns: RunRequests.restore,
}
_CHANGES: Final = (run_messages.NoteRun, run_messages.TagRuns, run_messages.DeleteRuns, run_messages.RestoreRuns)
