"""Inference from the command line."""
