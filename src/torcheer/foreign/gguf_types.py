"""The types of GGUF by their numbers: name, and how many numbers lie in a block of how many bytes."""

from __future__ import annotations

from typing import Final

GGUF_TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("float32", 1, 4), 1: ("float16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("int8", 1, 1), 25: ("int16", 1, 2), 26: ("int32", 1, 4), 27: ("int64", 1, 8), 28: ("float64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("bfloat16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}  # fmt: skip
