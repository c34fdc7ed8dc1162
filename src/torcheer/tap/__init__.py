"""Hooks on a model for sampled steps: values on their way off the device."""
