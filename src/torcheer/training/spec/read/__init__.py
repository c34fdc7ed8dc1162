"""From a config's values to a description in one dialect."""
