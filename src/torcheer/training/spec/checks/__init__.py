"""All that can be wrong with a config, and what may be left out of it."""
