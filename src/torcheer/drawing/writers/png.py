"""Write a drawing as a PNG image, with our font: the same on every machine."""

from __future__ import annotations

from torcheer.drawing.looks.font_metrics import FAMILY_NAME, font_files
from torcheer.drawing.looks.sheet import Sheet
from torcheer.drawing.writers.svg import write_svg
from torcheer.errors import BadArgument, TorcheerError

MAX_PIXELS = 100_000_000  # 400 MB of memory; a larger picture is scaled down
MAX_SIDE = 1_000_000


def write_png(sheet: Sheet, *, scale: float = 2.0) -> bytes:
    """Return a PNG with `scale` pixels per unit, at most 100 megapixels."""
    try:
        import resvg_py
    except ImportError as error:
        raise missing_package("a PNG", "resvg-py") from error
    if not scale > 0:
        raise BadArgument(f"scale={scale:g}: a picture of no size cannot be drawn. Try a scale above 0.")
    across, down = sheet.width, sheet.height
    scale = min(scale, (MAX_PIXELS / across / down) ** 0.5, MAX_SIDE / max(across, down))
    thin = across * scale < 1  # pass the height then: resvg derives the other side, at least one pixel
    return resvg_py.svg_to_bytes(
        svg_string=write_svg(sheet, font=False),
        width=None if thin else round(across * scale),
        height=max(1, round(down * scale)) if thin else None,
        skip_system_fonts=True,
        font_files=[str(file) for file in font_files()],
        font_family=FAMILY_NAME,
        sans_serif_family=FAMILY_NAME,
        monospace_family=FAMILY_NAME,
    )


def missing_package(product: str, package: str) -> TorcheerError:
    """Return the error for a package that a writer needs."""
    return TorcheerError(f"{product} needs {package}, which is not installed. Try: pip install 'torcheer[all]'")
