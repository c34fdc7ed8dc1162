"""What people say of a run: a name, tags and a note; beside its log, never in it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from torcheer.disk import loose_json, write_file
from torcheer.errors import BadArgument, CannotWrite
from torcheer.studio.runs.viewer_folder import place_for

NOTES: Final = "notes.json"  # in the run's folder
MOST_NAME, MOST_TAGS, MOST_TAG, MOST_NOTE = 200, 32, 60, 4000


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What people say of a run; all of it may be empty."""

    name: str = ""  # shown in place of the folder's
    tags: tuple[str, ...] = ()
    note: str = ""


def read_notes(run: Path) -> RunNotes:
    """The notes on a run: those in its folder, or those that the viewer keeps for it."""
    kept = place_for(run, ".notes.json")
    for file in (run / NOTES, *([kept] if kept else [])):
        try:
            return _parsed(loose_json(file))
        except (OSError, ValueError):
            continue
    return RunNotes()


def write_notes(run: Path, notes: RunNotes, *, foreign: bool = False) -> Path:
    """Keep notes in the run's folder; of a foreign run, and where that is refused, in the viewer's own folder."""
    check_notes(notes)
    text = json.dumps(asdict(notes), indent=1, ensure_ascii=False) + "\n"
    if not foreign:
        try:
            write_file(run / NOTES, text)
            return run / NOTES
        except CannotWrite:
            if place_for(run, "") is None:
                raise
    kept = place_for(run, ".notes.json")
    if kept is None:
        raise BadArgument(f"{run} is only read, and there is no home folder for notes on it: set TORCHEER_STATE to one")
    write_file(kept, text)
    return kept


def check_notes(notes: RunNotes) -> None:
    """Refuse what is too long to be shown, saying what is allowed."""
    if len(notes.name) > MOST_NAME or "\n" in notes.name:
        raise BadArgument(f"a run's name is one line of at most {MOST_NAME} characters; the note has room for more")
    if len(notes.tags) > MOST_TAGS:
        raise BadArgument(f"a run has at most {MOST_TAGS} tags, and these are {len(notes.tags)}")
    for tag in notes.tags:
        if not tag or len(tag) > MOST_TAG or any(letter.isspace() or letter == "," for letter in tag):
            raise BadArgument(
                f"a tag is a word of at most {MOST_TAG} characters, without spaces and commas: {tag[:80]!r}"
            )
    if len(notes.note) > MOST_NOTE:
        raise BadArgument(f"a note has at most {MOST_NOTE:,} characters, and this one {len(notes.note):,}")


def _parsed(record: Any) -> RunNotes:
    """Notes as they were written; what a person made of the file by hand is taken as far as it makes sense."""
    if not isinstance(record, dict):
        return RunNotes()
    tags = record.get("tags")
    return RunNotes(
        str(record.get("name") or "")[:MOST_NAME].replace("\n", " "),
        tuple(str(tag)[:MOST_TAG] for tag in tags[:MOST_TAGS]) if isinstance(tags, list) else (),
        str(record.get("note") or "")[:MOST_NOTE],
    )
