"""Readers of the logs of other programs: numbers, settings, and pictures and sounds in them."""
