"""How much a log takes: histograms without empty bins, chunks, a budget."""
