"""One video per watched key: selection of keys, file names, rotation of files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument
from torcheer.samples import DISK_FULL, Delivery, SendMessage, disk_full
from torcheer.selection import matches_value
from torcheer.terminal import did_you_mean
from torcheer.video.array_frames import MODES, Running, draw, kind_of
from torcheer.video.file_names import digest, safe
from torcheer.video.frame_layout import Caption
from torcheer.video.frame_plots import Frame
from torcheer.video.frame_text import missing
from torcheer.video.video_file import AnimatedFile, Frames, VideoFile, checked_size, frame_rate, open_video
from torcheer.vocabulary.variables import WATCHED_OF_WEIGHTS

__all__ = ["SETTINGS", "AnimatedFile", "VideoFile", "Videos", "open_video", "settle"]

SETTINGS: dict[str, Any] = {
    "size": [640, 480],
    "fps": 20.0,
    "maxframes": 1000,  # of one file; the next frame begins another
    "mode": "auto",  # one of `pictures.MODES`
    "format": "mp4",  # or "gif", "webp", which are written when they end
    "keys": ["*"],  # patterns of "layer/variable", or of layers
    "most_files": 32,  # open at a time, some 8 MB each; further keys get no video
    "lossless": False,  # every pixel as drawn, in a file that browsers do not play
}


def settle(video: Any) -> dict[str, Any]:
    """Validate the setting `video=`: True, patterns of keys, or a dict; returns all settings.

    >>> settle({"fps": 5})["fps"], settle("features.*")["keys"], settle(False)
    (5.0, ['features.*'], {})
    """
    if video is None or video is False:
        return {}
    settings = {} if video is True else {"keys": video} if isinstance(video, str | list | tuple) else video
    if not isinstance(settings, Mapping):
        raise BadArgument(f"video={video!r}; give True, patterns of keys, or a dict of {', '.join(SETTINGS)}")
    for name in settings:
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS) or f" There are {', '.join(SETTINGS)}."
            raise BadArgument(f"no setting of videos named {name!r}.{hint}")
    return _checked(SETTINGS | dict(settings))


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    keys = settings["keys"]
    keys = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]
    for name, allowed in (("mode", MODES), ("format", ("mp4", "gif", "webp"))):
        if settings[name] not in allowed:
            raise BadArgument(f"{name} of videos is {settings[name]!r}; known are {', '.join(allowed)}")
    for name in ("maxframes", "most_files"):
        if type(settings[name]) is not int or settings[name] < 1:
            raise BadArgument(f"{name} of videos is {settings[name]!r}; it must be a whole number from 1 on")
    if not all(isinstance(key, str) for key in keys):
        raise BadArgument(f"keys of videos are {settings['keys']!r}; they must be text, such as 'features.*/output'")
    for package, module in (("pillow", "PIL"), ("av", "av" if settings["format"] == "mp4" else "PIL")):
        if importlib.util.find_spec(module) is None:
            raise missing("a video", package)
    size = list(checked_size(settings["size"]))
    frame_rate(settings["fps"])
    return settings | {
        "keys": keys,
        "size": size,
        "fps": float(settings["fps"]),
        "lossless": bool(settings["lossless"]),
    }


@dataclass(slots=True)
class _Reel:
    """The videos of one key."""

    name: str  # of its files, up to their number
    running: Running = field(default_factory=Running)  # over all of its files
    number: int = 0  # of its last file
    file: Frames | None = None
    kind: str = ""  # of the pictures in it
    step: int = 0  # of its last frame


class Videos:
    """Draws every value and adds it to its key's video in the subfolder `videos` of the plan's folder.

    A file ends after `maxframes`, or when another kind of picture follows. None is ever overwritten: a child that was
    started again goes on with the next number.
    """

    def __init__(self, to: str, settings: Any, send_message: SendMessage) -> None:
        if not to:
            raise BadArgument("videos need a folder; give the watch one with to=")
        self._settings = settle(settings or True)
        self._folder, self._send_message = Path(to) / "videos", send_message
        self._reels: dict[tuple[str, str], _Reel | None] = {}  # None: no video of this key, or no more
        self._reported: set[str] = set()

    def take(self, delivery: Delivery) -> None:
        """Add one frame, if the key has a video and there is room for it."""
        if delivery.media is not None:
            return
        if delivery.key not in self._reels:
            self._reels[delivery.key] = self._begin(delivery.key)
        reel = self._reels[delivery.key]
        array = delivery.sample.array
        if reel is None or array is None or delivery.summary is not None:
            return  # reduced on its device: there is no array to draw, or only a sample
        reel.step = delivery.sample.step
        kind = kind_of(array.shape, self._settings["mode"])
        frame = self._draw(delivery, reel.running)
        try:
            self._add(reel, frame, kind)
        except OSError as error:
            self._give_up(delivery.key, reel, error)

    def tick(self) -> None:
        """Flush the open files."""
        for reel in self._open():
            if reel.file:
                reel.file.flush()

    def close(self) -> None:
        """Finish all videos and report their paths."""
        for key, reel in list(self._reels.items()):
            if reel is not None:
                try:
                    self._end(reel)
                except OSError as error:
                    self._give_up(key, reel, error)

    def _open(self) -> list[_Reel]:
        return [reel for reel in self._reels.values() if reel is not None]

    def _begin(self, key: tuple[str, str]) -> _Reel | None:
        """Create the reel of a new key, if it is selected and the limit allows."""
        layer, variable = key
        patterns = self._settings["keys"]
        if variable == "metric":  # a curve is no picture, unless it is asked for: "loss/metric"
            patterns = [pattern for pattern in patterns if "/" in pattern]
        if not any(matches_value(pattern, layer, variable) for pattern in patterns):
            return None
        most = self._settings["most_files"]
        if len(self._open()) >= most:
            self._report("most", f"no video of {layer}/{variable} and later ones: {most} are written already; "
                               "name fewer with keys, or allow more with most_files")  # fmt: skip
            return None
        name = f"{safe(layer)}_{safe(variable)}"
        taken = {reel.name.casefold() for reel in self._open()}  # some file systems do not tell A from a
        return _Reel(f"{name}-{digest(repr(key))}" if name.casefold() in taken else name)

    def _draw(self, delivery: Delivery, running: Running) -> Frame:
        sample = delivery.sample
        caption = Caption(
            title=f"{sample.layer} · {sample.variable}", right=f"step {sample.step}", message=delivery.message,
            shape=delivery.whole or None, stride=delivery.stride,
        )  # fmt: skip
        wide, high = self._settings["size"]
        return draw(
            sample.array, caption, size=(wide, high), mode=self._settings["mode"], running=running,
            batch=sample.variable not in WATCHED_OF_WEIGHTS,  # their first axis counts no items
        )  # fmt: skip

    def _add(self, reel: _Reel, frame: Frame, kind: str) -> None:
        if reel.file and (reel.file.frames >= self._settings["maxframes"] or reel.kind != kind):
            self._end(reel)
        if reel.file is None:
            reel.file, reel.kind = self._next_file(reel), kind
        reel.file.write(frame)

    def _next_file(self, reel: _Reel) -> Frames:
        self._folder.mkdir(parents=True, exist_ok=True)
        wide, high = self._settings["size"]
        while True:
            reel.number += 1
            path = self._folder / f"{reel.name}_{reel.number}.{self._settings['format']}"
            try:
                return open_video(path, (wide, high), self._settings["fps"], lossless=self._settings["lossless"])
            except FileExistsError:
                continue  # written by an earlier child, or by another process

    def _end(self, reel: _Reel) -> None:
        if reel.file is not None:
            reel.file.close()
            self._send_message({"kind": "wrote", "path": str(reel.file.path)})
            reel.file = None

    def _give_up(self, key: tuple[str, str], reel: _Reel, error: OSError) -> None:
        """End a key's video after a write error such as a full disk; report it once, the other keys go on."""
        self._reels[key] = None
        if reel.file is not None and reel.file.path.exists():  # it ends with the last frame that fitted
            self._send_message({"kind": "wrote", "path": str(reel.file.path)})
        if (full := disk_full(error, self._folder, f"video of {'/'.join(key)}", reel.step)) is not None:
            if DISK_FULL not in self._reported:
                self._reported.add(DISK_FULL)
                self._send_message({"kind": "alert", **asdict(full)})
            return
        text = (
            f"the video of {'/'.join(key)} ends: {error.strerror or error} in {self._folder}; "
            "others go on where they can, as does all else"
        )
        self._report(str(error.errno), text)

    def _report(self, topic: str, text: str) -> None:
        if topic not in self._reported:
            self._reported.add(topic)
            self._send_message({"kind": "problem", "text": text})
