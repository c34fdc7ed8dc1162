"""Selected layers of every sample of a dataset, on disk.

`torcheer.extract` writes them, `open_extraction` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.extraction.extraction_reader import ExtractedLayer, Extraction, open_extraction
from torcheer.public_names import lazy_names

if TYPE_CHECKING:
    from torcheer.extraction.extraction_run import extract

__all__ = ["ExtractedLayer", "Extraction", "extract", "open_extraction"]

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    # imported on first use: reading needs no torch
    __getattr__, __dir__ = lazy_names(__name__, {"extract": "torcheer.extraction.extraction_run"})
