"""Transformers in a history: values by role, attention operations."""
