"""Configs that were written for TorchAssistant: their dialects, their habits, and what is filled in for them."""
