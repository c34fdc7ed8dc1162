"""Pictures of the studio's page with seven networks, for docs/studio-networks.md: `make pictures`.

    python benchmarks/studio_pictures.py [--only llama,unet] [--tab network] [--to FOLDER] [--write FOLDER]

Each network is opened by `tl.show` and photographed in Chromium, light and dark, 1440, 1024 and 390 pixels wide, as
PNG files in `--to`. `--write` joins those of a network to one small WebP file. The picture on the left, of an older
torcheer, stays that of the file which is there, or is taken from `--before FOLDER`: what this script has made with it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import FLAGS, chromium_path
from studio_picture_models import NETWORKS, build

import torcheer as tl

WINDOWS = {"1440": (1440, 900), "1024": (1024, 768), "390": (390, 844)}
THEMES = ("light", "dark")
VALUES = "() => window.__studio && window.__studio.seen().moment >= 0"
SETTLE_SECS = 30.0  # at most, until two pictures are equal
SCALE = 0.5  # of the pictures that are kept
GAP = 8
GROUND = "#8a929c"


def main() -> None:
    options = _options()
    names = options.only.split(",") if options.only else list(NETWORKS)
    if not options.join_only:
        options.to.mkdir(parents=True, exist_ok=True)
        take_all(names, options)
    for name in names if options.write else ():
        path = join(name, options.to, options.write, options.before)
        print(f"{path} {path.stat().st_size / 1000:.0f} kB")


def take_all(names: list[str], options: argparse.Namespace) -> None:
    """Photograph each network in each window and theme."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(FLAGS))
        for name in names:
            model, inputs = build(name)
            with tl.show(model, inputs, browser=False, block=False) as viewer:
                for window in options.windows.split(","):
                    for theme in options.themes.split(","):
                        take(browser, viewer.url, options, options.to / f"{name}-{theme}-{window}.png")
        browser.close()


def take(browser: Any, url: str, options: argparse.Namespace, path: Path) -> None:
    """Photograph a page that stands still; the file's name says theme and window."""
    _, theme, window = path.stem.rsplit("-", 2)
    width, height = WINDOWS[window]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce", has_touch=width < 600
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{url}#{options.tab}")
    page.wait_for_selector(".connection.open")
    if options.tab == "network":
        page.wait_for_function(VALUES)
    path.write_bytes(settled(page))
    print(path, flush=True)
    context.close()


def settled(page: Any) -> bytes:
    """A picture of the page after it has come to rest."""
    end, last = time.monotonic() + SETTLE_SECS, b""
    while time.monotonic() < end:
        page.wait_for_timeout(700)
        picture = bytes(page.screenshot())
        if picture == last:
            break
        last = picture
    return last


def join(name: str, source: Path, target: Path, before: Path | None) -> Path:
    """Join a network's pictures: before and after above, themes and widths below."""
    from PIL import Image

    def picture(folder: Path, theme: str, window: str) -> Any:
        image = Image.open(folder / f"{name}-{theme}-{window}.png").convert("RGB")
        return image.resize((round(image.width * SCALE), round(image.height * SCALE)), Image.Resampling.LANCZOS)

    path = target / f"{name}.webp"
    old = [picture(before, "light", "1440")] if before is not None else _first_picture(path)
    rows = [
        [*old, picture(source, "light", "1440"), *([] if old else [picture(source, "dark", "1440")])],
        [picture(source, *key) for key in (("dark", "1440"), ("dark", "1024"), ("light", "390"), ("dark", "390"))],
    ]
    sheet = _sheet(rows)
    target.mkdir(parents=True, exist_ok=True)
    sheet.save(path, quality=50, method=6)
    return path


def _first_picture(sheet: Path) -> list[Any]:
    """The picture at the upper left of a sheet that was joined before."""
    from PIL import Image

    if not sheet.exists():
        return []
    width, height = (round(side * SCALE) for side in WINDOWS["1440"])
    return [Image.open(sheet).convert("RGB").crop((0, 0, width, height))]


def _sheet(rows: list[list[Any]]) -> Any:
    """Rows of pictures on one ground; each row is as high as its lowest picture and as wide as the first row."""
    from PIL import Image

    width = sum(image.width for image in rows[0]) + GAP * (len(rows[0]) - 1)
    placed, top = [], 0
    for row in rows:
        shares = sum(image.width / image.height for image in row)
        height = round((width - GAP * (len(row) - 1)) / shares)
        left = 0
        for image in row:
            size = (round(height * image.width / image.height), height)
            placed.append((image.resize(size, Image.Resampling.LANCZOS), (left, top)))
            left += size[0] + GAP
        top += height + GAP
    sheet = Image.new("RGB", (width, top - GAP), GROUND)
    for image, place in placed:
        sheet.paste(image, place)
    return sheet


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {', '.join(NETWORKS)}")
    parser.add_argument("--tab", default="network", help="network, graph, plots or tables")
    parser.add_argument("--windows", default=",".join(WINDOWS))
    parser.add_argument("--themes", default=",".join(THEMES))
    parser.add_argument("--to", type=Path, default=Path("build/pictures"))
    parser.add_argument("--write", type=Path, help="folder of the joined files")
    parser.add_argument(
        "--before", type=Path, help="folder of an older torcheer's PNG files, for other pictures on the left"
    )
    parser.add_argument("--join-only", action="store_true", help="join the files that are there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
