"""What a run leaves behind: rows, tables, samples, alerts."""
