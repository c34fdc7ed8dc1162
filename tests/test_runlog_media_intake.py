"""What people log beside numbers: what is taken, what is refused and with which words, how much of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from seams import Media, MediaIntake, media_intake

import torcheer as tl
from torcheer.studio import Table


def split(**entries: Any) -> tuple[dict[str, Any], list[Media], list[str]]:
    problems: list[str] = []
    numbers, samples = MediaIntake(problems.append).split(entries, 0)
    return dict(numbers), samples, problems


def sample(**entries: Any) -> Media:
    numbers, samples, problems = split(**entries)
    assert not problems and not numbers and len(samples) == 1
    return samples[0]


@pytest.mark.parametrize("number", [1, 0.5, True, np.float32(2), np.ones(1), torch.ones(()), torch.ones(1, 1)])
@pytest.mark.parametrize("name", ["loss", "image", "audio", "text", "table", "confusion"])
def test_a_number_stays_a_number_under_any_name(name: str, number: Any) -> None:
    numbers, samples, problems = split(**{name: number})
    assert numbers == {name: number} and not samples and not problems


@pytest.mark.parametrize("value", ["a text", np.ones(3), [1, 2], None, {"a": 1}])
def test_under_a_name_of_ones_own_only_the_type_makes_a_sample(value: Any) -> None:
    numbers, samples, problems = split(mine=value)
    assert list(numbers) == ["mine"] and not samples and not problems


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((5, 7), "HW"), ((5, 7, 3), "HWC"), ((3, 5, 7), "CHW"), ((1, 5, 7), "CHW"), ((5, 7, 4), "HWC"),
     ((2, 5, 7, 3), "NHWC"), ((2, 3, 5, 7), "NCHW"), ((1, 1, 28, 28), "NCHW")],
)  # fmt: skip
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32, torch.bfloat16, torch.bool])
def test_the_shape_of_an_image_says_what_its_axes_are(shape: tuple[int, ...], layout: str, kind: Any) -> None:
    made = sample(image=torch.zeros(shape, dtype=kind))
    assert (made.kind, made.name, made.item, made.record) == ("image", "image", -1, {"layout": layout})
    if kind is not torch.bfloat16:
        assert sample(image=torch.zeros(shape, dtype=kind).numpy()).record == {"layout": layout}


def test_a_layout_that_is_said_holds() -> None:
    grey = np.zeros((3, 8, 8), np.uint8)
    assert sample(image=grey).record["layout"] == "CHW"
    assert sample(image=tl.Image(grey, layout="NHW")).record["layout"] == "NHW"


def test_pil_images_of_every_mode_are_taken() -> None:
    Image = pytest.importorskip("PIL.Image")
    for mode, channels in {"L": None, "RGB": 3, "RGBA": 4, "P": 3, "1": 3, "CMYK": 3, "LA": 4}.items():
        made = sample(image=Image.new(mode, (7, 5)))
        assert made.array.shape == ((5, 7) if channels is None else (5, 7, channels)), mode


def test_a_list_is_several_samples_each_with_its_caption() -> None:
    _, samples, problems = split(faces=[tl.Image(np.zeros((4, 5)), caption="a"), tl.Image(np.zeros((9, 9)))])
    assert [(made.name, made.item, made.record.get("caption")) for made in samples] == [
        ("faces", 0, "a"), ("faces", 1, None)
    ]  # fmt: skip
    assert not problems and [made.item for made in split(text=["one", "two"])[1]] == [0, 1]


def test_tables_of_every_form_have_the_same_cells() -> None:
    rows = [{"word": "cat", "p": 0.25}, {"word": "dog", "p": 0.5}]
    columns = {"word": ["cat", "dog"], "p": torch.tensor([0.25, 0.5])}
    forms = [rows, columns, pytest.importorskip("pandas").DataFrame(rows), Table(columns), tl.TableOf(rows)]
    texts = {sample(table=form).array.tobytes() for form in forms}
    assert texts == {b'{"word": ["cat", "dog"], "p": [0.25, 0.5]}'}


def test_a_confusion_matrix_is_also_a_list_of_rows() -> None:
    made = sample(confusion=[[5, 1], [0, 7]])
    assert made.array.tolist() == [[5, 1], [0, 7]] and made.record == {"names": []}
    assert sample(val=tl.Confusion(torch.eye(2), names=("a", "b"), caption="x")).record == {
        "caption": "x", "names": ["a", "b"]
    }  # fmt: skip


REFUSALS: dict[str, tuple[Any, str]] = {
    "image as a list of numbers": ({"image": [[0.0, 1.0]]}, "image 'image' is a list; an image is an array"),
    "image as None": ({"image": None}, "image 'image' is a NoneType"),
    "image of labels": ({"image": np.zeros((5, 5), np.int64)}, "type int64; uint8 and floats from 0 to 1 are drawn"),
    "image with two channels": ({"image": np.zeros((5, 6, 7, 2))}, "5×6×7×2; an image is H×W"),
    "image that is ambiguous": ({"image": np.zeros((3, 5, 3))}, "3×5×3, channels first or last: say layout='HWC' or"),
    "batch of grey images": ({"image": np.zeros((16, 28, 28))}, "tl.Image(x, layout='NHW')"),
    "image of five axes": ({"image": np.zeros((1, 1, 1, 5, 5))}, "1×1×1×5×5; an image is"),
    "image that is empty": ({"image": np.zeros((0, 3, 8, 8))}, "is empty: its shape is 0×3×8×8"),
    "layout that is none": ({"a": tl.Image(np.zeros((5, 5)), layout="WH")}, "no layout 'WH'; there are HW, HWC"),
    "layout of another shape": ({"a": tl.Image(np.zeros((5, 5)), layout="CHW")}, "5×5, which is not CHW"),
    "image that is large": ({"image": np.zeros((2000, 2000, 3))}, "has 91.6 MB, and a sample may have 8.0 MB. Try"),
    "image that is sparse": ({"image": torch.eye(5).to_sparse()}, "cannot be kept; to_dense() may help"),
    "image without values": ({"image": torch.zeros(5, 5, device="meta")}, "on meta cannot be kept"),
    "audio without a rate": ({"audio": np.zeros(100)}, "says no rate, and it is not guessed: log tl.Audio(x, rate="),
    "audio of a strange rate": ({"a": tl.Audio(np.zeros(9), rate=0)}, "rate=0; it is a whole number"),
    "audio of a rate as text": ({"a": tl.Audio(np.zeros(9), rate="16k")}, "rate='16k'; it is"),  # type: ignore[arg-type]
    "audio turned around": ({"a": tl.Audio(np.zeros((99, 2)), rate=8)}, "99×2; it is one row of numbers, or channels"),
    "audio of bytes": ({"a": tl.Audio(np.zeros(9, np.uint8), rate=8)}, "type uint8; floats from -1 to 1"),
    "audio as text": ({"a": tl.Audio("a.wav", rate=8)}, "audio 'a' is a str; audio is an array"),
    "text that is none": ({"text": {"a": 1}}, "text 'text' is a dict, not a text. Try str(x), or json.dumps"),
    "text of bytes": ({"text": b"abc"}, "text 'text' is a bytes"),
    "table of numbers": ({"table": np.zeros((3, 3))}, "is a ndarray; a table is a list of dicts"),
    "table of lists": ({"table": [[1, 2]]}, "is a list; a table is a list of dicts"),
    "table without rows": ({"table": []}, "has no rows"),
    "table of unequal columns": ({"table": {"a": [1], "b": [1, 2]}}, "different lengths: {'a': 1, 'b': 2}"),
    "table with a number as a column": ({"table": {"a": 1}}, "column 'a' is a int, not a list of cells"),
    "table with a name twice": ({"table": {1: [1], "1": [2]}}, "two of its columns have the same name"),
    "table that is long": ({"table": {"a": range(10_001)}}, "has 10,001 rows and 1 column; at most 10,000"),
    "matrix that is not square": ({"confusion": np.zeros((2, 3))}, "2×3; it is classes × classes"),
    "matrix with other names": ({"a": tl.Confusion(np.eye(3), names=["x"])}, "3 classes and 1 name: ['x']"),
    "matrix of texts": ({"confusion": [["a", "b"], ["c", "d"]]}, "cannot be kept"),
    "list of strangers": ({"a": [tl.Text("x"), 3]}, "a list that holds a int beside samples"),
    "list that is long": ({"text": ["x"] * 65}, "is a list of 65; at most 64 are logged at once"),
    "empty list": ({"image": []}, "is an empty list: there is nothing to log"),
    "name that is long": ({"x" * 201: tl.Text("x")}, "a name of 201 characters; at most 200"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_logged_is_said_and_nothing_raises(case: str) -> None:
    entries, words = REFUSALS[case]
    numbers, samples, problems = split(**entries, loss=0.5)
    assert numbers == {"loss": 0.5} and len(problems) == 1
    assert words in problems[0]
    assert len(samples) == (1 if case == "list of strangers" else 0)


def test_an_object_that_fails_in_its_own_way_is_said_too() -> None:
    class Odd:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no")

    assert split(image=Odd())[2] == ["'image' cannot be logged: RuntimeError: no"]


def test_an_object_that_refuses_every_question_is_said_too() -> None:
    class Refuses:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"there is no {name} today")

    (problem,) = split(image=Refuses())[2]
    assert "'image'" in problem


def test_all_samples_of_a_step_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_intake, "MOST_STEP_BYTES", 1000)
    problems: list[str] = []
    intake, image = MediaIntake(problems.append), np.zeros((20, 20), np.uint8)
    counts = [len(intake.split({"image": image}, step)[1]) for step in (0, 0, 0, 1)]
    assert counts == [1, 1, 0, 1] and len(problems) == 1
    assert "the samples of one step have more than 1000 B" in problems[0]


def test_captions_are_cut_and_a_tables_title_is_one() -> None:
    assert len(sample(a=tl.Text("x", caption="y" * 5000)).record["caption"]) == 2000
    assert sample(a=Table({"b": [1]}, title="Words")).record["caption"] == "Words"
    assert sample(a=tl.TableOf([{"b": None}], caption="Words")).record["caption"] == "Words"
    assert "caption" not in sample(a=Table({"b": [1]})).record
