"""The tape: a node for every operation on a traced tensor, while torch code runs as usual."""
