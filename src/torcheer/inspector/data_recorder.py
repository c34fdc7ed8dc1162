"""The seed's `DataRecorder`: a callback that makes a video of every key it is called with."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass
from torcheer.video.array_display import core
from torcheer.video.array_frames import MODES, Running, draw
from torcheer.video.file_names import digest, safe
from torcheer.video.frame_layout import Caption
from torcheer.video.palette import Colour
from torcheer.video.video_file import VideoFile, checked_size, frame_rate

_Key = tuple[str, str, int]  # key, device, unique id


class DataRecorder(metaclass=PublicClass):
    """Makes a video of every tensor key: `{key}_{device}_{id}_{n}_video.mp4`, a new one after `maxframes`.

    A matrix (or 1×W×H) is drawn as a heat map; `displayND_mode` says how everything with more axes is: "default" as a
    histogram, "pca" as points on its two principal axes ("pca_lowrank": a point for each entry of its first axis),
    "force2D" as a matrix, "tiles" as maps side by side. `shape_expected` and `path_root` are what later forms of the
    class call `shape` and `output_folder`.

    - `fps`: frames a second of the video.
    - `colorBGR`: colour of lines and points: blue, green, red, each from 0 to 255.

    >>> dr = DataRecorder((640, 480), 20.0, 100, "output")
    """

    def __init__(
        self,
        shape: tuple[int, int] | None = None,
        fps: float = 20.0,
        maxframes: int = 100,
        output_folder: str | Path | None = None,
        colorBGR: tuple[int, int, int] | None = None,
        displayND_mode: str | None = None,
        *,
        shape_expected: tuple[int, int] | None = None,
        path_root: str | Path | None = None,
    ) -> None:
        self.shape = checked_size(_either("shape", shape, "shape_expected", shape_expected))
        folder = _either("output_folder", output_folder, "path_root", path_root)
        if not isinstance(folder, str | os.PathLike):
            raise BadArgument(f"output_folder is {folder!r}; it must be the path of a folder, such as 'output'")
        self.output_folder = Path(folder)
        frame_rate(fps)
        self.fps, self.maxframes = float(fps), _most_frames(maxframes)
        self.colorBGR, self.displayND_mode = colorBGR, displayND_mode
        self._colour, self._mode = _colour(colorBGR), _mode(displayND_mode)
        self._born = time.time()
        self._start()

    def _start(self) -> None:
        self._files: dict[_Key, VideoFile] = {}
        self._names: dict[_Key, str] = {}
        self._numbers: dict[_Key, int] = {}
        self._running: dict[_Key, Running] = {}

    @property
    def shape_expected(self) -> tuple[int, int]:
        """The size of the video: width, height."""
        return self.shape

    @property
    def path_root(self) -> str:
        """The folder of the videos."""
        return str(self.output_folder)

    def tensor_plot2D(
        self,
        unique_id: int,
        key: str,
        internal_message: str,
        message: str,
        input_data: Any,
        device: str | None = None,
    ) -> None:
        """Draw a tensor, torch's or numpy's, and add it to the video of its key."""
        where = (str(key), _device_name(device or getattr(input_data, "device", "cpu")), int(unique_id))
        running = self._running.setdefault(where, Running())
        caption = Caption(str(key), str(message), str(internal_message), colour=self._colour)
        if self.displayND_mode == "pca_lowrank" and len(lengths := core(input_data.shape)) > 2:
            input_data = input_data.reshape(lengths[0], -1)
            caption = replace(caption, shape=lengths)
        frame = draw(input_data, caption, size=self.shape, mode=self._mode_for(input_data), running=running)
        file = self._files.get(where)
        if file is not None and file.frames >= self.maxframes:
            del self._files[where]
            file.close()
            file = None
        if file is None:
            file = self._files[where] = self._next_file(where)
        try:
            file.write(frame)
        except OSError:
            del self._files[where]
            raise

    def flush(self) -> None:
        """Finish all videos; a frame that comes later begins a new one."""
        problem: OSError | None = None
        while self._files:
            _, file = self._files.popitem()
            try:
                file.close()
            except OSError as error:  # finish the others
                problem = error
        if problem is not None:
            raise problem

    def _mode_for(self, input_data: Any) -> str:
        """The mode for this shape: `displayND_mode` is only about more than two axes."""
        return self._mode if len(core(getattr(input_data, "shape", ()))) > 2 else "auto"

    def _next_file(self, where: _Key) -> VideoFile:
        """The next of a key's files. One that is older than this recorder is of an earlier run, and replaced."""
        self.output_folder.mkdir(parents=True, exist_ok=True)
        name = self._names.get(where) or self._names.setdefault(where, self._new_name(where))
        while True:
            number = self._numbers[where] = self._numbers.get(where, 0) + 1
            path = self.output_folder / f"{name}_{number}_video.mp4"
            try:
                if path.exists() and path.stat().st_mtime < self._born - 1:  # file timestamps may lag behind
                    os.unlink(path)
                return VideoFile(path, self.shape, self.fps)
            except FileExistsError:
                continue  # written by a child that was killed: it may hold the frames that matter

    def _new_name(self, where: _Key) -> str:
        """What a key's files are called; no two keys share it."""
        key, device, unique_id = where
        name = f"{safe(key)}_{device}_{unique_id}"
        return name if name not in self._names.values() else f"{safe(key)}-{digest(key)}_{device}_{unique_id}"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the settings only; open files stay in this process."""
        local_state = ("_files", "_names", "_numbers", "_running")
        return {name: value for name, value in self.__dict__.items() if name not in local_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()


def _either(name: str, value: Any, later_name: str, later_value: Any) -> Any:
    """A setting that has two names, one of which must be given."""
    if (value is None) == (later_value is None):
        which = "neither" if value is None else "both"
        raise BadArgument(f"{which} of {name} and {later_name} was given to DataRecorder; they mean the same, give one")
    return later_value if value is None else value


def _most_frames(value: Any) -> int:
    count = float(value) if isinstance(value, Real) else 0.0
    if not 1 <= count < math.inf:
        raise BadArgument(f"maxframes is {value!r}; a video has at least one frame")
    return int(count)


def _colour(bgr: Any) -> Colour | None:
    if bgr is None:
        return None
    try:
        blue, green, red = (max(0, min(255, int(part))) for part in bgr)
    except (TypeError, ValueError):
        raise BadArgument(f"colorBGR is {bgr!r}; it must be three numbers from 0 to 255: blue, green, red") from None
    return red, green, blue


def _mode(name: str | None) -> str:
    """The mode of pictures with more than two axes; the seed draws them as histograms."""
    if name is None or name == "default":
        return "histogram"
    if name == "pca_lowrank":
        return "pca"
    if name not in MODES:
        raise BadArgument(f"displayND_mode is {name!r}; known are default, {', '.join(MODES)}, pca_lowrank")
    return name


def _device_name(device: Any) -> str:
    """The number of a device, as the seed has it in its file names; "cpu" for that.

    >>> _device_name("cuda:1"), _device_name("cuda"), _device_name("cpu")
    ('1', '0', 'cpu')
    """
    kind, _, index = str(device).partition(":")
    return "cpu" if kind == "cpu" else safe(index or "0")
