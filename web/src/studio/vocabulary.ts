// Written by `python web/message_types.py` from src/torcheer/vocabulary: change it there.

/** Types of floating-point numbers: bits of the significand, and the exponent of the smallest step. */
export const FLOATS: Record<string, [number, number]> = {
  float16: [11, -24],
  float32: [24, -149],
  float64: [53, -1074],
  bfloat16: [8, -133],
  float8_e4m3fn: [4, -9],
  float8_e5m2: [3, -16],
  float8_e4m3fnuz: [4, -10],
  float8_e5m2fnuz: [3, -17],
  float4_e2m1fn_x2: [2, -1],
};
