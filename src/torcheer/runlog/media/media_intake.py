"""What people log beside numbers: images, audio, text, tables, confusion matrices.

`MediaIntake` tells them from numbers, checks and bounds them; a problem is reported, never raised. In the log each is a
Sample (layer: its name, variable: its kind) with a record of what its array means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Final, NamedTuple

import numpy as np

from torcheer.encoding import refusal, type_name
from torcheer.errors import BadArgument
from torcheer.runlog.log_frames import encode_cell
from torcheer.runlog.media.media_types import Audio, Confusion, Image, TableOf, Text
from torcheer.runlog.table import Table
from torcheer.terminal import human_bytes, human_shape, plural, short_repr
from torcheer.vocabulary.dtypes import FLOATS

MOST_BYTES: Final = 8 << 20  # of one sample
MOST_STEP_BYTES: Final = 64 << 20  # of all samples of a step
MOST_ITEMS: Final = 64  # of a list
MOST_ROWS, MOST_COLUMNS = 10_000, 200  # of a table
MOST_CLASSES: Final = 1000
_MOST_NAME, _MOST_CAPTION = 200, 2000  # characters
_MOST_CHANNELS: Final = 32
_COLOURS: Final = (1, 3, 4)  # channels: grey, RGB, RGBA
_LAYOUTS: Final = {"HW": 2, "HWC": 3, "CHW": 3, "NHW": 3, "NHWC": 4, "NCHW": 4}


class Media(NamedTuple):
    """A checked thing to log."""

    name: str
    kind: str
    item: int  # its place in the list that was logged; -1 for one that came alone
    array: Any  # numpy's, or a tensor that may still be on a GPU
    record: dict[str, Any]  # what readers need beside it: caption, layout, rate, names, columns, rows


class Refused(BadArgument):
    """What was logged cannot be; its text goes to `problems`."""


class MediaIntake:
    """Takes the keywords of a `log` call apart: numbers stay with the caller, the rest becomes `Media`."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._step, self._bytes = -1, 0  # the bytes of the samples of that step

    def split(self, entries: Mapping[str, Any], step: int) -> tuple[Mapping[str, Any], list[Media]]:
        """Return the numbers (and what else is no sample), and the samples."""
        names = []
        for name, value in entries.items():  # no comprehension: a call for each step
            if (name in KINDS or type(value) in _CANDIDATES) and is_media(name, value):  # the first half is quick
                names.append(name)
        if not names:
            return entries, []
        samples = [media for name in names for media in self._samples(name, entries[name], step)]
        return {name: value for name, value in entries.items() if name not in names}, samples

    def _samples(self, name: str, value: Any, step: int) -> Iterator[Media]:
        try:
            for media in read_media(name, value):
                self._count(media, step)
                yield media
        except Refused as error:
            self._report(str(error))
        except Exception as error:  # an array of another library, which fails in its own way
            self._report(f"{name!r} cannot be logged: {type(error).__name__}: {error}")

    def _count(self, media: Media, step: int) -> None:
        if step != self._step:
            self._step, self._bytes = step, 0
        self._bytes += media.array.nbytes
        if self._bytes > MOST_STEP_BYTES:
            raise Refused(
                f"{media.kind} {media.name!r}: the samples of one step have more than {human_bytes(MOST_STEP_BYTES)}: "
                "the rest of them is left out. Log fewer, or not all at the same step"
            )


def is_media(name: str, value: Any) -> bool:
    """Whether a keyword of `log` is a sample: by the type of its value, or by its name if that is a kind."""
    kind = type(value)
    if kind in _WRAPPERS:
        return True
    if name in KINDS:
        return not _is_number(value)
    return kind in (list, tuple) and bool(value) and type(value[0]) in _WRAPPERS


def _is_number(value: Any) -> bool:
    if isinstance(value, Real):
        return True
    try:
        count = getattr(value, "numel", None) or getattr(value, "size", None)
        if callable(count):
            return bool(count() == 1)
        return bool(count == 1) and hasattr(value, "__float__")
    except Exception:  # it fails in its own way, which is reported where it is read
        return False


def read_media(name: str, value: Any) -> Iterator[Media]:
    """Yield the samples of one keyword; raises `Refused` with what was given, what is needed, what to try."""
    if len(name) > _MOST_NAME:
        raise Refused(f"{short_repr(name)}: a name of {len(name)} characters; at most {_MOST_NAME} are kept")
    kind = _WRAPPERS.get(type(value)) or (name if name in KINDS else "")
    is_list = isinstance(value, list | tuple) and _is_list_of_samples(kind, value)
    values = list(value) if is_list else [value]
    if not values:
        raise Refused(f"{name!r} is an empty list: there is nothing to log")
    if len(values) > MOST_ITEMS:
        raise Refused(f"{name!r} is a list of {len(values)}; at most {MOST_ITEMS} are logged at once. Try {name}[:16]")
    for item, part in enumerate(values):
        is_table = (_WRAPPERS.get(type(part)) or kind) == "table"
        columns = _sample_columns(name, part) if is_table else {}
        whole = _with_references(name, part, columns) if columns else part
        yield _read_part(name, kind, whole, item if is_list else -1)
        for column, cells in columns.items():
            yield from _read_cells(f"{name}.{column}", cells)


def _sample_columns(name: str, table: Any) -> dict[Any, dict[int, Any]]:
    """The images, sounds, … that are cells of a table, of each column that has some, by row."""
    found = {}
    for column, cells in _columns(table.x if type(table) is TableOf else table, f"table {name!r}").items():
        if rows := {row: cell for row, cell in enumerate(cells) if type(cell) in _WRAPPERS}:
            found[column] = rows
    return found


def _with_references(name: str, table: Any, samples: Mapping[Any, Mapping[int, Any]]) -> TableOf:
    """A table of texts and numbers: in place of a sample stands where it is, in place of a text itself."""
    columns = _columns(table.x if type(table) is TableOf else table, f"table {name!r}")
    for column, cells in samples.items():
        columns[column] = [
            cell if row not in cells else cell.x if type(cell) is Text else f"{name}.{column}, row {row}"
            for row, cell in enumerate(columns[column])
        ]
    return TableOf(columns, getattr(table, "caption", "") or _title(table))


def _read_cells(name: str, cells: Mapping[int, Any]) -> Iterator[Media]:
    """Yield the samples of a table's column as a list beside the table, each with its row as caption."""
    samples = [(row, cell) for row, cell in cells.items() if type(cell) is not Text]
    for item, (row, cell) in enumerate(samples[:MOST_ITEMS]):
        media = _read_part(name, "", cell, item)
        caption = ": ".join(filter(None, (f"row {row}", media.record.get("caption", ""))))
        yield media._replace(record={**media.record, "caption": caption})
    if len(samples) > MOST_ITEMS:
        raise Refused(f"{name!r}: of {len(samples)} in the table the first {MOST_ITEMS} are kept. Log fewer rows")


def _is_list_of_samples(kind: str, value: Sequence[Any]) -> bool:
    """A list is several samples, except where it is a table's rows or a matrix."""
    if any(type(part) in _WRAPPERS for part in value):
        return True
    return kind not in ("table", "confusion")


def _read_part(name: str, kind: str, value: Any, item: int) -> Media:
    kind = _WRAPPERS.get(type(value)) or kind
    if not kind:
        raise Refused(f"{name!r} is a list that holds a {type(value).__name__} beside samples; wrap each of them alike")
    wrapped = value if type(value) in _WRAPPERS and not isinstance(value, Table) else KINDS[kind].wrap(value)
    array, record = KINDS[kind].read(wrapped, f"{kind} {name!r}")
    if caption := str(wrapped.caption or _title(wrapped.x)):
        record = {"caption": caption if len(caption) <= _MOST_CAPTION else f"{caption[: _MOST_CAPTION - 1]}…", **record}
    if array.nbytes > MOST_BYTES:
        raise Refused(
            f"{kind} {name!r} has {human_bytes(array.nbytes)}, and a sample may have {human_bytes(MOST_BYTES)}. "
            f"{KINDS[kind].smaller}"
        )
    return Media(name, kind, item, array, record)


def _title(x: Any) -> str:
    return x.title if isinstance(x, Table) and x.title != x.name else ""


# -- each kind ---------------------------------------------------------------------------------------------------------


def _image(image: Image, label: str) -> tuple[Any, dict[str, Any]]:
    array = _array(_of_pil(image.x), label, "an image is an array, a tensor or a PIL image")
    kind = type_name(array.dtype)
    if kind not in ("uint8", "bool", *FLOATS):
        raise Refused(
            f"{label} has numbers of type {kind}; uint8 and floats from 0 to 1 are drawn. Try x.to(torch.uint8)"
        )
    return array, {"layout": _layout(tuple(array.shape), image.layout, label)}


def _of_pil(x: Any) -> Any:
    if not (hasattr(x, "getbands") and hasattr(x, "convert")):
        return x
    return np.asarray(x if x.mode in ("L", "RGB", "RGBA") else x.convert("RGBA" if "A" in x.getbands() else "RGB"))


def _layout(shape: tuple[int, ...], given: str, label: str) -> str:
    """What the axes of an image are: as it was said, or as its shape says if only one thing is possible."""
    if given and given not in _LAYOUTS:
        raise Refused(f"{label}: no layout {short_repr(given)}; there are {', '.join(_LAYOUTS)}")
    fits = [layout for layout in _LAYOUTS if _fits(shape, layout)]
    if given:
        if given not in fits:
            raise Refused(f"{label} has the shape {human_shape(shape)}, which is not {given}: C is 1, 3 or 4")
        return given
    plain = [layout for layout in fits if layout != "NHW"]  # three images of a batch look like three colours
    if len(plain) == 1:
        return plain[0]
    if plain:
        names = " or ".join(repr(layout) for layout in plain)
        raise Refused(f"{label} has the shape {human_shape(shape)}, channels first or last: say layout={names}")
    if fits:
        raise Refused(
            f"{label} has the shape {human_shape(shape)}: no axis has 1, 3 or 4 channels. A batch of grey images is "
            "tl.Image(x, layout='NHW')"
        )
    raise Refused(
        f"{label} has the shape {human_shape(shape)}; an image is H×W, H×W×C or C×H×W, a batch N×H×W×C or N×C×H×W, "
        "with C 1, 3 or 4"
    )


def _fits(shape: tuple[int, ...], layout: str) -> bool:
    return len(shape) == _LAYOUTS[layout] and ("C" not in layout or shape[layout.index("C")] in _COLOURS)


def _audio(audio: Audio, label: str) -> tuple[Any, dict[str, Any]]:
    rate = audio.rate
    if rate is None:
        raise Refused(f"{label} says no rate, and it is not guessed: log tl.Audio(x, rate=16000)")
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 1 <= rate <= 1_000_000 or rate != int(rate):
        raise Refused(f"{label}: rate={short_repr(rate)}; it is a whole number of numbers per second, such as 16000")
    array = _array(audio.x, label, "audio is an array or a tensor")
    kind, shape = type_name(array.dtype), tuple(array.shape)
    if kind not in ("int16", "int32", *FLOATS):
        raise Refused(f"{label} has numbers of type {kind}; floats from -1 to 1, int16 and int32 are played")
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] > _MOST_CHANNELS):
        raise Refused(
            f"{label} has the shape {human_shape(shape)}; it is one row of numbers, or channels × numbers "
            f"(at most {_MOST_CHANNELS} channels). Try x.T"
        )
    return array, {"rate": int(rate)}


def _text(text: Text, label: str) -> tuple[Any, dict[str, Any]]:
    if not isinstance(text.x, str):
        raise Refused(f"{label} is a {type(text.x).__name__}, not a text. Try str(x), or json.dumps(x, indent=1)")
    return _bytes_array(text.x.encode("utf-8", "surrogatepass")), {}


def _table(table: TableOf, label: str) -> tuple[Any, dict[str, Any]]:
    columns = _columns(table.x, label)
    if len({str(name) for name in columns}) < len(columns):
        raise Refused(f"{label}: two of its columns have the same name, among {short_repr(list(columns))}")
    lengths = {name: len(cells) for name, cells in columns.items()}
    rows = max(lengths.values(), default=0)
    if not columns or not rows:
        raise Refused(f"{label} has no rows")
    if min(lengths.values()) != rows:
        raise Refused(f"{label}: its columns have different lengths: {short_repr(lengths)}")
    if rows > MOST_ROWS or len(columns) > MOST_COLUMNS:
        raise Refused(
            f"{label} has {plural(rows, 'row')} and {plural(len(columns), 'column')}; at most {MOST_ROWS:,} and "
            f"{MOST_COLUMNS} are kept. Log a part of it"
        )
    text = json.dumps({str(name): encode_cell(cells) for name, cells in columns.items()}, allow_nan=False)
    return _bytes_array(text.encode()), {"rows": rows, "columns": len(columns)}


def _columns(table: Any, label: str) -> dict[Any, list[Any]]:
    if isinstance(table, Table):
        return {name: list(table[name]) for name in table.columns}
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
        if not table.columns.is_unique:
            raise Refused(f"{label}: two of its columns have the same name, among {short_repr(list(table.columns))}")
        return dict(table.to_dict("list"))
    if isinstance(table, Mapping):
        return {name: _cells(cells, f"{label}, column {name!r}") for name, cells in table.items()}
    if isinstance(table, list | tuple) and all(isinstance(row, Mapping) for row in table):
        names = dict.fromkeys(name for row in table for name in row)
        return {name: _cells([row.get(name) for row in table], f"{label}, column {name!r}") for name in names}
    raise Refused(
        f"{label} is a {type(table).__name__}; a table is a list of dicts, a dict of columns, a DataFrame or a Table"
    )


def _cells(cells: Any, label: str) -> list[Any]:
    if isinstance(cells, str | bytes) or not (hasattr(cells, "__len__") and hasattr(cells, "__iter__")):
        raise Refused(f"{label} is a {type(cells).__name__}, not a list of cells")
    for value in (cells, *(cells if isinstance(cells, list | tuple) else ())):
        if getattr(getattr(value, "device", None), "type", "cpu") not in ("cpu", ""):
            raise Refused(f"{label} is on {value.device}, and would be waited for. Try x.tolist() where that may wait")
    return list(cells.tolist() if hasattr(cells, "tolist") else cells)


def _confusion(confusion: Confusion, label: str) -> tuple[Any, dict[str, Any]]:
    counts = np.asarray(confusion.x) if isinstance(confusion.x, list | tuple) else confusion.x
    array = _array(counts, label, "a confusion matrix is an array, a tensor or a list of rows")
    shape, names = tuple(array.shape), [str(name) for name in confusion.names]
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] > MOST_CLASSES:
        raise Refused(
            f"{label} has the shape {human_shape(shape)}; it is classes × classes, a row for each true class "
            f"(at most {MOST_CLASSES:,})"
        )
    if names and len(names) != shape[0]:
        raise Refused(f"{label} has {shape[0]} classes and {plural(len(names), 'name')}: {short_repr(names)}")
    if (kind := type_name(array.dtype)).startswith("complex"):
        raise Refused(f"{label} has numbers of type {kind}; counts or shares are needed")
    return array, {"names": [name[:_MOST_NAME] for name in names]}


def _array(value: Any, label: str, needed: str) -> Any:
    """A tensor as it is, without its gradient; anything else that is an array as numpy's."""
    if not hasattr(value, "__array__") and not hasattr(value, "detach"):
        raise Refused(f"{label} is a {type(value).__name__}; {needed}")
    array = value.detach() if hasattr(value, "detach") else np.asarray(value)
    if why := refusal(array):
        raise Refused(f"{label}: {why}")
    if 0 in tuple(array.shape):
        raise Refused(f"{label} is empty: its shape is {human_shape(tuple(array.shape))}")
    return array


def _bytes_array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


class _Kind(NamedTuple):
    wrap: Callable[[Any], Any]
    read: Callable[[Any, str], tuple[Any, dict[str, Any]]]
    smaller: str  # how to make a sample smaller


KINDS: Final[dict[str, _Kind]] = {
    "image": _Kind(Image, _image, "Try fewer of a batch (x[:16]), smaller ones, or uint8 instead of floats"),
    "audio": _Kind(Audio, _audio, "Try a part of it, a lower rate, or int16 instead of floats"),
    "text": _Kind(Text, _text, "Try a part of it"),
    "table": _Kind(TableOf, _table, "Try fewer rows"),
    "confusion": _Kind(Confusion, _confusion, "Try int32 counts, or fewer classes"),
}
_WRAPPERS: Final[dict[type, str]] = {
    Image: "image", Audio: "audio", Text: "text", TableOf: "table", Table: "table", Confusion: "confusion"
}  # fmt: skip
_CANDIDATES: Final = frozenset((*_WRAPPERS, list, tuple))
