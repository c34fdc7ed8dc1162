"""Opens a model file by its ending and its first bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError, UnknownLayer
from torcheer.foreign.ask_readers import Ask, naming, read_apart, read_here
from torcheer.foreign.opened_files import OpenedFiles
from torcheer.foreign.program_nodes import Program, program_of
from torcheer.foreign.request import Answer, Request
from torcheer.history import ModelHistory
from torcheer.modelfiles.file_tensor import FileTensor, ShardedTensor, placed, plain_coding
from torcheer.modelfiles.gguf_codings import CODINGS
from torcheer.terminal import did_you_mean, human_bytes, plural, short_repr

_READERS: Final = {
    ".safetensors": "safetensors", ".safetensors.index.json": "safetensors", ".gguf": "gguf",
    ".pt": "torch_zip", ".pth": "torch_zip", ".bin": "torch_zip", ".ckpt": "torch_zip", ".pt2": "pt2",
    ".onnx": "onnx",
}  # fmt: skip
ENDINGS: Final = tuple(_READERS)
_MOST_NAME: Final = 10_000


@dataclass(frozen=True, slots=True)
class ModelFile(Mapping[str, FileTensor]):
    """A model file: its tensors by name, its metadata, and its graph where it has one."""

    path: Path
    format: str  # "GGUF 3", "ONNX", "safetensors"
    tensors: dict[str, FileTensor]
    metadata: dict[str, str] = field(default_factory=dict)
    program: Program | None = None

    def __getitem__(self, name: str) -> FileTensor:
        if name not in self.tensors:
            raise UnknownLayer(
                f"{self.path.name} has no tensor {name!r} among {len(self)}.{did_you_mean(name, self.tensors)}"
            )
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def history(self) -> ModelHistory:
        """Its graph as a history without values: to draw, search and compare; raises where it has none."""
        from torcheer.modelfiles.program_history import history_of

        return history_of(self)

    def __repr__(self) -> str:
        size = human_bytes(sum(tensor.nbytes for tensor in self.tensors.values()))
        graph = f", a graph of {plural(len(self.program.nodes), 'node')}" if self.program is not None else ""
        return f"ModelFile({str(self.path)!r}, {self.format}: {plural(len(self), 'tensor')}, {size}{graph})"


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a file with one of the known endings.

    - `path`: of any file.
    """
    return Path(path).is_file() and _ending(Path(path)) != ""


def open_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """Open a model file; its tensors stay on disk until they are read, and no code in it runs.

    - `path`: of the file.
    """
    return _open(Path(path), read_here, None)


def open_apart(path: str | os.PathLike[str], within: Path | None = None) -> ModelFile:
    """Open a model file as `open_model_file` does; what it says is read in a process that can be lost.

    - `path`: of the file.
    - `within`: a folder around it that nothing may lead out of.
    """
    return _open(Path(path), read_apart, within)


def _open(path: Path, ask: Ask, within: Path | None) -> ModelFile:
    ending = _ending(path)
    if not ending:
        raise BadArgument(f"{path} is no model file that torcheer reads; it reads {', '.join(ENDINGS)}")
    if not path.is_file():
        raise BadArgument(f"there is no file {path}")
    files = OpenedFiles(path.parent, within, None if within is not None else path)
    try:
        with naming(path):
            return _model_file(path, ask(Request(_READERS[ending], path.name), files.open), files)
    finally:
        files.close()


def _ending(path: Path) -> str:
    name = path.name.lower()
    return max((ending for ending in ENDINGS if name.endswith(ending)), key=len, default="")


# -- what a reader says, checked ---------------------------------------------------------------------------------------


def _model_file(path: Path, answer: Answer, files: OpenedFiles) -> ModelFile:
    body = answer.body
    try:
        stored = [files.mapped(name) for name in answer.files] + [np.frombuffer(answer.blob, np.uint8)]
        tensors = {row[0]: _tensor(row, stored) for row in body["tensors"]}
        for name, shape, parts in body.get("joined", ()):
            tensors[name] = ShardedTensor(
                _lengths(shape), [(str(file), _lengths(begin), _tensor(row, stored)) for file, begin, row in parts]
            )
        metadata = {str(name): str(value) for name, value in body["metadata"].items()}
        program = program_of(body["program"]) if "program" in body else None
        return ModelFile(path, str(body["format"]), tensors, metadata, program)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        if isinstance(error, TorcheerError):
            raise
        raise ArchiveDamaged(f"its reader says what cannot be: {type(error).__name__}: {error}") from error


def _tensor(row: Sequence[Any], stored: Sequence[NDArray[np.uint8]]) -> FileTensor:
    name, type, shape, file, begin, end, offset, strides = row
    data = stored[file][slice(*_lengths((begin, end)))]
    if not isinstance(name, str) or len(name) > _MOST_NAME:
        raise ArchiveDamaged(f"{short_repr(name)} is no name of a tensor: it has more than {_MOST_NAME:,} characters")
    if len(data) != end - begin:
        raise ArchiveDamaged(f"{short_repr(name)} lies outside of its file")
    if strides is not None:
        return placed(name, _lengths(shape), type, data, offset, _lengths(strides))
    return FileTensor(name, _lengths(shape), type, data, CODINGS[type] if type in CODINGS else plain_coding(type))


def _lengths(values: Iterable[Any]) -> tuple[int, ...]:
    lengths = tuple(values)
    if any(type(length) is not int or length < 0 for length in lengths):
        raise ArchiveDamaged(f"it has the lengths {short_repr(lengths)}")
    return lengths
