"""Observers of a session while it trains: progress, metrics, captures, watches."""
