"""Follows a user's training loop: hooks on sampled passes, and values sent to a viewer."""
