"""The strongest samples of each unit: those that a full sort finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import Strongest, _numbers
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
    assert text.count("<figure>") == 6 and text.count("<rect") == 12 and text.count("data:image/png") == 6
    tokens = torch.arange(20).reshape(4, 5)
    words = stored(tmp_path / "y", tokens[..., None].float())
    page = words.top("0", k=1).save(tmp_path / "words.html", tokens, decode=lambda token: f"<{token}>").read_text()
    assert ">&lt;19&gt;</mark>" in page and page.count("<mark") == 1
    assert ">&lt;15&gt;&lt;16&gt;&lt;17&gt;&lt;18&gt;</span>" in page and "sample 3, token 4" in page


def test_a_line_of_tokens_has_the_spaces_of_the_text(tmp_path: Path) -> None:
    texts = ["An", " em", "bedd", "ing", " layer"]
    values = torch.tensor([[0.0, 1, 5, 2, 0]])[..., None]
    page = stored(tmp_path / "x", values).top("0", k=1).save(
        tmp_path / "words.html", [np.arange(5)], decode=texts.__getitem__
    )  # fmt: skip
    assert "<span>An em</span>" in page.read_text() and ">bedd</mark>ing layer</span>" in page.read_text()


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.4444, 0.42, 0.4], ["0.444", "0.420", "0.400"]),
        ([123.4, 7, -1], ["123", "7", "-1"]),
        ([2e9, 1e9], ["2.00e+09", "1.00e+09"]),
        ([float("inf"), 1.5], ["inf", "1.50"]),
        ([0.0], ["0.00"]),
    ],
)
def test_the_numbers_of_a_unit_have_the_same_decimals(values: list[float], texts: list[str]) -> None:
    assert _numbers([Strongest(value, 0, 0, ()) for value in values]) == texts


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


# Gathered while extracting


def same_top(first: Any, second: Any, k: int = 7) -> bool:
    tops = [features.top("0", k=k) for features in (first, second)]
    return all([tops[0][unit] == tops[1][unit] for unit in range(len(tops[0]))]) and tops[0].grid == tops[1].grid


@pytest.mark.parametrize("shape", [(5,), (6, 5), (5, 3, 4), (5, 2, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_what_was_gathered_is_what_reading_finds(tmp_path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    data = (torch.randn(30, *shape, generator=torch.Generator().manual_seed(0)) * 3).abs().to(dtype)  # many are equal
    gathered = stored(tmp_path / "x", data, top=True)
    assert same_top(gathered, stored(tmp_path / "y", data))
    assert np.array_equal(gathered["0"][:], stored(tmp_path / "y", data)["0"][:])


def test_the_layer_is_not_read_where_peaks_were_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torcheer.extraction import ExtractedLayer

    features = stored(tmp_path / "x", torch.rand(9, 6, 5), top=True)
    monkeypatch.setattr(ExtractedLayer, "batch", lambda *arguments: pytest.fail("the layer was read"))
    assert features.top("0", k=3).values.shape == (5, 3)


def test_gathered_peaks_leave_padding_out_and_samples_without_a_position(tmp_path: Path) -> None:
    data = torch.randn(9, 4, 2, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([2, 0, 4, 1, 3, 0, 0, 4, 2])
    data[:, 0, 0] = torch.arange(9)  # a sample says which it is

    def mask(batch: torch.Tensor) -> torch.Tensor:
        return torch.arange(4) < lengths[batch[:, 0, 0].long(), None]

    gathered = stored(tmp_path / "x", data, mask=mask, top=True)
    assert same_top(gathered, stored(tmp_path / "y", data, mask=mask), k=4)
    assert {1, 5, 6}.isdisjoint(gathered.top("0", k=9).samples.flatten().tolist())


def test_an_extraction_that_failed_and_went_on_has_the_same_peaks(tmp_path: Path) -> None:
    data = torch.randn(30, 6, 5, generator=torch.Generator().manual_seed(0))

    class Failing(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 30

        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 21:
                raise OSError("gone")
            return data[index]

    with pytest.raises(OSError, match="gone"):
        stored(tmp_path / "x", Failing(), top=True)  # type: ignore[arg-type]
    again, whole = (stored(tmp_path / name, data, top=True) for name in ("x", "whole"))
    assert same_top(again, whole) and again.verify() == whole.verify()


def test_samples_of_different_shapes_are_read(tmp_path: Path) -> None:
    layers = {"0": lambda value: [row[: 1 + index] for index, row in enumerate(value)]}
    data = torch.randn(8, 6, 5, generator=torch.Generator().manual_seed(0))
    assert same_top(stored(tmp_path / "x", data, layers=layers, top=True), stored(tmp_path / "y", data, layers=layers))


def test_an_extraction_begun_without_peaks_does_not_go_on_with_them(tmp_path: Path) -> None:
    data = torch.rand(3, 2)
    stored(tmp_path / "x", data)
    with pytest.raises(BadArgument, match="top=False, not True"):
        stored(tmp_path / "x", data, top=True)


@pytest.mark.parametrize("top", [16, "layer", None])
def test_a_top_that_is_no_switch_is_told(tmp_path: Path, top: Any) -> None:
    with pytest.raises(BadArgument, match="top="):
        stored(tmp_path / "x", torch.rand(3, 2), top=top)
