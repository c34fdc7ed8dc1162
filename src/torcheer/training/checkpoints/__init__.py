"""Checkpoints: everything that a session's results depend on, written atomically."""
