"""What `log` takes beside numbers, under any name; they only hold what they are given: `log` checks it, and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Image:
    """An image, or a batch of them, for `log`: `log(digits=tl.Image(x, caption="epoch 3"))`.

    x: an array or tensor of uint8, bool or floats from 0 to 1, of two (H, W), three (H, W, C or C, H, W) or four axes
    (a batch, drawn as a grid), C being 1, 3 or 4; or a PIL image.
    caption: a text beside it.
    layout: what its axes are ("HW", "HWC", "CHW", "NHW", "NHWC", "NCHW"), where the shape does not say.
    """

    __slots__ = ("caption", "layout", "x")

    def __init__(self, x: Any, caption: str = "", layout: str = "") -> None:
        self.x, self.caption, self.layout = x, caption, layout


class Audio:
    """Sound for `log`: `log(spoken=tl.Audio(x, rate=16000))`.

    x: numbers over time, or channels × numbers: floats from -1 to 1, int16 or int32.
    rate: numbers per second; it is never guessed.
    caption: a text beside it.
    """

    __slots__ = ("caption", "rate", "x")

    def __init__(self, x: Any, rate: int | None = None, caption: str = "") -> None:
        self.x, self.rate, self.caption = x, rate, caption


class Text:
    """A text for `log`: `log(answer=tl.Text("Once upon a time", caption="prompt 3"))`.

    - `x`: the text.
    - `caption`: a text beside it.
    """

    __slots__ = ("caption", "x")

    def __init__(self, x: str, caption: str = "") -> None:
        self.x, self.caption = x, caption


class TableOf:
    """A table for `log`: `log(worst=tl.TableOf([{"id": 3, "loss": 2.5}], caption="largest losses"))`.

    x: a list of dicts, a dict of columns, a DataFrame or a `torcheer.studio.Table`.
    caption: a text beside it.
    """

    __slots__ = ("caption", "x")

    def __init__(self, x: Any, caption: str = "") -> None:
        self.x, self.caption = x, caption


class Confusion:
    """A confusion matrix for `log`: `log(val=tl.Confusion(counts, names=("cat", "dog")))`.

    x: counts (or shares), classes × classes: a row for each true class, a column for each predicted one.
    names: of the classes; their numbers where it is empty.
    caption: a text beside it.
    """

    __slots__ = ("caption", "names", "x")

    def __init__(self, x: Any, names: Sequence[str] = (), caption: str = "") -> None:
        self.x, self.names, self.caption = x, names, caption
