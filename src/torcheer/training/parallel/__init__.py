"""Training on several ranks: their process group, what they agree on, who takes which samples."""
