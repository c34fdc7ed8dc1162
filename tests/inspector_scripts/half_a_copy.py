"""Writes three records, and dies in the middle of a fourth."""

import sys
import time

import numpy as np
from inspector_spine import offer

from torcheer.wire.ring import Ring

ring = Ring(1 << 20, policy=sys.argv[1])
for step in range(3):
    offer(ring, np.full(1000, step, np.float32), step, layer=f"layer{step}")


def fill(view):
    view[: len(view) // 2] = b"\xff" * (len(view) // 2)
    print(ring.fd, flush=True)
    time.sleep(60)


about = {"layer": "layer2", "variable": "output", "item": -1, "type": "float32", "shape": (1000,), "step": 3}
ring.offer(about, 4000, fill)
