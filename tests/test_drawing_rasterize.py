"""The font that ships, and drawings as PNG and PDF."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import zlib
from base64 import a85decode
from html import escape

import pytest

from torcheer.drawing.looks.font_metrics import FAMILY, FOLDER, font_face_css, font_files, text_width
from torcheer.drawing.writers import rasterize
from torcheer.drawing.writers.rasterize import svg_to_pdf, svg_to_png
from torcheer.drawing.writers.svg_path import Curve, Move, steps
from torcheer.errors import BadArgument, TorcheerError

SHIPPED: str = json.loads((FOLDER / "advances.json").read_text(encoding="utf-8"))["characters"]
ODD_TEXTS = [
    "<script>alert(\"x\")</script> 'q' &amp; ]]>",
    "🤖👩‍👩‍👧 卷积层 שלום עולם ▾▸ é\u0301\u0301",
    "\x00\x07\ud800\uffff\u202e\u200b\r\n\t",
    "a" * 10_000,
]


def svg(body: str, width: float = 200, height: float = 100, head: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FAMILY}" font-size="20">{head}{body}</svg>'
    )


def text(words: str, **attributes: str) -> str:
    rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="10" y="40"{rest}>{escape(words)}</text>'


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])  # type: ignore[return-value]


def rows(png: bytes) -> list[bytes]:
    """The alpha of every pixel, row by row: resvg writes RGBA of 8 bits."""
    width, height = size(png)
    packed = b"".join(png[start + 8 : start + 8 + length] for start, length in chunks(png))
    raw, stride, above = zlib.decompress(packed), 4 * width + 1, bytes(4 * width)
    found = []
    for start in range(0, stride * height, stride):
        above = unfiltered(raw[start], raw[start + 1 : start + stride], above)
        found.append(above[3::4])
    return found


def chunks(png: bytes) -> list[tuple[int, int]]:
    found, place = [], 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            found.append((place, length))
        place += length + 12
    return found


def unfiltered(kind: int, line: bytes, above: bytes) -> bytes:
    out = bytearray(line)
    for place in range(len(line)):
        left, up, corner = (out[place - 4], above[place], above[place - 4]) if place > 3 else (0, above[place], 0)
        nearest = min(
            (abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner)
        )
        out[place] = (out[place] + (0, left, up, (left + up) // 2, nearest[2])[kind]) % 256
    return bytes(out)


def right_edge(png: bytes) -> int:
    return max(len(row.rstrip(b"\0")) for row in rows(png))


def streams(pdf: bytes) -> list[bytes]:
    """What the PDF holds, unpacked; all is deflated, and some of it is written in letters on top."""
    found = re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL)
    plain = (a85decode(b"<~" + part.strip(), adobe=True) if part.strip().endswith(b"~>") else part for part in found)
    return [zlib.decompressobj().decompress(part) for part in plain]


def page(pdf: bytes) -> str:
    return next(stream for stream in streams(pdf) if b" cm" in stream).decode("latin-1")


# The font


@pytest.mark.parametrize("bold", [False, True])
def test_a_text_is_as_wide_as_the_font_itself_says(bold: bool) -> None:
    stringWidth = pytest.importorskip("reportlab.pdfbase.pdfmetrics").stringWidth
    rasterize._register_fonts()
    for character in SHIPPED:
        own = stringWidth(character, "torcheerBold" if bold else "torcheerRegular", 100)
        assert text_width(character, 100, bold) == pytest.approx(own, abs=0.1), character  # PDF counts in 1/1000 em


@pytest.mark.parametrize("weight", ["400", "600"])
def test_a_text_is_drawn_as_wide_as_it_measures(weight: str) -> None:
    pytest.importorskip("resvg_py")
    words = "AVATAR Type fi 64×32→µs "  # kerning, ligatures or arrows made of signs would show
    right = right_edge(svg_to_png(svg(text(words * 2 + "■", font_weight=weight), width=900, height=60), scale=1))
    left = right_edge(svg_to_png(svg(text("■", font_weight=weight), width=900, height=60), scale=1))
    assert right - left == pytest.approx(text_width(words * 2, 20, weight == "600"), abs=1.01)


def test_bold_is_wider_than_regular() -> None:
    assert text_width("linear", 10, bold=True) > text_width("linear", 10)


def test_the_width_of_a_text_grows_with_its_size() -> None:
    assert text_width("conv2d", 20) == pytest.approx(2 * text_width("conv2d", 10))


def test_characters_the_font_lacks_are_guessed() -> None:
    assert [text_width(character, 10) for character in ("層", "ж", "\u0301", "\n")] == [
        pytest.approx(guess, abs=0.01) for guess in (10, 6, 0, 0)
    ]


def test_the_font_holds_the_signs_that_drawings_use() -> None:
    assert set("×·…–—→←↑↓≤≥∞µ²³½−∑σΔ●○■□▶✓") <= set(SHIPPED)


def test_the_style_sheet_carries_both_weights() -> None:
    css = font_face_css()
    assert re.findall(r"font-weight:(\d+)", css) == ["400", "600"]
    assert css.count("url(data:font/woff2;base64,d09GMg") == 2  # "wOF2"


def test_the_font_is_small_and_brings_its_licence() -> None:
    assert all(file.is_file() for file in font_files())
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 120_000
    assert "SIL OPEN FONT LICENSE" in (FOLDER / "OFL.txt").read_text()


def test_measuring_loads_neither_numpy_nor_a_converter() -> None:
    code = "import sys, torcheer.drawing.looks.font_metrics, torcheer.drawing.writers.rasterize; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "resvg_py", "reportlab"}.isdisjoint(loaded)


# PNG


@pytest.fixture
def png_maker() -> None:
    pytest.importorskip("resvg_py")


@pytest.mark.usefixtures("png_maker")
class TestPng:
    def test_it_has_two_pixels_per_unit(self) -> None:
        assert size(svg_to_png(svg(""))) == (400, 200)

    def test_it_is_as_wide_as_asked(self) -> None:
        assert size(svg_to_png(svg(""), width=300)) == (300, 150)

    def test_its_text_shows_without_any_font_of_the_system(self) -> None:
        assert right_edge(svg_to_png(svg(text("conv2d")), scale=1)) > 60

    def test_text_in_a_family_that_is_not_there_still_shows(self) -> None:
        drawn = svg_to_png(svg(text("conv2d", font_family="monospace")), scale=1)
        assert drawn == svg_to_png(svg(text("conv2d")), scale=1)

    def test_600_is_drawn_in_bold(self) -> None:
        assert svg_to_png(svg(text("conv2d", font_weight="600"))) != svg_to_png(svg(text("conv2d")))

    def test_the_style_sheet_is_for_screens(self) -> None:
        style = f"<style>{font_face_css()}@media (prefers-color-scheme: dark){{text{{fill:#fff}}}}</style>"
        assert svg_to_png(svg(text("conv2d"), head=style)) == svg_to_png(svg(text("conv2d")))

    @pytest.mark.parametrize("words", ODD_TEXTS, ids=["markup", "scripts", "unprintable", "long"])
    def test_odd_text_is_drawn(self, words: str) -> None:
        assert size(svg_to_png(svg(text(words)), scale=1)) == (200, 100)

    def test_a_huge_picture_is_drawn_smaller(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rasterize, "MAX_PIXELS", 10_000)
        assert size(svg_to_png(svg("", width=20_000, height=5_000))) == (200, 50)
        assert size(svg_to_png(svg(""), width=50_000)) == (141, 71)

    def test_a_thin_picture_is_at_least_a_pixel_thick(self) -> None:
        assert size(svg_to_png(svg("", width=1, height=1e9))) == (1, 1_000_000)

    @pytest.mark.parametrize("wrong", [{"width": 0}, {"scale": -1.0}, {"scale": float("nan")}])
    def test_a_picture_of_no_size_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(BadArgument, match=r"pixels wide cannot be drawn\. Try"):
            svg_to_png(svg(""), **wrong)  # type: ignore[arg-type]


# PDF


@pytest.fixture
def pdf_maker() -> None:
    pytest.importorskip("reportlab")


@pytest.mark.usefixtures("pdf_maker")
class TestPdf:
    def test_it_is_one_page_of_three_quarters_of_a_point_per_pixel(self) -> None:
        pdf = svg_to_pdf(svg(text("conv2d")))
        assert len(re.findall(rb"/Type /Page\b", pdf)) == 1
        assert re.findall(rb"/MediaBox \[ ([\d. ]+) \]", pdf) == [b"0 0 150 75"]

    def test_a_huge_page_is_drawn_smaller(self) -> None:
        pdf = svg_to_pdf(svg("", width=40_000, height=10_000))
        assert re.findall(rb"/MediaBox \[ ([\d. ]+) \]", pdf) == [b"0 0 14400 3600"]

    def test_its_text_can_be_found(self) -> None:
        assert "(conv2d_3_7) Tj" in page(svg_to_pdf(svg(text("conv2d_3_7"))))

    def test_signs_beyond_latin_can_be_found(self) -> None:
        meanings = b"".join(stream for stream in streams(svg_to_pdf(svg(text("64×32 → µ")))) if b"CMap" in stream)
        assert {b"<00D7>", b"<2192>", b"<00B5>"} <= set(re.findall(rb"<[0-9A-F]{4}>", meanings))

    def test_the_fonts_are_ours_and_inside(self) -> None:
        pdf = svg_to_pdf(svg(text("a") + text("b", font_weight="600")))
        assert sorted(set(re.findall(rb"/BaseFont /(\S+)", pdf))) == [
            b"AAAAAA+torcheerSansBold",
            b"AAAAAA+torcheerSansRegular",
        ]
        assert pdf.count(b"/FontFile2 ") == 2

    def test_the_same_drawing_gives_the_same_bytes(self) -> None:
        assert svg_to_pdf(svg(text("conv2d"))) == svg_to_pdf(svg(text("conv2d")))

    def test_a_row_of_several_weights_is_anchored_as_a_whole(self) -> None:
        row = '<text x="100" y="40" text-anchor="middle"><tspan font-weight="600">one</tspan><tspan> two</tspan></text>'
        starts = [float(x) for x in re.findall(r"1 0 0 -1 (\S+) \S+ Tm", page(svg_to_pdf(svg(row))))]
        one, two = text_width("one", 20, bold=True), text_width(" two", 20)
        assert starts == [
            pytest.approx(100 - (one + two) / 2, abs=0.02),
            pytest.approx(100 + (one - two) / 2, abs=0.02),
        ]

    def test_lines_of_a_text_begin_where_they_say(self) -> None:
        lines = '<text x="10" y="40">one<tspan x="12" dy="18">two</tspan><tspan x="14" dy="18">three</tspan></text>'
        places = re.findall(r"1 0 0 -1 (\S+) (\S+) Tm", page(svg_to_pdf(svg(lines))))
        assert places == [("10", "40"), ("12", "58"), ("14", "76")]

    def test_opacity_is_kept_and_multiplied_on_the_way_down(self) -> None:
        shape = '<g opacity="0.5"><rect width="9" height="9" fill="#f00" fill-opacity="0.5"/></g>'
        assert b"/ca .25" in svg_to_pdf(svg(shape))

    def test_dashes_are_kept(self) -> None:
        assert "[4 3] 0 d" in page(svg_to_pdf(svg('<line x2="9" stroke="#000" stroke-dasharray="4 3"/>')))

    def test_what_a_group_changes_ends_with_it(self) -> None:
        box = '<rect width="9" height="9" fill="#ff0000"/>'
        drawn = page(svg_to_pdf(svg(f'{box}<g transform="translate(5,6)" fill="#00f"><circle r="4"/></g>{box}')))
        assert re.findall(r"(1 0 0|0 0 1) rg|(q\b|Q\b)", drawn.split("cm", 2)[2])[:4] == [
            ("1 0 0", ""),
            ("", "q"),
            ("0 0 1", ""),
            ("", "Q"),
        ]

    def test_a_link_works(self) -> None:
        drawn = svg_to_pdf(svg(f'<a href="https://example.org/?a=1&amp;b=2">{text("source")}</a>'))
        assert b"/URI (https://example.org/?a=1&b=2)" in drawn

    @pytest.mark.parametrize("href", ["#top", "javascript:alert(1)", "file:///etc/passwd"])
    def test_only_links_to_the_web_are_kept(self, href: str) -> None:
        assert b"/URI" not in svg_to_pdf(svg(f'<a href="{href}">{text("source")}</a>'))

    @pytest.mark.parametrize("words", ODD_TEXTS, ids=["markup", "scripts", "unprintable", "long"])
    def test_odd_text_is_drawn(self, words: str) -> None:
        assert svg_to_pdf(svg(text(words))).startswith(b"%PDF")

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            ("<image/>", "a PDF cannot show <image>, only: svg, g, a, "),
            ('<rect fill="url(#x)"/>', "cannot show the colour 'url"),
            ('<g transform="skewX(3)"/>', "cannot show the transform 'skewX"),
            ('<path d="M0 0 K1"/>', "cannot read 'K' in the path"),
        ],
    )
    def test_what_it_does_not_know_is_refused(self, body: str, complaint: str) -> None:
        with pytest.raises(BadArgument, match=re.escape(complaint)):
            svg_to_pdf(svg(body))


# Paths


def test_a_path_is_moves_lines_and_cubic_curves() -> None:
    assert list(steps("M1 2L3,4h-1v2q3 0 3 3z")) == [
        Move(1, 2),
        Curve((3, 4)),
        Curve((2, 4)),
        Curve((2, 6)),
        Curve((pytest.approx(4), 6, 5, pytest.approx(7), 5, 9)),  # type: ignore[arg-type]
        None,
    ]


@pytest.mark.parametrize(("large", "sweep", "peak"), [(0, 1, -10), (0, 0, 10), (1, 1, -10), (1, 0, 10)])
def test_half_a_circle_bends_to_the_side_it_says(large: int, sweep: int, peak: float) -> None:
    first, last = [step.points for step in steps(f"M0 0A10 10 0 {large} {sweep} 20 0") if isinstance(step, Curve)]
    assert first[-2:] == pytest.approx((10, peak))
    assert last[-2:] == pytest.approx((20, 0), abs=1e-9)


@pytest.mark.parametrize(("flags", "curves"), [("0 1", 1), ("1 1", 3)])
def test_a_large_arc_goes_the_long_way(flags: str, curves: int) -> None:
    assert len(list(steps(f"M0 0A10 10 0 {flags} 10 10"))) == 1 + curves


def test_a_circle_too_small_for_its_ends_grows() -> None:
    assert list(steps("M0 0A1 1 0 0 1 20 0"))[1].points[-2:] == pytest.approx((10, -10))  # type: ignore[union-attr]


@pytest.mark.parametrize("outline", ["10 20", "M1 2Z5 5", "M1", "S1 2 3 4", "M0 0L"])
def test_a_path_that_cannot_be_read_is_refused(outline: str) -> None:
    with pytest.raises(BadArgument, match=r"in the path .* known are M L H V C Q A Z"):
        list(steps(outline))


# What can be missing or wrong


@pytest.mark.parametrize(
    ("convert", "package", "module"), [(svg_to_png, "resvg-py", "resvg_py"), (svg_to_pdf, "reportlab", "reportlab")]
)
def test_a_missing_package_is_named(
    convert: object, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        TorcheerError, match=rf"needs {package}, which is not installed\. Try: pip install 'torcheer\[all\]'"
    ):
        convert(svg(""))  # type: ignore[operator]


@pytest.mark.parametrize("convert", [svg_to_png, svg_to_pdf])
@pytest.mark.parametrize("wrong", ["", "words", "<svg", "<p/>", svg("", width=0)])
def test_what_is_no_svg_is_refused(convert: object, wrong: str) -> None:
    pytest.importorskip("resvg_py")
    pytest.importorskip("reportlab")
    with pytest.raises(BadArgument, match="this is not an SVG that can be drawn: "):
        convert(wrong)  # type: ignore[operator]
