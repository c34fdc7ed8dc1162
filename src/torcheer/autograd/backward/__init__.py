"""The backward pass over a tape, and what is made of it: gradients, Jacobians, checks."""
