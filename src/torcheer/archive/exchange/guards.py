"""Reading files that somebody else wrote: what is refused, and how it is said."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.records import Sample

_END, _END_BYTES = b"PK\5\6", 22  # of a zip, without its comment
_FEW_BYTES, _DENSEST = 64 << 20, 1000  # deflate packs a thousand to one at best


def believable(unpacked_bytes: int, stored: int, file: Path) -> None:
    """Refuse what a file of so many stored bytes can only hold by a trick."""
    if unpacked_bytes > max(_FEW_BYTES, _DENSEST * stored):
        raise ArchiveDamaged(f"{file} claims to hold {unpacked_bytes} bytes in {stored}: that is not believed")


def size_of(file: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    return sum(one.stat().st_size for one in ([file] if file.is_file() else file.rglob("*")) if one.is_file())


def inside(name: str, file: Path) -> str:
    """A name that stays inside of the file it stands in."""
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        raise ArchiveDamaged(f"{file}: the name {name!r} leads out of it")
    return name


def whole_to_its_end(archive: zipfile.ZipFile, file: Path) -> None:
    """Refuse a zip that was cut within its comment, its last bytes: Python takes what is left of one for all of it."""
    with open(file, "rb") as stream:
        stream.seek(archive.start_dir)  # after what it lists comes the record of its end
        end = stream.read()
    at = end.rfind(_END)
    announced = int.from_bytes(end[at + _END_BYTES - 2 : at + _END_BYTES], "little")
    found = len(end) - at - _END_BYTES
    if found < announced:
        raise ArchiveDamaged(f"{file} is cut: of its last {announced} bytes, {announced - found} are missing")


@contextmanager
def understood(file: Path, what: str = "it") -> Iterator[None]:
    """Say which file it was that a reader of it stumbled over."""
    try:
        yield
    except TorcheerError:
        raise
    except Exception as error:  # whatever somebody else's parser makes of hostile bytes
        raise ArchiveDamaged(f"{file}: {what} cannot be read: {type(error).__name__}: {error}") from None


def missing(package: str, file: Path) -> TorcheerError:
    """What to say where an optional package is not there."""
    return TorcheerError(f"{file.name} needs {package}, which is not installed. Try: pip install 'torcheer[all]'")


def typed(sample: Sample, kind: str) -> Sample:
    """A sample whose array says its own type; without ml_dtypes it would be written as the bits that stand for it."""
    if sample.array.dtype.name != kind:
        raise TorcheerError(f"an array of type {kind} needs ml_dtypes. Try: pip install 'torcheer[all]'")
    return sample
