"""Capture: run a model under a recorder and keep every operation."""
