"""Padding left out, the batch as it was given, and tensors in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import torcheer as tl
from torcheer.errors import ArchiveDamaged, BadArgument

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = [3, 5, 1, 4, 2, 5, 5]


class Decoder(nn.Module):
    """Embeds tokens; returns a row for each token and one for each text."""

    def __init__(self) -> None:
        super().__init__()
        self.stream, self.pooled = nn.Embedding(50, 6), nn.Linear(6, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.pooled(self.stream(input_ids).mean(1))  # type: ignore[no-any-return]


class Texts(Dataset[Any]):
    """Token numbers count on from text to text, so that each row says where it is from."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        start = sum(LENGTHS[:index])
        return {"input_ids": torch.arange(start, start + LENGTHS[index])}


def padded(texts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """As a tokenizer's collator does: filled up to the longest of the batch."""
    longest = max(len(text["input_ids"]) for text in texts)
    rows = [nn.functional.pad(text["input_ids"], (0, longest - len(text["input_ids"])), value=49) for text in texts]
    marks = [torch.arange(longest) < len(text["input_ids"]) for text in texts]
    return {"input_ids": torch.stack(rows), "attention_mask": torch.stack(marks).long()}


def loader(batch_size: int = 3) -> DataLoader[Any]:
    return DataLoader(Texts(), batch_size=batch_size, collate_fn=padded)


def make_model() -> Decoder:
    torch.manual_seed(0)
    return Decoder()


def run(path: Path | None, data: Any = None, **options: Any) -> Any:
    settings = {"layers": ["stream", "pooled"], "mask": "attention_mask", "progress": False, **options}
    return tl.extract(make_model(), loader() if data is None else data, to=path, **settings)


def expected(text: int) -> Any:
    return make_model().stream(Texts()[text]["input_ids"]).detach().numpy()


@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.parametrize("mask", ["attention_mask", lambda batch: batch["input_ids"] != 49])
def test_positions_that_are_padding_are_not_kept(tmp_path: Path, mask: Any, writers: int) -> None:
    found = run(tmp_path / "x", mask=mask, writers=writers)
    assert found["stream"].shape == (7, None, 6) and found["pooled"].shape == (7, 2)
    assert all(np.array_equal(row, expected(text)) for text, row in enumerate(found["stream"]))
    assert np.array_equal(found["stream"][5], expected(5)) and len(found["stream"][1:4]) == 3
    stored = sum(entry.stored for shard in found.shards for entry in shard.archive.entries if entry.layer == "stream")
    assert stored == sum(LENGTHS) * 6 * 4 and found.verify() == 6


def test_texts_of_one_length_are_one_array(tmp_path: Path) -> None:
    tokens = torch.arange(20).reshape(4, 5)
    found = run(tmp_path / "x", [{"input_ids": row} for row in tokens], mask=lambda batch: batch["input_ids"] >= 0)
    assert found["stream"].shape == (4, 5, 6) and found["stream"][:].shape == (4, 5, 6)


def test_a_text_of_padding_alone_is_an_empty_row(tmp_path: Path) -> None:
    found = run(tmp_path / "x", mask=lambda batch: batch["attention_mask"] * (batch["input_ids"][:, :1] != 0))
    assert found["stream"][0].shape == (0, 6) and np.array_equal(found["stream"][1], expected(1))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("attention", "did you mean 'attention_mask'"),
        (3, "give the key of a batch"),
        (lambda batch: batch["attention_mask"].flatten(), "rows of positions"),
        (lambda batch: batch["attention_mask"][:, :1], "no layer begins so"),
        (lambda batch: None, "mask gives a NoneType for a batch of 3; it needs a tensor with 3 rows of positions"),
    ],
)
def test_a_mask_that_does_not_fit_is_told(tmp_path: Path, mask: Any, message: str) -> None:
    with pytest.raises(BadArgument, match=f"(?i){message}"):
        run(tmp_path / "x", mask=mask)


def test_another_mask_is_another_extraction(tmp_path: Path) -> None:
    run(tmp_path / "x")
    with pytest.raises(BadArgument, match="other values of 'stream'"):
        run(tmp_path / "x", mask=lambda batch: batch["input_ids"] > 1)


def test_lengths_that_are_none_are_damage(tmp_path: Path) -> None:
    found = run(tmp_path / "x")
    reader = next(found.shards)
    reader.frames[0]["about"]["lengths"] = [1, 1, 1]
    with pytest.raises(ArchiveDamaged, match="not whole"):
        found["stream"][0]


# The batch as it was given


class Labelled(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        return torch.full((4,), float(index)), "even" if index % 2 == 0 else "odd"


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (Labelled()[index] for index in range(10))


@pytest.mark.parametrize("data", [Labelled(), Stream(), DataLoader(Labelled(), batch_size=4)])
def test_a_function_of_two_gets_the_batch_before_the_transform(tmp_path: Path, data: Any) -> None:
    def signed(value: Tensor, batch: Any) -> Tensor:
        return value * torch.tensor([1.0 if label == "even" else -1.0 for label in batch[1]])[:, None]

    options = {} if isinstance(data, DataLoader) else {"batch_size": 4}
    found: Any = tl.extract(
        nn.Sequential(nn.Identity()), data, layers={"0": signed}, to=tmp_path / "x", progress=False,
        transform=lambda item: item[0] + 1, **options,
    )  # fmt: skip
    assert found["0"][:, 0].tolist() == [(n + 1.0) * (1 if n % 2 == 0 else -1) for n in range(10)]


def test_samples_that_make_no_batch_come_as_a_list(tmp_path: Path) -> None:
    sizes = [torch.ones(n + 1) for n in range(5)]
    found: Any = tl.extract(
        nn.Sequential(nn.Identity()), sizes, transform=lambda item: item.sum()[None], progress=False,
        layers={"0": lambda value, batch: value * 0 + torch.tensor([[len(part)] for part in batch])}, to=tmp_path / "x",
    )  # fmt: skip
    assert found["0"][:, 0].tolist() == [1, 2, 3, 4, 5]


# In memory


def test_tensors_in_memory_are_what_a_folder_holds(tmp_path: Path) -> None:
    stored, kept = run(tmp_path / "x"), run(None)
    assert list(kept) == ["stream", "pooled"] and kept.ids == list(range(7)) == stored.ids
    assert isinstance(kept["pooled"], Tensor) and np.array_equal(kept["pooled"].numpy(), stored["pooled"][:])
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(kept["stream"], stored["stream"]))
    assert "7 samples in memory" in repr(kept)


@pytest.mark.parametrize("data", [Labelled(), Stream(), DataLoader(Labelled(), batch_size=4)])
def test_any_data_is_kept_in_memory(data: Any) -> None:
    options = {} if isinstance(data, DataLoader) else {"batch_size": 4}
    kept: Any = tl.extract(nn.Sequential(nn.Identity()), data, layers=["0"], to=None, progress=False, **options)
    assert torch.equal(kept["0"], torch.arange(10.0)[:, None].expand(10, 4)) and kept.ids == list(range(10))


@pytest.mark.parametrize("data", [Labelled(), Stream()])
def test_what_is_extracted_in_inference_mode_is_kept_as_ordinary_tensors(data: Any) -> None:
    with torch.inference_mode():
        kept: Any = tl.extract(nn.Sequential(nn.Identity()), data, layers=["0"], to=None, progress=False, batch_size=4)
    assert torch.equal(kept["0"], torch.arange(10.0)[:, None].expand(10, 4)) and not kept["0"].is_inference()


def test_batches_of_different_shapes_are_a_list_in_memory() -> None:
    parts = [torch.ones(2, 3), torch.ones(2, 3), torch.ones(1, 4)]
    kept: Any = tl.extract(
        nn.Sequential(nn.Identity()), DataLoader(parts, batch_size=None), layers=["0"], to=None, progress=False
    )
    assert [tuple(row.shape) for row in kept["0"]] == [(3,)] * 4 + [(4,)]


def test_values_in_memory_are_nobody_elses() -> None:
    class Buffered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Identity()
            self.register_buffer("memory", torch.zeros(2, 1000))

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.memory.copy_(x.expand(-1, 1000)))  # type: ignore[no-any-return]

    kept: Any = tl.extract(
        Buffered(), torch.arange(40.0)[:, None], layers=["out"], to=None, batch_size=2, progress=False
    )
    assert torch.equal(kept["out"][:, 7], torch.arange(40.0))


@pytest.mark.parametrize("options", [{"workers": 2}, {"codec": "float16"}])
def test_what_needs_a_folder_is_told(options: Any) -> None:
    with pytest.raises(BadArgument, match="to=None keeps tensors in memory"):
        run(None, **options)


def test_an_error_on_the_way_leaves_no_thread() -> None:
    class Failing(Labelled):
        def __getitem__(self, index: int) -> Any:
            if index == 6:
                raise OSError("away")
            return super().__getitem__(index)

    before = threading.active_count()
    with pytest.raises(OSError, match="away"):
        tl.extract(nn.Sequential(nn.Identity()), Failing(), layers=["0"], to=None, batch_size=2, progress=False)
    assert threading.active_count() == before
