"""Append-only archives of tensors on disk: checksummed, crash-safe, without pickle."""

from typing import TYPE_CHECKING

from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.format.archive_writer import Writer
from torcheer.archive.saved_history import load, save_history
from torcheer.public_names import lazy_names

if TYPE_CHECKING:
    from torcheer.archive.exchange.convert import export, import_from
    from torcheer.archive.recovery import repair

__all__ = ["Archive", "Entry", "Writer", "export", "import_from", "load", "repair", "save_history"]

# Imported when first used, so that `tl.load` does not wait for them.
_HOMES = {
    **dict.fromkeys(("export", "import_from"), "torcheer.archive.exchange.convert"),
    "repair": "torcheer.archive.recovery",
}
if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
