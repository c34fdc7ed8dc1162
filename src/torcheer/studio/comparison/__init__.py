"""Two checkpoints, model files or recorded passes side by side: what differs, layer by layer."""
