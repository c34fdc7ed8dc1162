"""Where edits apply while a model runs: at modules and operations, to heads and positions."""
