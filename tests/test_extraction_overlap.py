"""What goes on at the same time: a batch is summed and written while the next one runs, and one is read ahead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import RowStream, Segment, archive_writer
from torch import Tensor, nn
from waiting import WAIT_SECS, wait_until

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")


class Signalling(nn.Module):
    """Says when its second batch runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.second_runs = 0, threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            self.second_runs.set()
        return x + 1


def extracted(layer: nn.Module, to: Path | None, **options: Any) -> Any:
    settings = {"batch_size": 4, "progress": False, **options}
    return tl.extract(nn.Sequential(layer), torch.rand(16, 3), layers=["0"], to=to, **settings)


@pytest.mark.parametrize(("owner", "name"), [(archive_writer, "crc32"), (Segment, "write_values")])
def test_a_batch_is_summed_and_written_while_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    layer, waited, original = Signalling(), list[bool](), getattr(owner, name)

    def wait_first(*arguments: Any) -> Any:
        waited.append(layer.second_runs.wait(WAIT_SECS))
        return original(*arguments)

    monkeypatch.setattr(owner, name, wait_first)
    extracted(layer, tmp_path / "x")
    assert waited and all(waited)


def test_a_batch_is_copied_to_memory_while_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import extracted_tensors

    layer, waited, original = Signalling(), list[bool](), extracted_tensors.copy_to

    def wait_first(*arguments: Any) -> None:
        waited.append(layer.second_runs.wait(WAIT_SECS))
        original(*arguments)

    monkeypatch.setattr(extracted_tensors, "copy_to", wait_first)
    extracted(layer, None)
    assert len(waited) == 4 and all(waited)


def test_two_writers_write_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, original = threading.Barrier(2), Segment.write_values
    threads = set[int]()

    def meet(*arguments: Any) -> None:
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            both.wait(WAIT_SECS)
        original(*arguments)

    monkeypatch.setattr(Segment, "write_values", meet)
    assert len(extracted(Signalling(), tmp_path / "x", writers=2)) == 16 and len(threads) == 2


def test_the_next_pool_is_read_while_a_batch_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, original = list[int](), RowStream.read_pool

    def count(*arguments: Any) -> Any:
        pool = original(*arguments)
        read.append(pool.row_count)
        return pool

    features = extracted(Signalling(), tmp_path / "x")
    monkeypatch.setattr(RowStream, "read_pool", count)
    batches = iter(features.stream("0", batch_size=2, buffer_bytes=12))
    batch = next(batches)
    wait_until(lambda: len(read) == 2, "the second pool", seen=lambda: read)
    assert len(batch) == 2
    batches.close()
