"""Which values of two histories belong together, how far they may differ, and where they part."""
