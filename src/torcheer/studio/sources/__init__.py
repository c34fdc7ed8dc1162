"""The sources that the studio shows: a live host, a run directory, a recording, a recorded pass."""
