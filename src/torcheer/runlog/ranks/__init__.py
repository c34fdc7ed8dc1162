"""A run of several processes: their logs merged, and compared."""
