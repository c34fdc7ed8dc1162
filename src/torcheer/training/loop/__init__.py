"""The training loop: forward, backward, updates, evaluation."""
