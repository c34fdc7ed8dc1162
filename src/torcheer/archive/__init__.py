"""Values on disk that survive a kill: append-only, checked, without pickle."""

from torcheer.archive.histories import load, save_history
from torcheer.archive.reader import Archive, Entry
from torcheer.archive.writer import Writer

__all__ = ["Archive", "Entry", "Writer", "load", "save_history"]
