"""The training process's side of `tl.live` and `tl.show`: publishes states, receives requests."""
