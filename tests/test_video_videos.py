"""One video for each watched key: which, where, how long, under which names and settings."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leftovers import open_files
from seams import MOST_NAME_BYTES as MOST_BYTES
from seams import Statistics, Videos, palette, safe, settle
from video_checks import SMALL, bits, decoded, paths, sent, step_in

from torcheer.errors import BadArgument


def videos(folder: Path, said: list[dict[str, Any]], **settings: Any) -> Videos:
    return Videos(str(folder), {"size": list(SMALL)} | settings, said.append)


@pytest.mark.parametrize("many", [1, 4, 5, 8, 11])
def test_files_are_rolled_at_exactly_maxframes(tmp_path: Path, many: int) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said, maxframes=4)
    for step in range(many):
        all_videos.take(sent(bits(step), step=step, message="epoch:3"))
    all_videos.close()
    counts = [4] * (many // 4) + [many % 4] * bool(many % 4)
    assert paths(said) == [f"conv_output_{number}.mp4" for number in range(1, len(counts) + 1)]
    found = [decoded(tmp_path / "videos" / name) for name in paths(said)]
    assert [len(frames) for frames in found] == counts
    assert [step_in(frame, SMALL) for frames in found for frame in frames] == [step for step in range(many)]


def test_another_kind_of_picture_begins_a_new_file_and_another_batch_size_does_not(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said)
    for array in (np.ones((8, 4)), np.ones((3, 4)), np.ones(9), np.ones(7), np.ones((3, 5, 5))):
        all_videos.take(sent(array))
    all_videos.close()
    assert [len(decoded(tmp_path / "videos" / name)) for name in paths(said)] == [2, 2, 1]


def test_keys_choose_by_layer_or_by_layer_and_variable(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said, keys=["features.*/grad", "head"])
    for layer, variable in (("features.0", "output"), ("features.0", "grad"), ("head", "output"), ("header", "grad")):
        all_videos.take(sent(np.eye(3), layer, variable))
    all_videos.close()
    assert sorted(paths(said)) == ["features.0_grad_1.mp4", "head_output_1.mp4"]


def test_a_child_that_starts_again_goes_on_with_the_next_number(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    for _ in range(3):
        all_videos = videos(tmp_path, said)
        all_videos.take(sent(np.eye(3)))
        all_videos.close()
    assert paths(said) == ["conv_output_1.mp4", "conv_output_2.mp4", "conv_output_3.mp4"]


def test_no_more_files_are_open_than_allowed_and_that_is_said_once(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said, most_files=2)
    for layer in "abcdabcd":
        all_videos.take(sent(np.eye(3), layer))
    assert len(os.listdir(tmp_path / "videos")) == 2
    all_videos.close()
    (problem,) = [one["text"] for one in said if one["kind"] == "problem"]
    assert "no video of c/output and later ones: 2 are written already" in problem and "most_files" in problem


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = open_files()
    all_videos = videos(tmp_path, [], maxframes=2)
    for step in range(9):
        all_videos.take(sent(np.eye(3), step=step))
    all_videos.close()
    assert open_files() <= before


def test_what_was_summed_up_elsewhere_adds_no_frame(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said)
    nothing = Statistics(9, 0, 0, 1, 0.5, 0.1)
    all_videos.take(sent(np.zeros(0), summary=nothing))
    all_videos.close()
    assert not said


def test_a_part_of_a_tensor_says_its_whole_shape(tmp_path: Path) -> None:
    frames = []
    for more in ({}, {"whole": (4096, 4096), "stride": 64, "message": "epoch:3"}):
        all_videos = videos(tmp_path, [], lossless=True, size=[640, 480])
        all_videos.take(sent(np.linspace(-1, 1, 1000), **more))
        all_videos.close()
    frames = [decoded(path)[0] for path in sorted((tmp_path / "videos").iterdir())]
    words = [(frame[30:52] != 255).any(-1).sum() for frame in frames]
    assert words[1] > words[0] * 1.5 and (frames[0][60:] == frames[1][60:]).all()


def test_conv_weights_show_all_kernels_and_outputs_the_first_item(tmp_path: Path) -> None:
    array = np.zeros((4, 3, 5, 5), np.float32)
    array[3] = 1.0  # only in the last filter
    for variable, seen in (("weight", True), ("output", False)):
        all_videos = videos(tmp_path, [], lossless=True)
        all_videos.take(sent(array, variable=variable))
        all_videos.close()
        (frame,) = decoded(tmp_path / "videos" / f"conv_{variable}_1.mp4")
        room = frame[50:100, :100]  # left of the colour bar
        assert (room == palette.table(False)[palette.STEPS - 1]).all(-1).any() == seen


@pytest.mark.parametrize("ending", ["gif", "webp"])
def test_videos_can_be_animations(tmp_path: Path, ending: str) -> None:
    from PIL import Image

    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said, format=ending, maxframes=3)
    for step in range(5):
        all_videos.take(sent(bits(step), step=step))
        all_videos.tick()
    all_videos.close()
    counts = []
    for name in paths(said):
        with Image.open(tmp_path / "videos" / name) as image:
            counts.append(image.n_frames)
    assert counts == [3, 2] and paths(said)[0] == f"conv_output_1.{ending}"


@pytest.mark.parametrize(
    "layer",
    [
        "../../etc/passwd",
        "a/b",
        "/",
        "..",
        ".",
        "",
        "con",
        "ünï.模型",
        "a\x00b\n",
        "x" * 500,
        "é" * 300,
        "\udc80",
        "-rf",
        "🔥",
    ],
)
def test_any_name_becomes_a_file_in_the_folder(tmp_path: Path, layer: str) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said)
    all_videos.take(sent(np.eye(3), layer))
    all_videos.close()
    (file,) = (tmp_path / "videos").iterdir()
    assert file.is_file() and len(file.name.encode()) < 255 and not file.name.startswith((".", "-"))
    assert len(decoded(file)) == 1


def test_keys_whose_names_would_be_one_get_files_of_their_own(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said)
    keys = [("a/b", "x"), ("a b", "x"), ("a_b", "x"), ("a", "b_x"), ("A_B", "x"), ("x" * 200, "y"), ("x" * 201, "y")]
    for round_ in range(2):
        for layer, variable in keys:
            all_videos.take(sent(np.eye(3) * round_, layer, variable))
    all_videos.close()
    assert len({name.casefold() for name in paths(said)}) == len(keys)
    assert all(len(decoded(tmp_path / "videos" / name)) == 2 for name in paths(said))


def test_safe_names_keep_what_is_harmless() -> None:
    assert safe("features.3.weight_grad") == "features.3.weight_grad"
    assert safe("features.3:2") == "features.3-2"
    assert safe("a/b") != safe("a b") and safe("a/b").startswith("a_b-")
    assert len(safe("é" * 500).encode()) <= MOST_BYTES + 10


# Settings


def test_settings_have_defaults_and_travel_as_json() -> None:
    found = settle(True)
    assert json.loads(json.dumps(found)) == found and found["size"] == [640, 480] and found["maxframes"] == 1000
    assert settle(found) == found
    assert settle({"size": (320, 240), "keys": "conv*"}) == found | {"size": [320, 240], "keys": ["conv*"]}
    assert settle(["a", "b"])["keys"] == ["a", "b"] and settle(None) == settle(False) == {}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"frames": 5}, "no setting of videos named 'frames'"), ({"max_frames": 5}, "Did you mean 'maxframes'?"),
        ({"mode": "3d"}, "known are auto"), ({"format": "avi"}, "known are mp4, gif, webp"),
        ({"maxframes": 0}, "whole number from 1 on"), ({"most_files": True}, "whole number from 1 on"),
        ({"fps": 0}, "frames a second"), ({"size": [1, 1]}, "are possible"), ({"keys": [1]}, "must be text"),
        ({"fps": None}, "frames a second"), ({"size": 640}, "width and height"), ({"keys": 1}, "must be text"),
        (7, "give True"),
    ],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(given: Any, text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        settle(given)


def test_videos_without_a_folder_are_refused() -> None:
    with pytest.raises(BadArgument, match="give the watch one with to="):
        Videos("", settle(True), print)


def test_a_folder_that_cannot_be_made_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "videos").write_text("in the way")
    said: list[dict[str, Any]] = []
    all_videos = videos(tmp_path, said)
    for layer in "ab":
        all_videos.take(sent(np.eye(3), layer))
    all_videos.close()
    assert [one["kind"] for one in said] == ["problem"]
