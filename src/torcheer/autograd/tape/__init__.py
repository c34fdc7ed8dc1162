"""Recording: ordinary torch code runs, and every operation on a traced tensor leaves a node."""
