"""Validation of a capture: every operation is replayed bit for bit, every edge is tested."""
