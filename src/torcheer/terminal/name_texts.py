"""Names and values for people: the nearest of them, the first ones, shortened."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches

MOST_COMPARED = 5000  # a history can have 100,000 names: comparing with all of them takes seconds


def did_you_mean(name: object, names: Iterable[object], most: int = 1) -> str:
    """Return the sentence " Did you mean 'x' or 'y'?", or "" where no name is near.

    name: what was asked for; names: what there is; most: how many names to suggest at most.
    Upper and lower case count as the same. Of very many names, those with the same first letters are compared.
    """
    asked = str(name)[:200]
    word = asked.lower()
    by_lower: dict[str, str] = {}
    for known in map(str, names):
        if known != name and (known.lower() not in by_lower or known[:1] == asked[:1]):
            by_lower[known.lower()] = known
    candidates = list(by_lower)
    if len(candidates) > MOST_COMPARED:
        candidates.sort(key=lambda known: sum(known[:letters] != word[:letters] for letters in (3, 10, 20, 40)))
    near = [word] if word in by_lower else get_close_matches(word, candidates[:MOST_COMPARED], most + 4, cutoff=0.5)
    near = sorted(near, key=lambda known: sorted(known) != sorted(word))[:most]  # "Adma" is rather "Adam" than "Adamax"
    return f" Did you mean {' or '.join(repr(by_lower[known]) for known in near)}?" if near else ""


def first_names(names: Iterable[object], most: int = 8) -> str:
    """List the first names, separated by commas; "…" at the end where there are more."""
    known = list(map(str, names))
    return ", ".join([*known[:most], *["…"] * (len(known) > most)])


def shortened(text: str, width: int) -> str:
    """Shorten a name to `width` characters by leaving out its middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def short_repr(value: object) -> str:
    """Return a value's repr on one short line: of an untrusted value it may be endless."""
    return _short.repr(value)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def printable(text: str) -> str:
    """Escape control characters in untrusted text: it cannot move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
