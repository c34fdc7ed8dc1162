"""This process's side of `tl.live` and `tl.show`: what a viewer is offered, and what it may ask for."""
