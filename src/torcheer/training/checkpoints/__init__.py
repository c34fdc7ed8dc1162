"""Checkpoints: all that a session's numbers depend on, in files that are there whole or not at all."""
