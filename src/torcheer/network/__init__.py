"""A network as people see it: its layers, the projections between them, and their places in the scene."""
