"""A model file of another program as a source: its tensors as a network, a table, its graph."""
