"""A network as people see it: its layers, what connects them, where they stand."""
