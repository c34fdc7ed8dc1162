"""Single columns of a run's metrics, found in the text of its log's frames: what is not asked for is not parsed.

Of a thousand columns one is read in a hundredth of the time that all of them take. Only a log that was opened once, is
whole, and from which nothing was cut, is read in this way; of others the functions return None: `RunLog` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from torcheer.archive.format.archive_folder import list_segments, segment_paths
from torcheer.archive.format.index_frames import HEADER_BYTES, read_frame
from torcheer.runlog.log_frames import METRICS, SYSTEM, decode_column, is_understood
from torcheer.runlog.log_reader import writers_in

Curve = tuple[list[int], list[Any]]  # steps, and what was logged then
_TABLE: Final = b'{"step":['
_METRICS: Final = f'"{METRICS}":'.encode() + _TABLE
_CHANGES: Final = (b'"cut":{', b'"cleared":[')  # frames that say that earlier rows do not hold
_MOST_FRAMES: Final = 256


def metric_columns(run: Path, names: Sequence[str]) -> dict[str, Curve] | None:
    """The columns of these names in the table of metrics; None if the log has to be read as a whole."""
    texts = _plain_texts(run)
    if texts is None:
        return None
    curves: dict[str, Curve] = {}
    for text in texts:
        if text.count(_METRICS) > 1:
            return None
        for name, steps, cells in _columns_in(text, names):
            logged = curves.setdefault(name, ([], []))
            logged[0].extend(step for step, cell in zip(steps, cells) if cell is not None)
            logged[1].extend(cell for cell in cells if cell is not None)
    return curves


def last_metrics(run: Path) -> dict[str, dict[str, Any]] | None:
    """The last cell of each column by table, of a log that has metrics alone; None if it has more, or is long."""
    texts = _plain_texts(run)
    if texts is None or len(texts) > _MOST_FRAMES:
        return None
    last: dict[str, dict[str, Any]] = {}
    for text in reversed(texts):
        body = json.loads(text)
        about = (body.get("about") or {}) if isinstance(body, dict) else None
        if not isinstance(about, dict) or not is_understood({"step": 0, "about": about}, _ignore):
            return None
        for table, columns in about.get("rows", {}).items():
            if table not in (METRICS, SYSTEM) or not columns["step"]:
                return None
            known = last.setdefault(table, {})
            for name, cells in columns["cells"].items():
                if name not in known and (cell := next(filter(_is_cell, reversed(cells)), None)) is not None:
                    known[name] = decode_column([cell])[0]
            known.setdefault("Step", columns["step"][-1])
    return last


def _ignore(_: str) -> None:
    pass


def _is_cell(cell: Any) -> bool:
    return cell is not None


def _plain_texts(run: Path) -> list[bytes] | None:
    """The bodies of all frames, checked by their checksums; None where later frames change what earlier ones say."""
    texts: list[bytes] = []
    for place in writers_in(run):
        if place.model:
            return None
        parts = [_frame_texts(path) for path in place.archives]
        own = None if None in parts else [text for part in parts for text in part or ()]
        if own is None or any(b'"opened":' in text for text in own[1:]):
            return None
        if any(change in text for text in own for change in _CHANGES):
            return None
        texts += own
    return texts


def _frame_texts(path: Path) -> list[bytes] | None:
    """The bodies of an archive's frames; None if they do not fill their files: torn or damaged."""
    texts: list[bytes] = []
    for number in list_segments(path):
        data, offset = segment_paths(path, number)[0].read_bytes(), HEADER_BYTES
        while (frame := read_frame(data, offset)) is not None:
            text, offset, _ = frame
            texts.append(text)
        if offset != len(data):
            return None
    return texts


def _columns_in(text: bytes, names: Sequence[str]) -> Iterator[tuple[str, list[int], list[Any]]]:
    """Yield the named columns of a frame's metrics.

    Within a JSON text a quote is escaped, so a name in quotes stands where a key does.
    """
    start = text.find(_METRICS)
    if start < 0:
        return
    start += len(_METRICS)
    steps = _list_at(text, start)
    end = text.find(_TABLE, start)  # where the next table begins
    for name in names:
        key = json.dumps(name).encode() + b":["
        place = _find_key(text, key, start, end if end >= 0 else len(text))
        if place >= 0 and len(cells := _list_at(text, place + len(key))) == len(steps):
            yield name, steps, decode_column(cells)


def _find_key(text: bytes, key: bytes, start: int, end: int) -> int:
    """Where a key stands, -1 if nowhere; after a backslash its first quote is part of another name."""
    place = text.find(key, start, end)
    while place >= 0 and text[place - 1 : place] not in (b"{", b","):
        place = text.find(key, place + 1, end)
    return place


def _list_at(text: bytes, start: int) -> list[Any]:
    """The list of numbers that begins here; empty if it holds lists."""
    inner = text[start : text.index(b"]", start)]
    return [] if b"[" in inner else json.loads(b"[" + inner + b"]")
