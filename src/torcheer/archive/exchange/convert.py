"""Lossless export to other file formats and import, with one value in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from torcheer.archive.exchange import arrow_format, npz_format, safetensors_format, zarr_format
from torcheer.archive.exchange.value_manifest import ExportSource, ImportContent
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.archive_writer import Writer
from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import BadArgument
from torcheer.records import Sample
from torcheer.terminal import ProgressCallback, ignore_progress


class FileFormat(NamedTuple):
    """Writer and reader of a file format."""

    write: Callable[[Path, ExportSource], None]
    read: Callable[[Path], AbstractContextManager[ImportContent]]


FORMATS = {
    ".safetensors": FileFormat(safetensors_format.write, safetensors_format.read),
    ".npz": FileFormat(npz_format.write, npz_format.read),
    ".arrow": FileFormat(arrow_format.write_arrow, arrow_format.read_arrow),
    ".feather": FileFormat(arrow_format.write_arrow, arrow_format.read_arrow),
    ".parquet": FileFormat(arrow_format.write_parquet, arrow_format.read_parquet),
    ".zarr": FileFormat(zarr_format.write, zarr_format.read),
    ".zip": FileFormat(zarr_format.write_zip, zarr_format.read),  # weights.zarr.zip
}


def export(
    archive: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_progress: ProgressCallback = ignore_progress,
) -> Path:
    """Export a whole archive to the file `path`; its suffix selects the format.

    `archive`: its folder. `overwrite` replaces an existing file. `on_progress` is called with each number of bytes
    written.
    """
    target = Path(path)
    file_format = _format_of(target)
    source = Archive(archive)
    if target.exists() or target.is_symlink():
        _check_replaceable(target, overwrite)
    with explain_write_errors(target, "Nothing of it was left there. "):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part:
            file_format.write(part, ExportSource(source, on_progress))
    return target


def import_from(
    path: str | os.PathLike[str], to: str | os.PathLike[str], *, on_progress: ProgressCallback = ignore_progress
) -> Path:
    """Import the file `path` into the new archive `to`.

    The file is one that `export` wrote, or holds plain arrays of another program.

    `on_progress` is called with each number of bytes read.
    """
    source, target = Path(path), Path(to)
    file_format = _format_of(source)
    if not source.exists():
        raise BadArgument(f"there is no {source} to import")
    if target.exists() or target.is_symlink():
        raise BadArgument(f"{target} is there already; import to a new folder")
    with file_format.read(source) as content, replacing(target) as part:
        _write_archive(content, part, on_progress)
    return target


def _format_of(file: Path) -> FileFormat:
    if file.suffix.lower() not in FORMATS:
        raise BadArgument(f"{file}: its suffix names no format known here; use one of {', '.join(FORMATS)}")
    return FORMATS[file.suffix.lower()]


def _write_archive(content: ImportContent, target: Path, on_progress: ProgressCallback) -> None:
    with Writer(target, about=content.about) as writer:
        for about, samples in content.frames:
            writer.step(_report_samples(samples, on_progress), **about)


def _report_samples(samples: Iterator[Sample], on_progress: ProgressCallback) -> Iterator[Sample]:
    for sample in samples:
        yield sample
        on_progress(sample.array.nbytes)


def _check_replaceable(target: Path, overwrite: bool) -> None:
    """Raise unless the target may be replaced: a folder only if it is zarr, by a zarr folder."""
    if not overwrite:
        raise BadArgument(f"{target} is there already; export elsewhere, or with overwrite=True (--overwrite)")
    if target.is_dir() and not (target.suffix.lower() == ".zarr" and (target / "zarr.json").is_file()):
        raise BadArgument(f"{target} is a folder that export did not write, and is not overwritten")
