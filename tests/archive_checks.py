"""What tests of the archive share; without torch, so that children of tests start quickly."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import run_python
from seams import CODECS, to_bytes
from seams import pack_value as pack
from seams import unpack_value as unpack

from torcheer.archive import Archive, Writer
from torcheer.records import Sample


def values(step: int) -> list[Sample]:
    random = np.random.default_rng(step)
    return [
        Sample(step, "conv1", "value", -1, random.normal(size=(2, 3, 4)).astype(np.float32)),
        Sample(step, "conv1", "grad", -1, random.normal(size=(7,))),
        Sample(step, "head", "value", 0, random.integers(0, 9, (3, 0))),
    ]


def written(path: Path, steps: int = 5, **options: object) -> Path:
    with Writer(path, **options) as writer:
        for step in range(steps):
            writer.step(values(step))
    return path


def assert_holds(path: Path, steps: int) -> Archive:
    """The archive has exactly the first steps, bit for bit."""
    archive = Archive(path)
    assert archive.steps == list(range(steps))
    expected = [sample for step in range(steps) for sample in values(step)]
    for one, other in zip(archive.samples(), expected, strict=True):
        assert (one.step, one.layer, one.variable, one.item) == (other.step, other.layer, other.variable, other.item)
        assert one.array.dtype == other.array.dtype and np.array_equal(one.array, other.array)
    return archive


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of its own, where that is permitted."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip(f"mounting is not permitted here: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def unwritable(folder: Path) -> Iterator[Path]:
    """A folder that cannot be written to; root, whom no mode keeps out, gets a disk that is read-only."""
    if os.geteuid() == 0:
        with disk(folder, "1m"):
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
            yield folder
    else:
        folder.mkdir(mode=0o500)
        yield folder


def patterns(step: int, large: bool) -> list[Sample]:
    """Quickly made values of mixed sizes and types, unlike those of any other step."""
    base = np.arange(400_000 if large else 300, dtype=np.float32) % 977
    return [
        Sample(step, "floats", "value", -1, base + np.float32(step)),
        Sample(step, "whole", "value", step % 3, np.arange(step % 50) * step),
        Sample(step, "flags", "value", -1, base[: 40 + step % 99] % (step + 2) == 0),
        Sample(step, "doubles", "grad", -1, np.array([[step / 7, -step]])),
    ]


def mixed(sample: Sample) -> str:
    """A codec that depends on the step and the layer."""
    return CODECS[(sample.step + len(sample.layer)) % len(CODECS)]


def held(sample: Sample, codec: str) -> bytes:
    """The bytes of a sample as a codec gives them back."""
    kind, shape, payload = to_bytes(sample.array)
    about, stored = pack(codec, kind, payload)
    scale = about.get("as", {}).get("scale", 1.0)
    lossy = about.get("as", {}).get("type", "")
    name = "+".join(filter(None, [lossy, *(name for name in ("zstd", "zlib") if name in about)])) or "raw"
    return bytes(unpack(name, scale, kind, shape, memoryview(stored)))


def assert_holds_patterns(archive: Archive, large: bool, codec: Any = "raw") -> None:
    """An archive has the patterns of the first so many steps, and nothing else."""
    assert archive.steps == list(range(len(archive.steps)))
    expected = (sample for step in range(len(archive.steps)) for sample in patterns(step, large))
    for one, other in zip(archive.samples(), expected, strict=True):
        assert (one.step, one.layer, one.variable, one.item) == (other.step, other.layer, other.variable, other.item)
        assert one.array.dtype == other.array.dtype and one.array.shape == other.array.shape
        assert one.array.tobytes() == held(other, codec(other) if callable(codec) else codec)


def child(code: str, *arguments: object) -> str:
    """What another process says."""
    begin = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    return run_python("-c", begin + code, *arguments).stdout
