"""TorchAssistant's modules under their own names: write `torcheer_originals.torchassistant` for `torchassistant`.

A config that says `torchassistant.…` is understood as it is. Most names are those of `torcheer.training`; what is
defined here is what only TorchAssistant's users need.
"""
