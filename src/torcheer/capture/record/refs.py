"""A ref is an int that names a tensor's value.

`node << SLOT_BITS | slot` is output `slot` of row `node`; `~k` is the k-th parameter or buffer that was met.
"""

SLOT_BITS = 20
SLOT_MASK = (1 << SLOT_BITS) - 1
