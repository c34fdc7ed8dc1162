"""Tensors of a layer for its inspector: slices, statistics, and code that opens them."""
