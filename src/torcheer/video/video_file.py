"""Write frames to a video file: an MP4 that survives a kill, or an animated GIF or WebP."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from torcheer.disk import replacing
from torcheer.errors import BadArgument
from torcheer.video.frame_plots import SIZE, Frame
from torcheer.video.frame_text import missing

GROUP = 10  # frames from one key frame to the next
# Every frame is a separate fragment, complete on disk when the next one is written.
FRAGMENTS = {"movflags": "frag_every_frame+empty_moov+default_base_moof", "flush_packets": "1"}


class Frames(Protocol):
    """A file that frames are added to."""

    path: Path
    frames: int  # written so far

    def write(self, frame: Frame) -> None:
        """Add a frame."""

    def flush(self) -> None:
        """Flush buffered frames to the system."""

    def close(self) -> None:
        """Finish the file."""


def open_video(path: str | Path, size: tuple[int, int] = SIZE, fps: float = 20.0, *, lossless: bool = False) -> Frames:
    """A new file for frames of this size; its ending says which kind: .mp4, .gif or .webp."""
    kinds: dict[str, Callable[..., Frames]] = {".mp4": VideoFile, ".gif": AnimatedFile, ".webp": AnimatedFile}
    ending = Path(path).suffix.lower()
    if ending not in kinds:
        raise BadArgument(f"a video cannot end in {ending!r}; known are {', '.join(kinds)}")
    return kinds[ending](path, size, fps, lossless=lossless)


class VideoFile:
    """An MP4 file of which, when its writer is killed, at most the last frame is lost.

    H.264 where PyAV has it, MPEG-4 otherwise. `lossless` gives back every frame bit for bit, in a file that browsers
    do not play. A file of that name must not be there yet.
    """

    def __init__(
        self, path: str | Path, size: tuple[int, int] = SIZE, fps: float = 20.0, *, lossless: bool = False
    ) -> None:
        self.path, self.frames, self.size = Path(path), 0, checked_size(size)
        rate = frame_rate(fps)
        self._file = _Tail(self.path)
        try:
            self._container, self._stream = _encoder(self._file, self.size, rate, lossless)
        except BaseException:
            self._file.close()
            self.path.unlink(missing_ok=True)
            raise
        self._step = 1 / rate

    def write(self, frame: Frame) -> None:
        """Add a frame; where the disk is full, the file ends with the last one that fitted."""
        import av

        _check_frame(frame, self.size)
        wide, high = self._stream.width, self._stream.height
        if frame.shape[:2] != (high, wide):  # the encoder wants even numbers
            frame = np.pad(frame, ((0, high - frame.shape[0]), (0, wide - frame.shape[1]), (0, 0)), "edge")
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        # AREA: no colour bleeding from neighbouring pixels.
        picture = picture.reformat(format=self._stream.pix_fmt, interpolation="AREA")
        picture.pts, picture.time_base = self.frames, self._step
        self._send(picture)
        self.frames += 1

    def _send(self, picture: Any) -> None:
        try:
            for packet in self._stream.encode(picture):
                self._container.mux(packet)
            self._file.good = self._file.written
        except OSError:
            self._abandon()
            raise

    def flush(self) -> None:
        """Do nothing: only the last frame is pending, until the next one begins."""

    def close(self) -> None:
        """Finish the file; idempotent."""
        if self._file.closed:
            return
        self._send(None)
        try:
            self._container.close()
        except OSError:
            self._abandon()
            raise
        self._file.close()

    def _abandon(self) -> None:
        """Truncate the frame that did not fit, and the pending one before it."""
        self._file.failed = True  # the container would write its end into the middle of a frame
        self._container.close()
        self.frames = max(0, self.frames - 1)
        self._file.close(cut=True)
        if not self.frames:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Tail:
    """An append-only file that can be truncated to its last good position."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb", buffering=0)
        self.written = self.good = 0
        self.failed = self.closed = False

    def write(self, data: Any) -> int:
        """Write all of the data, or raise: a single system call may write less."""
        remaining = memoryview(data).cast("B")
        size = len(remaining)
        while len(remaining) and not self.failed:
            done = self._file.write(remaining) or 0
            self.written, remaining = self.written + done, remaining[done:]
        return size

    def close(self, cut: bool = False) -> None:
        """Close the file; `cut` truncates it to the last good position."""
        if cut:
            self._file.truncate(self.good)
        self._file.close()
        self.closed = True


def _encoder(file: _Tail, size: tuple[int, int], rate: Fraction, lossless: bool) -> tuple[Any, Any]:
    try:
        import av
    except ImportError:
        raise missing("a video", "av") from None
    container = av.open(file, "w", format="mp4", options=FRAGMENTS)
    name, pixels, options = _codec(av.codecs_available, lossless)
    stream: Any = container.add_stream(name, rate=rate, options=options)
    stream.width, stream.height = (length + length % 2 for length in size)
    stream.pix_fmt = pixels
    stream.codec_context.gop_size = GROUP
    stream.codec_context.thread_count = 1  # the other cores are for the training
    return container, stream


def _codec(available: Any, lossless: bool) -> tuple[str, str, dict[str, str]]:
    """Name, pixel format and options of the best encoder there is; each gives its packet at once."""
    quick = {"preset": "ultrafast", "tune": "zerolatency"}
    if "libx264" not in available:
        if lossless:
            raise BadArgument("this PyAV has no libx264, so no lossless MP4; try lossless=False")
        return "mpeg4", "yuv420p", {"flags": "+qscale", "global_quality": "236"}
    if lossless:
        return "libx264rgb", "rgb24", quick | {"crf": "0"}
    return "libx264", "yuv420p", quick | {"crf": "14"}


class AnimatedFile:
    """An animated GIF or WebP. It is written when it is closed: killed before, it is empty."""

    def __init__(
        self, path: str | Path, size: tuple[int, int] = SIZE, fps: float = 20.0, *, lossless: bool = False
    ) -> None:
        self.path, self.frames, self.size, self.lossless = Path(path), 0, checked_size(size), lossless
        self._rate, self._kept = frame_rate(fps), list[bytes]()
        open(self.path, "xb").close()  # reserves the name
        self._closed = False

    def write(self, frame: Frame) -> None:
        """Keep a frame, compressed, until the file is written."""
        _check_frame(frame, self.size)
        self._kept.append(zlib.compress(np.ascontiguousarray(frame).tobytes(), 1))
        self.frames += 1

    def flush(self) -> None:
        """Do nothing: the file is written by `close`."""

    def close(self) -> None:
        """Write the file, under another name until it is complete; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._kept:
                with replacing(self.path) as part:
                    self._save(part)
            else:
                self.path.unlink(missing_ok=True)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    def _save(self, path: Path) -> None:
        pictures = self._pictures()
        how: dict[str, Any] = {"lossless": self.lossless, "quality": 85, "method": 2} if path.suffix == ".webp" else {}
        next(pictures).save(
            path, save_all=True, append_images=pictures, duration=max(10, round(1000 / self._rate)), loop=0, **how
        )

    def _pictures(self) -> Iterator[Any]:
        try:
            from PIL import Image
        except ImportError:
            raise missing("an animation", "pillow") from None
        wide, high = self.size
        for compressed in self._kept:
            yield Image.frombytes("RGB", (wide, high), zlib.decompress(compressed))


def checked_size(size: Any) -> tuple[int, int]:
    """Validate the width and height of a video."""
    try:
        wide, high = (int(length) for length in size)
    except (TypeError, ValueError, OverflowError):
        raise BadArgument(
            f"the size of a video is {size!r}; it must be its width and height in pixels, such as (640, 480)"
        ) from None
    if not (16 <= wide <= 4096 and 16 <= high <= 4096):
        raise BadArgument(f"a video of {wide}×{high} pixels; from 16×16 to 4096×4096 are possible")
    return wide, high


def frame_rate(fps: Any) -> Fraction:
    """Validate the frames per second of a video."""
    try:
        if 0.01 <= float(fps) <= 1000:
            return Fraction(float(fps)).limit_denominator(1000)
    except (TypeError, ValueError):
        pass  # no number at all
    raise BadArgument(f"a video of {fps!r} frames a second; from 0.01 to 1000 are possible")


def _check_frame(frame: Frame, size: tuple[int, int]) -> None:
    if frame.shape != (size[1], size[0], 3) or frame.dtype != np.uint8:
        raise BadArgument(
            f"a frame of {frame.shape} {frame.dtype} in a video of {size[0]}×{size[1]}; "
            f"it must be ({size[1]}, {size[0]}, 3) uint8"
        )
