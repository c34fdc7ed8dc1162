"""`torcheer archive`: verify, list, print, export, import and repair, without torch."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torcheer.archive import extraction_shards, value_printout
from torcheer.archive.exchange.convert import FORMATS, export, import_from
from torcheer.archive.exchange.guards import size_of
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.listing import Row, counted, described, long_table, rows_of, short_table, span, state
from torcheer.archive.progress import progress
from torcheer.archive.recovery import repair
from torcheer.archive.verification import examine
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, UnknownLayer
from torcheer.terminal import human_bytes, plural

_ANY_WIDTH = 1 << 20
_UNSEALED = " (never sealed: it is being written, or its writer was killed)"
_REPAIR = "`torcheer archive repair {}` writes what can be trusted to a new one"


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer archive …` and return its exit status."""
    chosen = _parser(command).parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may hold what the terminal cannot show
    try:
        status: int = chosen.run(chosen)
    except (TorcheerError, BrokenPipeError):
        raise
    except OSError as error:  # a full disk, a folder that may not be read
        print(f"torcheer {command}: {error}", file=sys.stderr)
        status = 1
    return status


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"torcheer {command}", description="Look into archives, and move them.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name, (run, summary, options) in ACTIONS.items():
        one = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        for option, settings in options.items():
            one.add_argument(*option.split(), **settings)
        one.set_defaults(run=run)
    return parser


def verify(chosen: argparse.Namespace) -> int:
    """Check every value; say each that is damaged."""
    damaged = [_verify(folder, "" if folder == chosen.path else f"{folder}: ") for folder in _folders(chosen.path)]
    missing = list(extraction_shards.missing(chosen.path))
    print("".join(f"{line}\n" for line in missing), end="")
    if extraction_shards.is_one(chosen.path):
        print(f"{chosen.path}: {extraction_shards.described(chosen.path)}")
    return 1 if any(damaged) or missing else 0


def _verify(folder: Path, prefix: str) -> bool:
    with progress(f"verifying {folder}", size_of(folder)) as told:
        found = examine(folder, told)
    for line in found.lost:
        print(f"{prefix}{line}")
    whole = f"{counted(found)}, {state(found)}"
    if found.lost:
        print(f"{prefix}damaged: {whole} are good; {_REPAIR.format(folder)}")
    else:
        print(f"{prefix}ok: {whole}{'' if found.sealed else _UNSEALED}")
    return bool(found.lost)


def _folders(path: Path) -> list[Path]:
    """The archives at a path: itself, or the shards of an extraction."""
    if extraction_shards.is_one(path):
        return extraction_shards.shards(path)
    _assert_there(path)
    return [path]


def _assert_there(path: Path) -> None:
    if not path.exists():
        raise NotAnArchive(f"there is nothing at {path}")
    if path.is_file():
        hint = f"; `torcheer archive import {path} NEW` makes one of it" if path.suffix.lower() in FORMATS else ""
        raise NotAnArchive(f"{path} is a file, and an archive is a folder{hint}")


def _opened(path: Path) -> Archive:
    if extraction_shards.is_one(path):
        shards = ", ".join(map(str, extraction_shards.shards(path)[:3])) or "none yet"
        raise NotAnArchive(f"{path} is an extraction; name one of its shards: {shards}")
    _assert_there(path)
    try:
        return Archive(path)
    except ArchiveDamaged as error:
        raise ArchiveDamaged(f"{error}. {_REPAIR.format(path)}") from None


def ls(chosen: argparse.Namespace) -> int:
    """Print what an archive is, and its values."""
    rows = []
    if extraction_shards.is_one(chosen.path):
        print(f"{chosen.path}: {extraction_shards.described(chosen.path)}")
    for folder in _folders(chosen.path):
        archive = _opened(folder)
        if folder == chosen.path:
            print(f"{folder}: {described(archive)}")
        rows += rows_of(archive, "" if folder == chosen.path else folder.name)
    rows = _of_step(_of_layer(rows, chosen.layer), chosen.step)
    if rows:
        print("\n".join((long_table if chosen.long else short_table)(rows, _width())))
    return 0


def _of_layer(rows: list[Row], pattern: str | None) -> list[Row]:
    if pattern is None:
        return rows
    found = [row for row in rows if any(fnmatchcase(name, pattern) for name in (row.layer, row.entry.layer))]
    if not found:
        raise UnknownLayer(value_printout.unknown_layer(pattern, [row.layer for row in rows]))
    return found


def _of_step(rows: list[Row], step: int | None) -> list[Row]:
    found = [row for row in rows if step in (None, row.entry.step)]
    if rows and not found:
        raise BadArgument(f"no step {step}; there are {span([row.entry.step or 0 for row in rows])}")
    return found


def _width() -> int:
    """How long a line may be: what the terminal has, and anything in a file or pipe."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if known else _ANY_WIDTH


def cat(chosen: argparse.Namespace) -> int:
    """Print one value, or write it."""
    archive = _opened(chosen.path)
    row = value_printout.choose(archive, chosen.layer, chosen.variable, chosen.step, chosen.item)
    array = archive.array(row.entry)
    writes = {"npy": value_printout.write_npy, "raw": value_printout.write_raw}
    asked = {name: getattr(chosen, name) for name in writes if getattr(chosen, name) is not None}
    for name, file in asked.items():
        what = writes[name](file, array)
        if file != "-":
            print(f"wrote {file}: {what}")
    if not asked:
        print(value_printout.printed(row, array, min(_width(), 120)))
    return 0


def export_it(chosen: argparse.Namespace) -> int:
    """Write an archive to a file of another format."""
    archive = _opened(chosen.path)
    with progress(f"exporting {chosen.path}", sum(entry.stored for entry in archive.entries)) as told:
        file = export(chosen.path, chosen.file, overwrite=chosen.overwrite, told=told)
    print(f"wrote {file}: {plural(len(archive.entries), 'value')}, {human_bytes(size_of(file))}")
    return 0


def import_it(chosen: argparse.Namespace) -> int:
    """Make an archive of a file."""
    with progress(f"importing {chosen.file}", size_of(chosen.file)) as told:
        archive = Archive(import_from(chosen.file, chosen.path, told=told))
    print(f"wrote {archive.path}: {described(archive)}")
    return 0


def repair_it(chosen: argparse.Namespace) -> int:
    """Write what can be trusted of a damaged archive to a new one."""
    if extraction_shards.is_one(chosen.path) or not chosen.path.is_dir():
        _opened(chosen.path)  # says what it is instead
    with progress(f"repairing {chosen.path}", size_of(chosen.path)) as told:
        found = repair(chosen.path, chosen.to, told=told)
    print(found)
    return 0


_PATH = {"path": {"type": Path, "metavar": "PATH", "help": "the folder of an archive"}}
_PATHS = {"path": {"type": Path, "metavar": "PATH", "help": "the folder of an archive, or of an extraction"}}
_KNOWN = ", ".join(FORMATS)

# name -> (what runs, one line for the help, its arguments)
ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], str, dict[str, dict[str, Any]]]] = {
    "verify": (verify, "check every value against its checksum", _PATHS),
    "ls": (ls, "list the values", {
        **_PATHS,
        "-l --long": {"action": "store_true", "help": "a line for each value, and where it lies"},
        "--step": {"type": int, "metavar": "N", "help": "only this step"},
        "--layer": {"metavar": "GLOB", "help": "only layers like this: 'features.*'"},
    }),
    "cat": (cat, "print one value", {
        **_PATH,
        "layer": {"metavar": "LAYER", "help": "its name, or its label in a history: conv2d_3_7"},
        "variable": {"metavar": "VARIABLE", "nargs": "?", "help": "value unless said otherwise; grad, weight, …"},
        "--step": {"type": int, "metavar": "N", "help": "the newest one unless said otherwise"},
        "--item": {"type": int, "metavar": "I", "help": "which of the batch"},
        "--npy": {"metavar": "FILE", "help": "write it as numpy does instead; - for the standard output"},
        "--raw": {"metavar": "FILE", "help": "write its bytes and nothing else; - for the standard output"},
    }),
    "export": (export_it, "write an archive to a file of another format", {
        **_PATH,
        "file": {"type": Path, "metavar": "FILE", "help": f"its suffix says the format: {_KNOWN}"},
        "--overwrite": {"action": "store_true", "help": "replace a file that is there"},
    }),
    "import": (import_it, "make an archive of a file that export wrote, or of arrays from elsewhere", {
        "file": {"type": Path, "metavar": "FILE", "help": f"its suffix says the format: {_KNOWN}"},
        "path": {"type": Path, "metavar": "PATH", "help": "the folder to make"},
    }),
    "repair": (repair_it, "write what can be trusted of a damaged archive to a new one", {
        **_PATH,
        "--to": {"type": Path, "metavar": "NEW", "help": "the folder to make; PATH-repaired unless said otherwise"},
    }),
}  # fmt: skip
