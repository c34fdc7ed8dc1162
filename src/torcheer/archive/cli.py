"""`torcheer archive`: verify, list, print, export, import and repair, without torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torcheer.archive import extraction_shards, value_printout
from torcheer.archive.exchange.convert import FORMATS, export, import_from
from torcheer.archive.exchange.guards import total_bytes
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.listing import (
    ValueRow,
    describe_archive,
    describe_counts,
    describe_state,
    format_span,
    list_values,
    long_table,
    short_table,
)
from torcheer.archive.recovery import repair
from torcheer.archive.verification import examine
from torcheer.errors import ArchiveDamaged, BadArgument, NotAnArchive, TorcheerError, UnknownLayer
from torcheer.selection import matches_value
from torcheer.terminal import Progress, add_json, human_bytes, line_width, plural, tell_item
from torcheer.terminal.command_parser import CommandParser

_UNSEALED = " (never sealed: it is being written, or its writer was killed)"
_REPAIR_HINT = "`torcheer archive repair {}` writes what can be trusted to a new one"


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer archive …` and return its exit status."""
    options = make_parser(command).parse_args(arguments)
    try:
        status: int = options.run(options)
    except (TorcheerError, BrokenPipeError):
        raise
    except OSError as error:  # a full disk, a folder that may not be read
        print(f"torcheer {command}: {error}", file=sys.stderr)
        status = 1
    return status


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(prog=f"torcheer {command}", description="Inspect, convert and repair archives.")
    add_json(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name, (run, summary, arguments) in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        for option, settings in arguments.items():
            action.add_argument(*option.split(), **settings)
        action.set_defaults(run=run)
    return parser


def verify(options: argparse.Namespace) -> int:
    """Verify every value and print each damaged one."""
    damaged = [
        _verify_folder(folder, "" if folder == options.path else f"{folder}: ")
        for folder in _archive_folders(options.path)
    ]
    missing = list(extraction_shards.find_faults(options.path))
    print("".join(f"{line}\n" for line in missing), end="")
    if extraction_shards.is_extraction(options.path):
        print(f"{options.path}: {extraction_shards.describe_extraction(options.path)}")
    return 1 if any(damaged) or missing else 0


def _verify_folder(folder: Path, prefix: str) -> bool:
    with Progress(f"verifying {folder}", total_bytes(folder)) as progress:
        archive = examine(folder, progress.add)
    tell_item("archives", {"path": folder, "ok": not archive.lost, "sealed": archive.sealed, "lost": archive.lost})
    for line in archive.lost:
        print(f"{prefix}{line}")
    contents = f"{describe_counts(archive)}, {describe_state(archive)}"
    if archive.lost:
        print(f"{prefix}damaged: {contents} are good; {_REPAIR_HINT.format(folder)}")
    else:
        print(f"{prefix}ok: {contents}{'' if archive.sealed else _UNSEALED}")
    return bool(archive.lost)


def _archive_folders(path: Path) -> list[Path]:
    """List the archives at a path: itself, or the shards of an extraction."""
    if extraction_shards.is_extraction(path):
        return extraction_shards.shard_folders(path)
    _check_folder(path)
    return [path]


def _check_folder(path: Path) -> None:
    if not path.exists():
        raise NotAnArchive(f"there is nothing at {path}")
    if path.is_file():
        hint = f"; `torcheer archive import {path} NEW` makes one of it" if path.suffix.lower() in FORMATS else ""
        raise NotAnArchive(f"{path} is a file, and an archive is a folder{hint}")


def _open_archive(path: Path) -> Archive:
    if extraction_shards.is_extraction(path):
        shards = ", ".join(map(str, extraction_shards.shard_folders(path)[:3])) or "none yet"
        raise NotAnArchive(f"{path} is an extraction; name one of its shards: {shards}")
    _check_folder(path)
    try:
        return Archive(path)
    except ArchiveDamaged as error:
        raise ArchiveDamaged(f"{error}. {_REPAIR_HINT.format(path)}") from None


def ls(options: argparse.Namespace) -> int:
    """Print a summary of an archive and a table of its values."""
    rows = []
    if extraction_shards.is_extraction(options.path):
        print(f"{options.path}: {extraction_shards.describe_extraction(options.path)}")
    for folder in _archive_folders(options.path):
        archive = _open_archive(folder)
        if folder == options.path:
            print(f"{folder}: {describe_archive(archive)}")
        rows += list_values(archive, "" if folder == options.path else folder.name)
    rows = _filter_by_step(_filter_by_layer(rows, options.layer), options.step)
    for row in rows:
        entry = row.entry
        tell_item("values", {"layer": row.layer, "variable": entry.variable, "step": entry.step, "shape": entry.shape})
    if rows:
        print("\n".join((long_table if options.long else short_table)(rows, line_width())))
    return 0


def _filter_by_layer(rows: list[ValueRow], pattern: str | None) -> list[ValueRow]:
    if pattern is None:
        return rows
    matches = [
        row for row in rows
        if any(matches_value(pattern, name, row.entry.variable) for name in (row.layer, row.entry.layer))
    ]  # fmt: skip
    if not matches:
        raise UnknownLayer(value_printout.unknown_layer_message(pattern, [row.layer for row in rows]))
    return matches


def _filter_by_step(rows: list[ValueRow], step: int | None) -> list[ValueRow]:
    matches = [row for row in rows if step in (None, row.entry.step)]
    if rows and not matches:
        raise BadArgument(f"no step {step}; there are {format_span([row.entry.step or 0 for row in rows])}")
    return matches


def cat(options: argparse.Namespace) -> int:
    """Print one value, or write it to a file."""
    archive = _open_archive(options.path)
    row = value_printout.choose_value(archive, options.layer, options.variable, options.step, options.item)
    array = archive.array(row.entry)
    writers = {"npy": value_printout.write_npy, "raw": value_printout.write_raw}
    targets = {name: getattr(options, name) for name in writers if getattr(options, name) is not None}
    for name, file in targets.items():
        description = writers[name](file, array)
        if file != "-":
            print(f"wrote {file}: {description}")
    if not targets:
        print(value_printout.format_value(row, array, min(line_width(), 120)))
    return 0


def export_archive(options: argparse.Namespace) -> int:
    """Write an archive to a file of another format."""
    archive = _open_archive(options.path)
    with Progress(f"exporting {options.path}", sum(entry.stored for entry in archive.entries)) as progress:
        file = export(options.path, options.file, overwrite=options.overwrite, on_progress=progress.add)
    print(f"wrote {file}: {plural(len(archive.entries), 'value')}, {human_bytes(total_bytes(file))}")
    return 0


def import_file(options: argparse.Namespace) -> int:
    """Import a file into a new archive."""
    with Progress(f"importing {options.file}", total_bytes(options.file)) as progress:
        archive = Archive(import_from(options.file, options.path, on_progress=progress.add))
    print(f"wrote {archive.path}: {describe_archive(archive)}")
    return 0


def repair_archive(options: argparse.Namespace) -> int:
    """Copy the intact values of a damaged archive to a new one."""
    if extraction_shards.is_extraction(options.path) or not options.path.is_dir():
        _open_archive(options.path)  # raises, naming what it is instead
    with Progress(f"repairing {options.path}", total_bytes(options.path)) as progress:
        report = repair(options.path, options.to, on_progress=progress.add)
    print(report)
    return 0


_PATH = {"path": {"type": Path, "metavar": "PATH", "help": "the folder of an archive"}}
_PATHS = {"path": {"type": Path, "metavar": "PATH", "help": "the folder of an archive, or of an extraction"}}
_SUFFIXES = ", ".join(FORMATS)

# name -> (function, one line of help, arguments)
ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], str, dict[str, dict[str, Any]]]] = {
    "verify": (verify, "check every value against its checksum", _PATHS),
    "ls": (ls, "list the values", {
        **_PATHS,
        "-l --long": {"action": "store_true", "help": "one line per value, with its location"},
        "--step": {"type": int, "metavar": "N", "help": "only this step"},
        "--layer": {"metavar": "GLOB", "help": "only matching layers ('features.*') or values ('features.*/output')"},
    }),
    "cat": (cat, "print one value", {
        **_PATH,
        "layer": {"metavar": "LAYER", "help": "name of a layer, or label in a history: conv2d_3_7"},
        "variable": {"metavar": "VARIABLE", "nargs": "?", "help": "default: value; grad, weight, …"},
        "--step": {"type": int, "metavar": "N", "help": "default: the newest"},
        "--item": {"type": int, "metavar": "I", "help": "index in the batch"},
        "--npy": {"metavar": "FILE", "help": "write a .npy file; - for stdout"},
        "--raw": {"metavar": "FILE", "help": "write the raw bytes; - for stdout"},
    }),
    "export": (export_archive, "write an archive to a file of another format", {
        **_PATH,
        "file": {"type": Path, "metavar": "FILE", "help": f"the suffix selects the format: {_SUFFIXES}"},
        "--overwrite": {"action": "store_true", "help": "overwrite an existing file"},
    }),
    "import": (import_file, "create an archive from an exported file or other arrays", {
        "file": {"type": Path, "metavar": "FILE", "help": f"the suffix selects the format: {_SUFFIXES}"},
        "path": {"type": Path, "metavar": "PATH", "help": "the folder to create"},
    }),
    "repair": (repair_archive, "copy the intact values of a damaged archive to a new one", {
        **_PATH,
        "--to": {"type": Path, "metavar": "NEW", "help": "the folder to create; default: PATH-repaired"},
    }),
}  # fmt: skip
