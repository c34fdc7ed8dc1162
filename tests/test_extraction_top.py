"""The strongest samples of each unit: those that a full sort finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer

pytestmark = pytest.mark.usefixtures("one_thread")


def stored(path: Path, data: torch.Tensor, **options: Any) -> Any:
    settings = {"layers": ["0"], "batch_size": 4, "progress": False, "writers": 2, "shard_samples": 8, **options}
    return tl.extract(nn.Sequential(nn.Identity()), data, to=path, **settings)


@pytest.mark.parametrize("shape", [(5,), (6, 5), (5, 3, 4)])
def test_they_are_those_of_a_full_sort(tmp_path: Path, shape: tuple[int, ...]) -> None:
    data = torch.randn(30, *shape, generator=torch.Generator().manual_seed(0))
    top = stored(tmp_path / "x", data).top("0", k=7)
    by_unit = data.numpy() if data.ndim < 4 else data.flatten(2).transpose(1, 2).numpy()
    by_unit = by_unit[:, None] if data.ndim == 2 else by_unit  # (samples, places, units)
    assert len(top) == 5 and top.values.shape == (5, 7)
    for unit in range(5):
        peaks = by_unit[:, :, unit].max(1)
        order = np.argsort(-peaks, kind="stable")[:7]
        assert top.samples[unit].tolist() == order.tolist() and np.array_equal(top.values[unit], peaks[order])
        for strongest in top[unit]:
            index = {1: (unit,), 2: (*strongest.position, unit), 3: (unit, *strongest.position)}[len(shape)]
            assert float(data[strongest.sample][index]) == strongest.value
            assert len(strongest.position) == len(shape) - 1


def test_samples_have_their_ids_and_there_may_be_fewer_than_k(tmp_path: Path) -> None:
    found = stored(tmp_path / "x", torch.arange(6.0)[:, None], ids=list("abcdef"))
    assert [strongest.id for strongest in found.top("0", k=10)[0]] == list("fedcba")


def test_padding_is_never_the_strongest(tmp_path: Path) -> None:
    data = torch.ones(6, 4, 2)
    data[:, 2:] = 100
    found = stored(tmp_path / "x", data, mask=lambda batch: torch.arange(4).expand(len(batch), -1) < 2)
    assert found.top("0", k=3).values.max() == 1


def test_bfloat16_is_compared_as_numbers(tmp_path: Path) -> None:
    found = stored(tmp_path / "x", torch.tensor([[-3.0], [2.0], [0.5]]).bfloat16())
    assert found.top("0", k=3).samples.tolist() == [[1, 2, 0]]


def test_a_gallery_shows_images_with_a_box_and_tokens_with_a_mark(tmp_path: Path) -> None:
    images = torch.rand(9, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    found = stored(tmp_path / "x", images, layers={"0": lambda value: value[:, :, ::2, ::2]})
    text = found.top("0", k=2).save(tmp_path / "top.html", [(image, 0) for image in images]).read_text()
    assert text.count("<figure>") == 6 and text.count("<rect") == 6 and text.count("data:image/png") == 6
    tokens = torch.arange(20).reshape(4, 5)
    words = stored(tmp_path / "y", tokens[..., None].float())
    page = words.top("0", k=1).save(tmp_path / "words.html", tokens, decode=lambda token: f"<{token}>").read_text()
    assert "<mark>&lt;19&gt;</mark>" in page and page.count("<figure>") == 1


def test_a_gallery_is_opened_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    path = stored(tmp_path / "x", torch.rand(3, 2)).top("0").show(units=[1])
    assert opened == [path.as_uri()] and "unit 1" in path.read_text() and "unit 0" not in path.read_text()


@pytest.mark.parametrize("k", [0, -1, 2.5, "3"])
def test_a_k_that_is_none_is_told(tmp_path: Path, k: Any) -> None:
    with pytest.raises(BadArgument, match="k="):
        stored(tmp_path / "x", torch.rand(3, 2)).top("0", k=k)


def test_an_unknown_layer_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnknownLayer):
        stored(tmp_path / "x", torch.rand(3, 2)).top("nope")
