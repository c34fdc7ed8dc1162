"""A curve over a logarithmic axis as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, MARGIN = 640, 360, 56  # pixels


def curve_svg(
    xs: Sequence[float], ys: Sequence[float], marks: Mapping[str, float | None], x_label: str, y_label: str
) -> str:
    """Return a picture of a curve; x is logarithmic, marks are named places on it."""
    if not xs:
        xs, ys = (1.0, 10.0), (0.0, 0.0)
    left, right = math.log10(min(xs)), math.log10(max(xs))
    low, high = min(ys), max(ys)
    high = high if high > low else low + 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - left) / ((right - left) or 1.0)
        return MARGIN + across * (WIDTH - 1.5 * MARGIN), HEIGHT - MARGIN - (y - low) / (high - low) * (
            HEIGHT - 1.6 * MARGIN
        )

    points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(xs, ys))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for power in range(math.ceil(left), math.floor(right) + 1):
        x, bottom = place(10.0**power, low)
        parts.append(f'<path d="M{x:.1f} {bottom:.1f}V{MARGIN * 0.6:.1f}" stroke="#e2e5ea"/>')
        parts.append(_text(x, bottom + 16, f"1e{power}", "middle"))
    for number in range(5):
        value = low + (high - low) * number / 4
        x, y = place(min(xs), value)
        parts.append(f'<path d="M{x:.1f} {y:.1f}H{WIDTH - MARGIN * 0.5:.1f}" stroke="#e2e5ea"/>')
        parts.append(_text(x - 6, y + 4, f"{value:.3g}", "end"))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#2563eb" stroke-width="2"/>')
    for number, (name, mark) in enumerate(marks.items()):
        if mark is not None and min(xs) <= mark <= max(xs):
            x, bottom = place(mark, low)
            parts.append(
                f'<path d="M{x:.1f} {bottom:.1f}V{MARGIN * 0.6:.1f}" stroke="#d97706" stroke-dasharray="4 3"/>'
            )
            parts.append(_text(x + 5, MARGIN * 0.6 + 12 + 15 * number, f"{name}: {mark:.2g}", "start"))
    parts.append(_text(WIDTH / 2, HEIGHT - 14, x_label, "middle"))
    parts.append(_text(12, 22, y_label, "start"))
    return "\n".join([*parts, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#374151">{escape(text)}</text>'
