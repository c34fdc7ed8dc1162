"""The backward pass over a tape: gradients, Jacobians, gradient checks, hooks."""
