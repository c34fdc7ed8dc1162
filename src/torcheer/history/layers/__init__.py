"""Which operations are passes of one layer, and what everything is called."""
