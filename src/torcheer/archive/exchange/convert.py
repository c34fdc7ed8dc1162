"""An archive as a file of another format, and back: all of it, bit for bit, one value in memory at a time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from torcheer.archive.exchange import arrow_format, npz_format, safetensors_format, zarr_format
from torcheer.archive.exchange.value_manifest import Content, Packing
from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.progress import Told, tell_nobody
from torcheer.errors import BadArgument, CannotWrite, TorcheerError
from torcheer.records import Sample


class Format(NamedTuple):
    """How to write a file of one kind, and how to read it."""

    write: Callable[[Path, Packing], None]
    read: Callable[[Path], AbstractContextManager[Content]]


FORMATS = {
    ".safetensors": Format(safetensors_format.write, safetensors_format.read),
    ".npz": Format(npz_format.write, npz_format.read),
    ".arrow": Format(arrow_format.write_arrow, arrow_format.read_arrow),
    ".feather": Format(arrow_format.write_arrow, arrow_format.read_arrow),
    ".parquet": Format(arrow_format.write_parquet, arrow_format.read_parquet),
    ".zarr": Format(zarr_format.write, zarr_format.read),
    ".zip": Format(zarr_format.write_zip, zarr_format.read),  # weights.zarr.zip
}


def export(
    archive_path: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    told: Told = tell_nobody,
) -> Path:
    """Write a whole archive to a file of another format, which its suffix names."""
    target = Path(file)
    form = _format(target)
    archive = Archive(archive_path)
    if target.exists() or target.is_symlink():
        _assert_may_go(target, overwrite)
    part = target.with_name(f".{target.name}.part")
    try:
        _remove(part)  # of an export that was killed
        target.parent.mkdir(parents=True, exist_ok=True)
        form.write(part, Packing(archive, told))
        _put_in_place(part, target)
    except OSError as error:
        if isinstance(error, TorcheerError):
            raise
        raise CannotWrite(error.errno, f"{target}: {error.strerror or error}. Nothing of it was left there") from error
    finally:
        _remove(part)  # nothing half-written stays, whatever went wrong
    return target


def import_from(file: str | os.PathLike[str], to: str | os.PathLike[str], *, told: Told = tell_nobody) -> Path:
    """Make a new archive of what a file holds: one that `export` wrote, or plain arrays from elsewhere."""
    source, target = Path(file), Path(to)
    form = _format(source)
    if not source.exists():
        raise BadArgument(f"there is no {source} to import")
    if target.exists() or target.is_symlink():
        raise BadArgument(f"{target} is there already; import to a new folder")
    part = target.with_name(f".{target.name}.part")
    _remove(part)
    try:
        with form.read(source) as content:
            _write(content, part, told)
        part.replace(target)
    finally:
        _remove(part)
    return target


def _format(file: Path) -> Format:
    if file.suffix.lower() not in FORMATS:
        raise BadArgument(f"{file}: its suffix names no format known here; use one of {', '.join(FORMATS)}")
    return FORMATS[file.suffix.lower()]


def _write(content: Content, part: Path, told: Told) -> None:
    with Writer(part, about=content.about) as writer:
        for about, samples in content.frames:
            writer.step(_heard(samples, told), **about)


def _heard(samples: Iterator[Sample], told: Told) -> Iterator[Sample]:
    for sample in samples:
        yield sample
        told(sample.array.nbytes)


def _assert_may_go(target: Path, overwrite: bool) -> None:
    """Whether what is there may be replaced: a folder only by a folder, and only where it is zarr."""
    if not overwrite:
        raise BadArgument(f"{target} is there already; export elsewhere, or with overwrite=True (--overwrite)")
    if target.is_dir() and not (target.suffix.lower() == ".zarr" and (target / "zarr.json").is_file()):
        raise BadArgument(f"{target} is a folder that export did not write, and is not overwritten")


def _put_in_place(part: Path, target: Path) -> None:
    if part.is_file():
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
        return
    old = target.with_name(f".{target.name}.old")
    _remove(old)
    if target.exists():
        target.replace(old)
    part.replace(target)
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
