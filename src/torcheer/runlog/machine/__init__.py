"""Rows about the machine of a run: CPU, memory and GPUs."""
