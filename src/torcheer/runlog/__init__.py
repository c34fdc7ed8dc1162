"""What a run leaves on disk and shows: tables and their rows, watched samples, alerts."""
