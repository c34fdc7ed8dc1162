"""Numbers for people: sizes, counts, times, shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable


def human_bytes(count: float) -> str:
    """Format a size in the largest fitting unit of 1024: "253.5 KB"."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def human_count(count: int) -> str:
    """Format a large count: "999", "18.4k", "37.8M", "7B"."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            number = count / size
            return (f"{number:.1f}" if number < 99.95 else f"{number:.0f}").removesuffix(".0") + unit
    return str(count)


def human_flops(count: int, unknown: int) -> str:
    """Format FLOPs, with a mark if some operations could not be counted."""
    return human_count(count) + (" +?" if unknown else "")


def human_number(number: float) -> str:
    """Format a statistic with four digits; "–" where there is none, which is NaN."""
    return "–" if math.isnan(number) else f"{number:.4g}"


def human_secs(secs: float) -> str:
    """Format a duration: "35 µs", "1.24 ms", "9.5 s", "4 min 10 s", "1 h 2 min"."""
    for unit, size, most in (("µs", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 100.0)):
        if 0 < secs < most * 0.9995 or (secs <= 0 and unit == "s"):
            return f"{secs / size:.3g} {unit}"
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def human_shape(shape: Iterable[int | None]) -> str:
    """Format a shape: "1×64×55×55"; "?" for a length that differs or is not known, "scalar" for a single number."""
    return "×".join("?" if length is None or length < 0 else str(length) for length in shape) or "scalar"


def human_place(path: Iterable[int | str]) -> str:
    """Format where a value stands in nested containers: "past_key_values.layers[0].keys"."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def plural(count: int, noun: str, ending: str = "s") -> str:
    """Format a count with its noun: "1 layer", "2,000 layers"."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def ordinal(number: int) -> str:
    """Format an ordinal number.

    >>> ordinal(2), ordinal(3), ordinal(11), ordinal(21)
    ('2nd', '3rd', '11th', '21st')
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"{number}{ending}"
