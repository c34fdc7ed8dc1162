"""Stored rows in random order: each once in an epoch, whoever reads them."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import row_blocks, row_stream
from torch import Tensor, nn
from torch.utils.data import DataLoader

import torcheer as tl
from torcheer.errors import ArchiveDamaged, BadArgument, UnknownLayer
from torcheer.extraction import Extraction, open_extraction

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT, TOKENS, WIDTH = 200, 7, 5
NUMBERED = torch.arange(COUNT * TOKENS, dtype=torch.float32).reshape(COUNT, TOKENS, 1).expand(-1, -1, WIDTH)
FIRST_OF_SEED_3 = [1224, 328, 642, 332, 484, 322, 479, 1226, 1182, 1227, 490, 639]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Extraction:
    """A layer whose tokens are numbered, and one with a row for each sample."""
    model = nn.Sequential(nn.Identity(), nn.Flatten())
    data = NUMBERED.contiguous()
    path = tmp_path_factory.mktemp("numbered") / "x"
    options: Any = {"batch_size": 8, "shard_samples": 16, "writers": 3, "progress": False}
    tl.extract(model, data, layers={"0": None, "1": lambda value: value[:, 0]}, to=path, **options)
    return open_extraction(path)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 300)  # some samples or tokens


def tokens_of(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch[:, 0]]


def stream(extraction: Extraction, **options: Any) -> Any:
    settings = {"batch_size": 32, "rows": "tokens", "buffer_bytes": 2000, **options}
    return extraction.stream("0", **settings)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_row_comes_once_in_an_epoch(numbered: Extraction, workers: int, shuffle: bool) -> None:
    rows = stream(numbered, shuffle=shuffle)
    batches = list(DataLoader(rows, batch_size=None, num_workers=workers))
    assert all(len(batch) == 32 for batch in batches if len(batch) == 32 or batch is not batches[-1])
    assert sorted(tokens_of(batches)) == list(range(COUNT * TOKENS))
    assert all(torch.equal(batch, batch[:, :1].expand(-1, WIDTH)) for batch in batches)


def test_without_shuffling_the_order_is_that_of_the_samples(numbered: Extraction) -> None:
    assert tokens_of(stream(numbered, shuffle=False)) == list(range(COUNT * TOKENS))


def rank_correlation(order: list[int]) -> float:
    return float(np.corrcoef(np.arange(len(order)), order)[0, 1])  # the numbers are their own ranks


@pytest.mark.parametrize("seed", range(5))
def test_the_order_says_nothing_of_where_rows_were(numbered: Extraction, seed: int) -> None:
    order = tokens_of(stream(numbered, seed=seed))
    assert (
        abs(rank_correlation(order)) < 5 / len(order) ** 0.5 * 4
    )  # blocks are fewer than rows, so four times the noise
    neighbours = np.mean([abs(a - b) == 1 for a, b in itertools.pairwise(order)])
    assert neighbours < 0.1  # of random ones, 0.1 %


def test_the_order_of_a_seed_stays_what_it_was(numbered: Extraction) -> None:
    """Training that goes on in the middle of an epoch counts on it."""
    assert tokens_of(stream(numbered, seed=3))[:12] == FIRST_OF_SEED_3


def test_a_seed_and_an_epoch_make_an_order(numbered: Extraction) -> None:
    rows = stream(numbered, seed=3)
    first, second = tokens_of(rows), tokens_of(rows)
    again = stream(numbered, seed=3)
    assert tokens_of(again) == first and tokens_of(again) == second and first != second
    assert tokens_of(stream(numbered, seed=4)) != first
    again.epoch = 0
    assert tokens_of(again) == first


@pytest.mark.parametrize("skip", [0, 1, 5, 17, 43, 44, 60])
def test_an_epoch_is_gone_on_with_in_the_middle(numbered: Extraction, skip: int) -> None:
    whole = [batch[:, 0].tolist() for batch in stream(numbered)]
    rows = stream(numbered)
    rows.skip = skip
    assert [batch[:, 0].tolist() for batch in rows] == whole[skip:]
    assert rows.skip == 0 and len(whole) == len(rows) == 44


def test_samples_are_rows_too_with_their_numbers(numbered: Extraction) -> None:
    for values, samples in numbered.stream("0", batch_size=9, with_samples=True, buffer_bytes=1000):
        assert values.shape[1:] == (TOKENS, WIDTH) and torch.equal(values, NUMBERED[samples])


def test_tokens_know_their_samples(numbered: Extraction) -> None:
    for values, samples in stream(numbered, with_samples=True):
        assert torch.equal((values[:, 0] // TOKENS).long(), samples)


def test_layers_come_together(numbered: Extraction) -> None:
    for whole, first in numbered.stream(batch_size=16, buffer_bytes=1000):
        assert torch.equal(whole[:, 0, 0], first)


def test_a_last_short_batch_can_be_left_out(numbered: Extraction) -> None:
    assert {len(batch) for batch in stream(numbered, drop_last=True)} == {32}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "words"}, "rows='words'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 0.5}, "seed=0.5"),
    ],
)
def test_a_wrong_argument_is_told(numbered: Extraction, options: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        stream(numbered, **options)


def test_layers_that_do_not_go_together_are_told(numbered: Extraction) -> None:
    with pytest.raises(BadArgument, match="different numbers of tokens"):
        numbered.stream("0", "1", batch_size=4, rows="tokens")
    with pytest.raises(UnknownLayer):
        numbered.stream("2", batch_size=4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_rows_of_any_type_and_codec_come_back(tmp_path: Path, dtype: torch.dtype, codec: str) -> None:
    data = (torch.arange(60)[:, None] % 7 * torch.ones(3)).to(dtype)
    found: Any = tl.extract(
        nn.Sequential(nn.Identity()), data, layers=["0"], to=tmp_path / "x", codec=codec, progress=False, batch_size=8
    )
    rows = torch.cat(list(found.stream("0", batch_size=7, shuffle=False)))
    assert rows.dtype == dtype and torch.equal(rows, data)


def test_what_a_mask_left_is_read_without_padding(tmp_path: Path) -> None:
    lengths = torch.arange(20) % TOKENS + 1
    keep = torch.arange(TOKENS) < lengths[:, None]

    def mask(batch: Tensor) -> Tensor:
        return keep[(batch[:, 0, 0] // TOKENS).long()]

    found: Any = tl.extract(
        nn.Sequential(nn.Identity()), NUMBERED[:20].contiguous(), layers=["0"], mask=mask, to=tmp_path / "x",
        batch_size=3, progress=False,
    )  # fmt: skip
    assert sorted(tokens_of(stream(found))) == NUMBERED[:20][keep][:, 0].int().tolist()
    for values, samples in stream(found, with_samples=True, batch_size=4):
        assert torch.equal((values[:, 0] // TOKENS).long(), samples)
    with pytest.raises(BadArgument, match="rows='tokens'"):
        found.stream("0", batch_size=4)


def test_samples_kept_one_by_one_are_read_too(tmp_path: Path) -> None:
    found: Any = tl.extract(
        nn.Sequential(nn.Identity()), NUMBERED[:9].contiguous(), to=tmp_path / "x", batch_size=2, progress=False,
        layers={"0": lambda value: [row[: 1 + int(row[0, 0]) % 3] for row in value]},
    )  # fmt: skip
    kept = [int(number) for row in found["0"] for number in row[:, 0]]
    assert tokens_of(stream(found, shuffle=False)) == kept
    assert all((values[:, 0] // TOKENS == samples).all() for values, samples in stream(found, with_samples=True))


def test_a_flipped_bit_is_told(tmp_path: Path, numbered: Extraction) -> None:
    path = shutil.copytree(numbered.path, tmp_path / "x")
    file = path / "shards" / "000001" / "000000.data"
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    with pytest.raises(ArchiveDamaged, match="not what was written"):
        list(stream(open_extraction(path)))
    with open(file, "r+b") as cut:
        cut.truncate(10)
    with pytest.raises(ArchiveDamaged):
        list(stream(open_extraction(path)))


def test_a_reader_that_stops_early_leaves_neither_threads_nor_files(numbered: Extraction) -> None:
    rows = stream(numbered)
    next(iter(rows))
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        reading = iter(rows)
        next(reading)
        reading.close()  # type: ignore[attr-defined]
    assert threading.active_count() <= threads and len(os.listdir("/proc/self/fd")) <= files


SMALL, LARGE = 4, 32  # of the hundred rows of a pool: copies, and views


@pytest.mark.parametrize("batch_size", [SMALL, LARGE])
@pytest.mark.parametrize("keep", [lambda batch: batch, lambda batch: batch[3:4], lambda batch: batch.numpy()])
def test_a_batch_that_somebody_holds_is_not_written_over(numbered: Extraction, keep: Any, batch_size: int) -> None:
    kept, copies = [], []
    for batch in stream(numbered, batch_size=batch_size):
        kept.append(keep(batch))
        copies.append(np.asarray(kept[-1]).copy())
        del batch
    assert all(np.array_equal(own, copy) for own, copy in zip(kept, copies))


def storages_of(batches: Any) -> set[int]:
    return {batch.untyped_storage().data_ptr() for batch in batches}


def test_the_memory_of_a_batch_that_was_let_go_is_used_again(
    numbered: Extraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, empty = list[Any](), torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: made.append(shape) or empty(*shape, **options))
    batches = sum(1 for _ in stream(numbered, batch_size=SMALL, buffer_bytes=8000))
    assert len(made) < batches / 4


def test_large_batches_are_views_of_two_pools_in_turn(numbered: Extraction) -> None:
    rows = stream(numbered, batch_size=2 * LARGE, buffer_bytes=6000)
    assert len(storages_of(batch for batch in rows if batch.untyped_storage().nbytes() > batch.nbytes)) == 2


def test_a_small_batch_keeps_only_its_own_memory_alive(numbered: Extraction) -> None:
    assert all(batch.untyped_storage().nbytes() == batch.nbytes for batch in stream(numbered, batch_size=SMALL))


def test_memory_that_another_process_may_read_is_not_used_again() -> None:
    memory = torch.zeros(3)
    assert row_stream._is_free(memory) and not row_stream._is_free(memory.share_memory_())
