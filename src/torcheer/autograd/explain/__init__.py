"""A backward pass for readers: as a list of steps, as a printout."""
