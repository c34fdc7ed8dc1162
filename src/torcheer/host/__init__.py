"""The training process's side of `tl.live` and `tl.show`: publishes states to a viewer, receives its requests."""
