"""Selected layers of every sample of a dataset, on disk.

`torcheer.extract` writes them, `open_extraction` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torcheer.extraction.extraction_reader import ExtractedLayer, Extraction, open_extraction

if TYPE_CHECKING:
    from torcheer.extraction.extraction_run import extract

__all__ = ["ExtractedLayer", "Extraction", "extract", "open_extraction"]


def __getattr__(name: str) -> Any:
    if name == "extract":  # imported on first use: reading needs no torch
        from torcheer.extraction.extraction_run import extract

        return extract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
