"""What a session shows and writes while it trains: progress, metrics, captures, watches."""
