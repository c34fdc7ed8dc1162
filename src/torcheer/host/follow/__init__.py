"""A training loop followed from outside: hooks on sampled passes, values on their way to a viewer."""
