"""Opens two paths side by side: runs by their checkpoints, checkpoints, model files, or recorded passes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from torcheer.archive.format.archive_folder import read_about
from torcheer.errors import BadArgument
from torcheer.modelfiles import is_model_file
from torcheer.modelfiles.model_file import open_apart
from torcheer.studio.comparison.compared_passes import ComparedPasses
from torcheer.studio.comparison.compared_weights import ComparedWeights
from torcheer.studio.comparison.comparison_source import ComparisonSource
from torcheer.studio.comparison.run_checkpoints import LATEST, WEIGHTS, choose_checkpoint, is_checkpoint
from torcheer.studio.connections.messages import Recording, Run
from torcheer.studio.runs.run_index import RunIndex
from torcheer.studio.sources.source import Source

_PASS, _WEIGHTS = "a recorded pass", "weights"
_MODEL_FILES: Final = (WEIGHTS, "model.safetensors.index.json", "pytorch_model.bin")

Side = tuple[str, Path, str]  # "a recorded pass" or "weights"; the archive or file; its name for people


def open_comparison(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> ComparisonSource:
    """Open two paths of a kind side by side; `RUN@best` and `RUN@100` name a checkpoint of a run."""
    sides = _side(os.fspath(first)), _side(os.fspath(second))
    kinds = [kind for kind, _, _ in sides]
    if kinds[0] != kinds[1]:
        raise BadArgument(
            f"{first} is {kinds[0]} and {second} {kinds[1]}: two of a kind are compared, two recorded passes (what "
            f"history.save() wrote), or the weights of runs, checkpoints and model files"
        )
    titles = _titles(sides[0][2], sides[1][2])
    paths = sides[0][1], sides[1][1]
    if kinds[0] == _PASS:
        return ComparisonSource(ComparedPasses(*paths, titles))
    return ComparisonSource(ComparedWeights(open_apart(paths[0]), open_apart(paths[1]), titles))


def _side(text: str) -> Side:
    path, which = Path(text), LATEST
    if not path.exists() and "@" in path.name:
        name, _, which = text.rpartition("@")
        path = Path(name)
    if is_model_file(path):
        return _WEIGHTS, path, text
    if not path.is_dir():
        raise BadArgument(f"there is nothing at {path}; name a run, a checkpoint, a model's file or a saved history")
    if (path / "archive.json").is_file():
        return _archive(path)
    if is_checkpoint(path):
        run = path.absolute().parent.parent
        return _WEIGHTS, path / WEIGHTS, f"{run} step {path.name}" if path.parent.name == "checkpoints" else text
    if (path / "checkpoints").is_dir() or (path / "run.json").is_file():
        checkpoint = choose_checkpoint(path, which)
        return _WEIGHTS, checkpoint.weights, f"{path.absolute()} step {checkpoint.step}"
    for name in _MODEL_FILES:  # a folder as transformers saves it
        if (path / name).is_file():
            return _WEIGHTS, path / name, text
    raise BadArgument(
        f"{path} has nothing to compare: no checkpoints of a run, no {WEIGHTS}, and history.save() did not write it"
    )


def _archive(path: Path) -> Side:
    kind = read_about(path).get("kind")
    if kind != "history":
        raise BadArgument(f"{path} is an archive of {str(kind)[:40]!r}: of archives, saved histories are compared")
    return _PASS, path, str(path)


def _titles(first: str, second: str) -> tuple[str, str]:
    """The shortest ends of the two paths that tell them apart."""
    names, others = Path(first).parts, Path(second).parts
    for count in range(1, max(len(names), len(others)) + 1):
        short = os.path.join(*names[-count:]), os.path.join(*others[-count:])
        if short[0] != short[1]:
            return short
    return f"{Path(first).name} (first)", f"{Path(second).name} (second)"


class ComparisonCatalog:
    """The catalog of `torcheer studio A B`: one source."""

    run = -1
    index: RunIndex | None = None
    runs: tuple[Run, ...] = ()
    recordings: tuple[Recording, ...] = ()

    def __init__(self, first: str | os.PathLike[str], second: str | os.PathLike[str], *, title: str = "") -> None:
        self.title, self._source = title, open_comparison(first, second)

    def refresh(self) -> bool:
        """Nothing is added."""
        return False

    def first(self) -> Source:
        """The comparison."""
        return self._source

    def find_first_run(self) -> Source | None:
        """None: it is there."""
        return None

    def open_run(self, id: int) -> Source:
        """There are none."""
        raise BadArgument("two paths are compared here; there is no list of runs")

    def open_recording(self, id: int) -> Source:
        """There are none."""
        raise BadArgument("two paths are compared here; there are no recordings")
