"""eTorch's own names: `State`, `Network`, `NetView`, `Simulation`."""
