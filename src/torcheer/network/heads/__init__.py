"""Attention heads: their weights in a recorded pass, and the names of tokens at them."""
