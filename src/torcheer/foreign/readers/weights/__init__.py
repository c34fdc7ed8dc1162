"""Readers of model files: tensors, where they lie, and graphs."""
