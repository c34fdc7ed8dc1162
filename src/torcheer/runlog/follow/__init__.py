"""Following a run's log as it grows, in bounded memory."""
