"""Many runs of one config: a grid of values, a queue of processes or Ray Tune, one run directory each."""
