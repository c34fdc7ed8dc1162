"""The studio's sources: a live host, a run directory, a recording, a recorded pass."""
