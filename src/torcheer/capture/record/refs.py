"""Refs: integers that identify a tensor's value.

`node << SLOT_BITS | slot` is output `slot` of row `node`; `~k` is the k-th entry of `Recorder.stored`.
"""

SLOT_BITS = 20
SLOT_MASK = (1 << SLOT_BITS) - 1
