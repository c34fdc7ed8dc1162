"""The training loop: batches, forward, backward, updates, evaluation."""
