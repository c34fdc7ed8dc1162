"""Commands that belong to no single room: drawing a model, shell completion, results as JSON."""
