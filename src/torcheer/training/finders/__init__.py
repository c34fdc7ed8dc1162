"""Short trials before training: a learning rate, a batch size, and whether one batch can be learned."""
