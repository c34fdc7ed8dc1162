"""Checks for untrusted files: sizes, member names and parser errors."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torcheer.errors import ArchiveDamaged, TorcheerError

_ZIP_END, _ZIP_END_BYTES = b"PK\5\6", 22  # of a zip, without its comment
_ALWAYS_ALLOWED_BYTES, _MAX_RATIO = 64 << 20, 1000  # deflate compresses a thousand to one at best


def check_unpacked_size(unpacked_bytes: int, stored: int, file: Path) -> None:
    """Refuse an unpacked size that `stored` bytes can only claim as a decompression bomb."""
    if unpacked_bytes > max(_ALWAYS_ALLOWED_BYTES, _MAX_RATIO * stored):
        raise ArchiveDamaged(f"{file} claims to hold {unpacked_bytes} bytes in {stored}: that is not believed")


def total_bytes(file: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    return sum(member.stat().st_size for member in ([file] if file.is_file() else file.rglob("*")) if member.is_file())


def check_member_name(name: str, file: Path) -> str:
    """Return a member's name; refuse one that leads out of the file (path traversal)."""
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        raise ArchiveDamaged(f"{file}: the name {name!r} leads out of it")
    return name


def check_zip_end(archive: zipfile.ZipFile, file: Path) -> None:
    """Refuse a zip truncated inside its comment, its last bytes.

    Python accepts a shortened comment.
    """
    with open(file, "rb") as stream:
        stream.seek(archive.start_dir)  # the end record follows the central directory
        end = stream.read()
    at = end.rfind(_ZIP_END)
    announced = int.from_bytes(end[at + _ZIP_END_BYTES - 2 : at + _ZIP_END_BYTES], "little")
    present = len(end) - at - _ZIP_END_BYTES
    if present < announced:
        raise ArchiveDamaged(f"{file} is cut: of its last {announced} bytes, {announced - present} are missing")


@contextmanager
def read_errors(file: Path, part: str = "it") -> Iterator[None]:
    """Turn any parser error into ArchiveDamaged that names the file."""
    try:
        yield
    except TorcheerError:
        raise
    except Exception as error:  # third-party parsers raise anything on hostile bytes
        raise ArchiveDamaged(f"{file}: {part} cannot be read: {type(error).__name__}: {error}") from None


def missing_package(package: str, file: Path) -> TorcheerError:
    """Make the error for a missing optional package."""
    return TorcheerError(f"{file.name} needs {package}, which is not installed. Try: pip install 'torcheer[all]'")
