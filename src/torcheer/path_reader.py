"""The verb `load`: opens whatever torcheer wrote, and model files of other programs, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torcheer.errors import NotAnArchive
from torcheer.terminal import did_you_mean, first_names, names_options

if TYPE_CHECKING:
    from torcheer.archive import Archive
    from torcheer.disk import StrPath
    from torcheer.extraction import Extraction
    from torcheer.history import ModelHistory
    from torcheer.modelfiles import ModelFile
    from torcheer.runlog.run_folder import RunFolder
    from torcheer.runlog.watch_reader import Watched


@names_options
def load(path: StrPath) -> ModelHistory | Archive | Extraction | Watched | RunFolder | ModelFile:
    """Open anything that torcheer wrote, or a model file, without torch and without executing code in it.

    | `path` was written by | returns |
    |---|---|
    | `history.save` | a `ModelHistory` |
    | `tl.extract` | an `Extraction`: `extraction["features.6"]` is one array |
    | `tl.watch(to=…)` | a `Watched`: `watched["features.0", "output"].mean` |
    | training, `tl.live(to=…)` | a `RunFolder`: `.tables`, `.watches`, `.captures`, `.config` |
    | captures, recordings, `Writer` | an `Archive` of values |
    | other programs: .safetensors, .gguf, .onnx, .pt2, .pt | a `ModelFile`: `file["conv.weight"][:4]` |

    A URL (s3://bucket/features) is read with fsspec: values on demand; a run as it is at this moment, without its
    checkpoints.
    """
    from torcheer import remote

    if remote.is_url(path):
        return load(_fetch(str(path)))
    folder = Path(path)
    if folder.is_file():
        return _load_model_file(folder)
    if not folder.is_dir():
        raise NotAnArchive(f"there is no file or folder {folder}.{_names_beside(folder)}")
    if (folder / "archive.json").is_file():
        from torcheer.archive import Archive
        from torcheer.archive import load as load_history

        archive = Archive(folder)
        return load_history(folder) if archive.about.get("kind") == "history" else archive
    if (folder / "extraction.json").is_file():
        from torcheer.extraction.extraction_reader import open_extraction

        return open_extraction(folder)
    from torcheer.runlog.run_folder import RunFolder, is_run

    if is_run(folder):
        return RunFolder(folder)
    from torcheer.runlog.watch_reader import logs_in, open_watch

    if logs_in(folder):
        return open_watch(folder)
    from torcheer.archive import load as load_history

    return load_history(folder)  # which says what is missing, or that it is damaged


def _names_beside(path: Path) -> str:
    """Which file or folder may have been meant by one that there is not."""
    parent = path.absolute().parent
    if not parent.is_dir():
        return f" Its folder is missing, too: {parent}"
    names = sorted(entry.name for entry in parent.iterdir() if entry.name[0] != ".")
    return did_you_mean(path.name, names) or f" In {parent} there are: {first_names(names) or 'no files'}"


def _fetch(url: str) -> Path:
    """Return a local folder that stands for a URL, filled as it is read."""
    from torcheer import remote

    folder = remote.open_url(url)
    if not any((folder.local / name).exists() for name in ("archive.json", "extraction.json")):
        folder.fetch_tree()  # of a run, whose readers look into all its folders
    if not any(folder.local.iterdir()):
        raise NotAnArchive(f"{folder.shown} holds nothing that is complete")
    return folder.local


def _load_model_file(path: Path) -> ModelFile:
    from torcheer.modelfiles import ENDINGS, is_model_file, open_model_file

    if is_model_file(path):
        return open_model_file(path)
    raise NotAnArchive(
        f"{path} is a file; torcheer writes folders: of a history, an extraction, a watch, a run or a recording. "
        f"Of other programs' files it reads {', '.join(ENDINGS)}; `torcheer archive import` makes an archive of .npz, "
        f".arrow, .parquet and .zarr"
    )
