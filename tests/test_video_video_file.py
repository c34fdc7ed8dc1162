"""A file of frames: it decodes to what was drawn, and survives kills and full disks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from children import Child, run_python
from seams import AnimatedFile, Caption, VideoFile, draw, open_video, video_file
from video_checks import SMALL, decoded, error_db, paths, step_in, steps

from torcheer.errors import BadArgument, TorcheerError

RANDOM = np.random.default_rng(0)


# A file


def test_a_video_decodes_frame_by_frame_to_what_was_drawn(tmp_path: Path) -> None:
    drawn = list(steps(30))
    with VideoFile(tmp_path / "a.mp4", (640, 480), 20.0) as video:
        for frame in drawn:
            video.write(frame)
    found = decoded(tmp_path / "a.mp4")
    assert len(found) == len(drawn)
    assert min(map(error_db, found, drawn)) > 32
    assert [step_in(frame, (640, 480)) for frame in found] == list(range(30))


@pytest.mark.parametrize("size", [(640, 480), (161, 121)])
def test_a_lossless_video_gives_back_every_pixel(tmp_path: Path, size: tuple[int, int]) -> None:
    drawn = list(steps(12, size))
    with VideoFile(tmp_path / "a.mp4", size, 20.0, lossless=True) as video:
        for frame in drawn:
            video.write(frame)
    for found, frame in zip(decoded(tmp_path / "a.mp4"), drawn, strict=True):
        assert (found[: size[1], : size[0]] == frame).all()


def test_noise_survives_as_well(tmp_path: Path) -> None:
    drawn = [draw(RANDOM.normal(size=(48, 64)), Caption("noise", f"step {step}")) for step in range(12)]
    with VideoFile(tmp_path / "a.mp4") as video:
        for frame in drawn:
            video.write(frame)
    assert min(map(error_db, decoded(tmp_path / "a.mp4"), drawn)) > 42


@pytest.mark.parametrize("fps", [20.0, 29.97, 0.5, 60])
def test_a_video_runs_at_its_frames_a_second(tmp_path: Path, fps: float) -> None:
    import av

    with VideoFile(tmp_path / "a.mp4", SMALL, fps) as video:
        for frame in steps(10, SMALL):
            video.write(frame)
    with av.open(str(tmp_path / "a.mp4")) as container:
        times = [frame.time for frame in container.decode(video=0)]
    assert np.allclose(np.diff(times), 1 / fps, rtol=0.01)


def test_without_h264_there_is_mpeg4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import av

    monkeypatch.setattr(av, "codecs_available", {"mpeg4"})
    drawn = list(steps(12, SMALL))
    with VideoFile(tmp_path / "a.mp4", SMALL) as video:
        for frame in drawn:
            video.write(frame)
    found = decoded(tmp_path / "a.mp4")
    assert [step_in(frame, SMALL) for frame in found] == list(range(12))
    with pytest.raises(BadArgument, match="no lossless MP4"):
        VideoFile(tmp_path / "b.mp4", SMALL, lossless=True)
    assert not (tmp_path / "b.mp4").exists()


def test_a_frame_of_another_size_is_refused(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.gif"):
        file = open_video(tmp_path / name, SMALL)
        with pytest.raises(BadArgument, match=r"it must be \(120, 160, 3\) uint8"):
            file.write(np.zeros((480, 640, 3), np.uint8))
        file.close()


def test_a_video_is_never_overwritten(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.webp"):
        (tmp_path / name).write_bytes(b"old")
        with pytest.raises(FileExistsError):
            open_video(tmp_path / name, SMALL)
        assert (tmp_path / name).read_bytes() == b"old"


@pytest.mark.parametrize(("size", "fps"), [((8, 8), 20), ((640, 5000), 20), (SMALL, 0), (SMALL, -1), (SMALL, 1e9)])
def test_what_cannot_be_a_video_is_refused(tmp_path: Path, size: tuple[int, int], fps: float) -> None:
    for name in ("a.mp4", "a.gif"):
        with pytest.raises(BadArgument, match="are possible"):
            open_video(tmp_path / name, size, fps)
    with pytest.raises(BadArgument, match=r"known are \.mp4, \.gif, \.webp"):
        open_video(tmp_path / "a.avi")
    assert not list(tmp_path.iterdir())


def test_without_pyav_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(TorcheerError, match=r"a video needs av.*pip install 'torcheer\[all\]'"):
        VideoFile(tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".gif", ".webp"])
def test_an_animation_has_all_frames_and_their_time(tmp_path: Path, ending: str) -> None:
    from PIL import Image, ImageSequence

    file = AnimatedFile(tmp_path / f"a{ending}", SMALL, 10.0, lossless=True)
    drawn = list(steps(15, SMALL))
    for frame in drawn:
        file.write(frame)
    assert (tmp_path / f"a{ending}").stat().st_size == 0  # it is written when it ends
    file.close()
    with Image.open(tmp_path / f"a{ending}") as image:
        found = [np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
        assert image.info["duration"] == 100
    assert [step_in(frame, SMALL) for frame in found] == list(range(15))
    assert min(map(error_db, found, drawn)) > (90 if ending == ".webp" else 35)
    assert [one.name for one in tmp_path.iterdir()] == [f"a{ending}"]


def test_an_animation_without_frames_leaves_no_file(tmp_path: Path) -> None:
    AnimatedFile(tmp_path / "a.gif", SMALL).close()
    assert not list(tmp_path.iterdir())


def test_an_encoder_uses_one_thread_and_short_groups(tmp_path: Path) -> None:
    import av

    assert video_file.GROUP <= 10
    with VideoFile(tmp_path / "a.mp4", SMALL) as video:
        for frame in steps(25, SMALL):
            video.write(frame)
    with av.open(str(tmp_path / "a.mp4")) as container:
        keys = [index for index, packet in enumerate(container.demux(video=0)) if packet.is_keyframe and packet.size]
    assert keys == [0, 10, 20]


# Kills and full disks

WRITER = """
import sys, signal, os, resource, json
import numpy as np
from torcheer.video.array_frames import Caption, Running, draw
from torcheer.video.videos import VideoFile, Videos
from torcheer.monitor.child_plan import Plan, Delivery
from torcheer.records import Sample
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_python("-c", WRITER + code, *arguments, status=None)


def test_all_but_the_last_frame_survive_a_kill(tmp_path: Path) -> None:
    killed = run(
        """
sys.path.insert(0, sys.argv[2])
from video_checks import steps
video = VideoFile(sys.argv[1])
for count, frame in enumerate(steps(200), 1):
    video.write(frame)
    if count == 95:
        os.kill(os.getpid(), signal.SIGKILL)
""",
        tmp_path / "a.mp4",
        Path(__file__).parent,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    found = decoded(tmp_path / "a.mp4")
    assert len(found) >= 94
    assert [step_in(frame, (640, 480)) for frame in found[:94]] == list(range(94))


def test_a_full_disk_ends_one_video_after_its_last_whole_frame_and_the_others_go_on(tmp_path: Path) -> None:
    done = run(
        """
sys.dont_write_bytecode = True  # or half a .pyc is left of what is imported from here on
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
random = np.random.default_rng(0)
said = []
videos = Videos(sys.argv[1], {"size": [640, 480], "keys": ["*"]}, said.append)
for step in range(40):
    videos.take(Delivery(Sample(step, "noise", "output", array=random.normal(size=(120, 160)))))
    videos.take(Delivery(Sample(step, "more_noise", "output", array=random.normal(size=(120, 160)))))
    videos.take(Delivery(Sample(step, "calm", "output", array=np.eye(4))))
    videos.tick()
videos.close()
videos.close()
print(json.dumps(said))
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    (alert,) = [one for one in said if one["kind"] == "alert"]
    assert alert["rule"] == "disk_full" and alert["variable"].startswith("video of ")
    assert alert["what"] == f"File too large in {tmp_path / 'videos'}: it ends here"
    assert sorted(paths(said)) == ["calm_output_1.mp4", "more_noise_output_1.mp4", "noise_output_1.mp4"]
    assert len(decoded(tmp_path / "videos" / "calm_output_1.mp4")) == 40
    for name in ("noise", "more_noise"):
        found = decoded(tmp_path / "videos" / f"{name}_output_1.mp4")
        assert 1 <= len(found) < 40 and all(frame.shape == (480, 640, 3) for frame in found)


@pytest.mark.parametrize(
    ("limit", "ending"), [(0, "mp4"), (100, "mp4"), (700, "mp4"), (20_000, "mp4"), (2000, "gif"), (2000, "webp")]
)
def test_a_disk_without_room_for_it_is_an_alert_and_leaves_no_file(tmp_path: Path, limit: int, ending: str) -> None:
    done = run(
        """
limit = int(sys.argv[2])
sys.dont_write_bytecode = True  # or half a .pyc is left of what is imported from here on
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
said = []
videos = Videos(sys.argv[1], True if sys.argv[3] == "mp4" else {"format": sys.argv[3]}, said.append)
for step in range(3):
    videos.take(Delivery(Sample(step, "noise", "output", array=np.random.default_rng(step).normal(size=(240, 320)))))
videos.close()
print([one["kind"] for one in said])
""",
        tmp_path,
        limit,
        ending,
    )
    assert done.returncode == 0 and done.stdout == "['alert']\n", (done.stdout, done.stderr)
    assert not list((tmp_path / "videos").iterdir())


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(12))
def test_whenever_the_writer_is_killed_what_it_had_written_can_be_watched(tmp_path: Path, seed: int) -> None:
    code = """
sys.path.insert(0, sys.argv[2])
from video_checks import steps
video = VideoFile(sys.argv[1])
for count, frame in enumerate(steps(4000), 1):
    video.write(frame)
    print(count, flush=True)
"""
    with Child("-c", WRITER + code, tmp_path / "a.mp4", Path(__file__).parent) as writer:
        last, wanted = 0, int(np.random.default_rng(seed).integers(2, 120))
        while last < wanted:
            last = int(writer.line())
        writer.kill()
        last = max([last, *map(int, writer.ends(-signal.SIGKILL).split())])
    found = [frame for frame in decoded(tmp_path / "a.mp4") if frame.size]
    assert len(found) >= last - 1
    assert [step_in(frame, (640, 480)) for frame in found] == list(range(len(found)))
