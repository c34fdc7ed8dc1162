"""A network as people see it: its layers, projections, and their places in the scene."""
