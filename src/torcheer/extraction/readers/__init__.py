"""Readers of a stored extraction: a dataset, a shuffled stream, the strongest samples."""
