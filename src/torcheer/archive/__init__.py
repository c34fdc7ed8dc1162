"""Append-only archives of tensors on disk: checksummed, crash-safe, without pickle."""

from typing import TYPE_CHECKING, Any

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.saved_history import load, save_history

if TYPE_CHECKING:
    from torcheer.archive.exchange.convert import export, import_from
    from torcheer.archive.recovery import repair

__all__ = ["Archive", "Entry", "Writer", "export", "import_from", "load", "repair", "save_history"]


def __getattr__(name: str) -> Any:
    """Import exchange formats and repair on first use, so that `tl.load` does not wait for them."""
    if name in ("export", "import_from"):
        from torcheer.archive.exchange.convert import export, import_from

        return export if name == "export" else import_from
    if name == "repair":
        from torcheer.archive.recovery import repair

        return repair
    raise AttributeError(f"module 'torcheer.archive' has no attribute {name!r}; it has {', '.join(__all__)}")
