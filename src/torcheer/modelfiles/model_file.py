"""Opens a model file by its ending and its first bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, BadArgument, UnknownLayer
from torcheer.history import ModelHistory
from torcheer.modelfiles.file_tensor import FileTensor
from torcheer.modelfiles.program_nodes import Program
from torcheer.terminal import did_you_mean, human_bytes, plural

_READERS: Final = {
    ".safetensors": "safetensors_weights", ".safetensors.index.json": "safetensors_weights", ".gguf": "gguf_reader",
    ".pt": "torch_zip", ".pth": "torch_zip", ".bin": "torch_zip", ".ckpt": "torch_zip", ".pt2": "pt2_reader",
    ".onnx": "onnx_reader",
}  # fmt: skip
ENDINGS: Final = tuple(_READERS)


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
    file = Path(path)
    ending = _ending(file)
    if not ending:
        raise BadArgument(f"{file} is no model file that torcheer reads; it reads {', '.join(ENDINGS)}")
    if not file.is_file():
        raise BadArgument(f"there is no file {file}")
    read: Callable[[Path], ModelFile] = import_module(f"torcheer.modelfiles.{_READERS[ending]}").read_file
    try:
        return read(file)
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, MemoryError, AttributeError) as error:
        if isinstance(error, ArchiveDamaged | BadArgument):
            if str(file) in str(error):
                raise
            raise type(error)(f"{file}: {error}") from error
        raise ArchiveDamaged(f"{file} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _ending(path: Path) -> str:
    name = path.name.lower()
    return max((ending for ending in ENDINGS if name.endswith(ending)), key=len, default="")


def text_of(value: Any) -> str:
    """A value of a file's metadata as short text."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text):,} characters)"
