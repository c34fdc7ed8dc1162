"""The seed's DataRecorder: its names, its files, its travels."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import run_python
from seams import palette
from video_checks import SMALL, bits, decoded, step_in

from torcheer.errors import BadArgument
from torcheer.inspector import DataRecorder


def record(recorder: DataRecorder, many: int, key: str = "model", unique_id: int = 0, start: int = 0) -> None:
    for step in range(start, start + many):
        recorder.tensor_plot2D(
            unique_id=unique_id, key=key, internal_message="epoch:3", message=str(step), input_data=bits(step)
        )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_seeds_line_makes_a_recorder_and_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = DataRecorder((640, 480), 20.0, 100, "output")
    assert recorder.maxframes == 100 and recorder.fps == 20.0 and not list(tmp_path.iterdir())
    recorder.flush()
    assert not list(tmp_path.iterdir())


def test_the_later_form_is_understood_too(tmp_path: Path) -> None:
    recorder = DataRecorder(
        shape_expected=(640, 480), fps=20.0, maxframes=20, path_root=str(tmp_path), colorBGR=(255, 0, 255),
        displayND_mode="default",
    )  # fmt: skip
    assert recorder.shape == (640, 480) and recorder.output_folder == tmp_path
    DataRecorder((640, 480), 20.0, 20, tmp_path, (255, 0, 255), "pca")


def test_files_are_named_by_key_device_process_and_number_and_rolled_at_maxframes(tmp_path: Path) -> None:
    recorder = DataRecorder(SMALL, 20.0, 4, tmp_path / "deep" / "output")
    record(recorder, 10)
    record(recorder, 3, "classifier0_", unique_id=7)
    recorder.flush()
    folder = tmp_path / "deep" / "output"
    wanted = {"classifier0__cpu_7_1_video.mp4": 3} | {
        f"model_cpu_0_{number}_video.mp4": count for number, count in ((1, 4), (2, 4), (3, 2))
    }
    assert {name: len(decoded(folder / name)) for name in names(folder)} == wanted
    rolled = [frame for number in (1, 2, 3) for frame in decoded(folder / f"model_cpu_0_{number}_video.mp4")]
    assert [step_in(frame, SMALL) for frame in rolled] == list(range(10))


@pytest.mark.parametrize(("device", "name"), [("cuda:1", "1"), ("cuda", "0"), ("cpu", "cpu"), (None, "cpu")])
def test_the_device_is_part_of_the_name(tmp_path: Path, device: str | None, name: str) -> None:
    recorder = DataRecorder(SMALL, 20.0, 4, tmp_path)
    recorder.tensor_plot2D(3, "conv", "", "", np.eye(3), device=device)
    recorder.flush()
    assert names(tmp_path) == [f"conv_{name}_3_1_video.mp4"]


def test_a_key_may_hold_anything(tmp_path: Path) -> None:
    recorder = DataRecorder(SMALL, 20.0, 4, tmp_path / "output")
    for key in ("../escape", "a/b", "a b", "x" * 400, ""):
        record(recorder, 1, key)
    recorder.flush()
    assert names(tmp_path) == ["output"] and len(names(tmp_path / "output")) == 5


def test_no_two_keys_share_a_name(tmp_path: Path) -> None:
    recorder = DataRecorder(SMALL, 20.0, 2, tmp_path)
    for step in range(3):
        for key in ("conv:2", "conv-2", "conv_2"):
            recorder.tensor_plot2D(0, key, "", str(step), np.eye(3))
    recorder.flush()
    found = sorted(path.name.removesuffix("_video.mp4") for path in tmp_path.iterdir())
    assert len(found) == 6 and "conv-2_cpu_0_1" in found
    for name in {name.rpartition("_")[0] for name in found}:
        assert len(decoded(tmp_path / f"{name}_1_video.mp4")) == 2
        assert len(decoded(tmp_path / f"{name}_2_video.mp4")) == 1


def test_flush_ends_the_files_and_a_later_frame_begins_the_next(tmp_path: Path) -> None:
    recorder = DataRecorder(SMALL, 20.0, 100, tmp_path)
    record(recorder, 2)
    recorder.flush()
    recorder.flush()
    record(recorder, 3)
    recorder.flush()
    assert [len(decoded(tmp_path / name)) for name in names(tmp_path)] == [2, 3]


def test_a_run_replaces_the_videos_of_the_run_before_as_the_seed_did(tmp_path: Path) -> None:
    for many in (2, 3):
        recorder = DataRecorder(SMALL, 20.0, 100, tmp_path)
        record(recorder, many)
        recorder.flush()
        os.utime(tmp_path / "model_cpu_0_1_video.mp4", (1, 1))
    assert names(tmp_path) == ["model_cpu_0_1_video.mp4"] and len(decoded(tmp_path / names(tmp_path)[0])) == 3


def test_a_child_that_starts_again_keeps_what_the_killed_one_wrote(tmp_path: Path) -> None:
    recorder = DataRecorder(SMALL, 20.0, 100, tmp_path)
    (tmp_path / "recorder").write_bytes(pickle.dumps(recorder))
    code = """
import os, pickle, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_inspector_data_recorder import record
record(pickle.loads((Path(sys.argv[1]) / "recorder").read_bytes()), 7)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run_python("-c", code, tmp_path, Path(__file__).parent, status=-signal.SIGKILL)
    again = pickle.loads((tmp_path / "recorder").read_bytes())
    record(again, 2)
    again.flush()
    assert len(decoded(tmp_path / "model_cpu_0_1_video.mp4")) == 6  # all but the last
    assert len(decoded(tmp_path / "model_cpu_0_2_video.mp4")) == 2


@pytest.mark.parametrize("protocol", ["pickle", "cloudpickle"])
def test_a_recorder_travels_even_with_open_files(tmp_path: Path, protocol: str) -> None:
    packer = pytest.importorskip(protocol)
    recorder = DataRecorder(SMALL, 20.0, 100, tmp_path, (0, 0, 255), "pca")
    record(recorder, 2)
    there = pickle.loads(packer.dumps(recorder.tensor_plot2D)).__self__
    record(there, 3)
    there.flush()
    recorder.flush()
    assert [len(decoded(tmp_path / name)) for name in names(tmp_path)] == [2, 3]
    assert there.displayND_mode == "pca" and there.colorBGR == (0, 0, 255)


def test_torch_tensors_are_welcome(tmp_path: Path) -> None:
    import torch

    recorder = DataRecorder(SMALL, 20.0, 100, tmp_path)
    arrays: list[Any] = [
        torch.randn(1, 5, 5), torch.randn(2, 3, 4, 4).bfloat16(), torch.zeros(0), torch.tensor(3), torch.ones(4) > 0,
        torch.tensor(float("nan")), torch.arange(9), torch.randn(3, 3, requires_grad=True),
        torch.randn(4, 4).to(torch.complex64),
    ]  # fmt: skip
    for array in arrays:
        recorder.tensor_plot2D(0, "conv", "epoch:3", "1", array)
    recorder.flush()
    assert len(decoded(tmp_path / "conv_cpu_0_1_video.mp4")) == len(arrays)


@pytest.mark.parametrize("mode", [None, "default", "histogram", "pca", "force2D", "heat", "tiles", "auto"])
def test_the_mode_is_about_more_than_two_axes_only(tmp_path: Path, mode: str | None) -> None:
    plain, chosen = (
        DataRecorder(SMALL, 20.0, 100, tmp_path / name, None, one) for name, one in (("a", None), ("b", mode))
    )
    cube = np.random.default_rng(0).normal(size=(5, 6, 7))
    for recorder in (plain, chosen):
        for array in (bits(5), bits(5)[None], cube[0, 0], cube):
            recorder.tensor_plot2D(0, "conv", "", "", array)
        recorder.flush()
    first, second = (decoded(tmp_path / name / "conv_cpu_0_1_video.mp4") for name in "ab")
    assert all((one == two).all() for one, two in zip(first[:3], second[:3]))
    assert (first[3] == second[3]).all() == (mode in (None, "default", "histogram"))


def test_the_text_has_the_colour_asked_for_in_blue_green_red(tmp_path: Path) -> None:
    recorder = DataRecorder((640, 480), 20.0, 100, tmp_path, colorBGR=(0, 0, 255))
    recorder.tensor_plot2D(0, "conv", "epoch:3", "12", np.eye(3))
    recorder.flush()
    head = decoded(tmp_path / "conv_cpu_0_1_video.mp4")[0][:50].astype(int)
    red, blue = (head[..., 0] - head[..., 2] > 100).sum(), (head[..., 2] - head[..., 0] > 100).sum()
    assert red > 50 and blue == 0 and palette.INK[0] < 60


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"shape": (640, 480)}, "neither of output_folder and path_root"), ({"path_root": "x"}, "neither of shape"),
        ({"shape": (1, 1), "path_root": "x"}, "are possible"),
        ({"shape": SMALL, "output_folder": "x", "path_root": "x"}, "both of output_folder and path_root"),
        ({"shape": SMALL, "output_folder": "x", "maxframes": 0}, "at least one frame"),
        ({"shape": SMALL, "output_folder": "x", "maxframes": "100"}, "at least one frame"),
        ({"shape": SMALL, "output_folder": "x", "fps": 0}, "frames a second"),
        ({"shape": SMALL, "output_folder": "x", "fps": "fast"}, "a video of 'fast' frames a second"),
        ({"shape": 640, "output_folder": "x"}, "it must be its width and height in pixels"),
        ({"shape": SMALL, "output_folder": 5}, "output_folder is 5; it must be the path of a folder"),
        ({"shape": SMALL, "output_folder": "x", "colorBGR": 3}, "blue, green, red"),
        ({"shape": SMALL, "output_folder": "x", "displayND_mode": "tsne"}, "known are default, auto"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(BadArgument, match=text):
        DataRecorder(**arguments)


def test_a_full_disk_is_an_error_and_keeps_the_frames_that_fitted(tmp_path: Path) -> None:
    code = """
import resource, sys
import numpy as np
from torcheer.inspector.data_recorder import DataRecorder
sys.dont_write_bytecode = True  # or half a .pyc is left of what is imported from here on
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
recorder = DataRecorder((640, 480), 20.0, 100, sys.argv[1])
random = np.random.default_rng(0)
try:
    for step in range(100):
        recorder.tensor_plot2D(0, "noise", "", str(step), random.normal(size=(120, 160)))
except OSError as error:
    print(error.strerror)
recorder.tensor_plot2D(0, "calm", "", "", np.eye(3))
recorder.flush()
"""
    done = run_python("-c", code, tmp_path)
    assert done.returncode == 0 and done.stdout == "File too large\n", done.stderr
    assert 1 <= len(decoded(tmp_path / "noise_cpu_0_1_video.mp4")) < 100
    assert len(decoded(tmp_path / "calm_cpu_0_1_video.mp4")) == 1
