"""Layers and passes: group operations into layers and label them."""
