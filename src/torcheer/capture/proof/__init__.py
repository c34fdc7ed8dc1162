"""Proof that a capture is right: every operation runs again, every edge matters."""
