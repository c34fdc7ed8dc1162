"""The recorder: torch calls become rows, rows become Ops."""
