"""eTorch's API: `State`, `Network`, `NetView`, `Simulation`."""
