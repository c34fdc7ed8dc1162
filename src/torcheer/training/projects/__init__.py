"""New projects: a config and a data file that train at once."""
