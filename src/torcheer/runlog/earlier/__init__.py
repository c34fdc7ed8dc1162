"""Reads what runs left before they had a log."""
