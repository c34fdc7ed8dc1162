"""Batches of a session: the order of samples, what is left out of it, and streams that have no order."""
