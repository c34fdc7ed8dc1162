"""Checks of a config, and completion of what it omits."""
