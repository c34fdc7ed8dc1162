"""Writes a small set of digits in the format of MNIST, where torchvision looks for it: no download, nothing real.

python make_digits.py data 640 160
"""

import struct
import sys
from pathlib import Path

import numpy as np

# Three columns and five rows of each digit.
SHAPES = {
    0: "111 101 101 101 111", 1: "010 110 010 010 111", 2: "111 001 111 100 111", 3: "111 001 111 001 111",
    4: "101 101 111 001 001", 5: "111 100 111 001 111", 6: "111 100 111 101 111", 7: "111 001 010 010 010",
    8: "111 101 111 101 111", 9: "111 101 111 001 111",
}  # fmt: skip


def main(folder="data", train=640, test=160):
    """Write both parts."""
    raw = Path(folder) / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for prefix, count, seed in (("train", int(train), 0), ("t10k", int(test), 1)):
        images, labels = digits(count, np.random.default_rng(seed))
        write(raw / f"{prefix}-images-idx3-ubyte", images)
        write(raw / f"{prefix}-labels-idx1-ubyte", labels)


def digits(count, random):
    """Images of 28 × 28 bytes, each digit somewhere near the middle, and what they show."""
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 40, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels):
        shape = np.array([[int(cell) for cell in row] for row in SHAPES[int(label)].split()])
        top, left = random.integers(2, 6), random.integers(5, 11)
        image[top : top + 20, left : left + 12] |= (np.kron(shape, np.ones((4, 4))) * 200).astype(np.uint8)
    return images, labels


def write(path, array):
    """An IDX file: two zeros, the type (8: bytes), the number of axes, their lengths, the bytes."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + array.tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
