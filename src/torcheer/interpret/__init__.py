"""Questions about a model's inside: the logit lens, patching sweeps, attention weights."""
