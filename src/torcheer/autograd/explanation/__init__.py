"""A backward pass for people: as a list of steps, and as a printout."""
