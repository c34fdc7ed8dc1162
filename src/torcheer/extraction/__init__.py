"""Selected layers of every sample of a dataset, on disk.

The verb `extract` writes them, `open_extraction` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from torcheer.public_names import lazy_names
from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch

    from torcheer.disk import StrPath
    from torcheer.extraction.extracted_tensors import ExtractedTensors
    from torcheer.extraction.extraction_estimate import Estimate
    from torcheer.extraction.extraction_reader import ExtractedLayer, Extraction, open_extraction
    from torcheer.selection import Layers

__all__ = ["ExtractedLayer", "Extraction", "extract", "open_extraction"]


if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(
        __name__, dict.fromkeys(("ExtractedLayer", "Extraction", "open_extraction"), f"{__name__}.extraction_reader")
    )


class ExtractSettings(TypedDict, total=False):
    """The options of `extract` that do not say what it returns."""

    batch_size: int | None
    device: Any
    transform: Callable[[Any], Any] | None
    mask: str | Callable[[Any], Any] | None  # which positions are no padding: a key of the batch, or a function of it
    ids: Sequence[Any] | None
    engine: str | None
    workers: int
    writers: int | None
    shard_samples: int | None
    codec: str
    seed: int
    top: bool
    progress: bool | None


@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath,
    dry_run: Literal[False] = False,
    **options: Unpack[ExtractSettings],
) -> Extraction: ...
@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: None,
    dry_run: Literal[False] = False,
    **options: Unpack[ExtractSettings],
) -> ExtractedTensors: ...
@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath | None,
    dry_run: Literal[True],
    **options: Unpack[ExtractSettings],
) -> Estimate: ...
@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath | None,
    dry_run: bool = False,
    **options: Unpack[ExtractSettings],
) -> Extraction | ExtractedTensors | Estimate: ...
@names_options
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath | None,
    batch_size: int | None = None,
    device: Any = None,
    transform: Callable[[Any], Any] | None = None,
    mask: str | Callable[[Any], Any] | None = None,
    ids: Sequence[Any] | None = None,
    engine: str | None = None,
    workers: int = 0,
    writers: int | None = None,
    shard_samples: int | None = None,
    codec: str = "raw",
    seed: int = 0,
    top: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Extraction | ExtractedTensors | Estimate:
    """Run `model` over `data` and store `layers` of every sample in the folder `to`; resumes if run again.

    - `data`: a tensor, a Dataset, a DataLoader, or any iterable of batches; of (input, label) the first is the input.
    - `layers`: one or a list, as for `layers_to_save`; a dict gives each a function of the value of a whole batch (a
      tensor) that returns one row per sample, or None: {'Conv2d': lambda value: value.mean((-2, -1))}. A function of
      two parameters also gets the batch, as the loader returned it.
    - `to`: the folder of the extraction; None: return a dict of tensors in memory.
    - `batch_size`: for a tensor or Dataset; default: 32. `device`: where the model runs; default: where it is.
    - `transform`: turns a sample into the model's inputs.
    - `mask`: which positions of each sample are not padding, and stored: a key of the batch ("attention_mask"), or a
      function of the batch as the loader returned it that returns a tensor of (samples, positions).
    - `ids`: a name for each sample.
    - `engine`: "torchrun": the ranks that run this call share the work (the default under torchrun); "ray": actors of
      a Ray cluster; "local": this process alone.
    - `workers`: additional processes on this machine that share the work; with Ray, actors, 0 for as many as fit.
    - `writers`: writer threads per process, each with its own file; default: 4, or 1 for small stores.
    - `shard_samples`: samples per file; default: files of about 256 MB.
    - `codec`: how values are stored: "raw", "float16", "int8", "zstd", or two joined by "+".
    - `seed`: seed of every batch, for stochastic models.
    - `top`: also store each sample's maximum of every unit, so that `features.top` need not read the layers.
    - `dry_run`: run one batch, write nothing and return an `Estimate` of size and time.
    - `progress`: show progress; None: on a terminal and in a notebook.
    """
    from torcheer.extraction.extraction_run import run_extraction

    settings: ExtractSettings = {
        "batch_size": batch_size, "device": device, "transform": transform, "mask": mask, "ids": ids, "engine": engine,
        "workers": workers, "writers": writers, "shard_samples": shard_samples, "codec": codec, "seed": seed,
        "top": top, "progress": progress,
    }  # fmt: skip
    return run_extraction(model, data, layers, to, settings, dry_run=dry_run)
