"""Control of a running loop from a page: counters, parameters, actions."""
