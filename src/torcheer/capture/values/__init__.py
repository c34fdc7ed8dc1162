"""The values of a capture: what is kept, and how it stays what it was when it was recorded."""
