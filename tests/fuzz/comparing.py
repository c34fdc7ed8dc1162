"""Says what of an answer is a finding: a crash, too much memory, an error without a name, another number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fuzz.opening import UNKNOWN
from fuzz.serving import PEAK_BYTES

Answer = Mapping[str, Any]
_VARYING: Final = re.compile(
    r"^[.][^:]*(?=:)|\b[0-9a-f]{12}\b|[0-9]+|/[^ ]*|'[^']*'|\"[^\"]*\""
)  # what differs in findings of one cause
_MEMORY: Final = re.compile(r"MemoryError|Unable to allocate")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to be looked at."""

    kind: str  # "crash", "hang", "memory", "exception", "message", "lax", "strict", "different"
    text: str

    @property
    def key(self) -> str:
        """The same for findings that probably have one cause."""
        return f"{self.kind}: {_VARYING.sub('#', self.text)[:110]}"


def findings_of(path: Path, ours: Answer, theirs: Answer | None, is_good: bool) -> Iterator[Finding]:
    """Yield what is to be looked at of a file, by our answer and the reference's.

    `is_good`: nothing hostile is in the file, so it has to be read.
    """
    if "died" in ours:
        yield Finding(ours["died"], ours["place"])
    elif "raised" in ours:
        yield Finding("exception", f"{ours['place']}: {ours['raised']}")
    elif ours["peak_bytes"] > PEAK_BYTES:
        yield Finding("memory", f"{ours['peak_bytes'] >> 20} MB, {ours.get('place', 'and it was read')}")
    elif "refused" in ours:
        yield from _findings_of_refusal(path, ours, theirs, is_good)
    elif ours["facts"].get("problems"):  # told beside what could be read
        if is_good and theirs is not None and "facts" in theirs:
            yield Finding("strict", "problems are told of a good file")
    elif theirs is not None and "refused" in theirs:
        yield Finding("lax", f"it is read; the reference says: {theirs['kind']}: {theirs['refused'][:300]}")
    elif theirs is not None and "facts" in theirs:  # neither dead nor missing
        yield from (Finding("different", text) for text in differences(ours["facts"], theirs["facts"]))


def _findings_of_refusal(path: Path, ours: Answer, theirs: Answer | None, is_good: bool) -> Iterator[Finding]:
    if path.name not in ours["refused"]:
        yield Finding("message", f"without {path.name}: {ours['kind']}: {ours['refused']} ({ours['place']})")
    if _MEMORY.search(ours["refused"]):
        yield Finding("memory", f"{ours['refused'][:300]} ({ours['place']})")
    if is_good and (theirs is None or "facts" in theirs):
        yield Finding("strict", f"a good file is refused: {ours['refused'][:300]}")


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """Yield the first difference of two nested facts; a key that only one of them has does not count at the top."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = ours.keys() & theirs.keys() if not place else ours.keys() | theirs.keys()
        for name in sorted(names):
            if UNKNOWN in (ours.get(name), theirs.get(name)):
                continue
            if name not in ours or name not in theirs:
                yield f"{place}: {'we' if name not in ours else 'they'} have no {name!r}"
                return
            for text in differences(ours[name], theirs[name], f"{place}.{name}"):
                yield text
                return
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs)):
            for text in differences(*pair, f"{place}[{number}]"):
                yield text
                return
    elif ours != theirs and UNKNOWN not in (ours, theirs):
        yield f"{place}: we read {str(ours)[:120]}, the reference {str(theirs)[:120]}"
