"""Logged images as pixels and PNG files, logged sound as WAV."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from seams import image_note, pixels_of, png_bytes, sound_note, sound_of, wav_bytes

from torcheer.errors import ArchiveDamaged


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_holds_every_pixel(channels: int) -> None:
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png_bytes(pixels))))
    assert np.array_equal(read.reshape(pixels.shape), pixels)


@pytest.mark.parametrize(("layout", "axes"), [("HWC", (0, 1, 2)), ("CHW", (2, 0, 1))])
def test_channels_first_and_last_give_the_same_pixels(layout: str, axes: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    assert np.array_equal(pixels_of(pixels.transpose(axes), layout), pixels)


def test_floats_are_bytes_from_0_to_255_and_what_is_beyond_is_clipped_and_said() -> None:
    numbers = np.array([[0.0, 0.5, 1.0, 2.0, -1.0, np.nan, np.inf]], np.float32)
    assert pixels_of(numbers, "HW").ravel().tolist() == [0, 128, 255, 255, 0, 0, 255]
    assert image_note(numbers) == "2 NaN or infinite; numbers from -1 to 2, shown clipped to 0 to 1"
    assert image_note(np.clip(numbers[:, :3], 0, 1)) == image_note(np.zeros((2, 2), np.uint8)) == ""


def test_a_batch_is_a_grid_with_transparent_gaps() -> None:
    images = np.full((5, 1, 4, 6), 200, np.uint8)
    grid = pixels_of(images, "NCHW")
    assert (
        grid.shape[2] == 4
        and (grid[..., 3] == 255).sum() == 5 * 4 * 6
        and (grid[grid[..., 3] == 255][:, 0] == 200).all()
    )
    assert pixels_of(images[:1], "NCHW").shape == (4, 6, 1)


def test_a_record_that_lies_about_the_axes_is_refused() -> None:
    for layout in ("HWC", "", "CC", "NCHW"):
        with pytest.raises(ArchiveDamaged):
            pixels_of(np.zeros((4, 4), np.uint8), layout)
    with pytest.raises(ArchiveDamaged, match="7 channels"):
        pixels_of(np.zeros((4, 4, 7), np.uint8), "HWC")


def test_sound_is_sixteen_bits_per_channel() -> None:
    stereo = np.array([[0.0, 0.5, 1.0], [-1.0, 2.0, np.nan]])
    with wave.open(io.BytesIO(wav_bytes(stereo, 8000))) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (2, 8000, 3)
        read = np.frombuffer(file.readframes(3), "<i2").reshape(3, 2).T
    assert read.tolist() == [[0, 16384, 32767], [-32767, 32767, 0]]
    assert sound_note(stereo) == "1 NaN or infinite; up to 2, clipped to 1"
    assert sound_of(np.array([1 << 16, -(1 << 16)], np.int32)).tolist() == [[1, -1]]
    assert sound_of(np.array([5, -5], np.int16)).tolist() == [[5, -5]]
