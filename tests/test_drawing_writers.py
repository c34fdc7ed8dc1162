"""The font that ships, and drawings as PNG and PDF."""

from __future__ import annotations

import json
import re
import struct
import sys
import zlib
from base64 import a85decode

import pytest
import torch
from children import run_python
from seams import (
    FOLDER,
    Arrowheads,
    Group,
    Line,
    LineSample,
    Plus,
    Rect,
    Shape,
    Sheet,
    Strip,
    Text,
    font_face_css,
    font_files,
    text_width,
    write_pdf,
    write_png,
    write_svg,
)
from seams import pdf as pdf_writer
from seams import png as png_writer
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument, TorcheerError

SHIPPED: str = json.loads((FOLDER / "advances.json").read_text(encoding="utf-8"))["characters"]
ODD_TEXTS = [
    "<script>alert(\"x\")</script> 'q' &amp; ]]>",
    "🤖👩‍👩‍👧 卷积层 שלום עולם ▾▸ é\u0301\u0301",
    "\x00\x07\ud800\uffff\u202e\u200b\r\n\t",
    "a" * 10_000,
]


def sheet(*shapes: Shape, width: float = 200, height: float = 100, title: str = "model") -> Sheet:
    return Sheet(width, height, title, list(shapes))


def text(words: str, *, bold: bool = False, anchor: str = "") -> Text:
    return Text(10, 40, words, 20, "#000000", bold, anchor=anchor)


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


def texts(pdf: bytes) -> list[str]:
    """Every piece of text that is drawn, on the page or in a box that stands there."""
    drawn = "".join(stream.decode("latin-1") for stream in streams(pdf) if b"Tj" in stream)
    return [piece.replace("\\", "") for piece in re.findall(r"\((.*?)(?<!\\)\) Tj", drawn)]


def page(pdf: bytes) -> str:
    """What is drawn on the page itself, not in boxes that stand there in many places: only it is scaled."""
    return max(streams(pdf), key=lambda stream: stream.count(b" cm\n")).decode("latin-1")


def opacities(pdf: bytes, drawn: str) -> list[float]:
    """The opacities of fills, in the order in which `drawn` sets them."""
    named = dict(re.findall(rb"/(gRLs\d) << /ca (\S+) >>", re.sub(rb"\s+", b" ", pdf)))
    return [float(named[name.encode()]) for name in re.findall(r"/(gRLs\d) gs", drawn)]


# The font


@pytest.mark.parametrize("bold", [False, True])
def test_a_text_is_as_wide_as_the_font_itself_says(bold: bool) -> None:
    stringWidth = pytest.importorskip("reportlab.pdfbase.pdfmetrics").stringWidth
    pdf_writer.register_fonts()
    for character in SHIPPED:
        own = stringWidth(character, "torcheerBold" if bold else "torcheerRegular", 100)
        assert text_width(character, 100, bold) == pytest.approx(own, abs=0.1), character  # PDF counts in 1/1000 em


@pytest.mark.parametrize("bold", [False, True])
def test_a_text_is_drawn_as_wide_as_it_measures(bold: bool) -> None:
    pytest.importorskip("resvg_py")
    words = "AVATAR Type fi 64×32→µs "  # kerning, ligatures or arrows made of signs would show
    right = right_edge(write_png(sheet(text(words * 2 + "■", bold=bold), width=900, height=60), scale=1))
    left = right_edge(write_png(sheet(text("■", bold=bold), width=900, height=60), scale=1))
    assert right - left == pytest.approx(text_width(words * 2, 20, bold), abs=1.01)


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
    code = "import sys, torcheer.drawing.looks.font_metrics, torcheer.drawing.writers.pdf; print(*sys.modules)"
    loaded = run_python("-c", code).stdout.split()
    assert {"torch", "resvg_py", "reportlab"}.isdisjoint(loaded)


# PNG


@pytest.fixture
def png_maker() -> None:
    pytest.importorskip("resvg_py")


@pytest.mark.usefixtures("png_maker")
class TestPng:
    def test_it_has_two_pixels_per_unit(self) -> None:
        assert size(write_png(sheet())) == (400, 200)

    def test_it_is_as_large_as_asked(self) -> None:
        assert size(write_png(sheet(), scale=1.5)) == (300, 150)

    def test_its_text_shows_without_any_font_of_the_system(self) -> None:
        assert right_edge(write_png(sheet(text("conv2d")), scale=1)) > 60

    def test_a_strong_text_is_drawn_in_bold(self) -> None:
        assert write_png(sheet(text("conv2d", bold=True))) != write_png(sheet(text("conv2d")))

    @pytest.mark.parametrize("words", ODD_TEXTS, ids=["markup", "scripts", "unprintable", "long"])
    def test_odd_text_is_drawn(self, words: str) -> None:
        assert size(write_png(sheet(text(words)), scale=1)) == (200, 100)

    def test_a_huge_picture_is_drawn_smaller(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(png_writer, "MAX_PIXELS", 10_000)
        assert size(write_png(sheet(width=20_000, height=5_000))) == (200, 50)
        assert size(write_png(sheet(), scale=250)) == (141, 71)

    def test_a_thin_picture_is_at_least_a_pixel_thick(self) -> None:
        assert size(write_png(sheet(width=1, height=1e9))) == (1, 1_000_000)

    @pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
    def test_a_picture_of_no_size_is_refused(self, scale: float) -> None:
        with pytest.raises(BadArgument, match=r"scale=.* cannot be drawn\. Try a scale above 0"):
            write_png(sheet(), scale=scale)


# PDF


@pytest.fixture
def pdf_maker() -> None:
    pytest.importorskip("reportlab")


@pytest.mark.usefixtures("pdf_maker")
class TestPdf:
    def test_it_is_one_page_of_three_quarters_of_a_point_per_pixel(self) -> None:
        pdf = write_pdf(sheet(text("conv2d")))
        assert len(re.findall(rb"/Type /Page\b", pdf)) == 1
        assert re.findall(rb"/MediaBox \[ ([\d. ]+) \]", pdf) == [b"0 0 150 75"]

    def test_a_huge_page_is_drawn_smaller(self) -> None:
        pdf = write_pdf(sheet(width=40_000, height=10_000))
        assert re.findall(rb"/MediaBox \[ ([\d. ]+) \]", pdf) == [b"0 0 14400 3600"]

    def test_a_page_is_as_large_as_its_drawing_is_in_svg(self) -> None:
        drawing = tl.draw(nn.Sequential(nn.Linear(5, 2)), torch.ones(1, 5))
        (width, height) = re.findall(r'width="([\d.]+)" height="([\d.]+)" font', drawing.svg())[0]
        points = [float(side) for side in re.findall(rb"/MediaBox \[ 0 0 (\S+) (\S+) \]", drawing.pdf())[0]]
        assert points == pytest.approx([0.75 * float(width), 0.75 * float(height)], abs=0.1)

    def test_its_text_can_be_found(self) -> None:
        assert "(conv2d_3_7) Tj" in page(write_pdf(sheet(text("conv2d_3_7"))))

    def test_every_text_of_a_drawing_can_be_found(self) -> None:
        model = nn.Sequential(*(nn.Linear(5, 5) if n % 2 else nn.ReLU() for n in range(20)))
        drawing = tl.draw(model, torch.ones(1, 5), depth="all", style="light")
        shown = set(re.findall("<text [^>]*>([ -;=-~]+)</text>", drawing.svg()))
        assert shown >= {"Sequential", "input", "Linear", "ReLU", "8"}
        assert set(texts(drawing.pdf())) >= shown

    def test_signs_beyond_latin_can_be_found(self) -> None:
        meanings = b"".join(stream for stream in streams(write_pdf(sheet(text("64×32 → µ")))) if b"CMap" in stream)
        assert {b"<00D7>", b"<2192>", b"<00B5>"} <= set(re.findall(rb"<[0-9A-F]{4}>", meanings))

    def test_the_fonts_are_ours_and_inside(self) -> None:
        pdf = write_pdf(sheet(text("a"), text("b", bold=True)))
        assert sorted(set(re.findall(rb"/BaseFont /(\S+)", pdf))) == [
            b"AAAAAA+torcheerSansBold",
            b"AAAAAA+torcheerSansRegular",
        ]
        assert pdf.count(b"/FontFile2 ") == 2

    def test_the_same_drawing_gives_the_same_bytes(self) -> None:
        assert write_pdf(sheet(text("conv2d"))) == write_pdf(sheet(text("conv2d")))

    def test_it_is_called_as_what_it_shows(self) -> None:
        assert b"/Title (ResNet)" in write_pdf(sheet(title="ResNet"))

    @pytest.mark.parametrize(("anchor", "share"), [("", 0), ("middle", 0.5), ("end", 1)])
    def test_a_text_stands_where_its_anchor_says(self, anchor: str, share: float) -> None:
        drawn = page(write_pdf(sheet(text("conv2d", anchor=anchor))))
        x, y = re.findall(r"1 0 0 1 (\S+) (\S+) Tm", drawn)[0]
        assert float(x) == pytest.approx(10 - share * text_width("conv2d", 20), abs=0.02)
        assert float(y) == 60  # from below: the page is 100 high

    def test_white_space_is_as_in_a_browser(self) -> None:
        assert "(one two) Tj" in page(write_pdf(sheet(text(" one \n  two "))))

    def test_opacity_is_kept_and_ends_with_its_shape(self) -> None:
        pdf = write_pdf(sheet(Rect(9, 9, "#ff0000", fill_opacity=0.25), Rect(9, 9, "#ff0000")))
        assert opacities(pdf, page(pdf)) == [0.25, 1]

    def test_dashes_are_kept_and_end_with_their_line(self) -> None:
        dashed, solid = (
            Line([[(0, 9), (9, 9)]], "#000000", "", 1.2, (4, 3)),
            Line([[(0, 9), (9, 9)]], "#000000", "", 1.2),
        )
        assert re.findall(r"\[[\d ]*\] 0 d", page(write_pdf(sheet(dashed, solid)))) == ["[4 3] 0 d", "[] 0 d"]

    def test_a_shape_without_border_or_fill_is_drawn_without(self) -> None:
        shapes = [Rect(9, 9, "none", "#000000"), Rect(9, 9, "#000000"), Rect(9, 9, "#00ff00", "#000000")]
        assert re.findall(r"re (\w)\*?$", page(write_pdf(sheet(*shapes))), re.MULTILINE) == ["S", "f", "B"]

    def test_a_group_moves_what_is_in_it(self) -> None:
        drawn = page(write_pdf(sheet(Group(30, 20, (Group(5, 5, (Rect(9, 9, "#ff0000", x=1, y=2),)),)))))
        assert "n 36 64 9 9 re f" in drawn  # 30 + 5 + 1 across; 100 - 20 - 5 - 2 - 9 from below

    def test_a_box_that_stands_in_many_places_is_in_the_file_once(self) -> None:
        box: tuple[Shape, ...] = (Rect(40, 10, "#ff0000", "#000000", radius=4), text("conv2d"))
        few, many = (write_pdf(sheet(*(Group(n, n, box) for n in range(count)))) for count in (6, 60))
        assert texts(few) == texts(many) == ["conv2d"]
        assert [len(re.findall("Do$", page(pdf), re.MULTILINE)) for pdf in (few, many)] == [6, 60]

    def test_a_box_used_again_brings_its_own_paint(self) -> None:
        box: tuple[Shape, ...] = (Rect(40, 10, "#ff0000"),)
        red = Rect(9, 9, "#ff0000")
        pdf = write_pdf(sheet(red, *(Group(n, 20, box) for n in range(6)), Rect(9, 9, "#0000ff"), red))
        form = next(stream for stream in streams(pdf) if b" re f" in stream and b"Do" not in stream)
        assert b"1 0 0 rg" in form
        assert re.findall("^(.*) rg$", page(pdf), re.MULTILINE) == ["1 0 0", "0 0 1", "1 0 0"]

    def test_a_box_used_again_is_not_as_transparent_as_what_is_below(self) -> None:
        box: tuple[Shape, ...] = (Rect(40, 10, "#ff0000"),)
        frame = Rect(90, 90, "#0000ff", fill_opacity=0.25)
        pdf = write_pdf(sheet(frame, *(Group(n, 20, box) for n in range(6))))
        assert opacities(pdf, page(pdf).partition(" Do")[0]) == [0.25, 1]

    @pytest.mark.parametrize("words", ODD_TEXTS, ids=["markup", "scripts", "unprintable", "long"])
    def test_odd_text_is_drawn(self, words: str) -> None:
        assert write_pdf(sheet(text(words), title=words)).startswith(b"%PDF")

    @pytest.mark.parametrize("colour", ["gold", "#fd0", "#ffdd00"])
    def test_colours_may_be_names_or_short(self, colour: str) -> None:
        assert re.search(r"^1 .8\d+ 0 rg$", page(write_pdf(sheet(Rect(9, 9, colour)))), re.MULTILINE)

    def test_a_colour_it_does_not_know_is_refused(self) -> None:
        with pytest.raises(BadArgument, match=r"cannot show the colour 'greenish'\. Try: '#rrggbb' or a colour's name"):
            write_pdf(sheet(Rect(9, 9, "greenish")))


# Shapes in both


CORNER = Line([[(20, 10), (20, 50), (60, 50)]], "#000000", "edge", 1.2)


def pdf_numbers(drawn: str) -> list[float]:
    """The coordinates of the only path on a page."""
    steps = re.findall(r"((?:-?[\d.]+\s)+)[mlc]\b", drawn)
    return [float(value) for step in steps for value in step.split()]


@pytest.mark.usefixtures("pdf_maker")
def test_the_corner_of_an_edge_is_the_same_curve_in_svg_and_pdf() -> None:
    assert 'd="M20 10L20 45Q20 50 25 50L60 50"' in write_svg(sheet(CORNER))
    (curve,) = re.findall(r"20 55 l\s(.*) c\s60 50 l", page(write_pdf(sheet(CORNER))))
    assert [float(value) for value in curve.split()] == pytest.approx([20, 51.667, 21.667, 50, 25, 50], abs=0.001)


def test_every_shape_is_drawn_alike_in_png_and_pdf() -> None:
    """Each shape alone on a page fills the same rectangle in both, to a pixel."""
    pytest.importorskip("resvg_py")
    pytest.importorskip("reportlab")
    shapes: list[tuple[Shape, tuple[float, float, float, float]]] = [
        (Rect(30, 20, "#000000", x=5, y=6, radius=4), (5, 6, 35, 26)),
        (Arrowheads([((20, 30), (17, 24), (23, 24))], "#000000", ""), (17, 24, 23, 30)),
        (Strip(24, "#000000", "#000000", ""), (0.5, 0.5, 5, 23.5)),
        (Plus(20, 30, 4, "#000000"), (16, 26, 24, 34)),
        (LineSample("#000000", "", 2), (0, 6, 16, 6)),
        (CORNER, (20, 10, 60, 50)),
    ]
    for shape, (left, top, right, bottom) in shapes:
        numbers = pdf_numbers(page(write_pdf(sheet(shape))))
        across, up = numbers[::2], numbers[1::2]
        assert [min(across), 100 - max(up), max(across), 100 - min(up)] == pytest.approx(
            [left, top, right, bottom], abs=0.01
        ), shape
        drawn = rows(write_png(sheet(shape), scale=1))
        filled = [number for number, row in enumerate(drawn) if any(row)]
        assert (filled[0], filled[-1] + 1) == (pytest.approx(top, abs=1.01), pytest.approx(bottom, abs=1.01)), shape


# What can be missing


@pytest.mark.parametrize(
    ("write", "package", "module"), [(write_png, "resvg-py", "resvg_py"), (write_pdf, "reportlab", "reportlab")]
)
def test_a_missing_package_is_named(write: object, package: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        TorcheerError, match=rf"needs {package}, which is not installed\. Try: pip install 'torcheer\[all\]'"
    ):
        write(sheet())  # type: ignore[operator]
