"""Logs that others wrote, read as runs and never written to: TensorBoard's event files, Lightning's CSV."""
