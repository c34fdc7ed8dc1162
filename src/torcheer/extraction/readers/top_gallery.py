"""A gallery of the strongest samples of each unit: images with a box, lines of text whose strongest tokens line up."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.extraction.readers.top_units import Strongest, TopUnits
from torcheer.runlog.media.media_files import png_bytes

_CONTEXT_TOKENS = 12  # on each side of the strongest one; the page cuts what does not fit
_STYLE = """
:root{color-scheme:light dark;--text:#222;--quiet:#6b6b6b;--line:#e6e6e6;--mark:255,200,40}
@media(prefers-color-scheme:dark){:root{--text:#ddd;--quiet:#999;--line:#333;--mark:128,92,0}}
body{font:14px/1.5 system-ui,sans-serif;margin:28px auto;max-width:1100px;padding:0 24px;color:var(--text)}
h1{font-size:20px;margin:0 0 4px}
h2{font-size:14px;margin:26px 0 6px;padding-bottom:4px;border-bottom:1px solid var(--line)}
h1+p,h2 small,figcaption,.where{color:var(--quiet);font-weight:400;font-size:12px;margin:0}
.row{display:flex;flex-wrap:wrap;gap:12px}figure{margin:0;max-width:260px}figcaption{margin-top:3px}
svg{display:block;width:112px;height:112px;image-rendering:pixelated}
rect{fill:none;stroke:#e53;stroke-width:2.5;vector-effect:non-scaling-stroke}
rect.edge{stroke:#fff;stroke-width:5.5}
.lines{display:grid;grid-template-columns:4em minmax(0,1fr) minmax(0,1.3fr) auto;row-gap:3px;align-items:baseline}
.lines>*{white-space:pre;overflow:hidden}
.before{display:flex;justify-content:flex-end;mask:linear-gradient(90deg,#0000,#000 3em)}
.after{mask:linear-gradient(270deg,#0000,#000 3em)}.where{padding-left:12px}
.number{font-variant-numeric:tabular-nums;text-align:right;padding-right:14px}
mark{color:inherit;border-radius:3px;padding:2px 1px 2px 0;margin-right:-1px}
@media(max-width:700px){.lines{grid-template-columns:4em minmax(0,1fr) minmax(0,1.3fr)}.lines>.where{display:none}}
figure p{margin:0}
"""


def make_page(top: TopUnits, inputs: Any, units: Sequence[int], decode: Callable[[int], str] | None) -> str:
    """Return the page of some units as HTML; arguments as for `TopUnits.save`."""
    title = f"Strongest samples of {top.layer}"
    marked = {0: "", 1: ", with the token marked", 2: ", with the place in its map marked"}.get(len(top.grid), "")
    facts = f"{len(units)} of {len(top)} units; for each, the {top.values.shape[1]} samples in which it is strongest"
    head = f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
    sections = [f"<h2>unit {unit}</h2>{_section(top, unit, inputs, decode)}" for unit in units]
    return f"{head}<h1>{escape(title)}</h1><p>{escape(facts + marked)}</p>{''.join(sections)}"


def _section(top: TopUnits, unit: int, inputs: Any, decode: Callable[[int], str] | None) -> str:
    strongest = top[unit]
    shown = [None if inputs is None else _plain_input(inputs[one.sample]) for one in strongest]
    numbers = _numbers(strongest)
    if all(isinstance(array, np.ndarray) and array.ndim == 1 for array in shown):
        lines = map(_line, strongest, numbers, shown, _shares(strongest), [decode] * len(shown))
        return f"<div class=lines>{''.join(lines)}</div>"
    figures = (_figure(*facts, top.grid) for facts in zip(strongest, numbers, shown))
    return f"<div class=row>{''.join(figures)}</div>"


def _numbers(strongest: Sequence[Strongest]) -> list[str]:
    """Return the values as text, with as many decimals as the largest needs: so that their points line up."""
    largest = max((abs(one.value) for one in strongest if math.isfinite(one.value)), default=0.0)
    digits = 0 if largest <= 0 else math.floor(math.log10(largest))
    if not -4 <= digits <= 5:
        return [f"{one.value:.2e}" for one in strongest]
    return [f"{one.value:.{max(0, 2 - digits)}f}" for one in strongest]


def _plain_input(given: Any) -> str | NDArray[Any]:
    """Return a text as it is, and of anything else the array: the tokens of a dict, the image of (image, label)."""
    if isinstance(given, Mapping):
        given = given.get("input_ids", next(iter(given.values())))
    elif isinstance(given, (tuple, list)) and given and hasattr(given[0], "shape"):
        given = given[0]
    return given if isinstance(given, str) else np.atleast_1d(np.asarray(given))


# -- tokens ------------------------------------------------------------------------------------------------------------


def _shares(strongest: Sequence[Strongest]) -> list[float]:
    """Return how strong each is, of the strongest: 0 … 1."""
    largest = max((abs(one.value) for one in strongest), default=0.0)
    return [min(1.0, abs(one.value) / largest) if largest > 0 else 0.0 for one in strongest]


def _line(one: Strongest, number: str, tokens: Any, share: float, decode: Callable[[int], str] | None) -> str:
    """Return a line of text in which the strongest token begins where it does in all lines; spaces are the text's."""
    place = one.position[0] if one.position else 0
    words = [
        _word(int(token), decode) for token in tokens[max(0, place - _CONTEXT_TOKENS) : place + _CONTEXT_TOKENS + 1]
    ]
    middle = min(place, _CONTEXT_TOKENS)
    before, token, after = "".join(words[:middle]), words[middle], "".join(words[middle + 1 :])
    where = f"sample {one.id}, token {place}" if one.position else f"sample {one.id}"
    return (
        f'<span class=number title="{escape(where)}">{number}</span>'
        f"<span class=before><span>{escape(before.lstrip())}</span></span>"
        f'<span class=after><mark style="background:rgba(var(--mark),{0.25 + 0.75 * share:.2f})">'
        f"{escape(token) or '·'}</mark>{escape(after.rstrip())}</span><span class=where>{escape(where)}</span>"
    )


def _word(token: int, decode: Callable[[int], str] | None) -> str:
    """Return a token's text; a line's end as a sign, so that a line stays one."""
    return f" {token}" if decode is None else decode(token).replace("\n", "↵")


# -- images ------------------------------------------------------------------------------------------------------------


def _figure(one: Strongest, number: str, shown: str | NDArray[Any] | None, grid: tuple[int, ...]) -> str:
    if isinstance(shown, np.ndarray):
        picture = _image(shown, one.position, grid) if shown.ndim > 1 else f"<p>{escape(str(shown.tolist()))}</p>"
    else:
        picture = "" if shown is None else f"<p>{escape(shown)}</p>"
    place = f" at {', '.join(map(str, one.position))}" if one.position else ""
    return f"<figure>{picture}<figcaption>{number}<br>sample {escape(str(one.id))}{place}</figcaption></figure>"


def _image(array: NDArray[Any], position: tuple[int, ...], grid: tuple[int, ...]) -> str:
    """Return an image as SVG, with a box around the position of a map of two dimensions."""
    pixels = array.transpose(1, 2, 0) if array.ndim == 3 and array.shape[0] in (1, 3) else array
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high or 1.0)
        pixels = ((pixels - low) / max(high - low, 1e-12) * 255).round().astype(np.uint8)
    pixels = np.ascontiguousarray(np.repeat(pixels, 3, -1) if pixels.shape[-1] == 1 else pixels[..., :3])
    height, width = pixels.shape[:2]
    data = base64.b64encode(png_bytes(pixels)).decode()
    box = ""
    if len(position) == 2 and len(grid) == 2:
        cell_height, cell_width = height / grid[0], width / grid[1]
        corner = f'x="{position[1] * cell_width:g}" y="{position[0] * cell_height:g}"'
        sides = f'width="{cell_width:g}" height="{cell_height:g}"'
        box = f"<rect class=edge {corner} {sides} /><rect {corner} {sides} />"  # seen on any image
    return (
        f'<svg viewBox="0 0 {width} {height}"><image href="data:image/png;base64,{data}" width="{width}" '
        f'height="{height}"/>{box}</svg>'
    )
