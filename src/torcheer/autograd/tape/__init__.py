"""The tape: records a node for every operation on a traced tensor while ordinary torch code runs."""
