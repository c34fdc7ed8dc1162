"""Recurrent nets, one step at a time."""
